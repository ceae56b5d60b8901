"""The conversion of one run: the loop over the pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from crc32c import crc32c

from ms_summary_bridge.batches.histograms import Drawn, Histograms
from ms_summary_bridge.batches.limits import LIMITS
from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.convert.batches import JudgedBatch, judge
from ms_summary_bridge.convert.mindspore_sink import MindSporeSink
from ms_summary_bridge.convert.names import keep_name
from ms_summary_bridge.convert.restarts import FileWalk, ReadAhead, Restart
from ms_summary_bridge.convert.selection import Selection
from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.convert.sink import RunSink
from ms_summary_bridge.convert.state import Plan, RunState, identify
from ms_summary_bridge.convert.superseded import Superseded, find_superseded
from ms_summary_bridge.convert.task import RunTask, relative_path
from ms_summary_bridge.convert.tensorboard_sink import TensorBoardSink
from ms_summary_bridge.convert.unread import (
    Unread,
    begin_walk,
    find_unread,
    is_late,
    is_unchanged,
    is_written_at_once,
    sizes_of,
)
from ms_summary_bridge.events import Decoder, Event, FileVersion, SessionLog, Summary
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.formats.plugin_data import is_users
from ms_summary_bridge.runs.archive import LINEAGE, archive_name, make_decoder, make_encoder
from ms_summary_bridge.runs.graph_file import read_graph_file
from ms_summary_bridge.runs.logdir import CONVERT, LogFile
from ms_summary_bridge.runs.reading import RunReading, read_restored
from ms_summary_bridge.runs.report import LossCounter, RenamedTag, RestartMark, RunReport, failed_run
from ms_summary_bridge.values import Histogram, Value

__all__ = ["Progress", "convert_run"]

Progress = Callable[[int], None]
"""Called now and then with the number of source bytes read since the last call."""

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


class _RunConversion:
    """The loop over one run's files."""

    def __init__(self, task: RunTask, report: RunReport, advance: Progress | None) -> None:
        self.task = task
        self.report = report
        self._is_ours = task.run.role == CONVERT
        self._is_unchanged = self._is_ours and is_unchanged(task)
        # What is restored is read whole if anything of it is new, so nothing is remembered of it.
        is_anew = self._is_ours and not self._is_unchanged
        self.state = (
            RunState(lineage=task.state.lineage, lineage_head=task.state.lineage_head) if is_anew else task.state
        )
        self._advance = advance
        self._series = SeriesTable(self.state.series)
        self._losses = LossCounter()
        target = tensorboard.FORMAT if task.run.format == mindspore.FORMAT else mindspore.FORMAT
        has_archive = any(archive_name(source) in path for path in task.run.archives for source in (target, LINEAGE))
        self._selection = Selection(task, report, self._losses, self._series, target, has_archive=has_archive)
        self._sink: RunSink = (TensorBoardSink if target == tensorboard.FORMAT else MindSporeSink)(
            task.destination,
            host=task.run.host,
            state=self.state,
            losses=self._losses,
            keep_archive=task.options.keep_archive,
            is_dry=task.options.dry_run,
            is_own=self._is_ours,
            is_restored=has_archive,
        )
        self._decoder = make_decoder(task.run.format)
        if isinstance(self._decoder, tensorboard.TensorBoardDecoder):
            self._decoder.plugins = self.state.plugins
        self._shapes = Shapes(b"\x1d" if task.run.format == mindspore.FORMAT else b"\x15")
        self._histograms = Histograms() if target == tensorboard.FORMAT else None
        self._ahead = self._read_ahead(self._series)
        self._plan = task.state.plan or Plan({})
        self._is_at_once = False  # the file being read was written beside another one
        self._begins_anew = False  # behind the piece of it that was read last a training begins again

    def _read_ahead(self, series: SeriesTable) -> ReadAhead:
        return ReadAhead(series, self._decoder_ahead, make_encoder(self._sink.format), self._selection.is_wanted)

    def _decoder_ahead(self) -> Decoder:
        decoder = make_decoder(self.task.run.format)
        if isinstance(decoder, tensorboard.TensorBoardDecoder):
            decoder.plugins.update(self.state.plugins)
        return decoder

    def convert(self) -> None:
        run = self.task.run
        is_latest = self.task.options.on_restart == "latest"
        try:
            if not self._is_ours:
                superseded: dict[str, Superseded] = {}
                if is_latest and len(run.files) > 1:
                    parts = [unread for file in run.files if (unread := self._find_unread(file)) is not None]
                    superseded = find_superseded(
                        parts,
                        task=self.task,
                        report=self.report,
                        series=self._series,
                        read_ahead=self._read_ahead,
                        decoder=self._decoder_ahead(),
                        is_wanted=self._selection.is_wanted,
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
            elif not self._is_unchanged:
                self._convert_restored()
            self._sink.end_sources(grows=self._plan.grows)
        finally:
            self._sink.close()
        self.state.plan = None
        self.state.series = self._series.rows
        self._finish_report(is_latest=is_latest)

    def _finish_report(self, *, is_latest: bool) -> None:
        report = self.report
        report.outputs = [output.name for output in self.state.outputs]
        report.archived = self._sink.archived
        report.repeated = 0 if self._is_ours else self._series.repeated
        report.went_back = self._series.went_back
        report.losses = self._losses.rows()
        report.renamed_tags = [RenamedTag(*row) for row in self._sink.names.renamed]
        report.problems += self._sink.notes
        if is_latest and self._is_ours:
            report.problems.append("--on-restart latest leaves nothing out of what an earlier conversion wrote")
        report.problems += self._selection.notes()

    def _find_unread(self, file: LogFile) -> Unread | None:
        return find_unread(file, self.task.source, self.state, self._plan.ends)

    def _convert_file(self, file: LogFile) -> None:
        unread = self._find_unread(file)
        if unread is None:
            return
        path, known = unread.path, unread.known
        self.report.files.append(path)
        self._sink.begin_source(file.created)
        self._series.begin_file(unread.number)
        if known is None and is_late(unread, self.state.files):
            self.report.problems.append(f"{path}: older than files converted before it; --force puts it in its place")
        walk = begin_walk(unread, self.task, self.state.files, self._decoder)
        if LIMITS.is_used and not self._selection.superseded:
            walk.shapes, walk.histograms = self._shapes, self._histograms
        self._is_at_once = is_written_at_once(unread, self.state.files)
        if unread.is_replaced:
            self.report.problems.append(f"{path}: was replaced or cut since the last conversion, read from its start")
            self._series.forget_repeats()
        if unread.is_replaced or (not unread.start and walk.has_lineage):
            self._sink.begin_file()
        reported = walk.offset
        for piece in walk.pieces(self._ahead):
            if isinstance(piece, Batch):
                self._put_batch(piece)
            elif isinstance(piece, Drawn):
                self._put_drawn(piece, walk.payload)
            elif isinstance(piece, Event):
                self.report.events_read += 1
                written = self._put(piece, self.task.run.format)
                if written is not None and walk.payload:
                    self._learn(walk.payload, piece, written)
            elif isinstance(piece, Restart):
                self._begin_again(path, piece.step)
            else:
                self.report.note(piece, path)
            if self._begins_anew:
                self.state.end_turn(path, walk.offset, begins_anew=True)
                self._begins_anew = False
            if self._advance is not None and walk.offset - reported > _PROGRESS_BYTES:
                self._advance(walk.offset - reported)
                reported = walk.offset
        if walk.reason:
            self.report.problems.append(f"{path}: {walk.reason}")
        if self._advance is not None:
            self._advance(walk.offset - reported)
        self.state.end_turn(path, walk.offset)
        for (kind, tag), step in self._selection.superseded.items():
            self.state.superseded.append((path, unread.start, walk.offset, kind, tag, step))
        state = self.state.files[path] = identify(file.path, walk.offset, file.created)
        is_decided = any(mark.file == path for mark in self.report.restarts)  # `latest` leaves nothing to go back to
        state.undecided, state.last_time = None if is_decided else walk.undecided, walk.last_time
        if state.is_held:
            self.report.held.append(path)

    def _learn(self, payload: bytes, event: Event, written: bytes) -> None:
        if not self._shapes.learn(payload, event, written) and self._histograms is not None:
            self._histograms.learn(payload, event, written)

    def _put_drawn(self, drawn: Drawn, payload: bytes) -> None:
        """Writes an event with histograms as it was drawn, where nothing about it asks for a closer look."""
        self.report.events_read += 1
        if not self._sink.takes_batches or not self._series.observe_drawn(drawn, partial(self._histogram_of, payload)):
            self._put(self._decoder.decode(payload), self.task.run.format)
            return
        values = self.report.values
        for kind, _, _ in drawn.values:
            values[kind] = values.get(kind, 0) + 1
        checksum = crc32c(drawn.payload)
        record = encode_record(drawn.payload, checksum)
        self._sink.write_batch(JudgedBatch(record, 1, checksum, drawn.wall_time, {}, {}))

    def _histogram_of(self, payload: bytes, tag: str) -> Value:
        """Returns a histogram of an event that was not taken apart when it was read."""
        content = self._decoder_ahead().decode(payload).content
        assert isinstance(content, Summary)
        return next(
            tagged.value for tagged in content.values if tagged.tag == tag and isinstance(tagged.value, Histogram)
        )

    def _put_batch(self, batch: Batch) -> None:
        """Writes events at once where nothing about them asks for a closer look, else one by one."""
        self.report.events_read += batch.events
        source = self.task.run.format
        if not self._sink.takes_batches:
            first, batch = batch.split(1)
            for event in first.decode(self._decoder):
                self._put(event, source)
        judged = judge(batch, self._series) if self._sink.takes_batches and batch.events else None
        if judged is None:
            for event in batch.decode(self._decoder):
                self._put(event, source)
            return
        values = self.report.values
        if judged.events:
            values["scalar"] = values.get("scalar", 0) + sum(judged.points.values())
            self._sink.write_batch(judged)

    def _begin_again(self, path: str, step: int) -> None:
        mark = RestartMark(path, step)
        if mark not in self.report.restarts:
            self.report.restarts.append(mark)
        self._series.restart(step)
        self._begins_anew = True
        self._sink.begin_session(step)

    def _convert_lineage(self, file: LogFile) -> None:
        unread = self._find_unread(file)
        if unread is None:
            return
        path, start = unread.path, unread.start
        self.report.files.append(path)
        self._sink.begin_source(file.created)
        if unread.is_replaced:
            self.report.problems.append(f"{path}: was replaced or cut since the last conversion, read from its start")
        walk = FileWalk(file.path, start, unread.end, make_decoder(LINEAGE))
        for piece in walk.pieces(self._ahead):
            if isinstance(piece, Event):
                self.report.events_read += 1
                self._put(piece, LINEAGE)
            elif not isinstance(piece, (Batch, Drawn, Restart)):
                self.report.note(piece, path)
        if self._advance is not None:
            self._advance(walk.offset - start)
        self.state.end_turn(path, walk.offset)
        self.state.files[path] = identify(file.path, walk.offset, file.created)

    def _convert_graph_file(self, file: LogFile) -> None:
        unread = self._find_unread(file)
        if unread is None:
            return
        self.report.files.append(unread.path)
        if unread.known is not None:  # it does not grow, so it is another one; of two graphs TensorBoard shows the last
            self.report.problems.append(f"{unread.path}: was replaced since the last conversion, and is drawn again")
        event = read_graph_file(file.path)
        self.report.events_read += 1
        self._put(event, mindspore.FORMAT)
        self.state.end_turn(unread.path, file.size)
        self.state.files[unread.path] = identify(file.path, file.size, file.created)

    def _convert_users(self, file: LogFile) -> None:
        """Takes over what a user wrote into a live TensorBoard file; the rest of it is in the MindSpore file.

        A mark of a session is left out: it would stand behind values that it was not meant for.
        """
        unread = self._find_unread(file)
        if unread is None:
            return
        walk = FileWalk(file.path, unread.start, unread.end, make_decoder(tensorboard.FORMAT))
        for piece in walk.pieces(self._ahead):
            if isinstance(piece, Event):
                if is_users(piece) and not isinstance(piece.content, SessionLog):
                    self.report.events_read += 1
                    self._put(piece, tensorboard.FORMAT)
            elif not isinstance(piece, (Batch, Drawn, Restart)):
                self.report.note(piece, unread.path)
        self.state.end_turn(unread.path, walk.offset)
        self.state.files[unread.path] = identify(file.path, walk.offset, file.created)

    def _put(self, event: Event, source: str) -> bytes | None:
        """Returns the payload that was written for an event, if it holds all of it."""
        content = event.content
        if type(content) is FileVersion:
            self._sink.write_version(event, source)
        elif type(content) is SessionLog:
            self._put_session_log(event, content, source)
        elif (chosen := self._selection.choose(event)) is not None:
            encoded = self._sink.write(chosen, source)
            if chosen is event and encoded is not None and encoded.archive is None and not encoded.losses:
                return encoded.payload
        return None

    def _put_session_log(self, event: Event, log: SessionLog, source: str) -> None:
        """A START of a TensorBoard log says that its training begins again, where there are points that it replaces."""
        replaces = not self._is_at_once and any(tag for _, tag in self._series.lowest_from(event.step))
        if log.status == SessionLog.START and replaces:
            mark = RestartMark(self.report.files[-1] if self.report.files else "", event.step)
            self.report.restarts.append(mark)
            self._series.restart(event.step)
            self._begins_anew = True
            self._sink.begin_file()
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
        for source, event in read_restored(run, reading):
            self.report.events_read += 1
            if source != run.format or not isinstance(event.content, (FileVersion, SessionLog)):
                self._put(event, source)
            elif isinstance(event.content, FileVersion) and not has_versions:  # which begin the files that are written
                self._sink.begin_file()
        for path, size in sizes_of(self.task).items():
            self.state.files[relative_path(path, self.task.source)] = identify(path, size, 0)
        self.report.damaged += reading.damaged
        self.report.incomplete += reading.incomplete
        self.report.padding_bytes += reading.padding_bytes
