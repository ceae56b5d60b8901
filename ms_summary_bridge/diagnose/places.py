"""Where a stack says that a training is.

Stacks are faulthandler's: the innermost frame first, `File "<path>", line <n> in <function>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["CODE", "COLLECTIVE", "COMPILE", "COMPUTE", "OPTIMIZER", "find_place", "innermost"]

CODE: Final = "code"
COLLECTIVE: Final = "collective"
COMPILE: Final = "compile"
COMPUTE: Final = "compute"
OPTIMIZER: Final = "optimizer"

_FRAME: Final = re.compile(r'File "(?P<path>.*)", line (?P<line>\d+) in (?P<function>.*)')
_OF_FRAMEWORK: Final = re.compile(r"/mindspore/|/ms_summary_bridge/|/numpy/|<frozen")
_COLLECTIVE_FRAME: Final = re.compile(
    r"(?i)comm_func\.py|/communication/|/distributed/"
    r"|in \w*(all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier)\w*$"
)
_OPTIMIZER_FRAME: Final = re.compile(r"/[^/]*optim[^/]*(/|\.py )|in \w*optimizer\w*$")
_COMPILE_FRAME: Final = re.compile(r"/mindspore/.* in compile$")


def find_place(phase: str, stack: Sequence[str]) -> str:
    """Returns what a rank is in: its phase, or what the stack of its training thread says more exactly.

    Whatever the phase, a frame of a collective means waiting for others. A first step whose stack has no frame of the
    compiler has been compiled: it computes, or waits. In a later step the compiler's frame says nothing, since a graph
    that PyNative calls waits there for its inputs. Python code innermost in a step does not wait for a collective.
    """
    frames = [_plain(line) for line in stack]
    if any(_COLLECTIVE_FRAME.search(frame) for frame in frames):
        return COLLECTIVE
    if phase not in (COMPUTE, COMPILE) or not frames:
        return phase
    if phase == COMPILE and any(_COMPILE_FRAME.search(frame) for frame in frames):
        return COMPILE
    if _OF_FRAMEWORK.search(frames[0]) and not re.search(r"/optim/", frames[0]):
        return COMPUTE
    return OPTIMIZER if any(_OPTIMIZER_FRAME.search(frame) for frame in frames) else CODE


def _plain(line: str) -> str:
    match = _FRAME.search(line)
    return f"{match['path']} in {match['function']}" if match else line


def innermost(stack: Sequence[str]) -> str:
    """Returns the frame in which a training stands: the first one outside MindSpore, else the very first."""
    own = [line for line in stack if not _OF_FRAMEWORK.search(line)]
    return (own or list(stack) or [""])[0].strip()
