"""Brings docs/architecture.md up to date: its tables of rooms, and its two drawings.

Usage: python tools/draw_rooms.py [--check]

The tables are the first sentences of the rooms' docstrings, by the floors that tests/project/test_layers.py proves.
With --check nothing is written: the exit code is 1 when something would change.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.project.test_layers import FLOORS, FOREIGN, MODULES, PACKAGES, is_in  # noqa: E402

PAGE = ROOT / "docs" / "architecture.md"
PICTURES = ROOT / "docs" / "images"
BEGIN, END = "<!-- {} made by tools/draw_rooms.py -->", "<!-- end -->"


# ---------------------------------------------------------------- tables


def first_sentence(module: str) -> str:
    """Returns the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    match = re.match(r"(.+?\.)(?:\s+[A-Z`]|$)", paragraph)
    return (match[1] if match else paragraph).replace("|", "\\|")


def label(module: str) -> str:
    """Returns a module as a path: `files/` or `values.py`."""
    path = module.replace(".", "/")
    return f"{path}/" if module in PACKAGES else f"{path}.py"


def describe_floors() -> str:
    """Returns the table of all rooms, the lowest floor first."""
    lines = ["| floor | room | what it is for |", "|---|---|---|"]
    for number, rooms in enumerate(FLOORS, 1):
        lines += [f"| {number} | `{label(room)}` | {first_sentence(room)} |" for room in sorted(rooms)]
    return "\n".join(lines)


def describe_inner_rooms() -> str:
    """Returns the table of the packages inside of rooms."""
    inner = sorted(name for name in PACKAGES if "." in name)
    return "\n".join(
        [
            "| inside | what it is for |",
            "|---|---|",
            *(f"| `{label(name)}` | {first_sentence(name)} |" for name in inner),
        ]
    )


# ---------------------------------------------------------------- drawings

DATA, CODE, TRAINING, INK, QUIET = "#e8f0fe", "#f1f3f4", "#fef0e0", "#202124", "#5f6368"


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    title: str
    text: str = ""
    fill: str = DATA

    def draw(self) -> str:
        middle = self.x + self.width / 2
        up = 5 if self.text else -4
        out = f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6" fill="{self.fill}"'
        out += f' stroke="{QUIET}"/>' + write(middle, self.y + self.height / 2 - up, self.title, weight="bold")
        return out + (write(middle, self.y + self.height / 2 + 13, self.text, size=11) if self.text else "")


def write(x: float, y: float, text: str, *, size: int = 13, weight: str = "normal", anchor: str = "middle") -> str:
    fill = INK if size > 11 else QUIET
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def arrow(points: list[tuple[float, float]], text: str = "", *, dashed: bool = False) -> str:
    """Draws a line along points that ends in a head, with a text over its middle."""
    path = " ".join(f"{x},{y}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    out = f'<polyline points="{path}" fill="none" stroke="{QUIET}" stroke-width="1.5" marker-end="url(#head)"{dashes}/>'
    (x1, y1), (x2, y2) = points[0], points[-1]
    return out + (write((x1 + x2) / 2, (y1 + y2) / 2 - 7, text, size=11) if text else "")


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    head = (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{QUIET}"/></marker></defs>'
    )
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        head,
        *parts,
        "</svg>\n",
    ]
    return "\n".join(lines)


def draw_rooms() -> str:
    """Draws the floors, the highest at the top."""
    width, step, left = 900, 46, 70
    parts = [
        write(left, 26, "A room imports from the floors below its own, never from beside or above.", anchor="start")
    ]
    for number, rooms in enumerate(reversed(FLOORS)):
        y = 44 + number * step
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y + 40}" y2="{y + 40}" stroke="#dadce0"/>')
        parts.append(write(34, y + 22, str(len(FLOORS) - number), weight="bold"))
        for index, room in enumerate(sorted(rooms)):
            trains = any(is_in(module, FOREIGN["mindspore"]) for module in MODULES if is_in(module, {room}))
            name = "__main__.py" if room == "__main__" else label(room)
            parts.append(Box(left + index * 200, y, 190, 34, name, fill=TRAINING if trains else DATA).draw())
    y = 44 + len(FLOORS) * step + 12
    for x, fill, text in (
        (left, TRAINING, "may import mindspore, when it is used"),
        (left + 330, DATA, "needs no mindspore"),
    ):
        parts.append(f'<rect x="{x}" y="{y}" width="18" height="14" rx="3" fill="{fill}" stroke="{QUIET}"/>')
        parts.append(write(x + 26, y + 12, text, anchor="start"))
    return picture(width, y + 30, "The rooms of ms_summary_bridge by floors", parts)


def draw_pipe() -> str:
    """Draws how a value goes through the rooms: converted, recorded while a model trains, watched by the monitor."""
    parts = [
        write(
            20,
            28,
            "convert, follow, mirror: from a file of one format to a file of the other",
            weight="bold",
            anchor="start",
        )
    ]
    names = [
        ("source file", "bytes"),
        ("Record", "checksums hold"),
        ("Event", "tagged values"),
        ("payload", "of the target"),
        ("output file", "bytes"),
    ]
    calls = [("RecordDecoder", "files/"), ("decode", "formats/"), ("encode", "formats/"), ("encode_record", "files/")]
    for index, (title, text) in enumerate(names):
        parts.append(Box(20 + index * 250, 64, 150, 54, title, text).draw())
    for index, (call, room) in enumerate(calls):
        x = 170 + index * 250
        parts += [arrow([(x, 91), (x + 98, 91)], call), write(x + 49, 107, room, size=11)]
    parts += [
        Box(520, 170, 150, 54, "archive", "original records").draw(),
        arrow([(595, 118), (595, 168)]),
        write(604, 147, "what the target cannot hold exactly", size=11, anchor="start"),
        arrow([(520, 197), (505, 197), (505, 107), (518, 107)], dashed=True),
        write(497, 201, "put back by runs/ when it is converted back", size=11, anchor="end"),
        Box(20, 170, 150, 54, "damage", "named in the report", CODE).draw(),
        arrow([(95, 118), (95, 168)]),
    ]
    y = 290
    parts += [
        write(
            20,
            y,
            "callback: the same encoders, in a process of their own while the model trains",
            weight="bold",
            anchor="start",
        ),
        Box(20, y + 30, 150, 54, "step", "training thread", TRAINING).draw(),
        arrow([(170, y + 57), (268, y + 57)], "put_values"),
        write(219, y + 73, "callback/", size=11),
        Box(270, y + 30, 150, 54, "ring", "shared memory").draw(),
        arrow([(420, y + 57), (518, y + 57)], "take"),
        write(469, y + 73, "live_writer/", size=11),
        Box(520, y + 30, 150, 54, "Event", "writer process").draw(),
        arrow([(670, y + 50), (960, y + 22)]),
        write(815, y + 26, "MindSporeEncoder", size=11),
        arrow([(670, y + 64), (960, y + 92)]),
        write(815, y + 98, "TensorBoardEncoder", size=11),
        Box(962, y, 208, 40, "MindSpore's summary file").draw(),
        Box(962, y + 74, 208, 40, "TensorBoard's event file").draw(),
    ]
    y = 450
    parts += [
        write(20, y, "monitor: numbers of steps become samples; rules watch both", weight="bold", anchor="start"),
        Box(20, y + 30, 150, 54, "step", "training thread", TRAINING).draw(),
        arrow([(170, y + 57), (268, y + 57)], "training/"),
        Box(270, y + 30, 150, 54, "sample", "once in each interval", TRAINING).draw(),
        arrow([(420, y + 50), (518, y + 22)]),
        write(462, y + 27, "rules", size=11),
        arrow([(420, y + 64), (518, y + 92)]),
        write(462, y + 96, "sinks", size=11),
        Box(520, y, 150, 40, "alert").draw(),
        arrow([(670, y + 20), (768, y + 20)], "actions"),
        Box(770, y, 400, 40, "log, command, webhook, checkpoint, stop, stacks").draw(),
        Box(520, y + 74, 650, 40, "journal (JSON lines), console, CSV, and through the bridge both viewers").draw(),
    ]
    return picture(1190, 580, "How a value goes through ms_summary_bridge", parts)


# ---------------------------------------------------------------- files


def build() -> dict[Path, str]:
    """Returns the text of each file as it should be."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in (("rooms", describe_floors()), ("inner rooms", describe_inner_rooms())):
        begin = BEGIN.format(name)
        before, found, rest = page.partition(begin)
        assert found, f"{PAGE}: has no line {begin}"
        page = f"{before}{begin}\n\n{table}\n\n{END}{rest.partition(END)[2]}"
    return {PAGE: page, PICTURES / "rooms.svg": draw_rooms(), PICTURES / "pipe.svg": draw_pipe()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check = parser.parse_args().check
    stale = [path for path, text in build().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if check else 'written'}")
        if not check:
            path.write_text(build()[path], encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
