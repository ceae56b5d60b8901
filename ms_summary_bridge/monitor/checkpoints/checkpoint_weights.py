"""Weights of a network that come from a checkpoint: how they are loaded, and known again.

Imports mindspore.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any, Final, Literal

import mindspore

from ms_summary_bridge.errors import LogdirError, counted
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import STATE_NAME, Checkpoint, read_state
from ms_summary_bridge.training.distributed import find_process_rank, rank_directory

__all__ = ["WeightsMark", "load"]

_MOST_PARAMETERS: Final = 16
_MOST_ELEMENTS: Final = 65536
_SHOWN: Final = 5


class WeightsMark:
    """Tells whether weights are those of a checkpoint, whoever loaded them: a hash over the smallest parameters."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        ordered = sorted(parameters, key=lambda parameter: int(parameter.size))
        small = [parameter for parameter in ordered if parameter.size <= _MOST_ELEMENTS]
        self._parameters = small[:_MOST_PARAMETERS] or ordered[:1]

    def read(self) -> str | None:
        """Returns the hash of the weights as they are; None where they cannot be read."""
        digest = hashlib.blake2b(digest_size=8)
        try:
            for parameter in self._parameters:
                is_brain_float = parameter.dtype == mindspore.bfloat16  # numpy has none
                values = parameter.astype(mindspore.float32) if is_brain_float else parameter
                digest.update(values.asnumpy().tobytes())
        except (RuntimeError, TypeError, ValueError):
            return None
        return digest.hexdigest() if self._parameters else None

    def is_of(self, other: WeightsMark | None) -> bool:
        """Whether both are of the same parameters, in memory."""
        return other is not None and {*map(id, self._parameters)} == {*map(id, other._parameters)}


def load(path: str, cells: tuple[Any, ...], which: Literal["best", "last"]) -> Checkpoint:
    """Loads the best or the newest checkpoint, as `SaveBestCheckpoint.load_best` says."""
    path = os.path.abspath(os.path.expanduser(path))
    directory, name = os.path.split(path) if path.endswith(".json") else (path, STATE_NAME)
    place = find_process_rank()
    if name == STATE_NAME:
        directory = rank_directory(directory, place.rank, place.ranks)
    checkpoint, values = _read(directory, name, which)
    for cell in cells:
        _put(os.path.join(directory, checkpoint.file), values, cell)
    return checkpoint


def _read(directory: str, name: str, which: str) -> tuple[Checkpoint, dict[str, Any]]:
    """Returns a checkpoint and what is in it; a training may be replacing it meanwhile."""
    before = None
    while True:
        state = read_state(directory, name)
        checkpoint = None if state is None else state.best if which == "best" else state.newest
        if checkpoint is None:
            raise LogdirError(f"{directory}: no {which} checkpoint is saved there")
        file = os.path.join(directory, checkpoint.file)
        try:
            return checkpoint, mindspore.load_checkpoint(file)
        except (ValueError, OSError, RuntimeError) as error:
            if checkpoint == before:
                raise LogdirError(f"{file} cannot be loaded: {error}") from error
            before = checkpoint


def _put(file: str, values: dict[str, Any], cell: Any) -> None:
    kind = type(cell).__name__
    own = {parameter.name: parameter for parameter in cell.get_parameters()}
    others = [
        f"{name} is {tuple(values[name].shape)} there and {tuple(parameter.shape)} here"
        for name, parameter in own.items()
        if name in values and tuple(values[name].shape) != tuple(parameter.shape)
    ]
    if others:
        raise LogdirError(f"{file} does not fit {kind}: {_list(others)}")
    try:
        missing, _ = mindspore.load_param_into_net(cell, values)
    except (ValueError, RuntimeError) as error:
        raise LogdirError(f"{file} does not fit {kind}: {error}") from error
    if own and len(missing) == len(own):
        raise LogdirError(
            f"{file} does not fit {kind}: it has none of its {counted(len(own), 'parameter')}: {_list(missing)}"
        )
    if missing:
        raise LogdirError(f"{file} does not fit {kind}: it does not have {_list(missing)}")


def _list(words: list[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
