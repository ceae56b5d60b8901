"""Reports: what a conversion read, wrote, and could not carry over.

Plain data, the same in Python and in JSON.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.files.records import Damage, Incomplete, Padding

__all__ = [
    "DamagedRange",
    "IncompleteTail",
    "LossCount",
    "LossCounter",
    "RenamedTag",
    "Report",
    "RestartMark",
    "RunReport",
    "encode_json",
    "failed_run",
]


class LossCount(msgspec.Struct):
    """Values of one tag that the target does not hold, or not exactly."""

    kind: str
    tag: str
    count: int
    reason: str


class DamagedRange(msgspec.Struct):
    """A range of bytes of a source file that held no readable event: `[start, end)`."""

    file: str
    start: int
    end: int
    reason: str


class IncompleteTail(msgspec.Struct):
    """A source file that ends inside a record; the next conversion goes on there."""

    file: str
    offset: int


class RestartMark(msgspec.Struct):
    """A later file that begins again at `step`."""

    file: str
    step: int


class RenamedTag(msgspec.Struct):
    """A tag that could not be kept, because TensorBoard cannot hold two kinds under one tag."""

    tag: str
    kind: str
    name: str


class RunReport(msgspec.Struct):
    """One run. Every count is of this conversion alone, not of earlier ones into the same destination.

    The records of the source add up: `events_read` is the number of whole, readable records, and `values` +
    `repeated` + `superseded` + `filtered` are the values in them. `losses` and `archived` say more of some of `values`.
    """

    run: str
    source: str
    destination: str
    files: list[str] = msgspec.field(default_factory=list)
    outputs: list[str] = msgspec.field(default_factory=list)
    events_read: int = 0
    values: dict[str, int] = msgspec.field(default_factory=dict)
    """Values read that are new, by kind; event-level kinds (`graph`, `train_lineage`, ...) count as one value."""
    repeated: int = 0
    superseded: int = 0
    """Values left out by `--on-restart latest`."""
    filtered: int = 0
    """Values left out by `--tags`."""
    archived: int = 0
    """Events whose exact form is kept in an archive beside the output."""
    losses: list[LossCount] = msgspec.field(default_factory=list)
    damaged: list[DamagedRange] = msgspec.field(default_factory=list)
    incomplete: list[IncompleteTail] = msgspec.field(default_factory=list)
    padding_bytes: int = 0
    restarts: list[RestartMark] = msgspec.field(default_factory=list)
    held: list[str] = msgspec.field(default_factory=list)
    """Files of which events wait, while they grow, until it is known whether they are a restart."""
    renamed_tags: list[RenamedTag] = msgspec.field(default_factory=list)
    went_back: dict[str, int] = msgspec.field(default_factory=dict)
    """How often a tag's step went back inside a file."""
    problems: list[str] = msgspec.field(default_factory=list)
    full_name: str = ""
    """What the run would be called in the destination, where that is too long for a file system."""
    failed: str = ""
    """The error that ended this run's conversion; empty when it went through."""
    error: str = ""
    """The class of that error: `WriteError`, ..."""
    traceback: str = ""
    """Where it came from, if it is a fault of this program."""

    def note(self, item: Damage | Padding | Incomplete, path: str) -> None:
        """Takes note of what is wrong with a source file."""
        if isinstance(item, Damage):
            self.damaged.append(DamagedRange(path, item.start, item.end, item.reason))
        elif isinstance(item, Padding):
            self.padding_bytes += item.end - item.start
        else:
            self.incomplete.append(IncompleteTail(path, item.offset))

    def add(self, later: RunReport) -> None:
        """Adds what a later conversion of the same run met, so that this report speaks of both.

        One that failed will be repeated, and then says all this again: of it only the error is taken.
        """
        self.failed, self.error, self.traceback = later.failed, later.error, later.traceback
        if later.failed:
            return
        self.full_name = later.full_name
        self.files += [path for path in later.files if path not in self.files]
        self.outputs = later.outputs or self.outputs
        self.events_read += later.events_read
        self.values = dict(Counter(self.values) + Counter(later.values))
        self.repeated += later.repeated
        self.superseded += later.superseded
        self.filtered += later.filtered
        self.archived += later.archived
        losses = LossCounter(self.losses)
        for loss in later.losses:
            losses.add(loss.kind, loss.tag, loss.reason, loss.count)
        self.losses = losses.rows()
        # What stands at the end of a file is met again each time the file has grown.
        again = {(item.file, item.start) for item in later.damaged}
        self.damaged = [item for item in self.damaged if (item.file, item.start) not in again] + later.damaged
        self.incomplete = [item for item in self.incomplete if item.file not in later.files] + later.incomplete
        self.padding_bytes = max(self.padding_bytes, later.padding_bytes)
        self.restarts += later.restarts
        self.held = later.held
        self.renamed_tags += [name for name in later.renamed_tags if name not in self.renamed_tags]
        self.went_back = dict(Counter(self.went_back) + Counter(later.went_back))
        self.problems += [problem for problem in later.problems if problem not in self.problems]


class Report(msgspec.Struct):
    """One call of `convert`."""

    source: str
    destination: str
    to: str
    runs: list[RunReport] = msgspec.field(default_factory=list)
    unreadable: list[str] = msgspec.field(default_factory=list)
    """Files and directories that could not be read at all, each with the reason."""
    empty: list[str] = msgspec.field(default_factory=list)
    """Event files without an event."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What else a person should know of the source."""
    failed: str = ""
    """The error that ended the whole conversion, or kept it from being remembered; empty when there was none."""

    @property
    def is_partial(self) -> bool:
        """Whether damaged records or unreadable files were left out."""
        return bool(self.unreadable) or any(run.damaged for run in self.runs)

    @property
    def has_losses(self) -> bool:
        """Whether anything could not be represented in the target format."""
        return any(run.losses for run in self.runs)

    @property
    def failures(self) -> list[RunReport]:
        """The runs whose conversion ended with an error."""
        return [run for run in self.runs if run.failed]


def failed_run(run: RunReport, error: Exception) -> RunReport:
    """Returns the report of a run whose conversion an error has ended; it will be repeated, and then say the rest."""
    text, trace = str(error), ""
    if isinstance(error, OSError) and not isinstance(error, BridgeError):
        text = f"{error.filename or run.destination}: {error.strerror or text or type(error).__name__}"
    elif isinstance(error, MemoryError):
        text = "there is not enough memory"
    elif not isinstance(error, BridgeError):
        text = f"{type(error).__name__}: {text}; this is a fault of this program: please report it"
        trace = "".join(traceback.format_exception(error))
    return RunReport(run.run, run.source, run.destination, failed=text, error=type(error).__name__, traceback=trace)


class LossCounter:
    """Adds up losses by kind, tag and reason; goes on from the rows of an earlier one."""

    def __init__(self, rows: Iterable[LossCount] = ()) -> None:
        self._counts = Counter({(row.kind, row.tag, row.reason): row.count for row in rows})

    def add(self, kind: str, tag: str, reason: str, count: int = 1) -> None:
        """Counts one loss, or several."""
        self._counts[kind, tag, reason] += count

    def rows(self) -> list[LossCount]:
        """Returns the sums, ordered by kind and tag."""
        return [LossCount(kind, tag, n, reason) for (kind, tag, reason), n in sorted(self._counts.items())]


def encode_json(report: object, *, indent: int = 1) -> bytes:
    """Returns any report as JSON. Bytes of a tag or a path that are not UTF-8 are written as backslash escapes.

    Args:
        report: What `msgspec.json` takes.
        indent: Spaces for each level; 0 for all in one line.
    """
    try:
        encoded = msgspec.json.encode(report)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_escaped(msgspec.to_builtins(report)))
    return (msgspec.json.format(encoded, indent=indent) if indent else encoded) + b"\n"


def _escaped(item: Any) -> Any:
    if isinstance(item, str):
        return item.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(item, list):
        return [_escaped(part) for part in item]
    if isinstance(item, dict):
        return {_escaped(key): _escaped(part) for key, part in item.items()}
    return item
