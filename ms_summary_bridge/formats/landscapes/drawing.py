"""MindSpore's loss landscape, as a mesh and a contour image that TensorBoard shows.

Source: `proto/mindspore/landscape.proto`. Measured on files of MindSpore 2.10: x and y are axes, z is a matrix with a
row for each y; numbers lie in `float_data` whatever their dtype; a landscape along random directions has no path. From
its code: a training that does not move has axes whose coordinates are all equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.landscapes.contour import draw_contour
from ms_summary_bridge.formats.landscapes.grid import Array, LossGrid
from ms_summary_bridge.formats.landscapes.surface import Mesh, make_surface
from ms_summary_bridge.formats.tensor import decode_mindspore_tensor

__all__ = ["decode_landscape", "draw_landscape"]

_LANDSCAPE: Final = 0x52  # field of a summary value


def draw_landscape(message: bytes, tag: str) -> tuple[Mesh, bytes]:
    """Returns the surface and a PNG for one value of a MindSpore summary.

    Args:
        message: The value's bytes.
        tag: Stands over the image.

    Raises:
        InvalidValueError: It holds no landscape that can be drawn.
    """
    grid = decode_landscape(message)
    return make_surface(grid), draw_contour(grid, tag)


def decode_landscape(message: bytes) -> LossGrid:
    """Reads one value of a MindSpore summary into what can be drawn: ascending axes, two points along each at least.

    Raises:
        InvalidValueError: It holds no landscape, or none that can be drawn.
    """
    try:
        return _decode(message)
    except EventDecodeError as error:
        raise InvalidValueError(f"the landscape cannot be read: {error}") from error


def _decode(message: bytes) -> LossGrid:
    x = y = z = np.empty(0)
    path: tuple[Array, Array, Array] | None = None
    end: tuple[Array, Array, Array] | None = None
    intervals: list[int] = []
    texts = {0x0A: "", 0x12: ""}
    for key, a, b in _inside(message, _LANDSCAPE):
        if key == 0x0A:
            x, y, z = _decode_point(message, a, b)
        elif key == 0x12:
            for inner, c, d in wire.fields(message, a, b):
                if inner == 0x12:
                    path = _decode_point(message, c, d)
                else:
                    intervals += _integers(message, inner, c, d)
        elif key == 0x1A:
            for inner, c, d in wire.fields(message, a, b):
                if inner in texts:
                    texts[inner] = message[c:d].decode("utf-8", "replace")
        elif key == 0x22:
            end = _decode_point(message, a, b)
    if z.ndim != 2 or not z.size or z.shape != (y.size, x.size):
        raise InvalidValueError(f"losses of shape {list(z.shape)} do not fill axes of {x.size} and {y.size} points")
    if not np.isfinite(z).any():
        raise InvalidValueError("no loss of the landscape is finite")
    x, z, x_is_index = _ascending(x, z)
    y, z, y_is_index = _ascending(y, z.T)
    grid = LossGrid(x, y, z.T, decomposition=texts[0x0A], unit=texts[0x12])
    if x_is_index or y_is_index:  # coordinates of a point mean nothing then
        grid.is_numbered = True
        return grid
    if path is not None:
        names = intervals if len(intervals) == path[0].size else list(range(1, path[0].size + 1))
        grid.set_path(*path, names)
    if end is not None:
        grid.set_end(*end)
    return grid


def _inside(message: bytes, field: int) -> Iterator[tuple[int, int, int]]:
    for key, a, b in wire.fields(message, 0, len(message)):
        if key == field:
            yield from wire.fields(message, a, b)


def _integers(message: bytes, key: int, a: int, b: int) -> list[int]:
    """Returns the numbers of field 1, packed or not."""
    if key == 0x08:
        return [wire.signed(a)]
    numbers = []
    while key == 0x0A and a < b:
        number, a = wire.read_varint(message, a, b)
        numbers.append(wire.signed(number))
    return numbers


def _decode_point(message: bytes, start: int, end: int) -> tuple[Array, Array, Array]:
    """Returns x and y as vectors, z in its shape."""
    found = {0x0A: np.empty(0), 0x12: np.empty(0), 0x1A: np.empty(0)}
    for key, a, b in wire.fields(message, start, end):
        if key in found:
            array = decode_mindspore_tensor(message, a, b)[0].array
            with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
                found[key] = array.astype(np.float64)
    return found[0x0A].ravel(), found[0x12].ravel(), found[0x1A]


def _ascending(axis: Array, z: Array) -> tuple[Array, Array, bool]:
    """Brings the columns of z into the order of their axis, and doubles a single one.

    Returns:
        Axis, losses, and whether the points are numbered because their coordinates do not tell them apart.
    """
    order = np.argsort(axis, kind="stable")
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(axis[order])
        is_numbered = not (np.isfinite(axis).all() and (steps > 0).all() and np.isfinite(steps.sum()))
    if is_numbered:
        axis = np.arange(axis.size, dtype=np.float64)
        order = np.arange(axis.size)
    axis, z = axis[order], z[:, order]
    if axis.size == 1:
        axis, z = np.array([axis[0] - 0.5, axis[0] + 0.5]), np.repeat(z, 2, axis=1)
        is_numbered = is_numbered or not axis[0] < axis[1]
    return axis, z, is_numbered
