"""Output: how the commands print, and are ended by a signal."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TextIO

from ms_summary_bridge.cli.folding import fold, fold_places, hanging_indent

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

__all__ = [
    "discard_output",
    "ended_by",
    "fold_text",
    "make_console",
    "print_bytes",
    "print_document",
    "print_json",
    "print_text",
    "print_wide",
    "printable",
    "say",
    "terminal_width",
]

_PLAIN_WIDTH: Final = 500


def printable(text: str, keep: str = "") -> str:
    """Returns text that a terminal shows as it is: control characters, lone surrogates and the like are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def make_console(*, is_error: bool = False) -> Console:
    """Returns a rich console for stdout, or stderr: as wide as its terminal; without styles where none are wanted."""
    from rich.console import Console  # here: `--help` shall not wait for it

    class PipedConsole(Console):
        """Leaves a broken pipe to `main`: rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    width = terminal_width(sys.stderr if is_error else sys.stdout)
    # A pipe has no width: a program that reads the text must not find it cut at 80 columns.
    options: dict[str, Any] = {"width": width or _PLAIN_WIDTH, "stderr": is_error}
    if not width or os.environ.get("NO_COLOR"):
        return PipedConsole(color_system=None, force_terminal=bool(width), **options)
    return PipedConsole(**options)


def terminal_width(stream: TextIO) -> int:
    """Returns the cells of a line of the terminal that a stream goes to; 0 where it goes to none."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def print_wide(renderables: Iterable[RenderableType], *, is_error: bool = False) -> None:
    """Prints what `render` gives, to stdout or stderr; lines and tables are fitted to a terminal."""
    from rich.text import Text

    console = make_console(is_error=is_error)
    is_folded = terminal_width(sys.stderr if is_error else sys.stdout) > 0
    for renderable in renderables:
        lines: Iterable[RenderableType] = [renderable]
        if isinstance(renderable, str):
            renderable = Text(renderable)
        if isinstance(renderable, Text) and is_folded:
            lines = fold_text(renderable, console.width)
        for line in lines:
            console.print(line, highlight=False, soft_wrap=not is_folded or isinstance(line, Text))


def fold_text(text: Text, width: int) -> list[Text]:
    """Returns a line with styles as lines of at most so many cells; see `folding`."""
    from rich.text import Text

    indent = hanging_indent(text.plain, width)
    places = fold_places(text.plain, width, indent)
    parts = list(text.divide(places)) if places else [text]
    for number, part in enumerate(parts):
        part.rstrip()
        parts[number] = Text(" " * indent) + part if number else part
    return parts


def print_text(text: str) -> None:
    """Prints lines as a terminal can show them."""
    lines = printable(text, keep=chr(10)).split("\n")
    if width := terminal_width(sys.stdout):
        lines = [part for line in lines for part in fold(line, width)]
    print_bytes("".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))


def print_document(text: str) -> None:
    """Prints a file's text as it is."""
    print_bytes(f"{printable(text, keep=chr(10))}\n".encode(errors="backslashreplace"))


def say(text: str) -> None:
    """Says something on stderr, in lines that a terminal can show."""
    lines = printable(text, keep="\n").split("\n")
    if width := terminal_width(sys.stderr):
        lines = [part for line in lines for part in fold(line, width)]
    print("\n".join(lines), file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Prints a report or plain data as JSON."""
    from ms_summary_bridge.runs.report import encode_json

    print_bytes(encode_json(value))


def print_bytes(data: bytes) -> None:
    """Prints what is encoded already."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        raise BrokenPipeError from None  # without its number, by which typer would know it and exit with 1


def discard_output() -> None:
    """Lets what is still buffered go nowhere, so that the end of the process does not try it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def ended_by(numbers: Iterable[signal.Signals], end: Callable[[], None]) -> Iterator[None]:
    """Calls `end` when one of these signals comes. A second one does what it did before, which ends the program."""
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, frame: FrameType | None) -> None:
        restore()
        end()

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
