"""Keys of a terminal, one at a time and without Enter."""

from __future__ import annotations

import codecs
import os
import select
import sys
from importlib import import_module
from typing import Any, Final

from ms_summary_bridge.errors import UnsupportedSystemError

__all__ = ["KeyReader", "split_keys"]

_SEQUENCES: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
}
_NAMES: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\t": "tab"}


def split_keys(text: str) -> list[str]:
    """Returns the keys that a terminal sent: characters, and names such as `up`, `enter`, `escape`.

    A sequence that is not known is passed over as a whole.
    """
    keys = []
    while text:
        if text[0] != "\x1b":
            keys.append(_NAMES.get(text[0], text[0]))
            text = text[1:]
            continue
        size = 1
        if text[1:2] in ("[", "O"):
            size = 2
            while size < len(text) and text[size] in "0123456789;":
                size += 1
            size = min(size + 1, len(text))
        key = "escape" if size == 1 else _SEQUENCES.get(text[:size], "")
        keys += [key] if key else []
        text = text[size:]
    return keys


class KeyReader:
    """Reads keys of standard input, which is a terminal; leaves that as it was."""

    def __init__(self) -> None:
        try:
            self._terminal: Any = import_module("termios")
        except ImportError as error:
            raise UnsupportedSystemError("watch reads keys on Linux and macOS alone: use watch --once here") from error
        self._descriptor = sys.stdin.fileno()
        self._before: list[Any] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> KeyReader:
        self._before = self._terminal.tcgetattr(self._descriptor)
        import_module("tty").setcbreak(self._descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        self._terminal.tcsetattr(self._descriptor, self._terminal.TCSADRAIN, self._before)

    def read(self, timeout_secs: float) -> list[str]:
        """Returns the keys that were pressed, after waiting so long for the first; `q` where the terminal is gone."""
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, timeout_secs))
        if not ready:
            return []
        try:
            data = os.read(self._descriptor, 1024)
        except OSError:
            data = b""
        return split_keys(self._decoder.decode(data)) if data else ["q"]
