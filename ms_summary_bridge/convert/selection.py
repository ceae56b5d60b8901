"""Selection: which values of a source's events are written, and what is counted of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ms_summary_bridge.convert.series import SeriesKey, SeriesTable
from ms_summary_bridge.convert.task import RunTask, compile_tags
from ms_summary_bridge.errors import counted
from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.formats import mindspore
from ms_summary_bridge.formats.sessions.hparams import is_metric_of_lineage
from ms_summary_bridge.runs.log_files import CONVERT, SOURCE
from ms_summary_bridge.runs.report import LossCounter, RunReport

__all__ = ["Selection"]


class Selection:
    """The choice for one run: counts values in `report` and `losses`, and notes in `series` what is written.

    With `has_archive` the run has an archive beside it that holds what was drawn.
    """

    def __init__(
        self,
        task: RunTask,
        report: RunReport,
        losses: LossCounter,
        series: SeriesTable,
        target: str,
        *,
        has_archive: bool,
    ) -> None:
        self.superseded: Mapping[SeriesKey, int] = {}
        """Step of each series from which on its values are left out."""
        self._derived = 0
        self._users = 0
        self._report = report
        self._losses = losses
        self._series = series
        self._has_archive = has_archive
        self._run = task.run
        self._is_ours = task.run.role == CONVERT
        # It never was in a MindSpore file.
        self._leaves_users = target == mindspore.FORMAT and task.run.role != SOURCE
        self._tags = compile_tags(task.options.tags)

    def is_wanted(self, tag: str) -> bool:
        """Whether values with this tag are written."""
        return self._tags is None or self._tags.search(tag) is not None

    def choose(self, event: Event) -> Event | None:
        """Returns what is written of an event that is a summary, or whole; None for nothing."""
        content = event.content
        values = self._report.values
        if type(content) is not Summary:
            if event.derived and (content.kind != "graph" or self._has_archive):
                self._derived += 1
            elif self._leaves_users and event.by_user:
                self._users += 1
            else:
                values[content.kind] = values.get(content.kind, 0) + 1
                self._series.observe_whole(event)
                return event
            return None
        if self._leaves_users and event.by_user:
            self._users += len(content.values)
            return None
        for tagged in content.values:
            if tagged.derived and not _is_of_session(tagged):
                self._derived += 1
        chosen: Event | None = event
        if self._tags is not None:
            chosen, left_out = self._without(event, content, lambda tagged: self.is_wanted(tagged.tag), "--tags")
            self._report.filtered += left_out
        if self.superseded and chosen is not None:
            superseded = self.superseded

            def is_current(tagged: TaggedValue) -> bool:
                cutoff = superseded.get((tagged.value.kind, tagged.tag))
                return cutoff is None or event.step < cutoff

            chosen, left_out = self._without(chosen, chosen.content, is_current, "--on-restart latest")
            self._report.superseded += left_out
        if chosen is None:
            return None
        fresh = self._series.observe(chosen, chosen.content)  # type: ignore[arg-type]
        if self._is_ours:  # whoever wrote it left out the repeats, so what looks like one is a point
            fresh = chosen
        if fresh is not None:
            for tagged in fresh.content.values:  # type: ignore[union-attr]
                kind = tagged.value.kind
                values[kind] = values.get(kind, 0) + 1
        return fresh

    def notes(self) -> list[str]:
        """Returns what a person should know of the values that were left out."""
        notes = []
        if self._users:
            written = counted(self._users, "value was", "values were")
            notes.append(f"{written} written for TensorBoard alone (bridge.summary_writer), and left out")
        if self._is_ours and not self._run.archives:
            if self._derived:
                computed = counted(self._derived, "value was", "values were")
                notes.append(
                    f"{computed} computed from others (tensors, loss landscapes, counts of NaN) by an earlier "
                    "conversion; the archive with the originals is missing beside them, so these are not restored"
                )
            elif self._run.format == mindspore.FORMAT:  # every conversion keeps something, the version at least
                notes.append(
                    "its archive is missing beside it, so what an earlier conversion could not write for MindInsight "
                    "exactly (float64, text, merged buckets, ...) is not restored"
                )
        return notes

    def _without(
        self, event: Event, content: object, is_kept: Callable[[TaggedValue], bool], option: str
    ) -> tuple[Event | None, int]:
        """Returns a summary with the values that are kept alone, and how many are left out."""
        assert isinstance(content, Summary)
        kept = tuple(filter(is_kept, content.values))
        left_out = len(content.values) - len(kept)
        if not left_out:
            return event, 0
        if kept and event.original is not None:  # what is left is made anew, without what nobody knows
            reason = f"fields that are not known to this version, beside values left out by {option}"
            self._losses.add("event", "", reason)
        return (Event(event.wall_time, event.step, Summary(kept), event.format) if kept else None), left_out


def _is_of_session(tagged: TaggedValue) -> bool:
    """Whether a value computed from lineage becomes lineage again, where lineage itself is not at hand."""
    return tagged.value.kind == "hparams" or is_metric_of_lineage(tagged.tag)
