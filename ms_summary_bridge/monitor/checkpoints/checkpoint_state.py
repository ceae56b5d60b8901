"""What a directory of checkpoints holds: a state that only names whole files.

Imports no mindspore.
"""

from __future__ import annotations

import os
import re
from typing import Final, Literal

import msgspec

from ms_summary_bridge.errors import NOT_JSON, LogdirError

__all__ = ["CHECKPOINT_FILE", "STATE_NAME", "Checkpoint", "CheckpointState", "Mode", "is_whole", "read_state"]

STATE_NAME: Final = "checkpoints.json"
CHECKPOINT_FILE: Final = re.compile(r"checkpoint_step_(\d+)(?:_\d+)?\.ckpt")  # with a number where a step comes again

Mode = Literal["min", "max"]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One saved checkpoint.

    `file` is its name within the directory, `step` counts over all sessions, `epoch` from 1 (None where nobody said
    it), and `bytes` is the size of the file. `value` is what was monitored; None where there was none, or no finite
    one. By `weights` the weights are known again that were loaded from it.
    """

    file: str
    step: int
    epoch: int | None = None
    bytes: int = 0
    value: float | None = None
    weights: str | None = None


class CheckpointState(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a directory.

    `monitor` says whose values are compared, and `mode` which of two is the better one. The newest of `last` is at the
    end.
    """

    monitor: str
    mode: Mode
    best: Checkpoint | None = None
    last: tuple[Checkpoint, ...] = ()
    format: Literal[1] = 1

    @property
    def newest(self) -> Checkpoint | None:
        """The newest of the last."""
        return self.last[-1] if self.last else None

    @property
    def all(self) -> list[Checkpoint]:
        """All that it names; the best may be one of the last as well."""
        return [*([] if self.best is None else [self.best]), *self.last]

    def find(self, weights: str | None) -> Checkpoint | None:
        """Returns the newest checkpoint with these weights."""
        return next((each for each in reversed(self.all) if weights is not None and each.weights == weights), None)


def read_state(directory: str, name: str = STATE_NAME) -> CheckpointState | None:
    """Returns what a directory holds, without the files that are not whole there; None where no checkpoint was saved.

    The state of an earlier training has the name `checkpoints.earlier-<n>.json`.

    Raises:
        LogdirError: The state cannot be read.
    """
    path = os.path.join(directory, name)
    try:
        with open(path, "rb") as file:
            state = msgspec.json.decode(file.read(), type=CheckpointState)
    except FileNotFoundError:
        return None
    except (OSError, *NOT_JSON) as error:
        raise LogdirError(f"{path} cannot be read: {error}; it says which checkpoints are whole") from error
    best = state.best if state.best is not None and is_whole(directory, state.best) else None
    last = tuple(checkpoint for checkpoint in state.last if is_whole(directory, checkpoint))
    return msgspec.structs.replace(state, best=best, last=last)


def is_whole(directory: str, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint's file is there, with the size that it was saved with."""
    if not CHECKPOINT_FILE.fullmatch(checkpoint.file):  # a name that leads elsewhere is not ours
        return False
    try:
        return os.stat(os.path.join(directory, checkpoint.file)).st_size == checkpoint.bytes
    except OSError:
        return False
