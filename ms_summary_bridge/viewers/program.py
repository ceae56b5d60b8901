"""Program: one program under the guard, with what it says and whether it answers over HTTP."""

from __future__ import annotations

import collections
import contextlib
import http.client
import math
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

import psutil

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.files.system import NEW_GROUP
from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.viewers import guard

__all__ = ["Program"]

_Found = TypeVar("_Found")
_KEPT_LINES: Final = 40
_STOP_SECS: Final = 20.0  # the guard gives its program five
_NEWS_SECS: Final = 10.0
_ANSWER_SECS: Final = 300.0
_REQUEST_SECS: Final = 10.0
_LOOK_SECS: Final = 0.2


class Program:
    """One program, from its start on.

    Args:
        name: What a person calls it.
        command: Its command line.
        environment: Its variables; those of this process by default.
        on_line: Told each line that it prints, from a thread.

    Raises:
        BridgeError: It cannot be started.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.name = name
        self._last: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._on_line = on_line
        try:
            self._guard = subprocess.Popen(
                [sys.executable, guard.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the terminal's Ctrl-C is for us, who then end it in order
                creationflags=NEW_GROUP,
                env=dict(os.environ if environment is None else environment),
                encoding="utf-8",
                errors="backslashreplace",
            )
        except OSError as error:
            raise BridgeError(f"{name} cannot be started: {error}") from error
        self._reader = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._guard.stdout is not None
        with self._guard.stdout as lines:
            for line in lines:
                self._last.append(line.rstrip())
                self._on_line(line.rstrip())

    def poll(self) -> int | None:
        """Returns its exit code once nothing of it runs any more."""
        return self._guard.poll()

    def last_lines(self) -> str:
        """Returns the last lines that it printed."""
        if self.poll() is not None:
            self._reader.join(_REQUEST_SECS)
        return "\n".join(f"  {line}" for line in self._last.copy()) or "  (it printed nothing)"

    def stop(self) -> None:
        """Ends it, with all its children."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        try:
            self._guard.wait(_STOP_SECS)
        except subprocess.TimeoutExpired:
            self._kill()
            self._guard.wait()
        self._reader.join(_REQUEST_SECS)

    def _kill(self) -> None:
        if sys.platform == "win32":
            self._guard.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)

    def finish(self, tell: Callable[[int], None] = lambda secs: None) -> int:
        """Waits until it has ended; returns its exit code. `tell` is told every ten seconds for how long."""
        code = self._wait(self.poll, tell)
        assert code is not None  # without an end to the waiting
        return code

    def wait_until_it_answers(self, url: str, tell: Callable[[int], None]) -> None:
        """Waits until an address answers, and it is this program that does; `tell` as for `finish`.

        Another one may have taken the port after it was found free; then this one ends, and says why.

        Raises:
            BridgeError: It ended, or gave no answer in five minutes; the message holds its last lines.
        """
        # Whatever proxy there is, it is not for this machine's own address.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def answers() -> bool | None:
            if self.poll() is not None:
                raise BridgeError(f"{self.name} did not start. Its last lines:\n{self.last_lines()}")
            with contextlib.suppress(OSError, http.client.HTTPException), opener.open(url, timeout=_REQUEST_SECS):
                return self._may_listen(urlsplit(url).port) or None
            return None

        if self._wait(answers, tell, _ANSWER_SECS) is None:
            raise BridgeError(
                f"{self.name} gave no answer at {url} in {_ANSWER_SECS:.0f} s. Its last lines:\n{self.last_lines()}"
            )

    def _wait(
        self, look: Callable[[], _Found | None], tell: Callable[[int], None], within_secs: float = math.inf
    ) -> _Found | None:
        began = last_news = time.monotonic()

        def pause(secs: float) -> None:
            nonlocal last_news
            now = time.monotonic()
            if now - last_news >= _NEWS_SECS:
                last_news = now
                tell(round(now - began))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(secs)

        return wait_for(look, _LOOK_SECS, within_secs, sleep=pause)

    def _may_listen(self, port: int | None) -> bool:
        """Whether a process of its group listens at a port; also true where the system does not say who does."""
        try:
            connections = psutil.net_connections("tcp")
        except (OSError, psutil.Error):  # macOS tells only root
            return True
        owners = [
            each.pid
            for each in connections
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid is not None
        ]
        return not owners or any(self._leads(pid) for pid in owners)

    def _leads(self, pid: int) -> bool:
        if sys.platform == "win32":
            with contextlib.suppress(psutil.Error):  # it has ended
                return any(each.pid == self._guard.pid for each in psutil.Process(pid).parents())
        else:
            with contextlib.suppress(OSError):
                return os.getpgid(pid) == self._guard.pid
        return False
