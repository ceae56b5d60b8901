"""GradientSummary: a one-step training cell whose gradients reach both viewers through summary operators.

Imports mindspore.

Of one cell two graphs are compiled: with summary operators for the steps that are recorded, and without them for all
others, which then cost nothing. An `if` inside one graph does not do (measured on MindSpore 2.10, CPU): of the
operators in a branch the histograms are lost, the scalars are handed over again at every step, and all steps are
slower.
"""

from __future__ import annotations

import logging
import os
import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mindspore import nn

from ms_summary_bridge.callback.gradient_cells import find_places
from ms_summary_bridge.callback.gradient_recorder import make_squares, put_recorder
from ms_summary_bridge.errors import UsageError

__all__ = ["GradientSummary"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
_RECORDING: Final = "_with_gradients"  # behind the cell's phase, which is part of a compiled graph's key
_CACHE: Final = "MS_COMPILER_CACHE_ENABLE"  # MindSpore's switch to use graphs that an earlier process compiled


class _Schedule:
    """Says which steps are recorded. Not a cell, of which to set an attribute takes 10 us."""

    def __init__(self, every: int | None) -> None:
        self.has_failed = False
        self._every = every
        self._last_step = 0
        self._last_recorded: int | None = None
        self._is_collected: bool | None = None

    def begin_step(self, step: int, *, is_collected: bool) -> None:
        """Is told of the step that comes next."""
        if step <= self._last_step:  # another training with the same cell
            self._last_recorded = None
        self._last_step = step - 1
        self._is_collected = is_collected

    def is_due(self) -> bool:
        """Whether the step that begins now is recorded."""
        self._last_step += 1
        is_collected, self._is_collected = self._is_collected, None
        if self.has_failed or is_collected is False:
            return False
        step, last, every = self._last_step, self._last_recorded, self._every
        if last is not None and every is not None and step // every <= last // every:
            return False
        self._last_recorded = step
        return True


class GradientSummary(nn.Cell):
    """A one-step training cell that records histograms of gradients and their global norm.

    It trains exactly as the cell inside does and returns what that one returns. What is recorded are the gradients as
    they are made, of this rank's batch, whatever the cell does with them then: before they are averaged over ranks and
    before any clipping, and divided by the sens, which is the loss scale. The values go through MindSpore's summary
    operators, so SummaryBridge (and SummaryCollector) collect them: histograms `gradient/<parameter>` and the scalar
    `gradient/global_norm`, over all parameters that the optimizer has.

    The squares of each parameter's gradients are kept beside that, one number for each: of these the monitor makes
    `local_grad_norm` and `local_grad_norms`.

    In graph mode a second graph is compiled at the first step that is not recorded; the steps between cost nothing
    more. In data sink mode, where MindSpore compiles this cell into another, every step records. What shows only in the
    first step (sparse gradients, as of an embedding with `sparse=True`; a sens of several numbers) gets one warning,
    and the training goes on without.

    Args:
        network: A network that returns the loss, with `optimizer`. Or a one-step training cell without: it has the
            attribute `optimizer` and another one that makes the gradients, once in a step: an `ops.GradOperation` with
            `get_by_list`, or what `mindspore.value_and_grad` returns. `nn.TrainOneStepCell`,
            `nn.TrainOneStepWithLossScaleCell` and MindFormers' cells are such; where the network returns several
            losses, with `loss_scale=cell.scale_sense`.
        optimizer: Any of MindSpore's, of which a `nn.TrainOneStepCell` is made.
        pattern: Regular expression, matched from the beginning of a parameter's name: these get a histogram. None for
            the norm alone.
        every: Record the first step and each that reaches a multiple of this. None for each one that SummaryBridge
            collects (its `collect_freq`), or for all steps where it is not there.
        loss_scale: By what the gradients are scaled where they are made, for a cell that does not say it by its sens:
            a number, a parameter, or a loss scaler of `mindspore.amp`.

    Raises:
        UsageError: `network` is not a training cell, its gradients or their scale cannot be known, or the pattern is
            wrong or matches no parameter.

    Example:
        `model = Model(GradientSummary(nn.WithLossCell(net, loss), optimizer, pattern=".*weight"))`; for a cell that
        multiplies its loss by a `mindspore.amp.DynamicLossScaler`: `GradientSummary(cell, loss_scale=cell.loss_scaler)`
    """

    phase: str
    squares: Any

    def __init__(
        self,
        network: nn.Cell,
        optimizer: Any = None,
        *,
        pattern: str | None = ".*",
        every: int | None = None,
        loss_scale: Any = None,
    ) -> None:
        super().__init__(auto_prefix=False)
        if not isinstance(network, nn.Cell):
            raise UsageError(
                f"GradientSummary: {network!r} is not a cell: give a network that returns the loss, and an optimizer, "
                "or a cell whose construct trains one step"
            )
        if every is not None and every < 1:
            raise UsageError(f"GradientSummary: every is a positive number of steps, got {every}")
        cell = network if optimizer is None else nn.TrainOneStepCell(network, optimizer)
        found = getattr(cell, "optimizer", None)
        if found is None or not hasattr(found, "parameters"):
            raise UsageError(
                f"GradientSummary: {type(cell).__name__} is not a one-step training cell, it has no optimizer: "
                "give one as the second argument"
            )
        self.train_cell = cell
        self.network = cell.network if hasattr(cell, "network") else cell
        self.optimizer = found
        chosen = _choose(found, pattern)
        places = find_places(cell, found, is_scale_known=loss_scale is not None)
        scale = getattr(loss_scale, "scale_value", loss_scale)  # of a loss scaler
        # Not a parameter of this cell: checkpoints stay as they are.
        self.__dict__["squares"] = make_squares(len(found.parameters))
        self._recorders = [put_recorder(place, found, chosen, scale, self.squares) for place in places]
        self._is_taken = True
        self._schedule = _Schedule(every)
        self._has_recorded = False

    def begin_step(self, step: int, *, is_collected: bool) -> None:
        """Says which step comes next, and whether summary values will be collected after it.

        SummaryBridge calls it; without that, each call is one more step.
        """
        self._schedule.begin_step(step, is_collected=is_collected)

    def take_squares(self) -> npt.NDArray[np.float32] | None:
        """Returns the squares of the gradients recorded last, summed over each parameter, as [parameters] float32.

        None where no step was recorded since the last call, or none can be. It waits for the device.
        """
        if self._is_taken or self._schedule.has_failed:
            return None
        self._is_taken = True
        return np.array(self.squares.asnumpy())  # a copy: it shares memory with the parameter

    def construct(self, *inputs: Any) -> Any:
        """Trains one step; returns what the cell inside returns."""
        return self.train_cell(*inputs)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Trains one step, with the graph that records or the one that does not."""
        if not self._schedule.is_due():
            return self._train(inputs, named, is_recording=False)
        if self._has_recorded:
            self._is_taken = False
            return self._train(inputs, named, is_recording=True)
        try:
            outputs = self._train(inputs, named, is_recording=True)
        except Exception as error:
            # A cell that compiles alone and not with the operators: if the fault is another one, it comes again.
            self._schedule.has_failed = True
            reason = str(error).partition("\n")[0]  # MindSpore's messages go on for pages
            _LOG.warning(
                "GradientSummary: gradients cannot be recorded, training goes on without: %s: %s",
                type(error).__name__,
                reason,
            )
            return self._train(inputs, named, is_recording=False)
        self._has_recorded, self._is_taken = True, False
        self._schedule.has_failed = not self._can_record()
        return outputs

    def _can_record(self) -> bool:
        """Whether the first step that should have recorded has; says so if it did not even get there."""
        judges = [recorder.judge for recorder in self._recorders]
        compiled = [judge for judge in judges if judge.was_asked]
        if compiled:
            return not all(judge.has_refused for judge in compiled)
        if os.environ.get(_CACHE) == "1":  # then nobody is asked, because nothing was compiled
            return True
        _LOG.warning(
            "GradientSummary: gradients cannot be recorded, training goes on without: "
            "%s took them elsewhere than by %s",
            type(self.train_cell).__name__,
            " or ".join(judge.place for judge in judges),
        )
        return False

    def _train(self, inputs: tuple[Any, ...], named: dict[str, Any], *, is_recording: bool) -> Any:
        # The phase stays as it is after the step: by it the collector finds the graph that was compiled.
        phase = self.phase.removesuffix(_RECORDING) + (_RECORDING if is_recording else "")
        if phase != self.phase:
            self.phase = phase
        self._set_recording(is_recording)
        try:
            return super().__call__(*inputs, **named)
        finally:
            self._set_recording(True)  # for a cell around this one, which compiles it inside

    def _set_recording(self, is_recording: bool) -> None:
        for recorder in self._recorders:
            recorder.__dict__["is_recording"] = is_recording


def _choose(optimizer: Any, pattern: str | None) -> list[int]:
    """Returns the indexes of the parameters with a histogram."""
    if pattern is None:
        return []
    names = [parameter.name for parameter in optimizer.parameters]
    try:
        chosen = [index for index, name in enumerate(names) if re.match(pattern, name)]
    except re.error as error:
        raise UsageError(f"GradientSummary: pattern {pattern!r} is not a regular expression: {error}") from error
    if not chosen:
        raise UsageError(f"GradientSummary: pattern {pattern!r} matches none of the parameters {', '.join(names[:5])}")
    return chosen
