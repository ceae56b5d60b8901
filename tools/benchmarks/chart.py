"""The chart of what `bench convert` measured, as SVG."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from benchmarks.convert import Result

_INK, _QUIET, _GRID = "#202124", "#5f6368", "#dadce0"
_MET, _MISSED = "#8ab4f8", "#fbbc74"
_LEFT, _RIGHT, _TOP, _ROW = 350, 690, 70, 30
_WIDTH = 900


def _write(x: float, y: float, text: str, *, size: int = 13, anchor: str = "start", fill: str = _INK) -> str:
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'


def draw_chart(results: list[Result]) -> str:
    """Draws a bar for each case and peer: how many times as long as ours the peer takes, on a logarithmic axis."""
    spreads = [result.wall_ratio if result.counts == "wall" else result.cpu_ratio for result in results]
    numbers = [1.0, *(x for each in spreads for x in (each.min, each.max)), *(r.target for r in results if r.target)]
    low, high = math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers)))

    def place(number: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (math.log10(number) - low) / max(high - low, 1)

    height = _TOP + _ROW * len(results) + 20
    bottom = height - 16
    heading = "How many times as long as ms-summary-bridge a program takes: medians of whole processes"
    legend = "thin line: least to greatest; upright line: target; of processor time, for cp of wall time"
    parts = [_write(20, 26, heading, size=14), _write(20, 46, legend, fill=_QUIET)]
    for power in range(low, high + 1):
        x = place(10**power)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{bottom}" stroke="{_GRID}"/>')
        parts.append(_write(x, _TOP - 8, f"{10.0**power:g}", size=11, anchor="middle", fill=_QUIET))
    for number, (result, spread) in enumerate(zip(results, spreads, strict=True)):
        y = _TOP + _ROW * number
        begin, end = sorted((place(1), place(spread.median)))
        fill = _MET if result.is_met else _MISSED
        parts.append(_write(20, y + 19, result.case))
        parts.append(_write(_LEFT - 12, y + 19, result.peer, anchor="end", fill=_QUIET))
        parts.append(f'<rect x="{begin:.1f}" y="{y + 5}" width="{end - begin:.1f}" height="18" fill="{fill}"/>')
        parts.append(
            f'<line x1="{place(spread.min):.1f}" x2="{place(spread.max):.1f}" y1="{y + 14}" y2="{y + 14}" '
            f'stroke="{_INK}" stroke-width="1.5"/>'
        )
        words = f"{spread.median:.3g}"
        if result.target:
            x = place(result.target)
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y + 2}" y2="{y + 26}" stroke="{_INK}" stroke-width="2"/>'
            )
            words += f" (target {result.target:g}{'' if result.is_met else ', missed'})"
        parts.append(_write(_RIGHT + 14, y + 19, words))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif">'
    )
    title = "<title>Speed of convert and of reading, against other programs</title>"
    return "\n".join([head, title, f'<rect width="{_WIDTH}" height="{height}" fill="white"/>', *parts, "</svg>\n"])
