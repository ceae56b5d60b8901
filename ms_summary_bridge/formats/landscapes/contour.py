"""A loss landscape as a contour image: bands of equal loss, axes, a colour bar, the path and where it ended.

Drawn with numpy and pillow, which this package needs anyway. Bands and lines are drawn at twice the size and reduced,
so that they are smooth; text is written afterwards.
"""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from ms_summary_bridge.formats.landscapes.grid import Array, LossGrid
from ms_summary_bridge.formats.landscapes.scale import ColourScale, colours_of, nice_ticks
from ms_summary_bridge.formats.landscapes.surface import END_COLOUR, PATH_COLOUR, START_COLOUR, thin

__all__ = ["SIZE", "draw_contour"]

SIZE: Final = (640, 520)
"""Pixels of the image: width and height. TensorBoard first shows it at half of them, so the letters are large."""

_LEFT, _TOP, _RIGHT, _BOTTOM = 82, 62, 502, 424  # of the plot
_BAR: Final = (524, 542)  # left and right edge of the colour bar
_FINE: Final = 2
_LINE: Final = 14  # pixels between two numbers
_INK: Final = (40, 40, 40)
_FAINT: Final = (120, 120, 120)
_WHITE: Final = (255, 255, 255)
_TITLE_CHARACTERS: Final = 50
_MAX_PATH: Final = 1000  # points that the line goes through: more are not seen, and take their time
_DOTTED: Final = 40  # points of a path that are marked, and
_NAMED: Final = 8  # points of a path that their number is written at


def draw_contour(grid: LossGrid, title: str) -> bytes:
    """Returns a PNG of the landscape."""
    scale = grid.make_scale()
    levels = np.unique(scale.fractions(np.array(scale.ticks())))
    plot = _Plot(grid)
    plot.paint(_bands(grid, scale, levels))
    plot.draw_path()
    plot.draw_frame()
    plot.draw_bar(scale, levels)
    plot.write_texts(title, scale)
    file = io.BytesIO()
    plot.image.save(file, "PNG")
    return file.getvalue()


def _bands(grid: LossGrid, scale: ColourScale, levels: Array) -> Image.Image:
    """Returns the picture of the plot: one colour between two levels, a line where they meet."""
    width, height = (_RIGHT - _LEFT) * _FINE, (_BOTTOM - _TOP) * _FINE
    across = np.linspace(grid.x[0], grid.x[-1], width)
    up = np.linspace(grid.y[-1], grid.y[0], height)  # a picture begins at its top
    fractions = grid.resample(scale.fractions(grid.z), across, up)
    known = ~np.isnan(fractions)
    band = np.searchsorted(levels, np.nan_to_num(fractions), side="right")
    pixels = _palette(levels)[np.where(known, band, -1)]
    line = np.zeros(band.shape, bool)
    line[:-1] |= (band[:-1] != band[1:]) & known[:-1] & known[1:]
    line[:, :-1] |= (band[:, :-1] != band[:, 1:]) & known[:, :-1] & known[:, 1:]
    pixels[line] = pixels[line] // 2
    return Image.fromarray(pixels).reduce(_FINE)


def _palette(levels: Array) -> npt.NDArray[np.uint8]:
    """Returns the colour of each band, and of what is not finite behind them."""
    edges = np.concatenate([[0.0], levels, [1.0]])
    middles = (edges[:-1] + edges[1:]) / 2 if levels.size > 1 else np.full(levels.size + 1, 0.5)
    return colours_of(np.append(middles, np.nan))


def _font(size: int) -> Any:
    try:
        return ImageFont.load_default(size)
    except TypeError:  # pillow before 10.1 has one size
        return ImageFont.load_default()


class _Plot:
    """The image while it is drawn."""

    def __init__(self, grid: LossGrid) -> None:
        self.image = Image.new("RGB", SIZE, _WHITE)
        self._grid = grid
        self._draw = ImageDraw.Draw(self.image)

    def paint(self, picture: Image.Image) -> None:
        """Puts the bands into their place."""
        self.image.paste(picture, (_LEFT, _TOP))

    def _pixel(self, x: float, y: float) -> tuple[float, float]:
        grid = self._grid
        across = (x - grid.x[0]) / (grid.x[-1] - grid.x[0])
        up = (y - grid.y[0]) / (grid.y[-1] - grid.y[0])
        return _LEFT + float(across) * (_RIGHT - _LEFT - 1), _BOTTOM - 1 - float(up) * (_BOTTOM - _TOP - 1)

    def draw_path(self) -> None:
        """Draws the line with its points, numbers beside them, and the convergence point."""
        grid = self._grid
        drawn = thin(len(grid.path), _MAX_PATH)
        pixels = [self._pixel(x, y) for x, y, _ in grid.path[drawn]]
        names = [grid.intervals[number] for number in drawn]
        if len(pixels) > 1:
            self._draw.line(pixels, _WHITE, 5, joint="curve")
            self._draw.line(pixels, PATH_COLOUR, 3, joint="curve")
        every = max(1, -(-len(pixels) // _DOTTED))
        for pixel in reversed(pixels[::every]):
            is_start = pixel is pixels[0]
            self._dot(pixel, 7 if is_start else 4, START_COLOUR if is_start else PATH_COLOUR)
        if grid.end is not None:
            self._star(self._pixel(grid.end[0], grid.end[1]), 11)
        stride = max(1, -(-len(pixels) // _NAMED))
        for pixel, name in list(zip(pixels, names, strict=True))[::stride]:
            place = (pixel[0] + 8, pixel[1] - 18) if pixel[0] < _RIGHT - 40 else (pixel[0] - 28, pixel[1] - 18)
            self._draw.text(place, str(name), _WHITE, _font(15), stroke_width=2, stroke_fill=_INK)

    def _dot(self, pixel: tuple[float, float], radius: int, colour: tuple[int, int, int]) -> None:
        x, y = pixel
        edge = _INK if colour == START_COLOUR else _WHITE
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), colour, edge)

    def _star(self, pixel: tuple[float, float], radius: int) -> None:
        x, y = pixel
        angles = np.pi * np.arange(10) / 5
        reach = np.where(np.arange(10) % 2, 0.45, 1.0) * radius
        points = [
            (x + float(dx), y - float(dy))
            for dx, dy in zip(reach * np.sin(angles), reach * np.cos(angles), strict=True)
        ]
        self._draw.polygon(points, END_COLOUR, _INK)

    def draw_frame(self) -> None:
        """Draws the frame and both axes."""
        grid, draw, font = self._grid, self._draw, _font(15)
        draw.rectangle((_LEFT, _TOP, _RIGHT - 1, _BOTTOM - 1), None, _INK)
        for x in nice_ticks(float(grid.x[0]), float(grid.x[-1]), 6):
            column, _ = self._pixel(x, float(grid.y[0]))
            draw.line((column, _BOTTOM, column, _BOTTOM + 5), _INK)
            _write(draw, (column, _BOTTOM + 9), _number(x), font, 0.5)
        for y in nice_ticks(float(grid.y[0]), float(grid.y[-1]), 6):
            _, row = self._pixel(float(grid.x[0]), y)
            draw.line((_LEFT - 6, row, _LEFT - 1, row), _INK)
            _write(draw, (_LEFT - 10, row - 8), _number(y), font, 1)
        kind = "number of the point, direction" if grid.is_numbered else "direction"
        _write(draw, ((_LEFT + _RIGHT) / 2, _BOTTOM + 30), f"{kind} 1 (x)", font, 0.5)
        label = Image.new("RGB", (_BOTTOM - _TOP, 20), _WHITE)
        _write(ImageDraw.Draw(label), (label.width / 2, 0), f"{kind} 2 (y)", font, 0.5)
        self.image.paste(label.transpose(Image.Transpose.ROTATE_90), (6, _TOP))

    def draw_bar(self, scale: ColourScale, levels: Array) -> None:
        """Draws the colour bar with the losses of the levels."""
        left, right = _BAR
        rows = np.linspace(1, 0, _BOTTOM - _TOP)
        colours = _palette(levels)[np.searchsorted(levels, rows, side="right")]
        colours = np.repeat(colours[:, None], right - left, axis=1)
        self.image.paste(Image.fromarray(colours), (left, _TOP))
        self._draw.rectangle((left, _TOP, right - 1, _BOTTOM - 1), None, _INK)
        written = float(SIZE[1])
        for loss in scale.ticks():
            row = _BOTTOM - 1 - float(scale.fractions(np.array(loss))) * (_BOTTOM - _TOP - 1)
            self._draw.line((right, row, right + 5, row), _INK)
            if written - row >= _LINE:  # ticks of a logarithmic scale come close around zero
                _write(self._draw, (right + 9, row - 8), _number(loss), _font(15), 0)
                written = row
        _write(self._draw, (left, _TOP - 24), "loss" if scale.kind == "linear" else "loss (log)", _font(15), 0)

    def write_texts(self, title: str, scale: ColourScale) -> None:
        """Writes what stands over and under the plot."""
        grid = self._grid
        if len(title) > _TITLE_CHARACTERS:
            title = f"{title[:_TITLE_CHARACTERS]}..."
        _write(self._draw, (_LEFT, 8), title, _font(20), 0, _INK)
        parts = [f"loss {scale.low:.5g} to {scale.high:.5g}"]
        if grid.decomposition:
            parts.insert(0, f"{grid.decomposition} directions")
        if scale.kind != "linear":
            parts.append(f"{scale.kind} scale")
        if not np.isfinite(grid.z).all():
            parts.append("grey where it is not finite")
        _write(self._draw, (_LEFT, 36), "; ".join(parts), _font(14), 0, _FAINT)
        row = SIZE[1] - 28
        column = 14.0
        unit = grid.unit or "point"
        if grid.intervals:
            first, last = grid.intervals[0], grid.intervals[-1]
            self._dot((column, row + 8), 7, START_COLOUR)
            column = _write(self._draw, (column + 14, row), f"start: {unit} {first}", _font(15), 0) + 20
            self._draw.line((column, row + 8, column + 26, row + 8), PATH_COLOUR, 3)
            self._dot((column + 13, row + 8), 4, PATH_COLOUR)
            column = _write(self._draw, (column + 34, row), f"path to {unit} {last}", _font(15), 0) + 20
        if grid.end is not None:
            self._star((column, row + 8), 11)
            text = "convergence point"
            if np.isfinite(grid.end[2]):
                text += f", loss {grid.end[2]:.5g}"
            _write(self._draw, (column + 15, row), text, _font(15), 0)


def _write(
    draw: ImageDraw.ImageDraw,
    place: tuple[float, float],
    text: str,
    font: Any,
    before: float,
    colour: tuple[int, int, int] = _INK,
) -> float:
    """Writes a line, so much of it before the place; returns where it ends."""
    text = " ".join(text.splitlines())  # a tag may have several
    if not isinstance(font, ImageFont.FreeTypeFont):  # pillow's old font has Latin letters alone
        text = text.encode("latin-1", "replace").decode("latin-1")
    length = draw.textlength(text, font)
    left = place[0] - before * length
    draw.text((left, place[1]), text, colour, font)
    return left + length


def _number(value: float) -> str:
    return f"{value:.4g}" if value else "0"
