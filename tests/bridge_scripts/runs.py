"""Runs the training scripts for the tests, and reads what they wrote. Imports no mindspore."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE
from ms_summary_bridge.formats.wire import fields
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.values import Scalar
from tests.conftest import ROOT, TESTS

SCRIPTS = TESTS / "bridge_scripts"


class Scenarios(NamedTuple):
    """What scenarios.py did and said."""

    base: Path
    answers: dict[str, Any]

    def directory(self, name: str) -> Path:
        """Returns where a scenario wrote; fails the test if the scenario failed."""
        assert not self.answers[name]["failed"], self.answers[name]["failed"]
        return self.base / name

    def returned(self, name: str) -> Any:
        self.directory(name)
        return self.answers[name]["returned"]

    def log(self, name: str) -> list[str]:
        self.directory(name)
        return self.answers[name]["log"]


def run_scenarios(base: Path, names: list[str], *, of: str = "scenarios.py") -> Scenarios:
    """Runs scenarios of a script one after the other in one process, which must end by itself, with 0."""
    result = base / "result.json"
    with script(of, str(base), str(result), *names, cwd=base) as process:
        code = process.wait(250)
    assert code == 0, output_of(base)
    return Scenarios(base, json.loads(result.read_text()))


def msrun(port: int, logs: Path) -> list[str]:
    """Returns the program that starts two ranks of a script."""
    program = str(Path(sys.executable).parent / "msrun")
    ranks = ("--worker_num=2", "--local_worker_num=2", "--join=True")
    return [program, *ranks, f"--master_port={port}", f"--log_dir={logs}"]


@contextlib.contextmanager
def script(
    name: str, *arguments: str, cwd: Path, program: list[str] | None = None, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a script in a session of its own, which is killed at the end. What it says goes to `cwd`/output.txt."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # msrun starts the python it finds there
    with (cwd / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            [*(program or [sys.executable]), str(SCRIPTS / name), *arguments],
            **{
                "cwd": cwd,
                "env": {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path},
                "stdin": subprocess.DEVNULL,
                "stdout": output,
                "stderr": output,
                "start_new_session": True,
                **options,
            },
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def output_of(cwd: Path) -> str:
    return (cwd / "output.txt").read_text(errors="replace")[-4000:]


def wait_until(is_so: Callable[[], object], *, timeout_secs: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_secs
    while not is_so():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_secs:g} s in vain")
        time.sleep(0.02)


# ------------------------------------------------------------------ what was written


def summaries(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.summary.*_MS"))


def boards(directory: Path) -> list[Path]:
    return sorted(directory.glob("*tfevents*"))


def events(path: Path) -> list[Event]:
    """Returns the events of a file, which must all be whole."""
    source = "tensorboard" if "tfevents" in path.name else LINEAGE if "lineage" in path.name else "mindspore"
    with EventFileReader(path, make_decoder(source)) as reader:
        found = list(reader)
    assert all(isinstance(event, Event) for event in found), path
    return found  # type: ignore[return-value]


class Curve(NamedTuple):
    """One series, over a chain of files."""

    steps: list[int]
    numbers: list[float]


def series(paths: list[Path], tag: str) -> Curve:
    """Returns a series; the numbers are empty unless it is one of scalars."""
    curve = Curve([], [])
    for path in paths:
        for event in events(path):
            for tagged in event.content.values if isinstance(event.content, Summary) else ():
                if tagged.tag == tag and not tagged.derived:
                    curve.steps.append(event.step)
                    curve.numbers.extend([tagged.value.value] if isinstance(tagged.value, Scalar) else [])
    return curve


def milestones(directory: Path) -> list[tuple[int, str, str]]:
    """Returns (step, tag, text) of all milestones."""
    return [
        (event.step, tagged.tag, _text(tagged.value.payload))
        for path in boards(directory)
        for event in events(path)
        if isinstance(event.content, Summary)
        for tagged in event.content.values
        if tagged.tag.startswith("milestones")
    ]


def _text(value: bytes) -> str:
    """Returns the string in the tensor of a value."""
    (tensor,) = [value[a:b] for key, a, b in fields(value, 0, len(value)) if key == 0x42]
    (text,) = [tensor[a:b] for key, a, b in fields(tensor, 0, len(tensor)) if key == 0x42]
    return text.decode()
