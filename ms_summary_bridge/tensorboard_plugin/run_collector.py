"""Keeps what is known of the runs below a logdir, and reads what is new when somebody asks, behind the answer.

Imports no tensorboard.

Nothing is read while nobody looks at the page. A look runs in a thread of its own, one at a time, which rests between
batches, since it shares the interpreter with all of the viewer. A question is answered with what is known so far: how
each run is, is known by the ends of its files long before all has been read.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.tensorboard_plugin.advice import advise
from ms_summary_bridge.tensorboard_plugin.found_files import FoundFiles, is_below, modified_time
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun
from ms_summary_bridge.tensorboard_plugin.row_table import RowTable
from ms_summary_bridge.tensorboard_plugin.run_aggregates import AggregateReader, describe_aggregate, draw_statistics
from ms_summary_bridge.tensorboard_plugin.run_changes import ChangeReader
from ms_summary_bridge.tensorboard_plugin.run_curves import CurveReader
from ms_summary_bridge.tensorboard_plugin.run_details import describe_run
from ms_summary_bridge.tensorboard_plugin.run_profiles import ProfileReader
from ms_summary_bridge.tensorboard_plugin.watched_runs import WatchedRuns

__all__ = ["RunCollector"]

_SHORTEST_PAUSE: Final = 2.0
_IDLE_SHARE: Final = 20
"""Looking at the ends of files may take one part in so many of the time."""
_WORK_SECS: Final = 0.05
_BUDGET_SECS: Final = 0.5
_WATCH_SECS: Final = 3.0  # while much is read, states are looked at as often
_MOST_RUNS: Final = 2000
_MOST_PROBLEMS: Final = 100


class RunCollector:
    """All runs below one logdir, of MindSpore's, TensorBoard's and the monitor's.

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
        self._table = RowTable()
        self._curves = CurveReader()
        self._profiles = ProfileReader()
        self._changes = ChangeReader(clock)
        self._aggregates = AggregateReader()
        self._problems: list[str] = []
        self._fault = ""
        self._is_ours = False
        self._watched = WatchedRuns(source)
        self._files = FoundFiles(source, clock)
        self._next_watch = float("-inf")
        self._watch_secs = 0.0
        self._look_lock = threading.Lock()  # of the beginning and end of a look
        self._next_look = float("-inf")
        self._found = threading.Event()
        """Set once it is known what is there."""
        self._rests = threading.Event()
        """Set while there is no look under way."""
        self._rests.set()

    # ------------------------------------------------------------------ questions

    def has_runs(self, wait_secs: float = 1.0) -> bool:
        """Whether there is anything of MindSpore's or of the monitor's to show, or nothing at all of anybody's.

        Waits so long for the first look.
        """
        self.look()
        self._found.wait(wait_secs)
        # Without the lock: TensorBoard asks this for every page, and must not wait for a disk.
        return self._is_ours or (self._found.is_set() and not self._runs)

    def describe_all(self, cursor: str = "") -> dict[str, Any]:
        """Returns what of the table has changed since the answer with that cursor; all of it without one.

        Raises:
            BridgeError: What is known cannot be looked at, since a file that is being read does not answer.
        """
        self.look()
        self._found.wait(1.0)
        with self._locked_runs():
            runs = list(self._runs.values())
            return {
                **self._table.answer(runs, cursor),
                "is_known": self._found.is_set(),
                "unread": sum(not run.is_read and not run.is_left_out for run in runs),
                "left_out": sum(run.is_left_out for run in runs),
                "problems": list(self._problems),
                "fault": self._fault,
                "source": self._source,
                "now": time.time(),
                "advice": None if runs or not self._found.is_set() else advise(self._source),
            }

    def describe_one(self, key: str) -> dict[str, Any] | None:
        """Returns all about one run; None where it is not known. Raises as `describe_all`."""
        self.look()
        with self._locked_runs():
            run = self._runs.get(key)
            if run is None:
                return None
            answer = {"row": self._table.row(run), **describe_run(run)}
        found, problems = self._aggregates.find(run, list(self._runs.values()))
        answer["reading"]["problems"] += problems
        aggregate = None if found is None else describe_aggregate(found)
        return {**answer, "profiles": self._find_profiles(run), "aggregate": aggregate}

    def describe_metric(self, tag: str) -> dict[str, Any]:
        """Returns a tag's extremes in each run that has it. Raises as `describe_all`."""
        self.look()
        with self._locked_runs():
            found = {}
            for run in self._runs.values():
                facts = run.main.scalars.get(tag) or run.journal.scalars.get(tag)
                if facts is not None:
                    found[run.key] = facts.plain()
            return {"tag": tag, "runs": found}

    def describe_series(self, tag: str, keys: list[str], points: int) -> dict[str, Any]:
        """Returns the curves of a tag. Raises as `describe_all`; a LogdirError where a file cannot be read."""
        series = []
        for key in keys:
            with self._locked_runs():
                run = self._runs.get(key)
                source = None if run is None else self._curves.find(run, tag)
            if source is not None:
                series.append({"key": key, **self._curves.read(source, points)})
        return {"tag": tag, "series": series}

    def describe_changes(self, key_a: str, key_b: str) -> dict[str, Any] | None:
        """Returns what changed between two runs; None where one is not known. Raises as `describe_series`."""
        with self._locked_runs():
            a, b = self._runs.get(key_a), self._runs.get(key_b)
        return None if a is None or b is None else self._changes.read(a, b)

    def describe_ranks(self, key: str, tag: str, columns: int, *, is_aggregate: bool = False) -> dict[str, Any] | None:
        """Returns the heat map of a tag; None where the run is not known. Raises as `describe_series`.

        Args:
            key: Of the run.
            tag: Of scalars.
            columns: At most so many.
            is_aggregate: Whether statistics by `aggregate` are wanted in place of ranks.
        """
        with self._locked_runs():
            run = self._runs.get(key)
            if run is None:
                return None
            sources = {} if is_aggregate else self._curves.find_ranks(run, tag)
        if is_aggregate:
            found, _ = self._aggregates.find(run, list(self._runs.values()))
            return None if found is None else {"tag": tag, **draw_statistics(found, tag, columns)}
        return {"tag": tag, **self._curves.read_ranks(sources, columns)}

    def profile_path(self, key: str, number: int) -> str | None:
        """Returns the path of a profiler's trace; None where there is none (any more). Raises as `describe_all`."""
        profile = self._find_profile(key, number)
        return profile["path"] or None if profile is not None else None

    def describe_profile(self, key: str, number: int) -> dict[str, Any] | None:
        """Returns where the time goes by a profile; None where there is none (any more). Raises as `describe_all`."""
        profile = self._find_profile(key, number)
        return None if profile is None else self._profiles.read(profile["directory"])

    def _find_profile(self, key: str, number: int) -> dict[str, Any] | None:
        with self._locked_runs():
            run = self._runs.get(key)
        found = [] if run is None else self._find_profiles(run)
        return found[number] if 0 <= number < len(found) else None

    def _find_profiles(self, run: PageRun) -> list[dict[str, Any]]:
        parent = os.path.dirname(run.directory)
        is_parent_own = run.key != "." and not any(
            other is not run and is_below(other.directory, parent) for other in list(self._runs.values())
        )
        return self._profiles.find(run.directory, is_parent_own=is_parent_own)

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
        try:
            with self._lock:
                self._fault = ""
            self._watch()
            self._found.set()
            while self._watched.unread:
                self._watch()
            self._arrange()
            for run in self._choose():
                self._read_one(run)
        except Exception as error:  # whatever it is, the page says it and the viewer goes on
            self._fail(error)
        finally:
            self._found.set()
            with self._look_lock:
                self._next_look = self._clock() + max(_SHORTEST_PAUSE, self._watch_secs * _IDLE_SHARE)
                self._rests.set()

    def _fail(self, error: Exception) -> str:
        text = str(error) if isinstance(error, BridgeError | OSError) else f"{type(error).__name__}: {error}"
        with self._lock:
            self._fault = text
        self._warn(f"the MindSpore page is not complete: {text}")
        return text

    def _watch(self) -> None:
        """Looks at the ends of the files: how the runs are."""
        began = time.thread_time()
        self._watched.look(_BUDGET_SECS)
        with self._lock:
            self._watched.arrange()
        self._watch_secs = time.thread_time() - began
        self._next_watch = time.monotonic() + _WATCH_SECS
        self._publish()

    def _publish(self) -> None:
        with self._lock:
            self._runs = {**self._watched.runs, **self._files.others}
            problems = dict.fromkeys([*self._watched.problems, *self._files.problems])  # both walk the directories
            self._problems = list(problems)[:_MOST_PROBLEMS]
            self._is_ours = self._files.has_ours or self._watched.has_ours

    def _arrange(self) -> None:
        """Finds out which files belong to which run, where that may have changed."""
        runs = list(self._watched.runs.values())
        if not self._files.is_due(runs):
            return
        found = self._files.find()
        with self._lock:
            self._files.arrange(found, runs)
        self._publish()

    def _choose(self) -> list[PageRun]:
        """Returns the runs in which something new may be read, those written to last first."""
        runs = sorted(self._runs.values(), key=_written, reverse=True)
        for number, run in enumerate(runs):
            run.is_left_out = number >= _MOST_RUNS
        return [run for run in runs[:_MOST_RUNS] if not run.is_read or run.state is None or run.state is not run.read]

    def _read_one(self, run: PageRun) -> None:
        run.fault, run.read = "", run.state
        worked = time.monotonic()
        try:
            for steps in [
                *map(JournalFacts.read, run.journals),
                *(part.facts.read(part.run, part.twins) for part in run.parts),
            ]:
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
        if time.monotonic() > self._next_watch:
            self._watch()


def _written(run: PageRun) -> float:
    return run.state.last_time if run.state is not None else max(map(modified_time, run.paths), default=0.0)
