"""Starts a real TensorBoard and asks it over HTTP what it shows.

TensorBoard answers before it has read the files, so most questions wait for the answer that is expected.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["TensorBoardClient", "TensorBoardError", "running_tensorboard", "stop_process", "wait_for_answer"]


class TensorBoardError(AssertionError):
    """TensorBoard did not start, or did not give the answer that was waited for."""


class TensorBoardClient:
    """Asks one TensorBoard over HTTP.

    Attributes:
        url: Address of the server, without a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> bytes:
        """Returns the body at a path (`data/runs`), which may hold a query."""
        with urllib.request.urlopen(f"{self.url}/{path.lstrip('/')}", timeout=30) as response:
            body: bytes = response.read()
            return body

    def get_json(self, path: str, **query: str | int) -> Any:
        """Returns the JSON at a path; the query may be given by keywords."""
        return json.loads(self.get(f"{path}?{urllib.parse.urlencode(query)}" if query else path))

    def post_json(self, path: str, form: list[tuple[str, str]]) -> Any:
        """Returns the JSON that a form is answered with; names may come several times in it."""
        body = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.url}/{path}", body, timeout=30) as response:
            return json.load(response)

    def get_histograms(self, run: str, tag: str) -> Any:
        """Returns the whole series of a histogram, as rows `[wall_time, step, [[left, right, count], ...]]`.

        The histograms' own address gives 51 of them at most, so this asks as the Time Series page does.
        """
        request = json.dumps([{"plugin": "histograms", "tag": tag, "run": run}])
        (answer,) = self.post_json("data/plugin/timeseries/timeSeries", [("requests", request)])
        return [
            [datum["wallTime"], datum["step"], [[b["min"], b["max"], b["count"]] for b in datum["bins"]]]
            for datum in answer.get("runToSeries", {}).get(run, ())
        ]

    def wait_json(
        self, path: str, until: Callable[[Any], object] = bool, *, timeout_secs: float = 60.0, **query: str | int
    ) -> Any:
        """Asks until the answer is what was waited for.

        Args:
            path: As for `get_json`.
            until: Says of an answer whether it is the one.
            timeout_secs: How long to wait.
            **query: As for `get_json`.

        Returns:
            The first answer that `until` accepts.

        Raises:
            TensorBoardError: None came in time; the message holds the last one.
        """
        return self.wait(lambda: self.get_json(path, **query), until, f"{path} {query}", timeout_secs=timeout_secs)

    def wait(
        self,
        ask: Callable[[], Any],
        until: Callable[[Any], object] = bool,
        what: str = "the answer",
        *,
        timeout_secs: float = 60.0,
    ) -> Any:
        """Asks one question until the answer is what was waited for; `what` names it in the error, see `wait_json`."""
        return wait_for_answer(ask, until, what, TensorBoardError, timeout_secs)


def wait_for_answer(
    ask: Callable[[], Any],
    until: Callable[[Any], object],
    what: str,
    failure: type[AssertionError],
    timeout_secs: float,
) -> Any:
    """Asks a viewer one question until the answer is what was waited for; `failure` says what the last one was."""
    deadline = time.monotonic() + timeout_secs
    while True:
        try:
            answer = ask()
        except urllib.error.HTTPError as error:  # 404 for a run or tag that is not read yet
            answer = error.read().decode(errors="replace")
            error.close()
        else:
            if until(answer):
                return answer
        if time.monotonic() >= deadline:
            raise failure(f"{what} was last: {str(answer)[:2000]}")
        time.sleep(0.1)


def stop_process(process: subprocess.Popen[bytes], *, grace_secs: float = 5.0) -> None:
    """Ends a process that leads a session of its own, with all its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_secs)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # children may outlive the leader
    process.wait()


@contextlib.contextmanager
def running_tensorboard(
    logdir: Path | None, log_path: Path, *, load_fast: bool = True, options: tuple[str, ...] = ()
) -> Iterator[TensorBoardClient]:
    """Runs TensorBoard on a free port of the loopback interface.

    Args:
        logdir: What it is to show; None where the options say it.
        log_path: Where its own output goes.
        load_fast: Chooses the loader in Rust, or the one in Python.
        options: More options for its command line.

    Yields:
        A client, once the server answers.

    Raises:
        TensorBoardError: It did not start.
    """
    command = [sys.executable, "-m", "tensorboard.main", *(["--logdir", str(logdir)] if logdir is not None else [])]
    command += ["--host", "127.0.0.1", "--port", "0"]  # 0: the server takes a free one and says which
    command += ["--load_fast", "true" if load_fast else "false", "--reload_interval", "1", *options]
    with log_path.open("w+b") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            client = TensorBoardClient(_wait_for_address(process, log))
            client.get_json("data/environment")
            yield client
        finally:
            stop_process(process)


def _wait_for_address(process: subprocess.Popen[bytes], log: IO[bytes], *, timeout_secs: float = 90.0) -> str:
    """Returns the address that TensorBoard prints as soon as its socket listens."""
    deadline = time.monotonic() + timeout_secs
    while True:
        has_ended = process.poll() is not None  # asked first, so that the last words are not missed
        text = os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace")  # leaves alone the place both write at
        if match := re.search(r" at (http://127\.0\.0\.1:\d+\S*)/ ", text):
            return match[1]
        if has_ended or time.monotonic() >= deadline:
            raise TensorBoardError(f"TensorBoard did not start:\n{text[-4000:]}")
        time.sleep(0.05)
