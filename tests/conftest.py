"""What the tests share: hypothesis profiles, a real MindSpore run, and the real viewers to ask.

The process of the tests never imports mindspore, which switches protobuf to its slow pure Python implementation
for the rest of the process (facts: `import mindspore` sets PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION). What needs
MindSpore runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings

from tests.pages import open_page
from tools.mindinsight_api import MindInsightClient, running_mindinsight
from tools.tensorboard_api import TensorBoardClient, running_tensorboard, stop_process

if TYPE_CHECKING:
    from playwright.sync_api import Page

# `nohup ./tools/test &` and some runners start this with these ignored, which every process of a test would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

# dev is quick and finds something new each time; ci looks longer, and at the same examples in every run. Deadlines are
# off: the machines of both are shared.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A test that uses one of these fixtures has that marker, so that `-m "not mindspore"` leaves it out.
_MARKER_OF_FIXTURE = {
    "summary_dir": "mindspore",
    "train_small": "mindspore",
    "tensorboard_server": "tensorboard",
    "mindinsight_server": "mindinsight",
    "mindinsight_python": "mindinsight",
    "mindformers_python": "mindformers",
    "wandb_python": "wandb",
    "trackers_python": "trackers",
}


# Tests run in another order for each seed, so that none comes to need what an earlier one left; `tools/test --odd`
# takes a new seed each time. The header of pytest says which it was.
_ORDER = os.environ.get("MSB_TEST_ORDER", "")


def pytest_report_header() -> list[str]:
    """Says how the same order is had again."""
    return [f"order of the tests: MSB_TEST_ORDER={_ORDER}"] if _ORDER else []


def _place(item: pytest.Item) -> list[bytes]:
    """Returns where a test stands in the order of the seed. What a file's or a class's tests share is set up once."""
    return [hashlib.sha256(f"{_ORDER} {node.nodeid}".encode()).digest() for node in item.listchain()]


@pytest.hookimpl(tryfirst=True)  # before `-m`, and what brings the parameters of a set-up together
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives the markers that follow from the fixtures a test uses, and the order of the seed."""
    for item in items:
        for fixture, marker in _MARKER_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
    if _ORDER:
        items.sort(key=_place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs a package that is not installed here."""
    for package in ("mindspore", "tensorboard"):
        if item.get_closest_marker(package) and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


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
                stop_process(process)
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


class TensorBoardServer(Protocol):
    """Starts TensorBoard on a directory."""

    def __call__(self, logdir: Path, load_fast: bool = True) -> TensorBoardClient:
        """Returns a client once the server answers; `load_fast` chooses the Rust loader or the one in Python."""


@pytest.fixture
def tensorboard_server(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TensorBoardServer]:
    """Starts real TensorBoards, `tensorboard_server(logdir, load_fast=False)`, and stops them after the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))  # where our plugin keeps its mirrors
    with contextlib.ExitStack() as stack:

        def start(logdir: Path, load_fast: bool = True) -> TensorBoardClient:
            number = sum(1 for _ in tmp_path.glob("tensorboard-*.log"))
            log_path = tmp_path / f"tensorboard-{number}.log"
            return stack.enter_context(running_tensorboard(logdir, log_path, load_fast=load_fast))

        yield start


class MindInsightServer(Protocol):
    """Starts MindInsight on a directory of runs, or on one run."""

    def __call__(self, base_dir: Path) -> MindInsightClient:
        """Returns a client once the server answers."""


@pytest.fixture
def mindinsight_server(tmp_path: Path) -> Iterator[MindInsightServer]:
    """Starts real MindInsights, `mindinsight_server(base_dir)`, in their own environment; stops them after the test."""
    with contextlib.ExitStack() as stack:

        def start(base_dir: Path) -> MindInsightClient:
            number = sum(1 for _ in tmp_path.glob("mindinsight-*"))
            return stack.enter_context(running_mindinsight(base_dir, tmp_path / f"mindinsight-{number}"))

        yield start


@pytest.fixture
def page() -> Iterator[Page]:
    """An empty page of 1400 x 1000 pixels in a headless Chromium."""
    with open_page() as page:
        yield page


@pytest.fixture(scope="session")
def mindformers_python() -> Path:
    """The Python of the environment that has MindFormers, which is made if it is missing."""
    return _python_of("mindformers")


@pytest.fixture(scope="session")
def mindinsight_python() -> Path:
    """The Python of the environment that has MindInsight, which is made if it is missing."""
    return _python_of("mindinsight")


@pytest.fixture(scope="session")
def wandb_python() -> Path:
    """The Python of the environment that has Weights & Biases, which is made if it is missing."""
    return _python_of("wandb")


@pytest.fixture(scope="session")
def trackers_python() -> Path:
    """The Python of the environment that has SwanLab, MLflow and Trackio. It is made by `tools/matrix trackers`."""
    if not (_environments() / "trackers" / ".stamp").exists():
        pytest.skip("SwanLab, MLflow and Trackio are not asked: `tools/matrix trackers` makes their environment")
    return _python_of("trackers")


def _environments() -> Path:
    return Path(os.environ.get("MSB_VENVS", ROOT / ".venvs")).resolve()


def _python_of(name: str) -> Path:
    done = subprocess.run([str(ROOT / "tools" / "environment"), name], stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        pytest.fail(f"the environment {name} cannot be made; see above", pytrace=False)
    return _environments() / name / "bin" / "python"
