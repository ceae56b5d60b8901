"""The conversion of one run: the loop over the pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from ms_summary_bridge.batches.histograms import Drawn
from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.convert.lane import BatchLane
from ms_summary_bridge.convert.mindspore_sink import MindSporeSink
from ms_summary_bridge.convert.outputs import DryOutputs, Outputs
from ms_summary_bridge.convert.restarts import FileWalk, ReadAhead, Restart
from ms_summary_bridge.convert.selection import Selection
from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.convert.sink import RunSink
from ms_summary_bridge.convert.state import FileState, Plan, RunState
from ms_summary_bridge.convert.superseded import Superseded, find_superseded
from ms_summary_bridge.convert.task import RunTask, relative_path
from ms_summary_bridge.convert.tensorboard_sink import TensorBoardSink
from ms_summary_bridge.convert.unread import (
    Unread,
    begin_walk,
    find_unread,
    identify,
    is_late,
    is_unchanged,
    is_written_at_once,
    sizes_of,
)
from ms_summary_bridge.events import Decoder, Event, FileVersion, SessionLog
from ms_summary_bridge.files.file_names import LINEAGE
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.runs.archive import make_decoder, make_encoder, source_of
from ms_summary_bridge.runs.graph_file import read_graph_file
from ms_summary_bridge.runs.log_files import CONVERT, LogFile
from ms_summary_bridge.runs.msprobe import MSPROBE
from ms_summary_bridge.runs.reading import RunReading, read_restored, read_rows
from ms_summary_bridge.runs.report import LossCounter, RenamedTag, RestartMark, RunReport, failed_run

__all__ = ["NamedResult", "Progress", "convert_run"]

Progress = Callable[[int], None]
"""Called now and then with the number of source bytes read since the last call."""
NamedResult = tuple[str, RunTask, RunReport, RunState]
"""A task under its run's name in the destination, what was met, and the new state."""

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
        conversion = _RunConversion(task, report, advance or (lambda count: None))
        conversion.convert()
    except Exception as error:  # whatever it is, the other runs go on
        return failed_run(report, error), before
    return report, conversion.state


class _RunConversion:
    """The loop over one run's files."""

    def __init__(self, task: RunTask, report: RunReport, advance: Progress) -> None:
        self.task = task
        self.report = report
        run = task.run
        self._is_ours = run.role == CONVERT
        self._is_table = run.format == MSPROBE
        self._is_unchanged = (self._is_ours or self._is_table) and is_unchanged(task)
        # What is restored is read whole if anything of it is new, so nothing is remembered of it.
        is_anew = (self._is_ours or self._is_table) and not self._is_unchanged
        self.state = (
            RunState(lineage=task.state.lineage, lineage_head=task.state.lineage_head) if is_anew else task.state
        )
        self._advance = advance
        self._series = SeriesTable(self.state.series)
        self._losses = LossCounter()
        source = run.format
        if self._is_table:  # their events are as those of the other format
            source = mindspore.FORMAT if task.target == "tensorboard" else tensorboard.FORMAT
        target = tensorboard.FORMAT if source == mindspore.FORMAT else mindspore.FORMAT
        has_archive = bool(run.archive_by_source.keys() & {target, LINEAGE})
        self._selection = Selection(task, report, self._losses, self._series, target, has_archive=has_archive)
        self._outputs = (DryOutputs if task.options.dry_run else Outputs)(task.destination)
        self._sink: RunSink = (TensorBoardSink if target == tensorboard.FORMAT else MindSporeSink)(
            self._outputs,
            host=run.host,
            state=self.state,
            losses=self._losses,
            keep_archive=task.options.keep_archive and not self._is_table,  # there is no record that it could hold
            is_own=self._is_ours,
            is_restored=has_archive,
        )
        self._source = source
        self._decoder = make_decoder(source, self.state.plugins)
        self._lane = BatchLane(source, report, self._series, self._sink, self._decoder_ahead, self._put)
        self._ahead = ReadAhead(self._series, self._decoder_ahead, make_encoder(target), self._selection.is_wanted)
        self._plan = task.state.plan or Plan({})
        self._is_at_once = False  # the file being read was written beside another one
        self._begins_anew = False  # behind the piece of it that was read last a training begins again

    def _decoder_ahead(self) -> Decoder:
        return make_decoder(self._source, {**self.state.plugins})

    def convert(self) -> None:
        try:
            if self._is_table and not self._is_unchanged:
                self._convert_tables()
            elif not self._is_ours and not self._is_table:
                self._convert_files()
            elif not self._is_unchanged:
                self._convert_restored()
            self._sink.end_sources(grows=self._plan.grows)
        finally:
            self._sink.close()
        self._outputs.keep_name(self.task.full_name)
        self.state.plan = None
        self.state.series = self._series.rows
        report = self.report
        report.outputs = [output.name for output in self.state.outputs]
        report.archived = self._sink.archived
        report.repeated = 0 if self._is_ours else self._series.repeated
        report.went_back = self._series.went_back
        report.losses = self._losses.rows()
        report.renamed_tags = [RenamedTag(*row) for row in self._sink.names.renamed]
        report.problems += self._sink.notes
        if self._is_ours and self.task.options.on_restart == "latest":
            report.problems.append("--on-restart latest leaves nothing out of what an earlier conversion wrote")
        report.problems += self._selection.notes()

    def _convert_files(self) -> None:
        run = self.task.run
        superseded: dict[str, Superseded] = {}
        if self.task.options.on_restart == "latest" and len(run.files) > 1:
            superseded = find_superseded(
                [unread for file in run.files if (unread := self._find_unread(file)) is not None],
                self.task,
                self.report,
                self._ahead,
            )
        for file in run.files:
            self._selection.superseded = superseded.get(file.path, {})
            self._convert_file(file)
        self._selection.superseded = {}
        for file in self.task.live_files:
            self._convert_users(file)
        for file in run.lineage_files:
            self._convert_lineage(file)
        for file in run.graph_files:
            self._convert_graph_file(file)

    def _find_unread(self, file: LogFile) -> Unread | None:
        return find_unread(file, self.task.source, self.state, self._plan.ends)

    def _begin_file(self, file: LogFile) -> Unread | None:
        """Returns what is new of a file, and reports it; None for nothing."""
        unread = self._find_unread(file)
        if unread is not None:
            self.report.files.append(unread.path)
            self._sink.begin_source(file.created)
            if unread.is_replaced:
                self.report.problems.append(
                    f"{unread.path}: was replaced or cut since the last conversion, read from its start"
                )
        return unread

    def _end_file(self, unread: Unread, offset: int) -> FileState:
        """Takes note that a file was read up to `offset`."""
        self.state.end_turn(unread.path, offset)
        known = identify(unread.file.path, offset, unread.file.created)
        self.state.files[unread.path] = known
        return known

    def _convert_file(self, file: LogFile) -> None:
        unread = self._begin_file(file)
        if unread is None:
            return
        path = unread.path
        self._series.begin_file(unread.number)
        if unread.known is None and is_late(unread, self.state.files):
            self.report.problems.append(f"{path}: older than files converted before it; --force puts it in its place")
        walk = begin_walk(unread, self.task, self.state.files, self._decoder)
        if not self._selection.superseded:
            self._lane.open(walk)
        self._is_at_once = is_written_at_once(unread, self.state.files)
        if unread.is_replaced:
            self._series.forget_repeats()
        if unread.is_replaced or (not unread.start and walk.has_lineage):
            self._sink.begin_file()
        self._walk(walk, path)
        if walk.reason:
            self.report.problems.append(f"{path}: {walk.reason}")
        for (kind, tag), step in self._selection.superseded.items():
            self.state.superseded.append((path, unread.start, walk.offset, kind, tag, step))
        known = self._end_file(unread, walk.offset)
        is_decided = any(mark.file == path for mark in self.report.restarts)  # `latest` leaves nothing to go back to
        known.undecided, known.last_time = None if is_decided else walk.undecided, walk.last_time
        if known.is_held:
            self.report.held.append(path)

    def _walk(self, walk: FileWalk, path: str, is_taken: Callable[[Event], bool] | None = None) -> None:
        """Converts what a file holds; of its events those that are taken."""
        reported = walk.offset
        for piece in walk.pieces(self._ahead):
            if isinstance(piece, Event):
                if is_taken is None or is_taken(piece):
                    self.report.events_read += 1
                    self._lane.learn(walk.payload, piece, self._put(piece))
            elif isinstance(piece, (Batch, Drawn)):
                self._lane.write(piece, walk.payload)
            elif isinstance(piece, Restart):
                self._begin_again(path, piece.step)
            else:
                self.report.note(piece, path)
            if self._begins_anew:
                self.state.end_turn(path, walk.offset, begins_anew=True)
                self._begins_anew = False
            if walk.offset - reported > _PROGRESS_BYTES:
                self._advance(walk.offset - reported)
                reported = walk.offset
        self._advance(walk.offset - reported)

    def _begin_again(self, path: str, step: int) -> None:
        mark = RestartMark(path, step)
        if mark not in self.report.restarts:
            self.report.restarts.append(mark)
        self._series.restart(step)
        self._begins_anew = True
        self._sink.begin_session(step)

    def _convert_lineage(self, file: LogFile) -> None:
        unread = self._begin_file(file)
        if unread is not None:
            walk = FileWalk(file.path, unread.start, unread.end, make_decoder(file.record_format))
            self._walk(walk, unread.path)
            self._end_file(unread, walk.offset)

    def _convert_graph_file(self, file: LogFile) -> None:
        unread = self._find_unread(file)
        if unread is None:
            return
        self.report.files.append(unread.path)
        if unread.known is not None:  # it does not grow, so it is another one; of two graphs TensorBoard shows the last
            self.report.problems.append(f"{unread.path}: was replaced since the last conversion, and is drawn again")
        event = read_graph_file(file.path)
        self.report.events_read += 1
        self._put(event)
        self._end_file(unread, file.size)

    def _convert_users(self, file: LogFile) -> None:
        """Takes over what a user wrote into a live TensorBoard file; the rest of it is in the MindSpore file.

        A mark of a session is left out: it would stand behind values that it was not meant for.
        """
        unread = self._find_unread(file)
        if unread is not None:
            walk = FileWalk(file.path, unread.start, unread.end, make_decoder(file.record_format))
            self._walk(walk, unread.path, lambda event: event.by_user and not isinstance(event.content, SessionLog))
            self._end_file(unread, walk.offset)

    def _put(self, event: Event) -> bytes | None:
        """Returns the payload that was written for an event, if it holds all of it."""
        content = event.content
        if type(content) is FileVersion:
            self._sink.write_version(event)
        elif type(content) is SessionLog:
            self._put_session_log(event, content)
        elif (chosen := self._selection.choose(event)) is not None:
            encoded = self._sink.write(chosen)
            if chosen is event and encoded is not None and encoded.archive is None and not encoded.losses:
                return encoded.payload
        return None

    def _put_session_log(self, event: Event, log: SessionLog) -> None:
        """A START of a TensorBoard log says that its training begins again, where there are points that it replaces."""
        replaces = not self._is_at_once and any(tag for _, tag in self._series.lowest_from(event.step))
        if log.status == SessionLog.START and replaces:
            mark = RestartMark(self.report.files[-1] if self.report.files else "", event.step)
            self.report.restarts.append(mark)
            self._series.restart(event.step)
            self._begins_anew = True
            self._sink.begin_file()
        self._sink.write(event)

    def _convert_tables(self) -> None:
        """Converts tables of msprobe, whole: what of them grew has no place behind what was written of them before."""
        run = self.task.run
        if not self.task.options.dry_run:
            for output in self.task.state.outputs:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.task.destination, output.name))
        self.report.files = [relative_path(file.path, self.task.source) for file in run.files]
        self._sink.begin_source(min((file.created for file in run.files), default=0))
        reading = RunReading()
        for event in read_rows(run, reading):
            self.report.events_read += 1
            self._put(event)
        for file in run.files:
            self.state.files[relative_path(file.path, self.task.source)] = identify(file.path, file.size, file.created)
        self.report.damaged += reading.damaged
        self.report.incomplete += reading.incomplete
        self.report.problems += reading.problems + reading.notes

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
        has_versions = mindspore.FORMAT in run.archive_by_source
        for event in read_restored(run, reading):
            self.report.events_read += 1
            if source_of(event) != run.format or not isinstance(event.content, (FileVersion, SessionLog)):
                self._put(event)
            elif isinstance(event.content, FileVersion) and not has_versions:  # which begin the files that are written
                self._sink.begin_file()
        for path, size in sizes_of(self.task).items():
            self.state.files[relative_path(path, self.task.source)] = identify(path, size, 0)
        self.report.damaged += reading.damaged
        self.report.incomplete += reading.incomplete
        self.report.padding_bytes += reading.padding_bytes
