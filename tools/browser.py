"""Opens pages of the viewers in a headless Chromium, does there what a person would do, and takes pictures.

Speaks the DevTools protocol over a pipe (`--remote-debugging-pipe`: JSON, each message ended by a zero byte), and so
needs no package. Source: https://chromedevtools.github.io/devtools-protocol/ (Target, Page, Runtime, Input).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.tensorboard_api import stop_process

__all__ = ["CHROMIUM", "Browser", "BrowserError", "running_browser"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_READ, _WRITE = 3, 4  # the descriptors that Chromium itself reads from and writes to


class BrowserError(AssertionError):
    """The browser ended, or a page did not come to what was waited for."""


class Browser:
    """One page of a headless Chromium; made by `running_browser`."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._buffer = b""
        self._number = 0
        self._session = ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def open(self, url: str, *, before: str = "") -> None:
        """Opens an address.

        Args:
            url: The address.
            before: JavaScript that runs before that of the page.
        """
        if before:
            self._call("Page.enable")
            self._call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self._call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """Returns what a JavaScript expression gives in the page, as JSON has it; None where it raises."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def wait(self, script: str, *, timeout_secs: float = 60.0) -> Any:
        """Evaluates an expression until it gives something true, and returns that.

        Raises:
            BrowserError: It did not in time.
        """
        deadline = time.monotonic() + timeout_secs
        while not (value := self.evaluate(script)):
            if time.monotonic() >= deadline:
                text = str(self.evaluate("document.body && document.body.innerText"))
                raise BrowserError(f"{script} was last {value!r} on a page with the text: {text[:1000]}")
            time.sleep(0.1)
        return value

    def double_click(self, script: str) -> None:
        """Clicks twice into the middle of the element that a JavaScript expression gives.

        Raises:
            BrowserError: There is no such element in time.
        """
        place = self._place_of(script)
        while (now := self._place_of(script)) != place:  # still moving into its place
            place = now
        for kind, count in (("mousePressed", 1), ("mouseReleased", 1), ("mousePressed", 2), ("mouseReleased", 2)):
            where = {"x": place[0], "y": place[1], "button": "left", "clickCount": count}
            self._call("Input.dispatchMouseEvent", type=kind, **where)

    def _place_of(self, script: str) -> list[float]:
        """Returns the middle of an element, some frames after it has been found."""
        place: list[float] = self.wait(
            "new Promise(done => setTimeout(done, 300)).then(() => (element => { if (!element) return null;"
            " const box = element.getBoundingClientRect();"
            f" return box.width ? [box.x + box.width / 2, box.y + box.height / 2] : null }})({script}))"
        )
        return place

    def photograph(self, path: Path) -> None:
        """Writes what is to be seen as a PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        deadline = time.monotonic() + 60
        while True:
            answer = self._read(method, deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self, method: str, deadline: float) -> Any:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._answers, 1 << 20) if ready else b""
            if not chunk:
                raise BrowserError(f"{method}: {'Chromium has ended' if ready else 'no answer'}")
            self._buffer += chunk
        answer, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(answer)


@contextlib.contextmanager
def running_browser(home: Path, *, width: int = 1400, height: int = 1000) -> Iterator[Browser]:
    """Runs Chromium until the block ends.

    Args:
        home: An empty directory for what it keeps.
        width: Of the window, in pixels.
        height: Of the window, in pixels.
    """
    home.mkdir(parents=True, exist_ok=True)
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
    command += [f"--window-size={width},{height}", f"--user-data-dir={home / 'profile'}", "--remote-debugging-pipe"]
    their_input, commands = os.pipe()
    answers, their_output = os.pipe()

    def take_pipes() -> None:
        # Both ends are moved out of the way first: either may have the number of the other one's place.
        ends = os.dup(their_input), os.dup(their_output)
        high = [os.dup2(end, 50 + index) for index, end in enumerate(ends)]
        os.dup2(high[0], _READ)
        os.dup2(high[1], _WRITE)

    process = subprocess.Popen(
        command, env={**os.environ, "HOME": str(home)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=take_pipes, close_fds=False,
    )  # fmt: skip
    os.close(their_input)
    os.close(their_output)
    try:
        yield Browser(commands, answers)
    finally:
        stop_process(process)
        os.close(commands)
        os.close(answers)
