"""The files of a training's checkpoints: the best one, the last few, and the state that names them.

Imports no mindspore: who saves says how one file is written.

A process may be killed at any moment, so every save goes through the same steps, each on the disk before the next: the
checkpoint under a temporary name, its own name, the state, which is replaced as a whole; only then old files go. After
a kill between two of them the state is that of before, and `CheckpointFiles` puts the rest in order at the next start.

A training that begins from scratch where another one has been gives the state of that one another name, in one step:
`checkpoints.earlier-1.json`. What such a state names stays.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable
from operator import itemgetter
from typing import Final

import msgspec

from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.files.atomic import make_directory, replace_file, replacing, sync_names
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import (
    CHECKPOINT_FILE,
    STATE_NAME,
    Checkpoint,
    CheckpointState,
    Mode,
    is_whole,
    read_state,
)

__all__ = ["CheckpointFiles"]

_UNFINISHED: Final = "unfinished.ckpt"
_EARLIER: Final = re.compile(r"checkpoints\.earlier-(\d+)\.json")


class CheckpointFiles:
    """The checkpoints of one process in one directory, which belongs to one training at a time.

    What a killed session has left is put in order here: unfinished files go, a whole one that the state does not name
    yet is taken in, one that it does not name any more goes.

    `goes_on` is given what stands in the directory and says whether this training continues it; None if it always does.
    Else it begins anew: the best and the newest one stay under the name of an earlier training. The best of another
    `monitor` is not compared with. `keep` is how many of the last are kept beside the best, and `warn` is told what was
    found wrong.

    Raises:
        OSError: The directory cannot be made, read or written.
    """

    def __init__(
        self,
        directory: str,
        *,
        monitor: str,
        mode: Mode,
        keep: int,
        warn: Callable[[str], None],
        goes_on: Callable[[CheckpointState], bool] | None = None,
    ) -> None:
        self.directory = directory
        self.earlier: tuple[str, CheckpointState] | None = None
        """What was set aside: the name of the state, and what it names."""
        self._keep = keep
        self._written: int | None = None
        sync_names(*make_directory(directory))
        found: CheckpointState | None = None
        try:
            found = read_state(directory)
        except LogdirError as error:
            warn(f"{error}; which one was the best is not known any more")
        self._protected = self._find_protected()
        fresh = CheckpointState(monitor=monitor, mode=mode)
        self._state = self._tidy(found or fresh, is_known=found is not None)
        if goes_on is not None and self._state.all and not goes_on(self._state):
            self._set_aside()
            self._state = fresh
        elif (self._state.monitor, self._state.mode) != (monitor, mode):
            before = f"{self._state.monitor} ({self._state.mode})"
            warn(f"the best checkpoint was chosen by {before}: it is not compared with")
            self._state = msgspec.structs.replace(fresh, last=self._state.last)

    @property
    def best(self) -> Checkpoint | None:
        """The checkpoint with the best value."""
        return self._state.best

    @property
    def last(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self._state.newest

    def path(self, checkpoint: Checkpoint) -> str:
        """Returns where a checkpoint is."""
        return os.path.join(self.directory, checkpoint.file)

    def is_better(self, value: float | None) -> bool:
        """Whether a value is better than the best one; none, NaN and the infinities never are."""
        if value is None or not math.isfinite(value):
            return False
        best = self._state.best
        if best is None or best.value is None or not is_whole(self.directory, best):
            return True
        return value < best.value if self._state.mode == "min" else value > best.value

    def save(
        self,
        step: int,
        write: Callable[[str], None],
        *,
        epoch: int | None = None,
        value: float | None = None,
        weights: str | None = None,
        may_be_best: bool = True,
    ) -> Checkpoint:
        """Saves a checkpoint as the newest, and as the best if its value is better.

        A step that was saved last by this object is not written again: what is told of it is only its value.

        `write` writes it to the path it is given, which ends in `.ckpt`; `may_be_best` is whether the best is kept at
        all, and the rest is as in `Checkpoint`.

        Raises:
            Exception: Whatever `write` raises, and OSError. Everything saved before is as it was.
        """
        is_better = may_be_best and self.is_better(value)
        if value is not None and not math.isfinite(value):
            value = None
        last = self._state.last
        if last and self._written == step and last[-1].step == step and is_whole(self.directory, last[-1]):
            checkpoint = msgspec.structs.replace(last[-1], value=last[-1].value if value is None else value)
        else:
            name = self._free_name(step)
            size = self._write(name, write)
            checkpoint = Checkpoint(file=name, step=step, epoch=epoch, bytes=size, value=value, weights=weights)
        others = [other for other in last if other.file != checkpoint.file]
        best = checkpoint if is_better else self._state.best
        state = msgspec.structs.replace(self._state, best=best, last=(*others, checkpoint)[-self._keep :])
        self._write_state(state)
        self._state, self._written = state, step
        self._remove_others(state)
        return checkpoint

    # ------------------------------------------------------------------ files

    def _free_name(self, step: int) -> str:
        """Returns a name that no file has: a training that began again before the best must not write over it."""
        name, number = f"checkpoint_step_{step}.ckpt", 1
        while os.path.lexists(os.path.join(self.directory, name)):
            number += 1
            name = f"checkpoint_step_{step}_{number}.ckpt"
        return name

    def _write(self, name: str, write: Callable[[str], None]) -> int:
        """Writes a whole checkpoint; returns its size."""
        sync_names(*make_directory(self.directory))  # somebody may have removed it during the training
        path = os.path.join(self.directory, name)
        with replacing(path, temporary=_UNFINISHED) as unfinished:
            write(unfinished)
        return os.stat(path).st_size

    def _write_state(self, state: CheckpointState) -> None:
        data = msgspec.json.format(msgspec.json.encode(state)) + b"\n"
        replace_file(os.path.join(self.directory, STATE_NAME), data)

    def _tidy(self, state: CheckpointState, *, is_known: bool) -> CheckpointState:
        """Puts in order what an earlier session has left; returns the state that is true of the files."""
        _remove(os.path.join(self.directory, _UNFINISHED))
        named = self._names(state)
        newest = max((checkpoint.step for checkpoint in state.all), default=-1)
        matches = map(CHECKPOINT_FILE.fullmatch, sorted(os.listdir(self.directory)))
        unnamed = [(int(match[1]), match[0]) for match in matches if match and match[0] not in named]
        adopted = [
            Checkpoint(file=name, step=step, bytes=os.stat(os.path.join(self.directory, name)).st_size)
            for step, name in sorted(unnamed, key=itemgetter(0))
            if not is_known or step > newest
        ]
        state = msgspec.structs.replace(state, last=(*state.last, *adopted))
        if is_known:  # else nothing says that the files are ours to remove
            self._remove_others(state)
        return state

    def _remove_others(self, state: CheckpointState) -> None:
        """Removes the checkpoints that the state does not name. One that cannot be removed is tried again next time."""
        named = self._names(state)
        for name in os.listdir(self.directory):
            if CHECKPOINT_FILE.fullmatch(name) and name not in named:
                _remove(os.path.join(self.directory, name))

    def _names(self, state: CheckpointState) -> set[str]:
        return {*self._protected, *(checkpoint.file for checkpoint in state.all)}

    def _find_protected(self) -> set[str]:
        """Returns the checkpoints of earlier trainings; all there are, if it cannot be read which these are."""
        names = os.listdir(self.directory)
        try:
            states = [read_state(self.directory, name) for name in names if _EARLIER.fullmatch(name)]
        except LogdirError:
            return {name for name in names if CHECKPOINT_FILE.fullmatch(name)}
        return {checkpoint.file for state in states if state is not None for checkpoint in state.all}

    def _set_aside(self) -> None:
        """Leaves the best and the newest checkpoint to an earlier training; its other ones go."""
        state = msgspec.structs.replace(self._state, last=self._state.last[-1:])
        self._write_state(state)
        self._remove_others(state)
        numbers = [int(match[1]) for match in map(_EARLIER.fullmatch, os.listdir(self.directory)) if match]
        name = f"checkpoints.earlier-{max(numbers, default=0) + 1}.json"
        os.replace(os.path.join(self.directory, STATE_NAME), os.path.join(self.directory, name))
        sync_names(self.directory)
        self._protected = self._names(state)
        self.earlier = name, state


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)
