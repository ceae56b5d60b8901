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

from ms_summary_bridge.errors import BridgeError, LogdirError, NoEventsError
from ms_summary_bridge.files.file_names import TENSORBOARD
from ms_summary_bridge.states.tree import FoundFile, FoundRun
from ms_summary_bridge.states.watcher import RunWatcher
from ms_summary_bridge.tensorboard_plugin.found_files import FoundFiles, file_size
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts, is_journal
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun
from ms_summary_bridge.tensorboard_plugin.row_table import RowTable
from ms_summary_bridge.tensorboard_plugin.run_curves import CurveReader
from ms_summary_bridge.tensorboard_plugin.run_details import describe_run, find_profiles

__all__ = ["RunCollector"]

_SHORTEST_PAUSE: Final = 2.0
_IDLE_SHARE: Final = 20
"""Looking for files may take one part in so many of the time."""
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
        self._problems: list[str] = []
        self._fault = ""
        self._is_ours = False
        self._watcher = RunWatcher(source)
        self._files = FoundFiles(source, clock)
        self._watched: dict[str, PageRun] = {}
        self._lost: list[str] = []
        self._has_mindspore = False
        self._journals: dict[str, JournalFacts] = {}
        self._strangers: dict[str, int] = {}  # files with a journal's name that are none, by their size
        self._next_watch = float("-inf")
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
                "advice": None if runs or not self._found.is_set() else _advise(self._source),
            }

    def describe_one(self, key: str) -> dict[str, Any] | None:
        """Returns all about one run; None where it is not known. Raises as `describe_all`."""
        self.look()
        with self._locked_runs():
            run = self._runs.get(key)
            if run is None:
                return None
            answer = {"row": self._table.row(run), **describe_run(run)}
        return {**answer, "profiles": self._profiles(run)}

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

    def describe_ranks(self, key: str, tag: str, columns: int) -> dict[str, Any] | None:
        """Returns the heat map of a tag; None where the run is not known. Raises as `describe_series`."""
        with self._locked_runs():
            run = self._runs.get(key)
            if run is None:
                return None
            sources = self._curves.find_ranks(run, tag)
        return {"tag": tag, **self._curves.read_ranks(sources, columns)}

    def profile_path(self, key: str, number: int) -> str | None:
        """Returns the path of a profiler's trace; None where there is none (any more). Raises as `describe_all`."""
        with self._locked_runs():
            run = self._runs.get(key)
        found = [] if run is None else self._profiles(run)
        return found[number]["path"] if 0 <= number < len(found) else None

    def _profiles(self, run: PageRun) -> list[dict[str, Any]]:
        parent = os.path.dirname(run.directory)
        is_parent_own = run.key != "." and not any(
            other is not run and _is_below(other.directory, parent) for other in list(self._runs.values())
        )
        return find_profiles(run.directory, is_parent_own=is_parent_own)

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
            with self._lock:
                self._fault = ""
            self._watch()
            self._found.set()
            while self._watcher.unread:
                self._watch()
            self._arrange()
            pause = max(pause, (time.thread_time() - began) * _IDLE_SHARE)
            for run in self._choose():
                self._read_one(run)
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

    def _watch(self) -> None:
        """Looks at the ends of the files: how the runs are."""
        try:
            self._watcher.look(time.time(), budget_secs=_BUDGET_SECS)
            found, problems = self._watcher.found, self._watcher.problems
        except NoEventsError:  # it is not there yet, or not now
            found, problems = [], []
        except LogdirError as error:
            found, problems = [], [str(error)]
        self._next_watch = time.monotonic() + _WATCH_SECS
        watched: dict[str, PageRun] = {}
        with self._lock:
            for one, is_seen, state in found:
                if self._is_shown(one):
                    key = os.path.relpath(one.directory, self._source).replace(os.sep, "/")
                    run = watched[key] = self._watched.get(key) or PageRun(key, one.name, one.directory)
                    run.name, run.state, run.is_seen = one.name, state, is_seen
                    self._take_files(run, one)
            self._watched, self._lost = watched, problems
            self._has_mindspore = any(file.kind != TENSORBOARD for run in watched.values() for file in _files_of(run))
        self._publish()

    def _publish(self) -> None:
        with self._lock:
            self._runs = {**self._watched, **self._files.others}
            self._problems = [*self._lost, *self._files.problems][:_MOST_PROBLEMS]
            self._is_ours = self._files.has_ours or self._has_mindspore

    def _is_shown(self, one: FoundRun) -> bool:
        """Whether it is a run: what has a journal's name and nothing beside it may be somebody else's."""
        return any(file.kind != "journal" or self._is_journal(file.path) for file in one.files)

    def _is_journal(self, path: str) -> bool:
        if path not in self._journals:
            size = file_size(path)
            if self._strangers.get(path) == size:
                return False
            if not is_journal(path):
                self._strangers[path] = size
                return False
            self._journals[path] = JournalFacts(os.path.dirname(path))
        return True

    def _take_files(self, run: PageRun, one: FoundRun) -> None:
        if run.found is one:
            return
        run.found = one
        run.paths = [file.path for file in one.files]
        journals = [file for file in one.files if file.kind == "journal" and self._is_journal(file.path)]
        run.rank_journals = {file.rank: file.path for file in journals if file.rank >= 0}
        own = [file.path for file in journals if file.rank < 0] or [file.path for file in journals[:1]]
        run.journals = [self._journals[path] for path in sorted(own, key=_modified)]

    def _arrange(self) -> None:
        """Finds out which files belong to which run, where that may have changed."""
        runs = list(self._watched.values())
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


def _advise(source: str) -> dict[str, Any]:
    """Returns what to do where there is no run yet."""
    return {
        "title": "No run yet",
        "text": f"Nothing below {source} is an event file of MindSpore's or TensorBoard's, or a monitor's journal. The "
        "page looks again by itself. Record a training with one of these:",
        "examples": [
            {
                "title": "MindSpore: curves, histograms, graph and lineage, for TensorBoard and MindInsight at once",
                "code": "from ms_summary_bridge import SummaryBridge\n\n"
                f"model.train(epochs, dataset, callbacks=[SummaryBridge({_literal(source)})])",
            },
            {
                "title": "MindSpore's own callback, whose files are shown as well",
                "code": f"model.train(epochs, dataset, callbacks=[mindspore.SummaryCollector({_literal(source)})])",
            },
            {
                "title": "PyTorch",
                "code": "from torch.utils.tensorboard import SummaryWriter\n\n"
                f'SummaryWriter({_literal(source)}).add_scalar("loss", loss, step)',
            },
        ],
    }


def _files_of(run: PageRun) -> list[FoundFile]:
    return run.found.files if run.found is not None else []


def _literal(source: str) -> str:
    return repr(os.path.join(source, "run1"))


def _written(run: PageRun) -> float:
    return run.state.last_time if run.state is not None else max(map(_modified, run.paths), default=0.0)


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _is_below(path: str, directory: str) -> bool:
    path, directory = os.path.normpath(path), os.path.normpath(directory)
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
