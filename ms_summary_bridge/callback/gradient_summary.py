"""GradientSummary: a one-step training cell whose gradients reach both viewers through summary operators.

Imports mindspore.

Of one cell two graphs are compiled: with summary operators for the steps that are recorded, and without them for all
others, which then cost nothing. An `if` inside one graph does not do (measured on MindSpore 2.10, CPU): of the
operators in a branch the histograms are lost, the scalars are handed over again at every step, and all steps are
slower.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import mindspore
from mindspore import nn, ops

from ms_summary_bridge.errors import UsageError

__all__ = ["GradientSummary"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
_TAG: Final = "gradient/"
_NORM: Final = "gradient/global_norm"
_RECORDING: Final = "_with_gradients"  # behind the cell's phase, which is part of a compiled graph's key
_SEAMS: Final = ("grad_reducer", "optimizer")  # what a one-step cell calls with all gradients, the better one first


class _GradientRecorder(nn.Cell):
    """Stands where all gradients of a step pass, and hands them to summary operators.

    Args:
        inner: The cell whose place this one takes.
        optimizer: Knows the order of the gradients, and by what they are still to be divided.
        chosen: Which gradients get a histogram.
        is_before: Whether the gradients are looked at before `inner` gets them; else what it returns.
    """

    def __init__(self, inner: nn.Cell, optimizer: Any, chosen: list[int], *, is_before: bool) -> None:
        super().__init__(auto_prefix=False)
        self.inner = inner
        self.is_before = is_before
        self.chosen = tuple(chosen)
        self.tags = tuple(f"{_TAG}{optimizer.parameters[index].name}" for index in chosen)
        # With a fixed loss scale the gradients are scaled until the optimizer divides them itself.
        self.factor = 1.0 / float(getattr(optimizer, "loss_scale", 1.0))
        self.histogram = ops.HistogramSummary()
        self.scalar = ops.ScalarSummary()
        self.is_recording = True

    def construct(self, gradients: Any) -> Any:
        """Returns what the inner cell returns."""
        if self.is_before:
            if self.is_recording:
                self.record(gradients)
            return self.inner(gradients)
        gradients = self.inner(gradients)
        if self.is_recording:
            self.record(gradients)
        return gradients

    def record(self, gradients: Any) -> None:
        """Leaves the chosen gradients and the norm over all of them for whoever collects."""
        squares = mindspore.Tensor(0.0, mindspore.float32)
        for index in range(len(gradients)):
            values = gradients[index].astype(mindspore.float32) * self.factor
            squares = squares + ops.square(values).sum()
            for place in range(len(self.chosen)):
                if self.chosen[place] == index:
                    self.histogram(self.tags[place], values)
        self.scalar(_NORM, ops.sqrt(squares))


class _Schedule:
    """Says which steps are recorded. No cell: to set an attribute of a cell takes 10 us.

    Args:
        every: As for GradientSummary.
    """

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

    It trains exactly as the cell inside does and returns what that one returns. What is recorded are the gradients
    without loss scale, averaged over the ranks where the cell does that, before any clipping. The values go through
    MindSpore's summary operators, so SummaryBridge (and SummaryCollector) collect them: histograms
    `gradient/<parameter>` and the scalar `gradient/global_norm`, over all parameters that the optimizer has.

    In graph mode a second graph is compiled at the first step that is not recorded; the steps between cost nothing
    more. In data sink mode, where MindSpore compiles this cell into another, every step records. Sparse gradients (an
    embedding's, with `sparse=True`) cannot be recorded: there is one warning, and the training goes on without.

    Args:
        network: A network that returns the loss, with `optimizer`. Or a one-step training cell without: it has the
            attributes `network` and `optimizer` and calls `grad_reducer` or `optimizer` with all gradients, as
            `nn.TrainOneStepCell`, `nn.TrainOneStepWithLossScaleCell` and MindFormers' cells do.
        optimizer: Any of MindSpore's, of which a `nn.TrainOneStepCell` is made.
        pattern: Regular expression, matched from the beginning of a parameter's name: these get a histogram. None for
            the norm alone.
        every: Record the first step and each that reaches a multiple of this. None for each one that SummaryBridge
            collects (its `collect_freq`), or for all steps where it is not there.

    Raises:
        UsageError: `network` is no training cell, or the pattern is wrong or matches no parameter.

    Example:
        `model = Model(GradientSummary(nn.WithLossCell(net, loss), optimizer, pattern=".*weight"))`
    """

    phase: str

    def __init__(
        self, network: nn.Cell, optimizer: Any = None, *, pattern: str | None = ".*", every: int | None = None
    ) -> None:
        super().__init__(auto_prefix=False)
        if every is not None and every < 1:
            raise UsageError(f"GradientSummary: every is a positive number of steps, got {every}")
        cell = network if optimizer is None else nn.TrainOneStepCell(network, optimizer)
        found = getattr(cell, "optimizer", None)
        if found is None or not hasattr(found, "parameters"):
            raise UsageError(
                f"GradientSummary: {type(cell).__name__} is no one-step training cell, it has no optimizer: "
                "give one as the second argument"
            )
        self.train_cell = cell
        self.network = cell.network if hasattr(cell, "network") else cell
        self.optimizer = found
        seam = next(name for name in _SEAMS if isinstance(getattr(cell, name, None), nn.Cell))
        self.recorder = _GradientRecorder(
            getattr(cell, seam), found, _choose(found, pattern), is_before=seam == "optimizer"
        )
        setattr(cell, seam, self.recorder)
        self._schedule = _Schedule(every)
        self._has_recorded = False

    def begin_step(self, step: int, *, is_collected: bool) -> None:
        """Says which step comes next. SummaryBridge calls it; without that, each call is one more step.

        Args:
            step: Its number.
            is_collected: Whether summary values will be collected after it.
        """
        self._schedule.begin_step(step, is_collected=is_collected)

    def construct(self, *inputs: Any) -> Any:
        """Trains one step; returns what the cell inside returns."""
        return self.train_cell(*inputs)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Trains one step, with the graph that records or the one that does not."""
        if not self._schedule.is_due():
            return self._train(inputs, named, is_recording=False)
        if self._has_recorded:
            return self._train(inputs, named, is_recording=True)
        try:
            outputs = self._train(inputs, named, is_recording=True)
            self._has_recorded = True
            return outputs
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

    def _train(self, inputs: tuple[Any, ...], named: dict[str, Any], *, is_recording: bool) -> Any:
        # The phase stays as it is after the step: by it the collector finds the graph that was compiled.
        phase = self.phase.removesuffix(_RECORDING) + (_RECORDING if is_recording else "")
        if phase != self.phase:
            self.phase = phase
        state = self.recorder.__dict__
        state["is_recording"] = is_recording
        try:
            return super().__call__(*inputs, **named)
        finally:
            state["is_recording"] = True  # for a cell around this one, which compiles it inside


def _choose(optimizer: Any, pattern: str | None) -> list[int]:
    """Returns the indexes of the parameters with a histogram."""
    if pattern is None:
        return []
    names = [parameter.name for parameter in optimizer.parameters]
    try:
        chosen = [index for index, name in enumerate(names) if re.match(pattern, name)]
    except re.error as error:
        raise UsageError(f"GradientSummary: pattern {pattern!r} is no regular expression: {error}") from error
    if not chosen:
        raise UsageError(f"GradientSummary: pattern {pattern!r} matches no parameter; there are {', '.join(names[:5])}")
    return chosen
