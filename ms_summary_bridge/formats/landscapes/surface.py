"""A loss landscape as a coloured surface, with the path of the training as a tube above it.

TensorBoard's mesh page shows y upwards, and has no axes and no lines, so a frame around the ground, the path and its
points are part of the mesh. It numbers vertices with 16 bits, so that there may be 65,536 of them. Source: TensorBoard
2.21, looked at in a browser.
"""

from __future__ import annotations

import itertools
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ms_summary_bridge.formats.landscapes.grid import Array, LossGrid
from ms_summary_bridge.formats.landscapes.scale import ColourScale, colours_of

__all__ = ["END_COLOUR", "PATH_COLOUR", "START_COLOUR", "Mesh", "make_surface", "thin"]

PATH_COLOUR: Final = (230, 30, 60)
START_COLOUR: Final = (255, 255, 255)
END_COLOUR: Final = (255, 140, 0)
_FRAME_COLOUR: Final = (90, 90, 90)
_HEIGHT: Final = 1.2  # between the lowest loss and the highest
_TUBE: Final = 0.015  # radius
_POINT: Final = 0.035
_MARK: Final = 0.065
_MAX_SIDE: Final = 220  # points along an axis of the surface, and
_MAX_PATH: Final = 300  # points of the path: together below 65,536 vertices
_PIECES: Final = 8  # of a tube between two points of the path, so that it follows the surface

# Corners of one side of a tube between two cuts: how many cuts and how many corners on.
_RING: Final = np.array([[0, 1], [1, 1], [1, 0], [0, 0]])
_OCTAHEDRON: Final = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], np.float64)
_OCTAHEDRON_FACES: Final = np.array(
    [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]]
)


class Mesh(msgspec.Struct, frozen=True, eq=False):
    """Triangles between coloured points."""

    vertices: npt.NDArray[np.float32]
    """`[n, 3]` x, y (up) and z."""
    faces: npt.NDArray[np.int32]
    """`[m, 3]` numbers of vertices, against the clock when seen from outside."""
    colours: npt.NDArray[np.uint8]
    """`[n, 3]` RGB."""


class _Builder:
    """Collects bodies into one mesh."""

    def __init__(self) -> None:
        self._vertices: list[Array] = []
        self._faces: list[npt.NDArray[np.int64]] = []
        self._colours: list[npt.NDArray[np.uint8]] = []
        self._count = 0

    def add(self, vertices: Array, faces: npt.NDArray[np.int64], colours: npt.NDArray[np.uint8]) -> None:
        """Takes a body whose faces number its own vertices from 0."""
        self._vertices.append(vertices)
        self._faces.append(faces + self._count)
        self._colours.append(colours)
        self._count += len(vertices)

    def add_mark(self, place: Array, radius: float, colour: tuple[int, int, int]) -> None:
        """Takes an octahedron."""
        self.add(_OCTAHEDRON * radius + place, _OCTAHEDRON_FACES, _plain(6, colour))

    def add_tube(self, points: Array, radius: float, colour: tuple[int, int, int]) -> None:
        """Takes a tube of four sides along some points."""
        count = len(points)
        if count < 2:
            return
        along = np.gradient(points, axis=0)
        side = np.stack([along[:, 2], np.zeros(count), -along[:, 0]], axis=1)  # level, and at a right angle to the tube
        length = np.linalg.norm(side, axis=1, keepdims=True)
        side = np.where(length > 1e-9, side / np.maximum(length, 1e-9), [1.0, 0.0, 0.0])
        up = np.array([0.0, 1.0, 0.0])
        corners = np.stack([side, np.broadcast_to(up, side.shape), -side, np.broadcast_to(-up, side.shape)], axis=1)
        vertices = (points[:, None, :] + radius * corners).reshape(-1, 3)
        cut, corner = np.meshgrid(np.arange(count - 1), np.arange(4), indexing="ij")
        quads = np.stack([(cut + a) * 4 + (corner + b) % 4 for a, b in _RING], axis=-1).reshape(-1, 4)
        faces = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
        self.add(vertices, faces, _plain(len(vertices), colour))

    def build(self) -> Mesh:
        """Returns everything taken."""
        return Mesh(
            np.concatenate(self._vertices).astype(np.float32),
            np.concatenate(self._faces).astype(np.int32),
            np.concatenate(self._colours),
        )


def make_surface(grid: LossGrid) -> Mesh:
    """Returns the landscape as a mesh: the surface, a frame on its ground, the path and its marks.

    Where a loss is not finite the surface has a hole.
    """
    scale = grid.make_scale()
    fractions = scale.fractions(grid.z)
    builder = _Builder()
    rows, columns = thin(len(grid.y), _MAX_SIDE), thin(len(grid.x), _MAX_SIDE)
    x, y = np.meshgrid(grid.x[columns], grid.y[rows])
    shown = fractions[np.ix_(rows, columns)]
    builder.add(
        _place(grid, x, y, np.nan_to_num(shown)).reshape(-1, 3), _cells(shown), colours_of(shown).reshape(-1, 3)
    )
    corners = np.array([[0, 0], [-1, 0], [-1, -1], [0, -1], [0, 0]])
    for one, other in itertools.pairwise(corners):
        edge = np.array([one, other])
        builder.add_tube(_place(grid, grid.x[edge[:, 0]], grid.y[edge[:, 1]], np.zeros(2)), _TUBE / 2, _FRAME_COLOUR)
    if len(grid.path):
        places = _above(grid, fractions, scale, _divide(grid.path[thin(len(grid.path), _MAX_PATH)]))
        builder.add_tube(places, _TUBE, PATH_COLOUR)
        for place in places[::_PIECES][1:]:
            builder.add_mark(place, _POINT, PATH_COLOUR)
        builder.add_mark(places[0], _MARK, START_COLOUR)
    if grid.end is not None:
        place = _above(grid, fractions, scale, grid.end[None])[0]
        builder.add_mark(place + np.array([0, _MARK / 2, 0]), _MARK, END_COLOUR)
    return builder.build()


def thin(count: int, most: int) -> npt.NDArray[np.int64]:
    """Returns the numbers of so many points at most, evenly chosen, the first and the last among them."""
    return np.asarray(np.rint(np.linspace(0, count - 1, min(count, most))), np.int64)


def _place(grid: LossGrid, x: Array, y: Array, fractions: Array) -> Array:
    """Returns points of the scene: x to the right, y of the landscape to the back, the loss upwards."""
    across = 2 * (x - grid.x[0]) / (grid.x[-1] - grid.x[0]) - 1
    back = 1 - 2 * (y - grid.y[0]) / (grid.y[-1] - grid.y[0])
    return np.stack([across, (fractions - 0.5) * _HEIGHT, back], axis=-1)


def _cells(fractions: Array) -> npt.NDArray[np.int64]:
    """Returns two triangles for each cell of the grid; those with a corner that has no height are left out."""
    rows, columns = fractions.shape
    number = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
    faces = np.concatenate([np.stack([a, b, c], -1).reshape(-1, 3), np.stack([b, d, c], -1).reshape(-1, 3)])
    return np.asarray(faces[~np.isnan(fractions).ravel()[faces].any(axis=1)], np.int64)


def _plain(count: int, colour: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    return np.tile(np.array(colour, np.uint8), (count, 1))


def _divide(path: Array) -> Array:
    """Returns the path with points between its own."""
    at = np.linspace(0, len(path) - 1, (len(path) - 1) * _PIECES + 1)
    return np.stack([np.interp(at, np.arange(len(path)), path[:, axis]) for axis in range(3)], axis=1)


def _above(grid: LossGrid, fractions: Array, scale: ColourScale, points: Array) -> Array:
    """Returns points of the scene at their own loss, or on the surface where that is higher or they have none."""
    surface = grid.interpolate(fractions, points[:, 0], points[:, 1])
    height = np.nan_to_num(np.fmax(scale.fractions(points[:, 2]), surface))
    places = _place(grid, points[:, 0], points[:, 1], height)
    places[:, 1] += _TUBE
    return places
