"""Records gradients where they are made, and refuses those of which the scale cannot be known.

Imports mindspore.

A recorder takes the place of a gradient operation in a cell: behind it the gradients are reduced, unscaled and clipped
in any order. It is compiled into the cell's graph, so that what it learns of them (shapes, what the sens is) is known
while compiling; `_may_record` then runs, as plain Python.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from typing import Any, Final

import mindspore
import numpy as np
from mindspore import nn, ops

from ms_summary_bridge.callback.gradient_cells import GradientPlace

__all__ = ["NORM", "GradientRecorder", "make_squares", "put_recorder"]

NORM: Final = "gradient/global_norm"
_LOG: Final = logging.getLogger("ms_summary_bridge")
_TAG: Final = "gradient/"
_KEYS: Final = itertools.count()
_SPARSE: Final = (-1,)


class _Judge:
    """Says whether the gradients of one place can be recorded, and keeps what it said."""

    def __init__(self, place: GradientPlace, optimizer: Any, *, is_scale_known: bool) -> None:
        self.was_asked = False
        self.has_refused = False
        self.place = str(place)
        self._shapes: list[tuple[int, ...] | None] = [tuple(parameter.shape) for parameter in optimizer.parameters]
        self._optimizer_scale = float(getattr(optimizer, "loss_scale", 1.0))
        self._fills_sens = place.fills_sens
        self._has_sens = place.operation.sens_param
        self._is_scale_known = is_scale_known

    def ask(self, shapes: tuple[tuple[int, ...] | None, ...] | None, elements: int) -> bool:
        """Returns whether to record, by the shapes of the gradients and the number of elements of the sens.

        A shape is None where a gradient has none while compiling, as a sparse one. The elements are less than one
        where there are several sens, one for each output.
        """
        self.was_asked = True
        reason = ""
        found = [None if shape is None else tuple(shape) for shape in shapes or (None,)]
        if None in found or _SPARSE in found:  # one while compiling, the other in PyNative mode
            reason = "a gradient is sparse, such as that of an embedding with sparse=True"
        elif found != self._shapes:
            reason = "the gradients do not have the shapes of the optimizer's parameters, in their order"
        elif self._is_scale_known:
            pass
        elif not self._has_sens and self._optimizer_scale != 1.0:
            reason = (
                f"the optimizer divides by {self._optimizer_scale:g} what was not scaled by a sens: "
                "say by what the gradients are scaled with loss_scale="
            )
        elif elements < 1 or (elements > 1 and not self._fills_sens):
            reason = (
                "there is more than one number in the sens, which need not be the same: say by what the gradients are "
                "scaled with loss_scale=, a number or the cell's parameter for it"
            )
        if reason and not self.has_refused:
            self.has_refused = True
            _LOG.warning(
                "GradientSummary: %s: gradients cannot be recorded, training goes on without: %s", self.place, reason
            )
        return not reason


_JUDGES: weakref.WeakValueDictionary[int, _Judge] = weakref.WeakValueDictionary()


@ops.constexpr  # type: ignore[untyped-decorator]
def _may_record(key: int, shapes: tuple[tuple[int, ...] | None, ...] | None, elements: int) -> bool:
    judge = _JUDGES.get(key)
    return judge is not None and judge.ask(shapes, elements)


_HISTOGRAM: Final = ops.HistogramSummary()
_record = ops.MultitypeFuncGraph("record_gradient")
_shape = ops.MultitypeFuncGraph("shape_of_gradient")


@_record.register("Tensor", "String", "Tensor")  # type: ignore[untyped-decorator]
def _record_gradient(scale: Any, tag: str, gradient: Any) -> Any:
    """Returns the sum of squares; an empty tag is for no histogram."""
    values = gradient.astype(mindspore.float32) / scale
    if tag != "":
        _HISTOGRAM(tag, values)
    return ops.square(values).sum()


@_shape.register("Tensor")  # type: ignore[untyped-decorator]
def _shape_of_tensor(gradient: Any) -> Any:
    return gradient.shape


@_shape.register("RowTensor")  # type: ignore[untyped-decorator]
def _shape_of_sparse(gradient: Any) -> Any:
    return _SPARSE


class GradientRecorder(nn.Cell):
    """Takes the place of a gradient operation and hands what it returns to summary operators.

    The gradients `chosen` get a histogram. All are divided by `loss_scale`, or by the sens where it is None.
    """

    def __init__(
        self, place: GradientPlace, optimizer: Any, chosen: list[int], loss_scale: Any, all_squares: Any
    ) -> None:
        super().__init__(auto_prefix=False)
        self.recorded = place.value
        operation = place.operation
        self.has_sens = operation.sens_param
        # Where the gradients are in what is returned: (value, gradients), (gradients, others), (of inputs, of these).
        self.has_value = getattr(operation, "get_value", False)
        self.has_others = getattr(operation, "has_aux", False) and not self.has_value
        self.has_inputs = getattr(operation, "get_all", False) or getattr(operation, "get_by_position", False)
        names = [parameter.name for parameter in optimizer.parameters]
        self.tags = tuple(f"{_TAG}{name}" if index in chosen else "" for index, name in enumerate(names))
        self.for_all = ops.HyperMap()  # a loop over 20 parameters already is too deep for MindSpore's compiler
        self.scalar = ops.ScalarSummary()
        self.is_recording = True
        self.judge = _Judge(place, optimizer, is_scale_known=loss_scale is not None)
        self.key = next(_KEYS)
        _JUDGES[self.key] = self.judge
        self.__dict__["all_squares"] = all_squares
        self.__dict__["loss_scale"] = loss_scale  # not as a parameter of this cell: checkpoints stay as they are

    def record(self, returned: Any, inputs: Any, named: Any) -> None:
        """Leaves the chosen gradients and the norm over all of them for whoever collects."""
        gradients = returned
        if self.has_value:
            gradients = gradients[1]
        if self.has_others:
            gradients = gradients[0]
        if self.has_inputs:
            gradients = gradients[1]
        if isinstance(gradients, mindspore.Tensor):
            gradients = (gradients,)
        sens: Any = 1.0
        if self.loss_scale is not None:
            sens = self.loss_scale
        elif self.has_sens:
            sens = named["sens"] if "sens" in named else inputs[-1]
        elements = 1
        if isinstance(sens, (tuple, list)):
            elements = 0
        elif isinstance(sens, mindspore.Tensor):
            elements = sens.size
        if _may_record(self.key, self.for_all(_shape, gradients), elements):
            self.write(gradients, sens)

    def write(self, gradients: Any, sens: Any) -> None:
        """Hands them to the operators, divided by the scale."""
        scale = sens
        if not isinstance(sens, mindspore.Tensor):
            scale = mindspore.Tensor(sens, mindspore.float32)
        scale = scale.astype(mindspore.float32).max()
        squares = self.for_all(ops.partial(_record, scale), self.tags, gradients)
        self.scalar(NORM, ops.sqrt(ops.addn(squares)))
        ops.assign(self.all_squares, ops.stack(squares))


class _OfOperation(GradientRecorder):
    """In the place of an `ops.GradOperation`, which is called with a network and returns what takes the gradients."""

    def construct(self, function: Any, weights: Any = None) -> Any:
        """Returns what takes the gradients and records them."""
        return ops.partial(self.take, function, weights)

    def take(self, function: Any, weights: Any, *inputs: Any, **named: Any) -> Any:
        """Returns what the operation would."""
        returned = self.recorded(function, weights)(*inputs, **named)
        if self.is_recording:
            self.record(returned, inputs, named)
        return returned


class _OfFunction(GradientRecorder):
    """In the place of a function that takes the gradients."""

    def construct(self, *inputs: Any, **named: Any) -> Any:
        """Returns what the function would."""
        returned = self.recorded(*inputs, **named)
        if self.is_recording:
            self.record(returned, inputs, named)
        return returned


def make_squares(count: int) -> mindspore.Parameter:
    """Returns the parameter that a recorder keeps the squares of the gradients in, one number for each."""
    zeros = mindspore.Tensor(np.zeros(count, np.float32))
    return mindspore.Parameter(zeros, name=f"gradient_squares_{next(_KEYS)}", requires_grad=False)


def put_recorder(
    place: GradientPlace, optimizer: Any, chosen: list[int], loss_scale: Any, all_squares: Any
) -> GradientRecorder:
    """Puts a recorder in the place of a gradient operation; returns it. The arguments are GradientRecorder's."""
    kind = _OfFunction if place.is_function else _OfOperation
    recorder = kind(place, optimizer, chosen, loss_scale, all_squares)
    place.owner.__dict__.pop(place.name, None)  # MindSpore keeps cells elsewhere, and looks here first
    setattr(place.owner, place.name, recorder)
    return recorder
