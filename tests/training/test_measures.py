"""What a step says of itself, without a MindSpore: stand-ins have the shapes that were measured on the real one.

The real forms, in real trainings, are in tests/callback/test_bridge.py (`learning_rates`, `outputs`).
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.callback.arguments import as_batch, as_step
from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.training.learning_rate import LearningRates, find_optimizer, learning_rates, rate_reader
from ms_summary_bridge.training.measures import device_memory, read_outputs, to_number


class FakeTensor:
    """A tensor as far as this package looks at one."""

    def __init__(self, value: Any, dtype: str = "Float32") -> None:
        self._array = np.asarray(value)
        self.dtype = dtype

    def asnumpy(self) -> np.ndarray:
        if self.dtype == "BFloat16":
            raise TypeError("numpy has no bfloat16")
        return self._array

    def float(self) -> FakeTensor:
        return FakeTensor(self._array.astype(np.float32))


class ForeignTensor:
    """A tensor of PyTorch as far as this package looks at one: numpy gets it only off the device and the gradient."""

    def __init__(self, value: Any, dtype: str = "torch.float32", *, is_bare: bool = False) -> None:
        self._array = np.asarray(value, np.float32)
        self.dtype = dtype
        self.is_bare = is_bare

    def detach(self) -> ForeignTensor:
        return self

    def cpu(self) -> ForeignTensor:
        return ForeignTensor(self._array, self.dtype, is_bare=True)

    def float(self) -> ForeignTensor:
        return ForeignTensor(self._array, is_bare=self.is_bare)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not self.is_bare or self.dtype == "torch.bfloat16":
            raise TypeError("call detach().cpu() first")
        return self._array


class Refusing:
    """Has all that a tensor has, and gives nothing: a tensor inside of a compiled function."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise RuntimeError("traced")

    def item(self) -> float:
        raise ValueError("traced")

    def __float__(self) -> float:
        raise TypeError("traced")


class _IteratorLearningRate:
    """Named as MindSpore's own."""

    def __init__(self, rates: list[float]) -> None:
        self.learning_rate = FakeTensor(np.array(rates, np.float32))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0.5, 0.5),
        (2, 2.0),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.array([1.0, 3.0]), 2.0),
        (FakeTensor([[0.5]]), 0.5),
        (FakeTensor(0.5, "BFloat16"), 0.5),
        (FakeTensor(np.zeros(0)), None),
        ("0.5", None),
        (None, None),
        (np.array(["a"]), None),
        (ForeignTensor(0.5), 0.5),
        (ForeignTensor([0.5], "torch.bfloat16"), 0.5),
        (ForeignTensor([1.0, 3.0]), 2.0),
        (SimpleNamespace(item=lambda: 0.25), 0.25),
        (SimpleNamespace(item=lambda: "0.25"), None),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (Refusing(), None),
        (np.str_("0.5"), None),
        (np.float32, None),
        ({"loss": 0.5}, None),
        (np.array([1j]), None),
    ],
)
def test_a_number_is_found_or_not(value: Any, number: float | None) -> None:
    assert to_number(value) == number


@pytest.mark.parametrize("step", [7, 7.0, np.int64(7), np.float32(7), FakeTensor(7), ForeignTensor(7.0)])
def test_a_step_is_a_whole_number_of_any_make(step: Any) -> None:
    assert as_step(step, "x") == 7


def test_a_second_loss_is_no_overflow_flag() -> None:
    outputs = read_outputs((FakeTensor(1.0), FakeTensor(2.0), FakeTensor(3.0)))
    assert outputs.loss == 1.0
    assert outputs.loss_scale is None
    assert outputs.overflow is None


def test_the_norm_of_a_step_that_overflowed_says_nothing() -> None:
    outputs = read_outputs((1.0, np.array(True), 8.0, 0.1, math.inf))
    assert (outputs.overflow, outputs.loss_scale, outputs.grad_norm) == (True, 8.0, None)


def test_a_gradient_norm_that_was_not_computed_is_none() -> None:
    flag = FakeTensor(np.array(False))
    outputs = read_outputs((FakeTensor([math.nan]), flag, FakeTensor(8.0), FakeTensor(0.1), None))
    assert outputs.loss is not None
    assert math.isnan(outputs.loss)
    assert (outputs.overflow, outputs.loss_scale, outputs.grad_norm) == (False, 8.0, None)
    assert outputs.learning_rate == pytest.approx(0.1)


@pytest.mark.parametrize("counted", range(1, 8))
def test_past_its_end_a_list_gives_its_last_rate(counted: int) -> None:
    rates = [0.5, 0.4, 0.3]
    optimizer = SimpleNamespace(
        learning_rate=_IteratorLearningRate(rates),
        dynamic_lr=True,
        is_group_lr=False,
        global_step=FakeTensor([counted]),
    )
    expected = rates[min(counted - 1, 2)]  # the step has been counted, and used the one before
    assert learning_rates(optimizer, int) == {"lr": pytest.approx(expected)}
    assert rate_reader(optimizer, int)() == learning_rates(optimizer, int)


def test_groups_are_told_apart_by_what_they_share_and_not_by_value() -> None:
    first, second = FakeTensor(0.1), FakeTensor(0.1)
    optimizer = SimpleNamespace(learning_rate=[first, first, second], is_group_lr=True, dynamic_lr=False)
    assert learning_rates(optimizer, int) == {"lr/group_0": pytest.approx(0.1), "lr/group_1": pytest.approx(0.1)}
    assert rate_reader(optimizer, int)() == learning_rates(optimizer, int)


def test_a_schedule_is_asked_for_the_step_that_was_made() -> None:
    optimizer = SimpleNamespace(
        learning_rate=lambda step: FakeTensor(1 / (step + 1)), dynamic_lr=True, global_step=FakeTensor([4])
    )
    assert learning_rates(optimizer, int) == {"lr": pytest.approx(1 / 4)}
    assert rate_reader(optimizer, int)() == learning_rates(optimizer, int)


def test_a_schedule_is_asked_once_for_a_step_and_no_more_once_it_failed() -> None:
    said: list[str] = []
    answers = [{"lr": 0.5}, {"lr": 0.25}]
    rates = LearningRates(lambda kind, message: said.append(message))
    assert rates.at(1) == {}, "nobody knows"
    rates.read_from(lambda: answers.pop(0))
    assert [rates.at(2), rates.at(2), rates.at(3)] == [{"lr": 0.5}, {"lr": 0.5}, {"lr": 0.25}]
    assert [rates.at(4), rates.at(5)] == [{}, {}]
    assert said == ["the learning rate cannot be read and is left out: IndexError('pop from empty list')"]


def test_an_optimizer_is_looked_for_in_the_networks() -> None:
    optimizer = SimpleNamespace(learning_rate=0.1, parameters=[], global_step=0)
    assert find_optimizer({"optimizer": optimizer}) is optimizer
    assert find_optimizer({"optimizer": None, "network": SimpleNamespace(optimizer=optimizer)}) is optimizer
    hidden = SimpleNamespace(cells_and_names=lambda: [("", object()), ("inner", optimizer)])
    assert find_optimizer({"train_network": hidden}) is optimizer
    assert find_optimizer({}) is None


def _refuses() -> float:
    raise RuntimeError("not supported on this backend")


@pytest.mark.parametrize("figure", [0, float("nan"), _refuses, None], ids=["zero", "NaN", "raises", "no such call"])
def test_memory_that_is_not_reported_is_left_out(figure: Any) -> None:
    call = figure if callable(figure) or figure is None else lambda: figure
    runtime = SimpleNamespace(memory_allocated=call, memory_reserved=lambda: 3 << 20)
    assert device_memory(SimpleNamespace(runtime=runtime)) == {"memory/reserved_mib": 3.0}
    assert device_memory(SimpleNamespace()) == {}


@pytest.mark.parametrize(
    ("step", "number"), [(7, 7), (4096.0, 4096), (np.int64(7), 7), (np.array([7]), 7), (FakeTensor(7), 7), (-5, -5)]
)
def test_a_whole_number_is_a_step(step: Any, number: int) -> None:
    assert as_step(step, "t") == number


@pytest.mark.parametrize("step", [4096.5, "7", None, [1], math.nan, math.inf, 2**63, -(2**63) - 1, np.array([1, 2])])
def test_anything_else_is_no_step(step: Any) -> None:
    with pytest.raises(InvalidValueError, match="step"):
        as_step(step, "t")


@pytest.mark.parametrize(
    ("shape", "batch"),
    [
        ((4, 5), (1, 1, 4, 5)),
        ((4, 5, 3), (1, 3, 4, 5)),
        ((4, 5, 1), (1, 1, 4, 5)),
        ((3, 4, 5), (1, 3, 4, 5)),
        ((3, 4, 3), (1, 3, 3, 4)),  # both could be the channels: the last one is
        ((2, 3, 4, 5), (2, 3, 4, 5)),
    ],
)
def test_an_image_becomes_a_batch(shape: tuple[int, ...], batch: tuple[int, ...]) -> None:
    assert as_batch(np.zeros(shape)).shape == batch


@pytest.mark.parametrize("shape", [(), (4,), (4, 5, 2), (2, 4, 5, 3), (1, 1, 1, 1, 1)])
def test_another_shape_is_no_image(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValueError, match="an image is"):
        as_batch(np.zeros(shape))
