"""Where a training's checkpoints go, and whether it goes on from those that are there or begins anew.

Imports mindspore.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final

from ms_summary_bridge.monitor.checkpoints.checkpoint_files import CheckpointFiles
from ms_summary_bridge.monitor.checkpoints.checkpoint_place import CheckpointPlace
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import Checkpoint, CheckpointState
from ms_summary_bridge.monitor.checkpoints.checkpoint_weights import WeightsMark
from ms_summary_bridge.training.distributed import find_process_rank, rank_directory
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.parameters import TrainingParameters

__all__ = ["CheckpointStart"]

_LOG: Final = logging.getLogger("ms_summary_bridge")


class CheckpointStart:
    """The beginning of each training of one SaveBestCheckpoint.

    `make_files` opens the files in a directory; its argument `goes_on` is that of `CheckpointFiles`.
    """

    def __init__(self, directory: str, make_files: Callable[..., CheckpointFiles], faults: Faults) -> None:
        self.files: CheckpointFiles | None = None
        self.is_open = True
        """Whether it is decided what the training begins with: not between its beginning and its first step."""
        self.began_at = 0
        """The step before the first one, in the count over all sessions; less what MindSpore counts from."""
        self.begins_at = 0
        """What MindSpore counts from."""
        self._asked = directory
        self._make_files = make_files
        self._faults = faults
        self._place: CheckpointPlace | None = None
        self._weights: WeightsMark | None = None

    @property
    def directory(self) -> str:
        """Of this training."""
        return self._asked if self._place is None else self._place.directory

    @property
    def weights(self) -> str | None:
        """By which the weights as they are now are known again."""
        return None if self._weights is None else self._weights.read()

    @property
    def may_save(self) -> bool:
        """Whether the files still are this training's; says so if they are not."""
        if self._place is not None and not self._place.is_ours:
            self._faults.warn("lost", f"nothing is saved: a later training has {self._place.directory} now")
        return self._place is not None and self._place.is_ours

    def begin(self, parameters: TrainingParameters) -> None:
        """Takes a directory that no other training has, when a training begins."""
        weights = WeightsMark(_trained(parameters))
        has_place = self._place is not None and self._place.is_ours
        if not has_place or not weights.is_of(self._weights):  # else the same training is called once more
            self.files, self.is_open = None, False
        self._weights = weights
        if not has_place:
            self._take_place()
        if self._place is not None:
            self._place.is_training = True
        self.begins_at = parameters.number("cur_step_num")
        if self.files is not None:
            self._count_from(self.files.last)

    def end(self) -> None:
        """Lets a later training of this process have the directory."""
        if self._place is not None:
            self._place.is_training = False

    def open(self, parameters: TrainingParameters) -> None:
        """Goes on from what stands in the directory or begins anew, before the first step."""
        self.is_open = True
        if self._place is None:
            return
        weights = self.weights
        # Which epoch is the first, MindSpore says only when it begins.
        began = max(self.begins_at, parameters.number("initial_step"), parameters.number("cur_epoch_num") - 1)
        origin: Checkpoint | None = None

        def goes_on(state: CheckpointState) -> bool:
            nonlocal origin
            same = state.find(weights)
            is_unknown = weights is None or not any(each.weights for each in state.all)
            if began > 0 or is_unknown or same is not None:
                origin = same or state.newest or state.best
            return origin is not None

        place = find_process_rank()
        is_own = rank_directory(self._asked, place.rank, place.ranks) == self._asked
        directory = self.directory if is_own else rank_directory(self.directory, place.rank)
        try:
            self.files = self._make_files(directory, goes_on=goes_on)
        except OSError as error:
            self._warn_directory(directory, error)
            return
        if self.files.earlier is not None:
            name, state = self.files.earlier
            self._faults.warn(name, _describe_earlier(directory, name, state))
        elif origin is not None:
            _LOG.info("SaveBestCheckpoint: %s: the training goes on from step %d", directory, origin.step)
        self._count_from(origin)

    def _count_from(self, origin: Checkpoint | None) -> None:
        # MindSpore counts from 0 again, unless it is told where to begin.
        self.began_at = origin.step if self.begins_at == 0 and origin is not None else 0

    def _take_place(self) -> None:
        # Who lost the directory to a later training of this process does not take it from that one.
        may_follow, self._place = self._place is None, None
        try:
            self._place = CheckpointPlace(self._asked, find_process_rank(), may_follow=may_follow)
        except OSError as error:
            self._warn_directory(self._asked, error)
            return
        if self.directory != self._asked:
            self._faults.warn(
                self.directory,
                f"{self._asked} is in use by another training ({self._place.user}): "
                f"checkpoints of this one go to {self.directory}",
            )

    def _warn_directory(self, directory: str, error: OSError) -> None:
        self._faults.warn("directory", f"no checkpoint is saved: {directory} cannot be used: {error}")


def _trained(parameters: TrainingParameters) -> list[Any]:
    """Returns the parameters that a training changes, without the optimizer's own."""
    network: Any = parameters.get("train_network")
    for optimizer in (parameters.get("optimizer"), getattr(network, "optimizer", None)):
        if optimizer is not None and getattr(optimizer, "parameters", None) is not None:
            return list(optimizer.parameters)
    return list(network.trainable_params())


def _describe_earlier(directory: str, name: str, state: CheckpointState) -> str:
    found = []
    for word, checkpoint in (("best", state.best), ("last", state.newest)):
        if checkpoint is not None:
            date = time.localtime(os.stat(os.path.join(directory, checkpoint.file)).st_mtime)
            value = "" if word == "last" or checkpoint.value is None else f", {state.monitor} {checkpoint.value:.6g}"
            found.append(f"{word}: {checkpoint.file} of {time.strftime('%Y-%m-%d %H:%M', date)}{value}")
    return (
        f"{directory} has checkpoints of an earlier training ({'; '.join(found)}); this one begins from scratch, "
        "without them, and gets a best of its own. They stay: load_best and load_last take "
        f"{os.path.join(directory, name)}"
    )
