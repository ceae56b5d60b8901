"""Keeps what is known of the runs below a logdir, and reads what is new when somebody asks, behind the answer.

Imports no tensorboard.

Nothing is read while nobody looks at the page. A look runs in a thread of its own, one at a time, which rests between
batches, since it shares the interpreter with all of the viewer. A question is answered with what is known so far.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.runs.log_files import LIVE, SOURCE
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts, find_journals
from ms_summary_bridge.tensorboard_plugin.run_table import PageRun, compare_configs, describe_row, describe_run

__all__ = ["RunCollector"]

_SHORTEST_PAUSE: Final = 2.0
_IDLE_SHARE: Final = 20
"""Looking for files may take one part in so many of the time."""
_WORK_SECS: Final = 0.05
_MOST_RUNS: Final = 500
_MOST_PROBLEMS: Final = 100
_JOURNAL: Final = "journal"


class RunCollector:
    """All runs of MindSpore's below one logdir, and of the monitor's.

    Args:
        source: The logdir; need not exist yet.
        warn: Told what of ours went wrong, perhaps again and again.
        clock: Monotonic seconds, by which looks are apart.
        patience_secs: How long a question waits for a file that is being read.
    """

    def __init__(
        self,
        source: str,
        warn: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        patience_secs: float = 10.0,
    ) -> None:
        self._source = source
        self._warn = warn
        self._clock = clock
        self._patience_secs = patience_secs
        self._lock = threading.Lock()  # of what is known
        self._runs: dict[str, PageRun] = {}
        self._journals: dict[str, JournalFacts] = {}
        self._problems: list[str] = []
        self._left_out = 0
        self._fault = ""
        self._look_lock = threading.Lock()  # of the beginning and end of a look
        self._next_look = float("-inf")
        self._found = threading.Event()
        """Set once it is known what is there."""
        self._rests = threading.Event()
        """Set while there is no look under way."""
        self._rests.set()

    # ------------------------------------------------------------------ questions

    def has_runs(self, wait_secs: float = 1.0) -> bool:
        """Whether there is anything to show; waits so long for the first look."""
        self.look()
        self._found.wait(wait_secs)
        return bool(self._runs)  # without the lock: TensorBoard asks this for every page, and must not wait for a disk

    def describe_all(self) -> dict[str, Any]:
        """Returns the comparison: a row for each run, and by which of its values the runs differ.

        Raises:
            BridgeError: What is known cannot be looked at, since a file that is being read does not answer.
        """
        self.look()
        self._found.wait(1.0)
        now = time.time()
        with self._locked_runs():
            rows = [describe_row(run, now) for run in self._runs.values()]
            return {
                "rows": rows,
                "config": compare_configs([row["config"] for row in rows]),
                "is_reading": not self._rests.is_set() and not all(run.is_read for run in self._runs.values()),
                "is_known": self._found.is_set(),
                "left_out": self._left_out,
                "problems": list(self._problems),
                "fault": self._fault,
                "source": self._source,
            }

    def describe_one(self, key: str) -> dict[str, Any] | None:
        """Returns all about one run; None where it is not known. Raises as `describe_all`."""
        self.look()
        with self._locked_runs():
            run = self._runs.get(key)
            return None if run is None else describe_run(run, time.time())

    def wait(self, timeout_secs: float) -> bool:
        """Waits for the look that is under way; returns whether it has ended."""
        return self._rests.wait(timeout_secs)

    def look(self) -> None:
        """Begins to look for what is new, unless that is under way or was done a moment ago."""
        with self._look_lock:
            if not self._rests.is_set() or self._clock() < self._next_look:
                return
            self._rests.clear()
            threading.Thread(target=self._look_once, name="mindspore-dashboard", daemon=True).start()

    @contextlib.contextmanager
    def _locked_runs(self) -> Iterator[None]:
        """Holds what is known as it is; the thread that reads lets go of it between batches."""
        if not self._lock.acquire(timeout=self._patience_secs):
            raise BridgeError(f"{self._source}: a file has not answered for {self._patience_secs:g} seconds")
        try:
            yield
        finally:
            self._lock.release()

    # ------------------------------------------------------------------ one look

    def _look_once(self) -> None:
        pause = _SHORTEST_PAUSE
        try:
            began = time.thread_time()
            reads = self._find()
            pause = max(pause, (time.thread_time() - began) * _IDLE_SHARE)
            self._found.set()
            for run, steps in reads:
                self._read_one(run, steps)
        except Exception as error:  # whatever it is, the page says it and the viewer goes on
            self._fail(error)
        finally:
            self._found.set()
            with self._look_lock:
                self._next_look = self._clock() + pause
                self._rests.set()

    def _fail(self, error: Exception) -> str:
        text = str(error) if isinstance(error, BridgeError | OSError) else f"{type(error).__name__}: {error}"
        with self._lock:
            self._fault = text
        self._warn(f"the MindSpore page is not complete: {text}")
        return text

    def _read_one(self, run: PageRun, steps: Iterator[None]) -> None:
        worked = time.monotonic()
        try:
            while True:
                with self._lock:
                    if next(steps, self) is self:
                        break
                secs = time.monotonic() - worked
                if secs > _WORK_SECS:
                    time.sleep(secs / 2)
                    worked = time.monotonic()
        except Exception as error:  # the other runs go on
            run.fault = self._fail(error)
        run.is_read = True

    def _find(self) -> list[tuple[PageRun, Iterator[None]]]:
        """Takes note of what is there; returns the runs with what reads them, those written to last first."""
        found, paths = Logdir(self._source, (), (), (), ()), list[str]()
        if os.path.exists(self._source):  # else it is not there yet, or not now
            found, paths = discover(self._source), find_journals(self._source)
        runs = [run for run in found.runs if run.format == MINDSPORE or run.role != SOURCE]
        journals = {path: self._journals.get(path) or JournalFacts(path) for path in paths}
        owners = {path: _owners(path, runs) for path in journals}
        problems: dict[str, list[str]] = {run.directory: [] for run in runs}
        others: list[str] = []  # of directories without a run
        for problem in found.problems:
            of_run = problems.get(os.path.dirname(problem.path))
            if of_run is not None or problem.may_hide_mindspore:
                (others if of_run is None else of_run).append(f"{problem.path}: {problem.reason}")
        reads: list[tuple[PageRun, Iterator[None]]] = []
        for run in runs:
            twins = [twin for twin in found.twins if twin.directory == run.directory and twin.role == LIVE]
            one = self._page_run(run.name, run.directory, run.format)
            one.files = [file.path for file in (*run.sources, *(file for twin in twins for file in twin.files))]
            one.is_graph = bool(run.graph_files)
            one.bytes = sum(file.size for file in run.sources)
            one.problems = problems[run.directory]
            mine = [journal for path, journal in journals.items() if run in owners[path]]
            one.journal = mine[-1] if mine else None  # the nearest above it
            reads.append((one, _read_all(one, run, twins)))
        for path, journal in journals.items():
            if not owners[path]:
                one = self._page_run(os.path.relpath(path, self._source).replace(os.sep, "/"), path, _JOURNAL)
                one.journal = journal
                reads.append((one, _read_all(one, None, [])))
        for one, _ in reads:
            files = one.files + ([one.journal.path] if one.journal is not None else [])
            one.modified = max(map(_modified, files), default=0.0)
        newest = sorted(reads, key=lambda item: item[0].modified, reverse=True)[:_MOST_RUNS]
        kept = {one.key for one, _ in newest}
        with self._lock:
            self._runs = {one.key: one for one, _ in reads if one.key in kept}
            self._journals = journals
            self._left_out = len(reads) - len(newest)
            self._fault = ""
            self._problems = others[:_MOST_PROBLEMS]
        return newest

    def _page_run(self, name: str, directory: str, run_format: str) -> PageRun:
        key = f"{run_format}:{name}"
        one = self._runs.get(key)
        if one is None or one.directory != directory:
            one = PageRun(key, name, directory, run_format)
        one.fault = ""
        return one


def _read_all(one: PageRun, run: Run | None, twins: list[Run]) -> Iterator[None]:
    if one.journal is not None:
        yield from one.journal.read()
    if run is not None:
        yield from one.facts.read(run, twins)


def _owners(journal: str, runs: list[Run]) -> list[Run]:
    """Returns the runs that a journal tells of: those at or below it, else those of the nearest directory above it."""
    below = [run for run in runs if _is_below(run.directory, journal)]
    if below:
        return below
    above = [run for run in runs if _is_below(journal, run.directory)]
    nearest = max((len(run.directory) for run in above), default=0)
    return [run for run in above if len(run.directory) == nearest]


def _is_below(path: str, directory: str) -> bool:
    path, directory = os.path.normpath(path), os.path.normpath(directory)
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
