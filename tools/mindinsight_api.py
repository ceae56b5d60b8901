"""Starts a real MindInsight in its own environment and asks its REST API what it shows.

MindInsight cannot be installed beside MindSpore any more; `tools/environment mindinsight` makes the environment it
still works in.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tools.tensorboard_api import wait_for_answer

__all__ = ["MindInsightClient", "MindInsightError", "mindinsight_environment", "running_mindinsight"]

ROOT = Path(__file__).resolve().parent.parent
_START_SECS = 120.0


class MindInsightError(AssertionError):
    """MindInsight did not start, or did not give the answer that was waited for."""


class MindInsightClient:
    """Asks one MindInsight over HTTP.

    Attributes:
        url: Address of the server, without a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str | int) -> bytes:
        """Returns the body at a path below the API (`datavisual/train-jobs`)."""
        url = f"{self.url}/v1/mindinsight/{path}"
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}" if query else url, timeout=30) as response:
            body: bytes = response.read()
            return body

    def post_json(self, path: str, body: object) -> Any:
        """Sends JSON to a path and returns the JSON of the answer."""
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/mindinsight/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def get_json(self, path: str, **query: str | int) -> Any:
        """Returns the JSON at a path."""
        return json.loads(self.get(path, **query))

    def wait_json(
        self, path: str, until: Callable[[Any], object] = bool, *, timeout_secs: float = 90.0, **query: str | int
    ) -> Any:
        """Asks until the answer is what was waited for: MindInsight answers before it has read the files.

        Raises:
            MindInsightError: None came in time; the message holds the last one.
        """
        what = f"{path} {query}"
        return wait_for_answer(lambda: self.get_json(path, **query), until, what, MindInsightError, timeout_secs)

    def jobs(self) -> dict[str, Any]:
        """Returns the training jobs that are listed, by their id (`./run`; `./` for the base directory itself)."""
        answer = self.get_json("datavisual/train-jobs", offset=0, limit=100)
        return {job["train_id"]: job for job in answer["train_jobs"]}

    def wait_job(self, train_id: str, until: Callable[[Any], object] = bool) -> Any:
        """Waits until a job is listed, has been read, and is as `until` wants it; returns it."""

        def is_read(answer: Any) -> bool:
            jobs = {job["train_id"]: job for job in answer["train_jobs"]}
            job = jobs.get(train_id)
            return bool(job and job["cache_status"] == "CACHED" and until(job))

        answer = self.wait_json("datavisual/train-jobs", is_read, offset=0, limit=100)
        return next(job for job in answer["train_jobs"] if job["train_id"] == train_id)

    def open_jobs(self, *train_ids: str) -> None:
        """Has jobs read, as opening their pages does: by itself it reads fifteen of them."""
        self.post_json("datavisual/train-job-caches", {"train_ids": list(train_ids)})

    def scalars(self, train_id: str, tag: str) -> list[tuple[int, float | None]]:
        """Returns (step, value) of one scalar; MindInsight shows NaN and infinities as None."""
        answer = self.get_json("datavisual/scalar/metadata", train_id=train_id, tag=f"{tag}/scalar")
        return [(row["step"], row["value"]) for row in answer["metadatas"]]

    def histograms(self, train_id: str, tag: str) -> list[dict[str, Any]]:
        """Returns step and buckets of one histogram, as it is redrawn in common bins."""
        answer = self.get_json("datavisual/histograms", train_id=train_id, tag=f"{tag}/histogram")
        rows: list[dict[str, Any]] = answer["histograms"]
        return rows

    def images(self, train_id: str, tag: str) -> list[tuple[int, bytes]]:
        """Returns (step, bytes) of one image series."""
        name = f"{tag}/image"
        answer = self.get_json("datavisual/image/metadata", train_id=train_id, tag=name)
        return [
            (row["step"], self.get("datavisual/image/single-image", train_id=train_id, tag=name, step=row["step"]))
            for row in answer["metadatas"]
        ]

    def tensor(self, train_id: str, tag: str, step: int, dims: str) -> Any:
        """Returns the elements of one tensor at one step; `dims` chooses a slice of two axes (`[:, :]`)."""
        query = {"train_id": train_id, "tag": f"{tag}/tensor", "detail": "data", "step": step, "dims": dims}
        answer = self.get_json("datavisual/tensors", **query)
        return answer["tensors"][0]["values"][0]["value"]["data"]

    def lineages(self) -> dict[str, dict[str, Any]]:
        """Returns hyperparameters and metrics of each run that the lineage page lists, by the run's id."""
        answer = self.post_json("lineagemgr/lineages", {})
        return {row["summary_dir"]: row["model_lineage"] for row in answer["object"]}

    def wait_lineages(self, *train_ids: str, timeout_secs: float = 90.0) -> dict[str, dict[str, Any]]:
        """Waits until the lineage page lists these runs; returns all that it lists.

        Raises:
            MindInsightError: They did not come in time; the message holds the last answer.
        """

        def is_listed(answer: Any) -> bool:
            return set(train_ids) <= answer.keys()

        found: dict[str, dict[str, Any]] = wait_for_answer(
            self.lineages, is_listed, "the lineage page", MindInsightError, timeout_secs
        )
        return found


def mindinsight_environment() -> Path:
    """Makes the environment if need be, and returns its directory of programs.

    Raises:
        MindInsightError: It cannot be made.
    """
    done = subprocess.run([str(ROOT / "tools" / "environment"), "mindinsight"], stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise MindInsightError("the environment for MindInsight cannot be made; see above")
    return Path(os.environ.get("MSB_VENVS", ROOT / ".venvs")).resolve() / "mindinsight" / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running_mindinsight(base_dir: Path, workspace: Path) -> Iterator[MindInsightClient]:
    """Runs MindInsight on a directory of runs (or on one run) until the block ends.

    Args:
        base_dir: What `--summary-base-dir` gets.
        workspace: Directory for its logs and its home.

    Raises:
        MindInsightError: It did not start.
    """
    programs = mindinsight_environment()
    workspace.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    # It starts `gunicorn` by its name, and keeps settings in the home directory.
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "HOME": str(workspace)}
    environment.pop("PYTHONPATH", None)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(programs / "mindinsight"), *arguments, "--port", str(port)]
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_START_SECS,
            check=False,
        )  # fmt: skip

    started = call("start", "--summary-base-dir", str(base_dir), "--workspace", str(workspace))
    try:
        if started.returncode:
            raise MindInsightError(f"MindInsight did not start: {started.stdout}{started.stderr}")
        client = MindInsightClient(f"http://127.0.0.1:{port}")
        client.wait_json("datavisual/train-jobs", lambda answer: True, offset=0, limit=1)
        yield client
    finally:
        call("stop")
