"""Destination: what earlier conversions left in it, and whether another one may go on there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ms_summary_bridge.convert.names import NAME_FILE, shorten, target_name
from ms_summary_bridge.convert.state import STATE_NAME, RunState, State, load_state
from ms_summary_bridge.convert.task import Request, relative_path
from ms_summary_bridge.convert.unread import is_same_file
from ms_summary_bridge.errors import (
    BridgeError,
    DestinationBusyError,
    LogdirError,
    OtherConversionError,
    ReadError,
    WriteError,
)
from ms_summary_bridge.events import FileVersion
from ms_summary_bridge.files.atomic import check_place, make_directory, sync_names, take_lock
from ms_summary_bridge.files.file_ends import peek
from ms_summary_bridge.files.file_names import LINEAGE, archive_name
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.logdir import Run

__all__ = ["locked", "prepare_state"]


def prepare_state(request: Request, target: str, runs: list[Run]) -> tuple[State, dict[str, LogdirError]]:
    """Returns the state that a conversion of these runs begins with; the destination is locked.

    Returns:
        The state, and why outputs cannot be removed that `force` is to remove, by the run's directory.

    Raises:
        LogdirError: The state cannot be read, or with `force` not be removed.
        OtherConversionError: The destination holds another conversion than this one.
    """
    source, destination, options = request.source, request.destination, request.options
    blocked: dict[str, LogdirError] = {}
    if request.force:
        state = State()
        if not options.dry_run:
            blocked = _remove_outputs(destination, runs)
    else:
        state = load_state(destination)
    if state.to and state.to != target:
        raise OtherConversionError(
            f"{destination}: holds a conversion to {state.to}; use another destination or --force"
        )
    if state.options and state.options != options.as_state():
        differing = ", ".join(f"{k} was {v!r}" for k, v in state.options.items() if options.as_state().get(k) != v)
        raise OtherConversionError(
            f"{destination}: was made with other options ({differing}); use the same, or --force"
        )
    home = _absolute(source)
    if state.source and state.source != home and not any(_knows(state, run, source) for run in runs):
        raise OtherConversionError(
            f"{destination}: holds the conversion of {state.source}; use another destination, or --force to start over"
        )
    state.to, state.source, state.options = target, home, options.as_state()
    return state, blocked


@contextmanager
def locked(destination: str, *, is_dry: bool = False) -> Iterator[None]:
    """Holds the destination, made if missing, for one conversion at a time; the system frees it when the process dies.

    With `is_dry` it only finds out whether that would be possible.

    Raises:
        DestinationBusyError: Another conversion is writing there.
        WriteError: The directory cannot be made, or not be written.
    """
    path = os.path.join(destination, STATE_NAME + ".lock")
    if is_dry:
        check_place(path)
        yield
        return
    try:
        sync_names(*make_directory(destination))
    except OSError as error:
        raise WriteError.of_system(destination, "written", error) from error
    handle = take_lock(path)
    if handle is None:
        raise DestinationBusyError(f"{destination}: another conversion is writing there")
    try:
        yield
    finally:
        os.close(handle)


def _absolute(source: str) -> str:
    return source if "://" in source else os.path.abspath(source)


def _knows(state: State, run: Run, source: str) -> bool:
    for known in state.runs.values():
        for file in run.sources:
            file_state = known.files.get(relative_path(file.path, source))
            if file_state is not None and is_same_file(file.path, file.size, file_state):
                return True
    return False


def _remove_outputs(destination: str, runs: list[Run]) -> dict[str, LogdirError]:
    """Removes what earlier conversions wrote for these runs and those of the state; returns what kept it from that.

    What a file holds says whether it is ours, not its name: the state may be lost, or speak of a file that somebody
    has put into the place of ours.
    """
    known: dict[str, RunState] = {shorten(target_name(run)): RunState() for run in runs}
    blocked: dict[str, LogdirError] = {}
    with suppress(BridgeError):
        known.update(load_state(destination).runs)
    for name, run in sorted(known.items()):
        directory = destination if name == "." else os.path.join(destination, name)
        heads = {output.name: output.head for output in run.outputs} | {run.lineage: run.lineage_head}
        try:
            for file in os.listdir(directory):
                if _is_ours(directory, file, heads.get(file, "")):
                    _remove(os.path.join(directory, file))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except LogdirError as error:
            blocked[directory] = error
        except OSError as error:
            blocked[directory] = ReadError.of_system(directory, "listed", error)
    _remove(os.path.join(destination, STATE_NAME))
    return blocked


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise WriteError.of_system(path, "removed", error) from error


def _is_ours(directory: str, name: str, head: str) -> bool:
    """Says whether a file is one that a conversion wrote: it says so itself, or begins as the state remembers."""
    path = os.path.join(directory, name)
    if not os.path.isfile(path) or os.path.islink(path):
        return False
    if name == NAME_FILE:
        return True
    try:
        first = peek(path).first
        if first is None:
            return False
        if name in (archive_name(mindspore.FORMAT), archive_name(LINEAGE), archive_name(tensorboard.FORMAT)):
            return True
        if not name.startswith(("events.out.tfevents.", "events.out.events.summary.")):
            return False
        if head and hashlib.blake2b(first.payload, digest_size=16).hexdigest() == head:
            return True
        source = (
            tensorboard.FORMAT if "tfevents" in name else LINEAGE if name.endswith("_lineage") else mindspore.FORMAT
        )
        content = make_decoder(source).decode(first.payload).content
    except BridgeError:
        return False
    return isinstance(content, FileVersion) and WRITER_CONVERT in (content.writer, content.version.partition(" ")[2])
