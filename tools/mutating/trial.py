"""Tries mutants: each in a fork of a process that has imported all, and has collected the tests.

A function gets the code of the mutant; the tests that run the changed line are then run, the quickest first, until one
fails. What runs when a module is imported (constants, defaults) is tried in a fork of a process that has imported all
but the package.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

import hypothesis
import pytest

from mutating.forks import in_fork
from mutating.mutants import Mutant
from mutating.reach import Reach, measure, run_item

_EXAMPLES, _MORE_EXAMPLES = 25, 100
"""That hypothesis makes for a property; and those it makes where all tests have passed with these."""
_OFTEN, _LEAST_SECS = 5.0, 1.0
"""Times its processor time without a fault, and seconds more, that a test may take: beyond that the mutant hangs."""
_IMPORT_SECS = 15.0
"""The same where nothing is imported yet: a test may be the first that needs TensorBoard."""
ENOUGH_SECS = 3.0
"""Processor time of all tests that are asked about one mutant, the quickest first."""
_MOST_OF_IT = 0.5
"""How much of that one test may take."""
_ARGUMENTS = (
    "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider", "-p", "no:xdist",
    "-p", "no:faulthandler", "-o", "timeout=0", "-o", "tmp_path_retention_policy=none",
    "-m", "not (mindspore or mindinsight or mindformers or trackers or wandb or slow)",
)  # fmt: skip

Tell = Callable[[str], None]
"""Gets a line about how far it is."""


class UnreadyError(Exception):
    """The tests fail without a fault put in, or there are none."""


def try_mutants(
    root: Path, mutants: Sequence[Mutant], tests: Sequence[str], tell: Tell, *, enough_secs: float = ENOUGH_SECS
) -> list[Mutant]:
    """Tries mutants of some modules with some tests; returns those that no test noticed.

    Args:
        root: Of the project.
        mutants: Of some of its modules.
        tests: Paths from there.
        tell: Gets a line now and then about how far it is.
        enough_secs: Processor time of all tests that are asked about one mutant, the quickest first.

    Raises:
        UnreadyError: Tests fail without a fault, or there are none.
    """
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DEBUG_TEMPROOT", scratch)  # pytest removes directories that others beside us made
        return _try_mutants(root, mutants, tests, tell, enough_secs)


def _try_mutants(
    root: Path, mutants: Sequence[Mutant], tests: Sequence[str], tell: Tell, enough_secs: float
) -> list[Mutant]:
    of_functions = [mutant for mutant in mutants if mutant.function]
    trial = _Trial(root, of_functions, {mutant.path for mutant in mutants}, tell, enough_secs)
    answer = in_fork(lambda: trial.run(tests), told=tell)
    if answer is None:
        raise UnreadyError("the tests cannot be run")
    reach, survived, left = answer
    if reach.failed:
        raise UnreadyError("these tests fail without a fault: " + ", ".join(reach.failed))
    if not reach.seconds:
        raise UnreadyError("no test can be asked: " + " ".join(tests))
    at_import = [*left, *(mutant for mutant in mutants if not mutant.function)]
    for path in sorted({mutant.path for mutant in at_import if reach.of_module(mutant.path)}):
        if not _passes_at_import(root, path, (root / path).read_text(encoding="utf-8"), reach, enough_secs):
            raise UnreadyError(f"the tests do not pass in a fork, {path} imported without a fault")
    for mutant in at_import:
        if _passes_at_import(root, mutant.path, mutant.source, reach, enough_secs):
            survived.append(mutant)
            tell(f"{len(survived)} survived: {mutant.path}: {mutant.before}  =>  {mutant.after}")
    order = {mutant.key: number for number, mutant in enumerate(mutants)}
    return sorted(survived, key=lambda mutant: order[mutant.key])


class _Trial:
    """A plugin of pytest that runs its tests once for each mutant."""

    def __init__(self, root: Path, mutants: Sequence[Mutant], paths: set[str], tell: Tell, enough_secs: float) -> None:
        self._root = root
        self._enough_secs = enough_secs
        self._mutants = mutants
        self._paths = sorted(paths)
        self._tell = tell
        self._reach = Reach()
        self._survived: list[Mutant] = []
        self._left: list[Mutant] = []  # whose function is not found

    def run(self, tests: Sequence[str]) -> tuple[Reach, list[Mutant], list[Mutant]]:
        with _quiet():
            pytest.main([*_ARGUMENTS, *tests], plugins=[self])
        return self._reach, self._survived, self._left

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items:
            _set_examples(item, _EXAMPLES)
        began, most = time.monotonic(), self._enough_secs * _MOST_OF_IT
        measured = in_fork(lambda: measure(self._root, self._paths, session.items, most), told=self._tell)
        self._reach = reach = measured or Reach()
        self._tell(f"{len(reach.seconds)} tests, {sum(reach.seconds.values()):.1f} s; {time.monotonic() - began:.0f} s")
        if reach.failed or not reach.seconds:
            return True
        items = {item.nodeid: item for item in session.items}
        modules = {path: importlib.import_module(_module_name(path)) for path in self._paths}
        functions = {path: find_functions(module) for path, module in modules.items()}
        gc.collect()
        gc.freeze()
        names = sorted(reach.seconds, key=lambda name: reach.seconds[name])
        control = in_fork(lambda: self._try_one([], None, [items[name] for name in names]), reach.wall_secs(names))
        if control != "":
            reach.failed.append(control or "one that takes far longer than before")
            return True
        killers: dict[tuple[str, str], list[str]] = {}  # the tests that noticed something in a function
        for number, mutant in enumerate(self._mutants, 1):
            code = find_code(mutant.source, str(self._root / mutant.path), mutant.function)
            of_code = functions[mutant.path].get((code.co_name, code.co_firstlineno), [])
            if not of_code:
                self._left.append(mutant)
                continue
            names = reach.of_lines(mutant.path, range(mutant.lines[0], mutant.lines[1] + 1), self._enough_secs)
            first = killers.setdefault((mutant.path, mutant.function), [])
            names.sort(key=lambda name: first.index(name) if name in first else len(first))
            call = functools.partial(self._try_one, of_code, code, [items[name] for name in names])
            killer = in_fork(call, reach.wall_secs(names)) if names else ""
            if killer == "":
                self._survived.append(mutant)
                how = "" if names else " (no test runs it)"
                self._tell(f"{len(self._survived)} of {number} survived: {mutant.before}  =>  {mutant.after}{how}")
            elif killer:
                first[:] = [killer, *(name for name in first if name != killer)][:5]
        return True

    def _try_one(
        self, functions: list[types.FunctionType], code: types.CodeType | None, items: list[pytest.Item]
    ) -> str:
        """Puts the fault in and runs tests; returns the first that notices it, empty for none."""
        for function in functions:
            assert code is not None
            function.__code__ = code
        properties = [item for item in items if code is not None and _set_examples(item, _EXAMPLES)]
        for number, item in enumerate([*items, *properties]):
            if number == len(items):
                for each in properties:
                    _set_examples(each, _MORE_EXAMPLES)
            often = _OFTEN * (_MORE_EXAMPLES / _EXAMPLES if number >= len(items) else 1)
            signal.setitimer(
                signal.ITIMER_PROF, _LEAST_SECS + often * self._reach.seconds[item.nodeid]
            )  # ends the process
            if run_item(item, None):
                return item.nodeid
        return ""


class _Chosen:
    """A plugin of pytest that runs chosen tests, the quickest first."""

    def __init__(self, names: Sequence[str], reach: Reach) -> None:
        self._order = {name: number for number, name in enumerate(names)}
        self._reach = reach

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )
        for item in items:
            _set_examples(item, _EXAMPLES)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_PROF, _IMPORT_SECS + _OFTEN * self._reach.seconds[item.nodeid])
        return (yield)


class _Importer(MetaPathFinder):
    """Gives a module another source."""

    def __init__(self, name: str, source: str) -> None:
        self._name = name
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._source)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


def _passes_at_import(root: Path, path: str, source: str, reach: Reach, enough_secs: float) -> bool:
    """Whether the tests that run a module pass where it is imported from another source."""
    tests = reach.of_module(path, enough_secs)

    def call() -> int:
        sys.meta_path.insert(0, _Importer(_module_name(path), source))
        files = sorted({name.partition("::")[0] for name in tests})
        with _quiet():
            return int(pytest.main([*_ARGUMENTS, "-x", *files], plugins=[_Chosen(tests, reach)]))

    return not tests or in_fork(call, reach.wall_secs(tests)) == pytest.ExitCode.OK


def _module_name(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts)


def find_functions(module: types.ModuleType) -> dict[tuple[str, int], list[types.FunctionType]]:
    """Returns all functions and methods of a module by name and first line."""
    found: dict[tuple[str, int], list[types.FunctionType]] = {}
    seen: set[int] = set()

    def visit(value: object) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            if value.__code__.co_filename == module.__file__:
                found.setdefault((value.__code__.co_name, value.__code__.co_firstlineno), []).append(value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for member in vars(value).values():
                visit(member)
        for name in ("__func__", "__wrapped__", "fget", "fset", "func"):
            if not isinstance(value, type) and (inner := getattr(value, name, None)) is not None:
                visit(inner)

    for value in list(vars(module).values()):
        visit(value)
    return found


def find_code(source: str, path: str, function: str) -> types.CodeType:
    """Returns the code of a function or method, `Class.method`, in a source."""
    code = compile(source, path, "exec", dont_inherit=True)
    for name in function.split("."):
        code = next(each for each in code.co_consts if isinstance(each, types.CodeType) and each.co_name == name)
    return code


def _set_examples(item: pytest.Item, count: int) -> bool:
    """Lets a property be tried with the same examples each time, and so many; returns whether it is one."""
    test = getattr(item, "obj", None)
    inner = getattr(test, "__func__", test)
    old = getattr(inner, "_hypothesis_internal_use_settings", None)
    if old is not None:
        inner._hypothesis_internal_use_settings = hypothesis.settings(
            old,
            max_examples=count,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
            suppress_health_check=[*hypothesis.HealthCheck],
        )
    return old is not None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Lets nothing that is printed be seen."""
    with open(os.devnull, "r+b") as nothing:
        sys.stdout.flush()
        for descriptor in (0, 1, 2):
            os.dup2(nothing.fileno(), descriptor)
    yield
