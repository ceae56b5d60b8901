"""The values that users add themselves, `bridge.add_*`: checked here, written like collected ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ms_summary_bridge.callback.arguments import as_batch, as_step
from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.training.measures import to_array

__all__ = ["UserValues"]


class UserValues:
    """The `add_*` methods of a bridge."""

    @property
    def _step(self) -> int:
        """The training's own."""
        raise NotImplementedError

    def _put_user_value(self, plugin: str, tag: str, array: npt.NDArray[Any], step: int) -> None:
        """Takes one checked value."""
        raise NotImplementedError

    def add_scalar(self, tag: str, value: Any, step: int | None = None) -> None:
        """Writes one number to both files; `step` is the training's own when None.

        Raises:
            InvalidValueError: The value is not one number, or the step is not a whole number.
        """
        self._add("scalar", tag, value, step)

    def add_histogram(self, tag: str, values: Any, step: int | None = None) -> None:
        """Writes the histogram of an array or tensor to both files.

        Raises:
            InvalidValueError: The value is not an array, or the step is not a whole number.
        """
        self._add("histogram", tag, values, step)

    def add_image(self, tag: str, image: Any, step: int | None = None) -> None:
        """Writes an image or a batch to both files.

        Args:
            tag: Name of the series.
            image: `[h, w]`, `[h, w, c]`, `[c, h, w]` or `[n, c, h, w]` with c = 1 or 3. Unsigned bytes are taken as
                they are; other numbers as MindSpore takes them: 0..1, else stretched.
            step: The training's own when None.

        Raises:
            InvalidValueError: Another shape, or the step is not a whole number.
        """
        self._add("image", tag, image, step)

    def add_tensor(self, tag: str, value: Any, step: int | None = None) -> None:
        """Writes an array or tensor: whole to MindSpore's file, as a table and a histogram to TensorBoard's.

        Raises:
            InvalidValueError: The value is not an array, or the step is not a whole number.
        """
        self._add("tensor", tag, value, step)

    def _add(self, plugin: str, tag: str, value: Any, step: Any) -> None:
        if not isinstance(tag, str):
            raise InvalidValueError(f"a tag is a str, got {tag!r}")
        number = self._step if step is None else as_step(step, tag)
        try:
            array = _array_for(plugin, value)
        except InvalidValueError as error:
            raise InvalidValueError(error.message, tag=tag, step=number) from None
        if plugin == "image" and array.dtype == np.uint8:
            plugin = "pixels"
        self._put_user_value(plugin, tag, array, number)


def _array_for(plugin: str, value: Any) -> npt.NDArray[Any]:
    array = to_array(value)
    if array is None or array.dtype.kind not in "biufc":
        raise InvalidValueError(f"{type(value).__name__} cannot be recorded as {plugin}: give numbers")
    if plugin == "scalar" and array.size != 1:
        raise InvalidValueError(
            f"a scalar is one number, and this has the shape {list(array.shape)}: add each under a tag of its own, or "
            "use add_histogram or add_tensor"
        )
    array = np.asarray(array)  # not of a class that the writer process would have to import
    return as_batch(array) if plugin == "image" else array
