"""State: what a destination already holds, so that converting again adds only what is new.

One hidden JSON file at the top of the destination. It is written, by an atomic rename, when the disk has the outputs it
speaks of; so it may lag behind them after a crash, and the writers then compare what lies there with what they would
write.
"""

from __future__ import annotations

import contextlib
import os
from typing import Annotated, Final

import msgspec

from ms_summary_bridge.convert.series import Series
from ms_summary_bridge.errors import NOT_JSON, DamagedStateError, OtherConversionError, ReadError, WriteError
from ms_summary_bridge.files.atomic import make_directory, replace_file, sync_names
from ms_summary_bridge.files.records import MAX_RECORD_BYTES
from ms_summary_bridge.files.system import open_regular
from ms_summary_bridge.runs.archive import ArchivePosition

__all__ = [
    "STATE_NAME",
    "FileState",
    "OutputState",
    "Plan",
    "RunState",
    "State",
    "Undecided",
    "load_state",
    "save_state",
]

STATE_NAME: Final = ".ms_summary_bridge.json"
_VERSION: Final = 2
_MOST_TURNS: Final = 500_000  # characters; at the fastest two files need seven hours for that
_ANEW: Final = "anew"
_ENDLESS: Final = "..."
_Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_HeadBytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]  # which are read at once


class Undecided(msgspec.Struct):
    """A later file of which nobody can say yet whether it is a restart."""

    waited: int = 0
    """Events it has shown so far that were written."""
    seen: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Their series: one that goes back now does so inside the file."""
    is_held: bool = False
    """The events that follow go back, and are left for the next conversion until it is known what they are."""


class FileState(msgspec.Struct):
    """How far one source file has been converted, and how to know it again."""

    offset: _Offset = 0
    """Everything before this byte has been converted."""
    head_bytes: _HeadBytes = 0
    head: str = ""
    """Hash of the first `head_bytes` bytes."""
    tail: str = ""
    """Hash of the last bytes before `offset`: a file that was replaced by a longer one differs here."""
    order: int = 0
    """Seconds in its name: a file found later with a smaller number was overlooked."""
    last_time: float | None = None
    """The latest wall time in it; None for a file beside the run's order (lineage, a graph, a twin)."""
    undecided: Undecided | None = None

    @property
    def is_held(self) -> bool:
        """Whether events of it are known but not written yet, since they may be those of a restart."""
        return self.undecided is not None and self.undecided.is_held


class OutputState(msgspec.Struct):
    """One output file of ours."""

    name: str
    offset: _Offset
    head: str = ""
    """Hash of its first payload: what is restored does not say that it is ours."""
    checksum: int | None = None
    """CRC-32C of all that was written to it; None where it is not known."""


class Plan(msgspec.Struct):
    """What a conversion does with one run: written before its outputs, so that one that was killed can be repeated."""

    ends: dict[str, _Offset]
    """Up to which byte each source file is read, by path relative to the source."""
    grows: bool = False
    """As `ConvertOptions.grows`."""
    growing: list[str] = msgspec.field(default_factory=list)
    """Files that may get more events, so that those which may be a restart's are left to a later conversion."""


class RunState(msgspec.Struct):
    """One run of the destination."""

    files: dict[str, FileState] = msgspec.field(default_factory=dict)
    """By path relative to the source."""
    outputs: list[OutputState] = msgspec.field(default_factory=list)
    """Event files in the order they were begun; the last one grows."""
    archives: dict[str, _Offset] = msgspec.field(default_factory=dict)
    """Offsets of the archives, by source format."""
    archive_checksums: dict[str, int | None] = msgspec.field(default_factory=dict)
    """As `OutputState.checksum`."""
    names: list[tuple[str, str, str, str]] = msgspec.field(default_factory=list)
    """Names given to tags: `(tag, kind, suffix, name)`."""
    series: list[tuple[str, str, Series]] = msgspec.field(default_factory=list)
    last_place: ArchivePosition | None = None
    """The output's last event, as archives name it."""
    plugins: dict[str, str] = msgspec.field(default_factory=dict)
    """TensorBoard's plugin of each tag: a writer may say it once and never again."""
    session: dict[str, bytes] = msgspec.field(default_factory=dict)
    """What tells of the training session: MindSpore's last lineage record of each kind, or TensorBoard's values of the
    `hparams` plugin by their tag."""
    reported_once: list[str] = msgspec.field(name="said", default_factory=list)
    """Losses of the session that were counted: what it becomes is written anew when other things have changed."""
    start_times: list[float] = msgspec.field(name="begins", default_factory=list)
    """When each file of a MindSpore source was begun."""
    lineage: str = ""
    """Name of the lineage file written."""
    lineage_head: str = ""
    """Hash of its first payload."""
    has_mark: bool = False
    """A TensorBoard output holds a mark of a session's start."""
    lineage_checksum: int | None = None
    """As `OutputState.checksum`."""
    latest_time: float = 0.0
    """Highest wall_time of a TensorBoard source's events; 0 if none was later."""
    turns: str = ""
    """In which order the source files were read: `<number in files> <offset>` for each turn that ended there, with
    `anew` behind it where a training begins again. Files that grow at the same time are read in many turns; beyond a
    limit it ends with `...`."""
    superseded: list[tuple[str, int, int, str, str, int]] = msgspec.field(default_factory=list)
    """What `--on-restart latest` left out: `(path, from byte, to byte, kind, tag, step)` for the values of a series in
    that part of a file at that step and above."""
    points: dict[str, int] = msgspec.field(default_factory=dict)
    """Points of each series in a MindSpore output, by `kind tag`: MindInsight shows only so many."""
    plan: Plan | None = None
    """Of the conversion under way, or of one that was killed or failed."""

    def end_turn(self, path: str, offset: int, *, begins_anew: bool = False) -> None:
        """Takes note that a source file was read up to `offset`, and maybe that a training begins again there."""
        files = list(self.files)
        number = files.index(path) if path in self.files else len(files)
        before, _, last = self.turns.rpartition("\n")
        if last == _ENDLESS:
            return
        words = last.split(" ")
        if words[0] != str(number) or words[-1] == _ANEW:
            before = self.turns
        turn = f"{number} {offset} {_ANEW}" if begins_anew else f"{number} {offset}"
        if len(before) > _MOST_TURNS:
            turn = _ENDLESS
        self.turns = f"{before}\n{turn}" if before else turn

    def list_turns(self) -> list[tuple[str, int, bool]] | None:
        """Returns the path and the end of each turn, and whether a training begins again there.

        None when there were too many to remember.
        """
        if self.turns.endswith(_ENDLESS):
            return None
        paths = list(self.files)
        rows = [line.split(" ") for line in self.turns.splitlines()]
        return [(paths[int(row[0])], int(row[1]), row[-1] == _ANEW) for row in rows if int(row[0]) < len(paths)]


class State(msgspec.Struct):
    """One destination."""

    version: int = _VERSION
    to: str = ""
    source: str = ""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    """The options that decide what the output holds."""
    runs: dict[str, RunState] = msgspec.field(default_factory=dict)


def load_state(destination: str) -> State:
    """Reads the state of a destination; an empty one where nothing was converted.

    Raises:
        ReadError: The file cannot be read.
        DamagedStateError: It makes no sense.
        OtherConversionError: Another version of this program wrote it.
    """
    path = os.path.join(destination, STATE_NAME)
    try:
        with open(path, "rb", opener=open_regular) as file:
            if os.fstat(file.fileno()).st_size > MAX_RECORD_BYTES:
                raise ValueError(f"more than {MAX_RECORD_BYTES} bytes")
            state = _decode(file.read())
        for run in state.runs.values():
            run.list_turns()  # which raises at what is none
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise ReadError.of_system(path, "read", error) from error
    except (*NOT_JSON, IndexError) as error:
        raise DamagedStateError(f"{path}: damaged ({error}); start over with --force or another destination") from error
    if state.version != _VERSION:
        raise OtherConversionError(f"{path}: written by another version of this program; start over with --force")
    for name, run in state.runs.items():
        files = [output.name for output in run.outputs] + ([run.lineage] if run.lineage else [])
        parts = [*name.split("/"), *files, *run.archives]
        read = [state.source, *run.files, *(run.plan.ends if run.plan is not None else ())]
        if "" in parts or ".." in parts or any({"/", os.sep} & {*part} for part in parts):
            raise DamagedStateError(f"{path}: damaged (a name leads out of it); start over with --force")
        if not _is_path("".join((*parts, *read))):
            raise DamagedStateError(f"{path}: damaged (a name that no file can have); start over with --force")
    return state


def _is_path(text: str) -> bool:
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")  # whatever the locale of this process is
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def _decode(data: bytes) -> State:
    try:
        return msgspec.json.decode(data, type=State)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        import json  # here, as below: it takes a while to load, and is hardly ever needed

        return msgspec.convert(json.loads(data), State)


def _encode(state: State) -> bytes:
    try:
        return msgspec.json.format(msgspec.json.encode(state), indent=1)
    except UnicodeEncodeError:  # a tag or a path that is not UTF-8: its surrogates are kept as JSON escapes
        import json

        return json.dumps(msgspec.to_builtins(state), indent=1).encode()


def save_state(destination: str, state: State) -> None:
    """Writes the state of a destination that is locked, if it is another one; a reader sees the old or the new one.

    Raises:
        WriteError: It cannot be written.
    """
    path = os.path.join(destination, STATE_NAME)
    data = _encode(state)
    try:
        with contextlib.suppress(FileNotFoundError), open(path, "rb", opener=open_regular) as present:
            if present.read() == data:
                return
        sync_names(*make_directory(destination))
        replace_file(path, data)
    except OSError as error:
        raise WriteError.of_system(path, "written", error) from error
