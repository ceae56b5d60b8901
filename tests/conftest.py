"""What the tests share: hypothesis profiles, a real MindSpore run, and a real TensorBoard to ask.

The process of the tests never imports mindspore, which switches protobuf to its slow pure Python implementation
for the rest of the process (facts: `import mindspore` sets PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION). What needs
MindSpore runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
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
from typing import IO, Any, Protocol

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

# dev is quick and finds something new each time; ci looks longer, and at the same examples in every run. Deadlines are
# off: the machines of both are shared.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A test that uses one of these fixtures has that marker, so that `-m "not mindspore"` leaves it out.
_MARKER_OF_FIXTURE = {"summary_dir": "mindspore", "train_small": "mindspore", "tensorboard_server": "tensorboard"}


@pytest.hookimpl(tryfirst=True)  # before `-m` makes its choice
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives the markers that follow from the fixtures a test uses."""
    for item in items:
        for fixture, marker in _MARKER_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs a package that is not installed here."""
    for package in ("mindspore", "tensorboard"):
        if item.get_closest_marker(package) and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def _stop(process: subprocess.Popen[bytes], *, grace_secs: float = 5.0) -> None:
    """Ends a process that leads a session of its own, with all its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_secs)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # children may outlive the leader
    process.wait()


class TrainSmall(Protocol):
    """Runs tests/train_small.py to its end."""

    def __call__(self, summary_dir: Path, *arguments: str) -> Path:
        """Returns `summary_dir`."""


@pytest.fixture(scope="session")
def train_small(tmp_path_factory: pytest.TempPathFactory) -> TrainSmall:
    """Trains the small network in another process: `train_small(directory, "--epochs", "1")`."""

    def train(summary_dir: Path, *arguments: str) -> Path:
        scratch = tmp_path_factory.mktemp("train_small")  # MindSpore leaves files where it stands
        # To a file and not to a pipe: MindSpore's writer processes inherit it, and would hold a pipe open.
        with (scratch / "output.txt").open("a+b") as output:
            process = subprocess.Popen(
                [sys.executable, str(TESTS / "train_small.py"), str(summary_dir), *arguments],
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout=240)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _stop(process)
            if code != 0:
                pytest.fail(f"train_small.py ended with {code}:\n{_read_all(output)[-4000:]}", pytrace=False)
        return summary_dir

    return train


@pytest.fixture(scope="session")
def summary_dir(tmp_path_factory: pytest.TempPathFactory, train_small: TrainSmall) -> Path:
    """A summary directory as MindSpore's own SummaryCollector wrote it; tests/train_small.py says what is in it.

    One for all tests of the session: read it, copy it, but do not change it.
    """
    return train_small(tmp_path_factory.mktemp("mindspore") / "summary")


def _read_all(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace")


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
            return response.read()

    def get_json(self, path: str, **query: str | int) -> Any:
        """Returns the JSON at a path; the query may be given by keywords."""
        return json.loads(self.get(f"{path}?{urllib.parse.urlencode(query)}" if query else path))

    def wait_json(
        self, path: str, until: Callable[[Any], object] = bool, *, timeout_secs: float = 60.0, **query: str | int
    ) -> Any:
        """Asks until the answer is what was waited for: TensorBoard answers before it has read the files.

        Args:
            path: As for `get_json`.
            until: Says of an answer whether it is the one.
            timeout_secs: How long to wait.
            **query: As for `get_json`.

        Returns:
            The first answer that `until` accepts.

        Raises:
            AssertionError: None came in time; the message holds the last one.
        """
        deadline = time.monotonic() + timeout_secs
        while True:
            try:
                answer = self.get_json(path, **query)
            except urllib.error.HTTPError as error:  # 404 for a run or tag that is not read yet
                answer = error.read().decode(errors="replace")
                error.close()
            else:
                if until(answer):
                    return answer
            assert time.monotonic() < deadline, f"{path} {query} was last: {str(answer)[:2000]}"
            time.sleep(0.1)


class TensorBoardServer(Protocol):
    """Starts TensorBoard on a directory."""

    def __call__(self, logdir: Path, load_fast: bool = True) -> TensorBoardClient:
        """Returns a client once the server answers; `load_fast` chooses the Rust loader or the one in Python."""


@pytest.fixture
def tensorboard_server(tmp_path: Path) -> Iterator[TensorBoardServer]:
    """Starts real TensorBoards, `tensorboard_server(logdir, load_fast=False)`, and stops them after the test."""
    with contextlib.ExitStack() as stack:

        def start(logdir: Path, load_fast: bool = True) -> TensorBoardClient:
            log = stack.enter_context(_log_file(tmp_path))
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir)),
                    *("--host", "127.0.0.1", "--port", "0"),  # 0: the server takes a free one and says which
                    *("--load_fast", "true" if load_fast else "false"),
                    *("--reload_interval", "1"),
                ],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_stop, process)
            client = TensorBoardClient(_wait_for_address(process, log))
            client.get_json("data/environment")
            return client

        yield start


@contextlib.contextmanager
def _log_file(directory: Path) -> Iterator[IO[bytes]]:
    number = sum(1 for _ in directory.glob("tensorboard-*.log"))
    with (directory / f"tensorboard-{number}.log").open(
        "a+b"
    ) as log:  # appending: reading moves the place that both sides share
        yield log


def _wait_for_address(process: subprocess.Popen[bytes], log: IO[bytes], *, timeout_secs: float = 60.0) -> str:
    """Returns the address that TensorBoard prints as soon as its socket listens."""
    deadline = time.monotonic() + timeout_secs
    while True:
        has_ended = process.poll() is not None  # asked first, so that the last words are not missed
        text = _read_all(log)
        if match := re.search(r" at (http://127\.0\.0\.1:\d+)/", text):
            return match[1]
        if has_ended or time.monotonic() >= deadline:
            pytest.fail(f"TensorBoard did not start:\n{text[-4000:]}", pytrace=False)
        time.sleep(0.05)
