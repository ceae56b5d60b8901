"""How a command ends: every error becomes a line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.cli.output import discard_output, say
from ms_summary_bridge.errors import BridgeError

__all__ = ["INTERRUPTED", "exit_code_of", "leave"]

INTERRUPTED: Final = 130
"""What a shell gives for a program ended by Ctrl-C."""


def exit_code_of(run: Callable[[], int]) -> int:
    """Runs a command that returns its exit code; returns that, or the one of the error that it raised."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, who wants to hear nothing
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that is not UTF-8, or a terminal that is not, ends nothing
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return run()
    except BridgeError as error:
        say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted; converting again into the same destination goes on from here")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing is wrong, and nothing more can be said.
        discard_output()
        return 0
    except OSError as error:
        if error.filename is not None:  # a file's error that nobody below has named: a bug, to be seen as one
            raise
        discard_output()
        with contextlib.suppress(OSError):
            say(f"error: the output cannot be written: {error.strerror}")
        return 1
    except Exception as error:
        # typer keeps its exceptions for wrong usage in places that differ between its versions.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            shown = io.StringIO()
            error.show(file=shown)
            say(shown.getvalue().rstrip("\n"))
            return int(error.exit_code)
        raise


def leave(code: int) -> None:
    """Ends a program whose work is done at once: to take all modules down takes as long as 50,000 scalars.

    Returns where somebody may still have something to do: another thread, a process that was started, a profiler, or
    whoever says that the output cannot be written.
    """
    is_watched = sys.gettrace() is not None or sys.getprofile() is not None
    if is_watched or threading.active_count() > 1 or "multiprocessing" in sys.modules:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code)
