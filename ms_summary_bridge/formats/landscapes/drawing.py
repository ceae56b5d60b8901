"""MindSpore's loss landscape, as a mesh and a contour image that TensorBoard shows.

Source: `proto/mindspore/landscape.proto`. Measured on files of MindSpore 2.10: x and y are axes, z is a matrix with a
row for each y; numbers lie in `float_data` whatever their dtype; a landscape along random directions has no path. From
its code: a training that does not move has axes whose coordinates are all equal.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats._tensorboard_values import image_value
from ms_summary_bridge.formats.landscapes.contour import SIZE, draw_contour
from ms_summary_bridge.formats.landscapes.grid import Array, LossGrid
from ms_summary_bridge.formats.landscapes.mesh import encode_mesh
from ms_summary_bridge.formats.landscapes.surface import Mesh, make_surface
from ms_summary_bridge.formats.plugin_data import Origin
from ms_summary_bridge.formats.tag_names import TagNames
from ms_summary_bridge.formats.tensor import decode_mindspore_tensor
from ms_summary_bridge.values import Image, Opaque

__all__ = ["decode_landscape", "draw_landscape", "encode_landscape"]

_LANDSCAPE: Final = 0x52  # field of a summary value


def draw_landscape(message: bytes, tag: str) -> tuple[Mesh, bytes]:
    """Returns the surface and a PNG, titled with the tag, for one value of a MindSpore summary.

    Raises:
        InvalidValueError: It holds no landscape that can be drawn.
    """
    grid = decode_landscape(message)
    return make_surface(grid), draw_contour(grid, tag)


def encode_landscape(value: Opaque, tag: str, names: TagNames) -> list[bytes]:
    """Returns the values that show a landscape in TensorBoard, a mesh in three parts and an image; raises likewise."""
    mesh, picture = draw_landscape(value.payload, tag)
    origin = Origin(tag, derived=True, kind=value.kind)
    image = Image(SIZE[1], SIZE[0], 3, (picture,))
    parts = encode_mesh(mesh, tag, lambda part: names.name(part, "mesh"), origin)
    return [*parts, image_value(names.name(tag, "image", "contour"), image, picture, origin)]


def decode_landscape(message: bytes) -> LossGrid:
    """Reads a landscape into what can be drawn: ascending axes, two points along each at least; raises likewise."""
    try:
        return _decode(message)
    except EventDecodeError as error:
        raise InvalidValueError(f"the landscape cannot be read: {error}") from error


def _decode(message: bytes) -> LossGrid:
    landscape = b"".join(wire.all_fields(message, _LANDSCAPE))
    found = wire.last_fields(landscape)
    walked = b"".join(wire.all_fields(landscape, 0x12))
    metadata = wire.last_fields(b"".join(wire.all_fields(landscape, 0x1A)))
    decomposition, unit = (metadata.get(key, b"").decode("utf-8", "replace") for key in (0x0A, 0x12))
    x, y, z = _decode_point(found.get(0x0A, b""))
    path = wire.last_fields(walked).get(0x12)
    intervals = [number for key, a, b in wire.fields(walked, 0, len(walked)) for number in _integers(walked, key, a, b)]
    end = found.get(0x22)
    if z.ndim != 2 or not z.size or z.shape != (y.size, x.size):
        raise InvalidValueError(f"losses of shape {list(z.shape)} do not fill axes of {x.size} and {y.size} points")
    if not np.isfinite(z).any():
        raise InvalidValueError("no loss of the landscape is finite")
    x, z, x_is_index = _ascending(x, z)
    y, z, y_is_index = _ascending(y, z.T)
    grid = LossGrid(x, y, z.T, decomposition=decomposition, unit=unit)
    if x_is_index or y_is_index:  # coordinates of a point mean nothing then
        grid.is_numbered = True
        return grid
    if path is not None:
        points = _decode_point(path)
        names = intervals if len(intervals) == points[0].size else list(range(1, points[0].size + 1))
        grid.set_path(*points, names)
    if end is not None:
        grid.set_end(*_decode_point(end))
    return grid


def _integers(message: bytes, key: int, a: int, b: int) -> list[int]:
    """Returns the numbers of field 1, packed or not."""
    if key == 0x08:
        return [wire.signed(a)]
    numbers = []
    while key == 0x0A and a < b:
        number, a = wire.read_varint(message, a, b)
        numbers.append(wire.signed(number))
    return numbers


def _decode_point(message: bytes) -> tuple[Array, Array, Array]:
    """Returns x and y as vectors, z in its shape."""
    found = wire.last_fields(message)
    x, y, z = (_decode_array(found[key]) if key in found else np.empty(0) for key in (0x0A, 0x12, 0x1A))
    return x.ravel(), y.ravel(), z


def _decode_array(message: bytes) -> Array:
    array = decode_mindspore_tensor(message, 0, len(message))[0].array
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return array.astype(np.float64)


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
