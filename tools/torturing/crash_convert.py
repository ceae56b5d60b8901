"""What convert, follow and the mirror write: outputs, archives, lineage, the state, links."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD
from ms_summary_bridge.mirror.home import open_home
from ms_summary_bridge.mirror.mirror import Mirror
from ms_summary_bridge.runs.report import Report
from tests.log_samples import MINDSPORE_LOGS, TENSORBOARD_LOGS, LogMaker
from torturing.disk import Crash
from torturing.reading import visible
from torturing.scenario import Mark, Scenario

Values = Counter[tuple[Any, ...]]

_SHARES = (0.4, 0.8, 1.0)
_OLD = 1_700_000_100


def record_ends(data: bytes) -> list[int]:
    """Returns where the records of a file end; its size alone where it is no file of records."""
    ends, at = [], 0
    while at + 12 <= len(data):
        at += 16 + int.from_bytes(data[at : at + 8], "little")
        if at > len(data):
            return [len(data)]
        ends.append(at)
    return ends if ends and ends[-1] == len(data) else [len(data)]


def _order(name: Path) -> tuple[str, str]:
    """Sessions follow each other by the seconds in their files' names, whatever the directory."""
    return name.name.partition("_")[0], str(name)


class GrowingSource:
    """A log that comes into being in stages, in a directory."""

    def __init__(self, directory: Path, make: LogMaker, *, is_together: bool = False) -> None:
        self.directory = directory
        whole = directory.with_name(directory.name + ".whole")
        make(whole)
        self._files = {
            path.relative_to(whole): path.read_bytes() for path in sorted(whole.rglob("*")) if path.is_file()
        }
        shutil.rmtree(whole)
        self._is_together = is_together  # else each file begins where the one before has ended

    @property
    def stages(self) -> range:
        return range(len(_SHARES))

    def grow(self, stage: int) -> None:
        """Lets the files have what they have at a stage: whole records, one file after the other."""
        groups = [[(name, end) for end in record_ends(self._files[name])] for name in sorted(self._files, key=_order)]
        if not self._is_together:
            groups = [[pair for group in groups for pair in group]]
        sizes: dict[Path, int] = {}
        for group in groups:
            sizes.update(group[: max(1, round(len(group) * _SHARES[stage]))])
        for name, size in sizes.items():
            data = self._files[name]
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data[:size])
            os.utime(path, (_OLD, _OLD))


def lasting(values: Values) -> Values:
    """Returns what stays once it is there: lineage is told again as more of it is known."""
    return Counter({key: n for key, n in values.items() if key[1] != "lineage" and "_hparams_" not in key[1]})


class _Conversion(Scenario):
    """A source that grows and is converted again and again; `to` is the viewer."""

    make: ClassVar[LogMaker]
    to: ClassVar[str]
    is_together: ClassVar[bool]

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.source = GrowingSource(base / "source", type(self).make, is_together=self.is_together)
        self.out = str(self.root / "out")
        self.format = TENSORBOARD if self.to == "tensorboard" else MINDSPORE
        self.expected: Values = Counter()

    def convert(self, *, force: bool = False) -> Report:
        return convert_logdir(str(self.source.directory), self.out, to=self.to, force=force)

    def see(self) -> Values:
        return visible(self.out, self.format)

    def write(self, mark: Mark) -> None:
        for stage in self.source.stages:
            self.source.grow(stage)
            self._must_not_fail(self.convert())
            mark(("shown", lasting(self.see())))
        self.expected = self.see()

    def check(self, crash: Crash) -> Iterator[str]:
        seen = self.see()
        for kind, values in crash.promised[-1:]:
            if kind == "shown" and (lost := values - lasting(seen)):
                yield f"{sum(lost.values())} values of {sum(values.values())} that were there are gone: {_some(lost)}"
        if doubled := Counter(
            {key: n - self.expected[key] for key, n in lasting(seen).items() if n > self.expected[key]}
        ):
            yield f"values are there twice, or were never written: {_some(doubled)}"
        yield from self.go_on()

    def go_on(self) -> Iterator[str]:
        report = self.convert()
        if failed := [*([report.failed] if report.failed else []), *(run.failed for run in report.failures)]:
            yield f"the next conversion fails: {failed}"
            return
        yield from self._compare()

    def _compare(self) -> Iterator[str]:
        seen = self.see()
        if lost := self.expected - seen:
            yield f"after the next conversion {sum(lost.values())} values are missing: {_some(lost)}"
        if more := seen - self.expected:
            yield f"after the next conversion {sum(more.values())} values are too many: {_some(more)}"
        verified = verify_logdirs(str(self.source.directory), self.out)
        if not verified.is_equal:
            yield f"after the next conversion verify finds {verified.only_a} {verified.only_b} " + str(
                [run.differences[:2] for run in verified.runs if run.differences]
            )

    @staticmethod
    def _must_not_fail(report: Report) -> None:
        assert not report.failed, report.failed
        assert not report.failures, [run.failed for run in report.failures]


def _some(values: Values) -> str:
    return "; ".join(str(key)[:90] for key in [*values][:2])


class _ForcedAnew(_Conversion):
    """The same log is converted a second time from the start."""

    def write(self, mark: Mark) -> None:
        self.source.grow(self.source.stages[-1])
        self._must_not_fail(self.convert())
        mark(("shown", lasting(self.see())))
        mark(("nothing", None))
        self._must_not_fail(self.convert(force=True))
        self.expected = self.see()
        mark(("shown", lasting(self.expected)))

    def go_on(self) -> Iterator[str]:
        self._must_not_fail(self.convert(force=True))
        yield from self._compare()


class _Followed(_Conversion):
    """A source that grows under a follower."""

    def write(self, mark: Mark) -> None:
        def told(report: Report) -> None:
            self._must_not_fail(report)
            mark(("shown", lasting(self.see())))

        self._follow(list(self.source.stages), told)
        self.expected = self.see()

    def _follow(self, stages: list[int], told: Callable[[Report], None]) -> None:
        stop = threading.Event()
        left = [*stages]
        self.source.grow(left.pop(0))

        def wait(_: float) -> None:
            if left:
                self.source.grow(left.pop(0))
            else:
                stop.set()

        follow_logdir(str(self.source.directory), self.out, to=self.to, stop=stop, wait=wait, on_round=told)

    def go_on(self) -> Iterator[str]:
        failed: list[str] = []

        def told(report: Report) -> None:
            failed.extend([*([report.failed] if report.failed else []), *(run.failed for run in report.failures)])

        self._follow([self.source.stages[-1]], told)
        if failed:
            yield f"the next follower fails: {failed}"
            return
        yield from self._compare()


class _Mirrored(_Conversion):
    """A logdir that grows, and what a viewer is shown of it: converted runs in the place of what it cannot read."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self._shown = ""
        self._said: list[str] = []

    def _rounds(self) -> None:
        viewer = "tensorboard" if self.format == TENSORBOARD else "mindinsight"
        home = open_home(str(self.source.directory), str(self.root / "cache"), viewer=viewer)
        self._shown = home.logdir if self.format == TENSORBOARD else home.base
        mirror = Mirror(home, self.format, 1 << 40, self._said.append, retry_secs=0.0)
        handle = home.lock()
        assert handle is not None
        try:
            for _ in range(6):
                if not mirror.round():
                    break
        finally:
            os.close(handle)

    def see(self) -> Values:
        return visible(self._shown, self.format) if self._shown and os.path.isdir(self._shown) else Counter()

    def write(self, mark: Mark) -> None:
        for stage in self.source.stages:
            self.source.grow(stage)
            self._rounds()
            mark(("shown", lasting(self.see())))
        self.expected = self.see()
        assert not self._faults(), self._said

    def _faults(self) -> list[str]:
        return [line for line in self._said if not line.startswith("not exact in MindInsight")]

    def check(self, crash: Crash) -> Iterator[str]:
        """A mirror promises nothing of its cache after a loss of power: it is made again."""
        seen = self.see()
        for kind, values in crash.promised[-1:]:
            if kind == "shown" and not crash.is_power and (lost := values - lasting(seen)):
                yield f"{sum(lost.values())} values of {sum(values.values())} that were shown are gone: {_some(lost)}"
        self._said.clear()
        self._rounds()
        if self._faults():
            yield f"the next mirror says {self._faults()}"
        seen = self.see()
        if seen != self.expected:
            yield f"the next mirror lacks {_some(self.expected - seen)} and has too much {_some(seen - self.expected)}"


def _scenario(kind: type[_Conversion], maker: LogMaker, viewer: str) -> Callable[[Path], Scenario]:
    is_together = maker in (MINDSPORE_LOGS["ranks and other files"], MINDSPORE_LOGS["two writers at once"])
    return type(kind.__name__, (kind,), {"make": staticmethod(maker), "to": viewer, "is_together": is_together})


_TO_TENSORBOARD = (
    "a real training",
    "every kind under one tag",
    "a restart",
    "two writers at once",
    "ranks and other files",
)
_TO_MINDSPORE = ("every plugin", "resumed twice", "a tree with other files")

CONVERSIONS: dict[str, Callable[[Path], Scenario]] = {
    **{
        f"convert to TensorBoard: {log}": _scenario(_Conversion, MINDSPORE_LOGS[log], "tensorboard")
        for log in _TO_TENSORBOARD
    },
    **{
        f"convert to MindSpore, with an archive: {log}": _scenario(_Conversion, TENSORBOARD_LOGS[log], "mindinsight")
        for log in _TO_MINDSPORE
    },
    "convert --force over an earlier one": _scenario(_ForcedAnew, MINDSPORE_LOGS["a real training"], "tensorboard"),
    "follow: a restart": _scenario(_Followed, MINDSPORE_LOGS["a restart"], "tensorboard"),
    "follow to MindSpore: every plugin": _scenario(_Followed, TENSORBOARD_LOGS["every plugin"], "mindinsight"),
    "the mirror for TensorBoard": _scenario(_Mirrored, MINDSPORE_LOGS["a real training"], "tensorboard"),
    "the mirror for MindInsight": _scenario(_Mirrored, TENSORBOARD_LOGS["a tree with other files"], "mindinsight"),
}
