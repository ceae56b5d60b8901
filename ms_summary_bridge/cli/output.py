"""Output: how the commands print, and are ended by a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["discard_output", "ended_by", "print_bytes", "print_json", "print_text", "print_wide", "printable"]


def printable(text: str, keep: str = "") -> str:
    """Returns text that a terminal shows as it is: control characters, lone surrogates and the like are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def print_wide(renderables: Iterable[RenderableType], *, is_error: bool = False) -> None:
    """Prints what `render` gives, to stdout or stderr; a table is fitted to a terminal."""
    from rich.console import Console  # here: `--help` shall not wait for it

    class PipedConsole(Console):
        """Leaves a broken pipe to `main`: rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # A pipe has no width: a program that reads the text must not find it cut at 80 columns.
    width = None if sys.stdout.isatty() and not is_error else 500
    console = PipedConsole(stderr=is_error, width=width)
    for renderable in renderables:
        console.print(renderable, highlight=False, soft_wrap=not console.is_terminal)


def print_text(text: str) -> None:
    """Prints lines as a terminal can show them."""
    print_bytes(f"{printable(text, keep=chr(10))}\n".encode(errors="backslashreplace"))


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
