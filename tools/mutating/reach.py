"""Finds what each test runs: its lines in the modules that are tried, and its processor time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import coverage
import pytest


@dataclass
class Reach:
    """What the tests of a part run."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Processor time of each test that passes, by its name."""
    tests: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    """Which of them run a line, by path and number."""
    failed: list[str] = field(default_factory=list)
    """Tests that fail without any fault put in: nothing can be said with them."""

    def of_lines(self, path: str, lines: Iterable[int], most_secs: float = math.inf) -> list[str]:
        """Returns the tests that run one of these lines, the quickest first, as many as take so long together."""
        found: set[str] = set()
        for line in lines:
            found |= self.tests.get((path, line), set())
        return self._quickest(found, most_secs)

    def of_module(self, path: str, most_secs: float = math.inf) -> list[str]:
        """Returns the tests of the files in which any runs a line of a module, so chosen; all, where it has no code."""
        names = {name for (of, _), found in self.tests.items() if of == path for name in found} or {*self.seconds}
        files = {name.partition("::")[0] for name in names}
        return self._quickest({name for name in self.seconds if name.partition("::")[0] in files}, most_secs)

    def _quickest(self, found: set[str], most_secs: float) -> list[str]:
        names = sorted(found, key=lambda name: (self.seconds[name], name))
        together = list(accumulate(self.seconds[name] for name in names))
        return [name for name, secs in zip(names, together, strict=True) if secs <= most_secs or name == names[0]]

    def wall_secs(self, names: Iterable[str]) -> float:
        """Returns the seconds after which tests that wait for something are given up; what computes is ended before."""
        return 300 + 30 * sum(self.seconds[name] for name in names)


def run_item(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Runs a test; returns whether it failed."""
    before = item.session.testsfailed
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return item.session.testsfailed > before


def measure(root: Path, paths: Sequence[str], items: Sequence[pytest.Item], most_secs: float) -> Reach:
    """Runs each test once; those that take longer than `most_secs` are left out of what is returned."""
    reach = Reach()
    traced = coverage.Coverage(data_file=None, config_file=False, include=[str(root / path) for path in paths])
    traced.set_option("run:core", "ctrace")  # that of Python 3.12 and later knows nothing of contexts
    traced.set_option("run:disable_warnings", ["no-data-collected"])  # of a module of constants alone
    traced.start()
    for item, following in zip(items, [*items[1:], None], strict=True):
        traced.switch_context(item.nodeid)
        began = time.process_time()
        failed = run_item(item, following)
        seconds = time.process_time() - began
        if failed:
            reach.failed.append(item.nodeid)
        elif seconds <= most_secs:
            reach.seconds[item.nodeid] = seconds
    traced.stop()
    data = traced.get_data()
    for path in paths:
        for line, names in data.contexts_by_lineno(str(root / path)).items():
            reach.tests[path, line] = {*names} & reach.seconds.keys()
    return reach
