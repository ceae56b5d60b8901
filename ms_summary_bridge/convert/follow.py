"""Follow: convert what a source holds, then what is added to it, until told to stop.

Between two rounds a scan looks at the source from outside, and nothing is opened while nothing has changed. The scan
comes before the files are read: what is written meanwhile differs from it, and so is read in the next round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from ms_summary_bridge.convert.conversion import Conversion, direction_of, open_conversion, runs_for
from ms_summary_bridge.convert.follow_scan import Scan, changed_paths, grown, take_scan
from ms_summary_bridge.convert.logdir import make_request
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.errors import LogdirError, NoEventsError, UsageError
from ms_summary_bridge.files.event_file import Path, is_url
from ms_summary_bridge.runs.logdir import Logdir, discover
from ms_summary_bridge.runs.msprobe import MSPROBE
from ms_summary_bridge.runs.report import Report, RunReport

__all__ = ["follow_logdir"]

_FIRST_WAIT_SECS: Final = 0.5
_LONGEST_WAIT_SECS: Final = 2.0
_SHARE: Final = 0.005  # of its time that a follower at rest may spend on scans, however large the source is
_SLOWEST_WAIT_SECS: Final = 60.0
_RETRY_SECS: Final = 30.0


def follow_logdir(
    source: Path,
    destination: Path,
    *,
    to: str | None = None,
    options: ConvertOptions | None = None,
    workers: int | None = 1,
    force: bool = False,
    stop: threading.Event | None = None,
    on_round: Callable[[Report], None] = lambda report: None,
    wait: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Report | None:
    """Converts what is there, then what is added, until `stop` is set or a KeyboardInterrupt comes.

    The pause between two rounds doubles from half a second to two while nothing new comes; it is longer for a source
    that takes long to look at. A source that does not exist yet, or holds no event yet, is waited for. The destination
    is held from the first round on.

    Args:
        source: As for `convert_logdir`.
        destination: As for `convert_logdir`.
        to: As for `convert_logdir`.
        options: As for `convert_logdir`.
        workers: Processes, where there is much to read; None for one on each core.
        force: Start over in the first round.
        stop: Ends the loop after the run that is under way; by default nothing but a KeyboardInterrupt does.
        on_round: Is given the report of each round that found something new, trouble included.
        wait: Waits the given number of seconds; `stop.wait` by default.
        clock: Seconds of a clock that never goes back.

    Returns:
        What all rounds together met; None when nothing was found.

    Raises:
        BridgeError: As `convert_logdir`, but for a source that is not there yet. After the first round, what is wrong
            with the source or with a run is reported and tried again.
    """
    request = make_request(source, destination, to, options, workers, force=force)
    request = msgspec.structs.replace(request, options=msgspec.structs.replace(request.options, grows=True))
    stop = stop or threading.Event()
    with ExitStack() as stack:

        def begin(found: Logdir) -> Conversion | None:
            target = to or direction_of(found)
            if not runs_for(found, target):
                return None
            return stack.enter_context(open_conversion(request, found, target))

        new_report = partial(Report, request.source, request.destination, to or "")
        follower = _Follower(request.source, begin, new_report, stop, clock)
        pause = _FIRST_WAIT_SECS
        while not stop.is_set():
            report = follower.look()
            if report is not None:
                on_round(report)
                pause = _FIRST_WAIT_SECS
            longest = min(max(_LONGEST_WAIT_SECS, follower.scan_secs / _SHARE), _SLOWEST_WAIT_SECS)
            (wait or stop.wait)(min(pause, longest))
            pause = min(2 * pause, longest)
        report = follower.finish()
        if report is not None:
            on_round(report)
        return follower.total


class _Follower:
    """The rounds, without the waiting between them; `begin` opens the conversion once there is something to convert.

    `new_report` gives a report in which nothing was met.
    """

    def __init__(
        self,
        source: str,
        begin: Callable[[Logdir], Conversion | None],
        new_report: Callable[[], Report],
        stop: threading.Event,
        clock: Callable[[], float],
    ) -> None:
        self.total: Report | None = None  # what all rounds together met
        self.scan_secs = 0.0  # how long the last scan took
        self._source = source
        self._begin = begin
        self._new_report = new_report
        self._stop = stop
        self._clock = clock
        self._conversion: Conversion | None = None
        self._scan: Scan | None = None  # of the last round that went through
        self._found: Logdir | None = None
        self._next_try = float("inf")
        self._next_search = float("inf")  # for what could not be read
        self._reported_trouble: dict[str, list[object]] = {}  # trouble by run; by the empty name that of the source

    def look(self) -> Report | None:
        """Does what there is to do; returns the report if it has something new to say."""
        begun = self._clock()
        scan = take_scan(self._source)
        now = self._clock()
        self.scan_secs = now - begun
        is_owed = self._conversion is not None and self._conversion.is_waiting
        is_due = now >= self._next_search
        if scan == self._scan and not is_due and not (is_owed and now >= self._next_try):
            return None
        try:
            report = self._convert(scan, is_anew=is_due)
        except NoEventsError:
            self._scan, self._found = scan, None
            if self._conversion is None:
                return None
            report = self._new_report()
            report.notes.append(f"{self._source} is gone; waiting for it to come back")
        except LogdirError as error:
            if self._conversion is None:
                raise
            report = self._new_report()
            report.unreadable.append(str(error))
        if report is None:
            return None
        is_news = self._is_news(report)
        self._add(report)
        return report if is_news else None

    def finish(self) -> Report | None:
        """Converts what was held back, since nothing more of it will be seen; returns what there is to say of that."""
        if self._conversion is None or self._found is None or not self._conversion.is_holding:
            return None
        report = self._conversion.convert(self._found, changed=(), is_last=True)
        self._add(report)
        return report

    def _search(self) -> Logdir:
        begun = self._clock()
        found = discover(self._source)
        now = self._clock()
        may_pass = any(problem.may_pass for problem in found.problems)
        self._next_search = now + max(_RETRY_SECS, (now - begun) / _SHARE) if may_pass else float("inf")
        return found

    def _convert(self, scan: Scan, *, is_anew: bool) -> Report | None:
        changed = None
        found = None
        if self._scan is not None and self._found is not None and not is_url(self._source) and not is_anew:
            changed = changed_paths(self._scan, scan)
            found = grown(self._found, self._scan, scan)
        gone: list[str] = []
        if found is None:
            found = self._search()
            if self._conversion is None and any(run.format == MSPROBE for run in found.runs):
                raise UsageError(
                    f"{self._source}: tables of msprobe are not followed; convert them again, and what has grown is new"
                )
            if self._found is not None:
                names = {run.name for run in found.runs}
                gone = [run.name for run in self._found.runs if run.name not in names]
        if self._conversion is None:
            self._conversion = self._begin(found)
            changed = None
        if self._conversion is None:
            self._scan, self._found = scan, found
            report = self._new_report()
            report.unreadable += [f"{problem.path}: {problem.reason}" for problem in found.problems if problem.may_pass]
            return report if report.unreadable else None
        report = self._conversion.convert(found, changed=changed, is_stopped=self._stop.is_set)
        report.notes += [f"{name}: is gone from the source, or empty; what was converted of it stays" for name in gone]
        # Only now: if the conversion raised, all of this is new next time.
        self._scan, self._found = scan, found
        is_later = bool(report.failures or report.failed) or self._conversion.is_holding
        self._next_try = self._clock() + (_RETRY_SECS if is_later else 0.0)
        return report

    def _is_news(self, report: Report) -> bool:
        """Whether something was read, or is wrong that has not been said yet."""
        notes = () if self.total is None else self.total.notes
        is_news = any(run.events_read and not run.failed for run in report.runs)
        is_news = is_news or any(note not in notes for note in report.notes)
        trouble: dict[str, list[object]] = {
            run.run: [bool(run.failed), *run.damaged] if run.failed or run.damaged else [] for run in report.runs
        }
        trouble[""] = [*report.unreadable, *([report.failed] if report.failed else [])]
        for name, what in trouble.items():
            if what and what != self._reported_trouble.get(name):
                is_news = True
            self._reported_trouble[name] = what
        return is_news

    def _add(self, report: Report) -> None:
        total = self.total
        if total is None:
            total = self.total = Report(report.source, report.destination, report.to)
        total.unreadable, total.empty, total.failed = report.unreadable, report.empty, report.failed
        total.notes += [note for note in report.notes if note not in total.notes]
        known = {run.run: run for run in total.runs}
        for run in report.runs:
            if run.run not in known:
                total.runs.append(RunReport(run.run, run.source, run.destination))
                known[run.run] = total.runs[-1]
            known[run.run].add(run)
        total.runs.sort(key=lambda run: run.run)
