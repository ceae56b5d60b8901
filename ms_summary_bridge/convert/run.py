"""The conversion of one run: the loop over the pipe."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ms_summary_bridge.convert.mindspore_sink import MindSporeRun
from ms_summary_bridge.convert.names import keep_name
from ms_summary_bridge.convert.restarts import find_restarts
from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.convert.sink import RunSink
from ms_summary_bridge.convert.state import Plan, RunState, Undecided, identify, is_same_file
from ms_summary_bridge.convert.task import RunTask, compile_tags, relative_path
from ms_summary_bridge.convert.tensorboard_sink import TensorBoardRun
from ms_summary_bridge.events import Event, FileVersion, SessionLog, Summary, TaggedValue
from ms_summary_bridge.files.event_file import EventFileReader, peek
from ms_summary_bridge.files.records import Damage, Incomplete, Padding
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.formats.plugin_data import is_users
from ms_summary_bridge.formats.sessions.hparams import is_metric_of_lineage
from ms_summary_bridge.runs.archive import LINEAGE, archive_name, make_decoder
from ms_summary_bridge.runs.graph_file import read_graph_file
from ms_summary_bridge.runs.logdir import CONVERT, SOURCE, LogFile
from ms_summary_bridge.runs.reading import RunReading, read_restored
from ms_summary_bridge.runs.report import (
    DamagedRange,
    IncompleteTail,
    LossCounter,
    RenamedTag,
    RestartMark,
    RunReport,
    failed_run,
)

__all__ = ["Progress", "convert_run"]

Progress = Callable[[int], None]
"""Called now and then with the number of source bytes read since the last call."""

_UNDECIDED: Final = 1000  # events of a later file that may wait for the first tag with a past
_PROGRESS_BYTES: Final = 1 << 20


def convert_run(task: RunTask, advance: Progress | None = None) -> tuple[RunReport, RunState]:
    """Converts one run to the other format, from where its state says an earlier conversion ended.

    Returns:
        What was met, and the new state. An error of this run is in `RunReport.failed`; the state then speaks of
        what was written before it, so the next conversion goes on from there.
    """
    report = RunReport(task.run.name, task.run.directory, task.destination, full_name=task.full_name)
    before = msgspec.convert(msgspec.to_builtins(task.state), RunState)
    try:
        conversion = _RunConversion(task, report, advance)
        conversion.convert()
        if task.full_name and os.path.isdir(task.destination) and not task.options.dry_run:
            keep_name(task.destination, task.full_name)
    except Exception as error:  # whatever it is, the other runs go on
        return failed_run(report, error), before
    return report, conversion.state


def _sizes(task: RunTask) -> dict[str, int]:
    """Returns the size of every file of a run, archives included."""
    run = task.run
    sizes = {file.path: file.size for file in run.sources}
    return sizes | {path: peek(path).size for path in run.archives}


def _is_unchanged(task: RunTask) -> bool:
    sizes = {relative_path(path, task.source): (path, size) for path, size in _sizes(task).items()}
    known = task.state.files
    return sizes.keys() == known.keys() and all(
        known[name].offset == size and is_same_file(path, size, known[name]) for name, (path, size) in sizes.items()
    )


def _other(run_format: str) -> str:
    return tensorboard.FORMAT if run_format == mindspore.FORMAT else mindspore.FORMAT


class _RunConversion:
    """The loop over one run's files."""

    def __init__(self, task: RunTask, report: RunReport, advance: Progress | None) -> None:
        self.task = task
        self.report = report
        self._is_ours = task.run.role == CONVERT
        self._is_unchanged = self._is_ours and _is_unchanged(task)
        # What is restored is read whole if anything of it is new, so nothing is remembered of it.
        is_anew = self._is_ours and not self._is_unchanged
        self.state = (
            RunState(lineage=task.state.lineage, lineage_head=task.state.lineage_head) if is_anew else task.state
        )
        self._advance = advance
        self._tags = compile_tags(task.options.tags)
        self._series = SeriesTable(self.state.series)
        self._losses = LossCounter()
        names = [archive_name(source) for source in (_other(task.run.format), LINEAGE)]
        self._has_archive = any(name in path for path in task.run.archives for name in names)
        to_tensorboard = task.run.format == mindspore.FORMAT
        self._sink: RunSink = (TensorBoardRun if to_tensorboard else MindSporeRun)(
            task.destination,
            host=task.run.host,
            state=self.state,
            losses=self._losses,
            keep_archive=task.options.keep_archive,
            is_dry=task.options.dry_run,
            is_own=self._is_ours,
            is_restored=self._has_archive,
        )
        self._decoder = make_decoder(task.run.format)
        if isinstance(self._decoder, tensorboard.TensorBoardDecoder):
            self._decoder.plugins.update(self.state.plugins)
        self._plan = task.state.plan or Plan({})
        self._ends = self._plan.ends
        self._derived = 0
        self._users = 0
        self._restart: int | None = None  # where the file being read was found to be one
        self._cutoff: int | None = None  # `latest`: values at this step and above are superseded

    def convert(self) -> None:
        run = self.task.run
        cutoffs: dict[str, int] = {}
        if self.task.options.on_restart == "latest":
            if self._is_ours:
                self.report.problems.append(
                    "--on-restart latest leaves nothing out of what an earlier conversion wrote"
                )
            else:
                cutoffs = self._find_cutoffs()
        try:
            if not self._is_ours:
                for file in run.files:
                    self._cutoff = cutoffs.get(file.path)
                    self._convert_file(file, run.format)
                self._cutoff = None
                for file in self.task.live_files:
                    self._convert_users(file)
                for file in run.lineage_files:
                    self._convert_file(file, LINEAGE)
                for file in run.graph_files:
                    self._convert_graph_file(file)
            elif not self._is_unchanged:
                self._convert_restored()
            self._sink.end_sources(grows=self._plan.grows)
        finally:
            self._sink.close()
        self.state.plan = None
        report = self.report
        if isinstance(self._decoder, tensorboard.TensorBoardDecoder):
            self.state.plugins = self._decoder.plugins
        self.state.series = self._series.rows
        report.outputs = [output.name for output in self.state.outputs]
        report.archived = self._sink.archived
        report.repeated = 0 if self._is_ours else self._series.repeated
        report.went_back = self._series.went_back
        report.losses = self._losses.rows()
        report.renamed_tags = [RenamedTag(*row) for row in self._sink.names.renamed]
        report.problems += self._sink.notes
        if self._users:
            report.problems.append(
                f"{self._users} values were written for TensorBoard alone (bridge.summary_writer) and are left out"
            )
        if self._is_ours and not self.task.run.archives:
            if self._derived:
                report.problems.append(
                    f"{self._derived} values were computed from others (tensors, loss landscapes, counts of NaN) by an "
                    "earlier conversion; there is no archive beside them that holds the originals, so these are not "
                    "restored"
                )
            elif run.format == mindspore.FORMAT:  # every conversion has something to keep, the version at least
                report.problems.append(
                    "there is no archive beside it, so what an earlier conversion could not write for MindInsight "
                    "exactly (float64, text, merged buckets, ...) is not restored"
                )

    def _convert_file(self, file: LogFile, source: str) -> None:
        path = relative_path(file.path, self.task.source)
        if path not in self._ends:  # it has come since the plan was made that is being repeated
            return
        end = self._ends[path]
        known = self.state.files.get(path)
        is_replaced = known is not None and not is_same_file(file.path, end, known)
        offset = known.offset if known is not None and not is_replaced else 0
        if known is not None and not is_replaced and end == offset:
            return
        self.report.files.append(path)
        is_lineage = source == LINEAGE
        others = [
            other.order
            for name, other in self.state.files.items()
            if name != path and name.endswith("_lineage") == is_lineage
        ]
        is_late = known is None and not is_lineage and any(order > file.created for order in others)
        if is_late:
            self.report.problems.append(f"{path}: older than files converted before it; --force puts it in its place")
        self._sink.begin_source(file.created)
        if is_replaced:
            self.report.problems.append(f"{path}: was replaced or cut since the last conversion, read from its start")
            self._series.forget()
            self._sink.begin_session()
        undecided = known.undecided if known is not None and not is_replaced else None
        if known is None and others and not is_late and not is_lineage:
            undecided = Undecided()
        decoder = self._decoder if source == self.task.run.format else make_decoder(source)
        reader = EventFileReader(file.path, decoder, offset=offset)
        with reader:
            undecided, offset = self._convert_events(reader, end, path, source, undecided)
        state = self.state.files[path] = identify(file.path, offset, file.created)
        state.undecided = undecided
        state.restart = known.restart if known is not None and not is_replaced else None
        if self._restart is not None:
            state.restart, self._restart = self._restart, None

    def _convert_graph_file(self, file: LogFile) -> None:
        path = relative_path(file.path, self.task.source)
        known = self.state.files.get(path)
        if path not in self._ends or (
            known is not None and known.offset == file.size and is_same_file(file.path, file.size, known)
        ):
            return
        self.report.files.append(path)
        if known is not None:  # it does not grow, so it is another one; of two graphs TensorBoard shows the last
            self.report.problems.append(f"{path}: was replaced since the last conversion, and is drawn again")
        event = read_graph_file(file.path)
        self.report.events_read += 1
        self._put(event, mindspore.FORMAT)
        self.state.files[path] = identify(file.path, file.size, file.created)

    def _convert_users(self, file: LogFile) -> None:
        """Takes over what a user wrote into a live TensorBoard file; the rest of it is in the MindSpore file."""
        path = relative_path(file.path, self.task.source)
        if path not in self._ends:
            return
        end = self._ends[path]
        known = self.state.files.get(path)
        offset = known.offset if known is not None and is_same_file(file.path, end, known) else 0
        if known is not None and end == offset:
            return
        with EventFileReader(file.path, make_decoder(tensorboard.FORMAT), offset=offset) as reader:
            for item in reader:
                if reader.offset > end:
                    break
                offset = reader.offset
                if not isinstance(item, Event):
                    self._note(item, path)
                elif is_users(item):
                    self.report.events_read += 1
                    self._put(item, tensorboard.FORMAT)
        self.state.files[path] = identify(file.path, offset, file.created)

    def _convert_events(
        self, reader: EventFileReader, end: int, path: str, source: str, undecided: Undecided | None
    ) -> tuple[Undecided | None, int]:
        """Converts a file up to `end`; returns what a later conversion must know to decide about it, and its start."""
        report = self.report
        waiting: list[Event] = []
        start = offset = reported = reader.offset
        for item in reader:
            if reader.offset > end:
                break
            offset = reader.offset
            if type(item) is Event:
                report.events_read += 1
                if undecided is None:
                    self._put(item, source)
                else:  # the version that opens the file waits too: it belongs behind the mark of a restart
                    waiting.append(item)
                    if self._is_decided(item, undecided, len(waiting), path):
                        self._put_all(waiting, source)
                        waiting = []
                        undecided = None
            else:
                self._note(item, path)
            if self._advance is not None and offset - reported > _PROGRESS_BYTES:
                self._advance(offset - reported)
                reported = offset
        if undecided is not None:
            if undecided.rounds < self._plan.patience and not undecided.waited:
                report.events_read -= len(waiting)
                return Undecided(rounds=undecided.rounds + 1, is_held=True), start
            self._put_all(waiting, source)
            series = {
                (tagged.value.kind, tagged.tag)
                for event in waiting
                if isinstance(event.content, Summary)
                for tagged in event.content.values
            }
            introduced = sorted(series.union(undecided.introduced))
            undecided = Undecided(undecided.waited + len(waiting), introduced, undecided.rounds)
        if self._advance is not None:
            self._advance(offset - reported)
        return undecided, offset

    def _is_decided(self, event: Event, undecided: Undecided, waiting: int, path: str) -> bool:
        """Finds out whether the file being read is a restart, as soon as its events say so."""
        if isinstance(event.content, Summary):
            is_restart = self._series.is_restart(event, event.content, undecided.introduced)
            if is_restart:
                if self.task.options.on_restart == "mark":
                    self.report.restarts.append(RestartMark(path, event.step))
                self._restart = event.step
                self._series.forget()
                self._sink.begin_session(event.step)
            if is_restart is not None:
                return True
        return undecided.waited + waiting >= _UNDECIDED

    def _put_all(self, events: Iterable[Event], source: str) -> None:
        for event in events:
            self._put(event, source)

    def _put(self, event: Event, source: str) -> None:
        content = event.content
        values = self.report.values
        if type(content) is not Summary:
            if isinstance(content, FileVersion):
                self._sink.write_version(event, source)
            elif isinstance(content, SessionLog):
                self._put_session_log(event, content, source)
            elif event.derived and (content.kind != "graph" or self._has_archive):
                self._derived += 1
            elif self._is_for_tensorboard_alone(event):
                self._users += 1
            else:
                values[content.kind] = values.get(content.kind, 0) + 1
                self._sink.write(event, source)
            return
        if self._is_for_tensorboard_alone(event):
            self._users += len(content.values)
            return
        self._derived += sum(tagged.derived and not self._is_of_session(tagged) for tagged in content.values)
        if self._tags is not None:
            kept = tuple(tagged for tagged in content.values if self._tags.search(tagged.tag))
            if len(kept) < len(content.values):
                self.report.filtered += len(content.values) - len(kept)
                if event.original is not None:  # what is left is made anew, without what nobody knows
                    self._losses.add(
                        "event", "", "fields that are not known to this version, beside values left out by --tags"
                    )
                content = Summary(kept)
                event = Event(event.wall_time, event.step, content, event.format)
                if not kept:
                    return
        if self._cutoff is not None and event.step >= self._cutoff:
            self.report.superseded += len(content.values)
            return
        fresh = self._series.observe(event, content)
        if self._is_ours:  # whoever wrote it left out the repeats, so what looks like one is none
            fresh = event
        if fresh is not None:
            for tagged in fresh.content.values:  # type: ignore[union-attr]
                kind = tagged.value.kind
                values[kind] = values.get(kind, 0) + 1
            self._sink.write(fresh, source)

    def _is_for_tensorboard_alone(self, event: Event) -> bool:
        """Whether a user wrote this beside a MindSpore run: it never was in a MindSpore file."""
        return self._sink.format == mindspore.FORMAT and self.task.run.role != SOURCE and is_users(event)

    @staticmethod
    def _is_of_session(tagged: TaggedValue) -> bool:
        """Whether a value computed from lineage becomes lineage again, where lineage itself is not at hand."""
        return tagged.value.kind == "hparams" or is_metric_of_lineage(tagged.tag)

    def _put_session_log(self, event: Event, log: SessionLog, source: str) -> None:
        """A START behind the first values of a TensorBoard log says that its training begins again."""
        if log.status == SessionLog.START and self._series.rows:
            self.report.restarts.append(RestartMark(self.report.files[-1] if self.report.files else "", event.step))
            self._series.forget()
            self._sink.begin_session(event.step)
        self._sink.write(event, source)

    def _convert_restored(self) -> None:
        """Converts the output of an earlier conversion back, from its beginning: what it says must be read whole.

        The writers compare what lies in the destination already, so only what is new is added there. The heads of the
        files being read are our own; those of the files they were made from are in the archive.
        """
        reading = RunReading()
        self.report.files = [relative_path(file.path, self.task.source) for file in self.task.run.files]
        run = self.task.run
        for file in run.files[:1]:
            self._sink.begin_source(file.created)
        has_versions = any(archive_name(mindspore.FORMAT) in path for path in run.archives)
        is_head = False
        for source, event in read_restored(run, reading):
            self.report.events_read += 1
            is_version = source == run.format and isinstance(event.content, FileVersion)
            if is_version:
                if not has_versions:  # which begin the files that are written
                    self._sink.begin_session()
            elif not (is_head and source == run.format and isinstance(event.content, SessionLog)):
                self._put(event, source)
            is_head = is_version
        for path, size in _sizes(self.task).items():
            self.state.files[relative_path(path, self.task.source)] = identify(path, size, 0)
        self.report.damaged += reading.damaged
        self.report.incomplete += reading.incomplete
        self.report.padding_bytes += reading.padding_bytes

    def _note(self, item: Event | Damage | Padding | Incomplete, path: str) -> None:
        if isinstance(item, Damage):
            self.report.damaged.append(DamagedRange(path, item.start, item.end, item.reason))
        elif isinstance(item, Padding):
            self.report.padding_bytes += item.end - item.start
        elif isinstance(item, Incomplete):
            self.report.incomplete.append(IncompleteTail(path, item.offset))

    def _find_cutoffs(self) -> dict[str, int]:
        """Returns for each file the lowest step at which a later one began again."""
        paths = {relative_path(file.path, self.task.source): file.path for file in self.task.run.files}
        planned = [path for path in paths if path in self._ends]
        starts: list[tuple[int, int]] = []
        known = [self.state.files.get(path) for path in planned]
        if all(state is not None and state.undecided is None for state in known):  # nothing new to find out
            starts = [
                (index, state.restart)
                for index, state in enumerate(known)
                if state is not None and state.restart is not None
            ]
        else:
            starts = find_restarts([(paths[path], self._ends[path]) for path in planned], self.task.run.format)
            for index, step in starts:
                self._note_restart(planned[index], step)
        return {
            paths[path]: min(later)
            for index, path in enumerate(planned)
            if (later := [step for start, step in starts if start > index])
        }

    def _note_restart(self, path: str, step: int) -> None:
        """Reports a restart that `latest` found, if it is new, and what an earlier conversion wrote before it came."""
        known = self.state.files.get(path)
        if known is not None and known.undecided is None:
            return
        self.report.restarts.append(RestartMark(path, step))
        if any(series.max_step >= step for _, _, series in self.state.series):
            self.report.problems.append(
                f"{path}: begins again at step {step}; an earlier conversion wrote points that are superseded by it "
                "now and stay in its output; --force leaves them out"
            )
