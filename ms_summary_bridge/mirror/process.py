"""Process: the child that keeps a mirror up to date, seen from the viewer, which goes on without it when it cannot.

Loads nothing that converts.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.files.system import NEW_GROUP
from ms_summary_bridge.mirror.home import Home

__all__ = ["MirrorProcess"]

_STARTS: Final = 3
_LONG_LIFE_SECS: Final = 600.0
_STOP_SECS: Final = 10.0


class MirrorProcess:
    """The child process of a mirror, which ends when this process does, however that ends.

    A child that dies is started again, a few times; then the mirror leads to the logdir itself for good.

    Args:
        home: The mirror, held by this process.
        target: As for `Mirror`.
        limit: As for `Mirror`.
        warn: Told what a person should know, line by line, from a thread.
        sleep: Waits for seconds, before a child is started again.
    """

    def __init__(
        self,
        home: Home,
        target: str,
        limit: int,
        warn: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._home = home
        self._arguments = (home.path, home.source, target, str(limit))
        self._warn = warn
        self._sleep = sleep
        self._child: subprocess.Popen[str] | None = None
        self._is_stopped = False
        self.thread = threading.Thread(target=self._look_after, name="mindspore-mirror", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Ends the child, also in the middle of a conversion: the next one goes on from what lies there."""
        self._is_stopped = True
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        self.thread.join(_STOP_SECS)

    def _look_after(self) -> None:
        reason = ""
        failures = 0
        while failures < _STARTS:
            began = time.monotonic()
            try:
                reason = self._run_child()
            except Exception as error:  # a thread that ends of it would leave a viewer with nothing, and say nothing
                reason = str(error) if isinstance(error, OSError) else repr(error)
            if self._is_stopped:
                return
            failures = failures + 1 if time.monotonic() - began < _LONG_LIFE_SECS else 1
            self._sleep(failures - 1)  # what ended it, want of memory say, may be over
        try:
            self._home.give_up()
        except OSError as error:
            reason = f"{reason}; {error}"
        self._warn(f"runs below {self._home.source} are not followed any more: {reason}")

    def _run_child(self) -> str:
        """Runs one child to its end; returns what it ended of."""
        # Nothing is ever written to its stdin: the system closes it when this process ends, also by SIGKILL. Its own
        # session keeps the terminal's Ctrl-C, which is for the viewer, away from it.
        with subprocess.Popen(
            [sys.executable, "-m", "ms_summary_bridge.mirror", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            creationflags=NEW_GROUP,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)},
            encoding="utf-8",
            errors="backslashreplace",
        ) as child:
            self._child = child
            assert child.stdout is not None
            last = ""
            if self._is_stopped:  # before there was a child to be told
                child.kill()
            for line in child.stdout:
                kind, _, text = line.rstrip("\n").partition(" ")
                if kind == "fault":
                    last = text
                else:
                    self._warn(text)
            return last or f"its process ended with {child.wait()}"
