"""Where a training cell makes its gradients, and whether these can be told before the first step.

Imports mindspore.

A cell has a gradient operation as an attribute: `ops.GradOperation`, or what `mindspore.value_and_grad` and
`mindspore.grad` return, a function that closes over one (measured on MindSpore 2.10).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

from mindspore import nn, ops

from ms_summary_bridge.callback.step_source import UNKNOWN, StepSource
from ms_summary_bridge.errors import UsageError

__all__ = ["GradientPlace", "find_places"]

_MINDSPORE: Final = "mindspore."


class GradientPlace:
    """A gradient operation with respect to parameters: an attribute of a cell, itself or a function closing over it."""

    def __init__(self, owner: nn.Cell, name: str, value: Any) -> None:
        self.owner = owner
        self.name = name
        self.value = value
        self.is_function = not isinstance(value, ops.GradOperation)
        around = _closed_over(value) if self.is_function else {"grad_": value}
        self.operation: Any = around["grad_"]
        """Has get_by_list, sens_param and the rest of what was asked for."""
        self.arguments = [around.get("fn", around.get("fn_")), around.get("weights")]
        """What a function takes the gradients of, and the parameters."""

    @property
    def fills_sens(self) -> bool:
        """Whether all elements of the sens are the same, as in MindSpore's own cells."""
        return str(type(self.owner).construct.__module__).startswith(_MINDSPORE)

    def __str__(self) -> str:
        return f"{type(self.owner).__name__}.{self.name}"


def find_places(cell: nn.Cell, optimizer: Any, *, is_scale_known: bool) -> list[GradientPlace]:
    """Returns the gradient operations of which each step of a training cell calls one, once.

    Where nobody says by what the gradients are scaled they must be those of a cell: a function may scale the loss that
    it returns.

    Raises:
        UsageError: They cannot be found, or it cannot be known what they are.
    """
    held = {(id(place.owner), place.name): place for place in _held(cell, optimizer)}
    owners = {owner for owner, _ in held}
    source = StepSource(
        lambda owner, name: (id(owner), name) in held,
        lambda owner: any(id(inner) in owners for _, inner in owner.cells_and_names()),
    )
    step = f"{type(cell).__name__}.construct"
    count = source.count(cell, "construct")
    if count == 0:
        raise UsageError(
            f"GradientSummary: {step} takes its gradients by none of the cell's attributes: write "
            "`self.grad = ops.GradOperation(get_by_list=True)` in __init__ and "
            "`self.grad(self.network, self.optimizer.parameters)(*inputs)` in construct"
        )
    if count > 1:
        raise UsageError(
            f"GradientSummary: {step} may take gradients more than once in a step, and none of them is the gradient of "
            "the step: take them once, of the whole batch"
        )
    found = {}
    for call in source.calls:
        place = held[id(call.owner), call.name]
        function, weights = (place.arguments if place.is_function else [*call.arguments, None])[:2]
        _check(place, function, weights, optimizer, is_scale_known=is_scale_known)
        found[id(place)] = place
    return list(found.values())


def _check(place: GradientPlace, function: Any, weights: Any, optimizer: Any, *, is_scale_known: bool) -> None:
    """Raises UsageError for gradients of which it cannot be known what they are."""
    if getattr(place.operation, "return_ids", False):
        raise UsageError(f"GradientSummary: {place} returns names beside its gradients: leave return_ids out")
    if not is_scale_known and not isinstance(function, nn.Cell):
        raise UsageError(
            f"GradientSummary: {place} takes the gradients of a function, which may scale the loss: say by what with "
            "loss_scale=, 1 where it does not"
        )
    if weights is None and isinstance(function, nn.Cell):
        weights = function.trainable_params()
    if weights is None or weights is UNKNOWN:
        return
    weights = weights if isinstance(weights, (list, tuple)) else [weights]
    if [id(each) for each in weights] != [id(each) for each in optimizer.parameters]:
        raise UsageError(
            f"GradientSummary: {place} takes the gradients of other parameters than the optimizer has, or in another "
            "order: give it `optimizer.parameters`"
        )


def _held(cell: nn.Cell, optimizer: Any) -> Iterator[GradientPlace]:
    """Yields those of a cell and of the cells inside that are neither its network nor its optimizer."""
    parts = [part for part in (getattr(cell, "network", None), optimizer) if isinstance(part, nn.Cell)]
    others = {id(inner) for part in parts for _, inner in part.cells_and_names()}
    for _, owner in cell.cells_and_names():
        if id(owner) in others:
            continue
        for name, value in [*vars(owner).items(), *owner.name_cells().items()]:
            value = getattr(value, "recorded", value)  # the place was taken by an earlier GradientSummary
            if isinstance(value, ops.GradOperation) or _closed_over(value):
                place = GradientPlace(owner, name, value)
                if place.operation.get_by_list:
                    yield place


def _closed_over(value: Any) -> dict[str, Any]:
    """Returns what a function that MindSpore made for gradients closes over; empty for all else."""
    if not inspect.isfunction(value):
        return {}
    value = inspect.unwrap(value)
    names = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
    return {name: cell.cell_contents for name, cell in names.items()} if "grad_" in names else {}
