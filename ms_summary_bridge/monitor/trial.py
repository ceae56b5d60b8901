"""Tries a configuration: three real steps and a test alarm in another process, and what came out of them.

Everything goes to a directory that is removed afterwards, whatever `save_dir` and `bridge` say.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import BridgeError, ConfigError, MissingDependencyError, check_recording
from ms_summary_bridge.monitor.alarms.actions.message import OUTSIDE, name_action
from ms_summary_bridge.monitor.alarms.alarms import list_actions
from ms_summary_bridge.monitor.config.fields import OWN_TYPES
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.runs.reading import RunReading, read_points

__all__ = ["TrialReport", "try_config"]

_TRAINING: Final = "ms_summary_bridge.monitor.trial_training"
_LONGEST_SECS: Final = 300.0  # MindSpore's start and the compiling take some ten seconds
_SHOWN: Final = 3000  # characters of what a failed training said
_TRACKERS: Final = ("SWANLAB_", "MLFLOW_", "TRACKIO_")
"""Variables that name a place where a run would be recorded: the trial records in its own."""
_PLACES: Final = ("summary_dir", "tensorboard_dir")
_OUTCOMES: Final = "outcomes.json"  # as trial_training has it, which is not imported here: it imports mindspore
_TRACES: Final = {"dump_stacks": "stacks-test-", "save_checkpoint": "alarm-test-", "stop": "stop_report"}
"""Files that an action of a test alarm leaves, by a part of their names."""


class TrialReport(msgspec.Struct):
    """What came out of a trial."""

    console: list[str]
    """Lines that the training said."""
    files: dict[str, int]
    """Bytes of each file, by its path below `save_dir`."""
    scalars: dict[str, dict[str, int]]
    """Points of each scalar, by format and tag."""
    alarms: dict[str, str]
    """What became of a test alarm: a problem for each action, empty for none."""
    missing: list[str]
    """What should have come out and did not."""


def try_config(config: MonitorConfig) -> TrialReport:
    """Trains three steps of a tiny network with a configuration.

    Raises:
        MissingDependencyError: MindSpore is not installed, or this is not Linux.
        ConfigError: The configuration is refused when the callbacks are made.
        BridgeError: The training failed.
    """
    check_recording("--try")
    if importlib.util.find_spec("mindspore") is None:
        raise MissingDependencyError(
            "--try trains three steps and needs MindSpore: pip install 'ms_summary_bridge[mindspore]'"
        )
    # MindSpore leaves files of its own where it stands; processes it started may still write while we remove it.
    with tempfile.TemporaryDirectory(prefix="ms-summary-bridge-try-", ignore_cleanup_errors=True) as scratch:
        directory = os.path.join(scratch, "output")
        os.mkdir(directory)
        section = Path(scratch, "config.json")
        section.write_bytes(msgspec.json.encode(_redirect(config.raw, directory)))
        output = _train(scratch, str(section))
        files = {
            os.path.relpath(path, directory): path.stat().st_size
            for path in sorted(Path(directory).rglob("*"))
            if path.is_file()
        }
        scalars = _read_scalars(directory)
        alarms = _find_alarms(config, Path(scratch, _OUTCOMES), files)
        output = output.replace(directory, config.save_dir)
    missing = _find_missing(config, files, scalars)
    missing += [f"alarms through {title}: {problem}" for title, problem in alarms.items() if problem]
    return TrialReport([line for line in output.splitlines() if line.strip()], files, scalars, alarms, missing)


def _redirect(raw: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """Returns the section with every step sampled, and with nothing going anywhere else."""
    bridge = {key: value for key, value in (raw.get("bridge") or {}).items() if key not in _PLACES}
    own = {"save_dir": directory, "prometheus_dir": None, "interval": 0, "exit_code": None}
    return {**raw, **own, "bridge": {**bridge, "collect_freq": 1}}


def _train(scratch: str, section: str) -> str:
    """Runs the training; returns what it said."""
    # Where the user stands is searched for a class of the user's, as it is when his own program runs.
    paths = [str(Path(__file__).resolve().parents[2]), os.getcwd(), os.environ.get("PYTHONPATH", "")]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(_TRACKERS)},
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        "WANDB_MODE": "offline",
        "WANDB_DIR": scratch,
        "SWANLAB_MODE": "offline",
    }
    # To files and not to pipes: processes that MindSpore starts would hold those open.
    out, err = Path(scratch, "out.txt"), Path(scratch, "err.txt")
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", _TRAINING, section],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=_LONGEST_SECS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    output = out.read_text(encoding="utf-8", errors="replace")
    errors = err.read_text(encoding="utf-8", errors="replace")
    if code == 2:
        raise ConfigError([line for line in errors.splitlines() if not line.startswith("[")] or ["$: is refused"])
    if code is None:
        raise BridgeError(f"the three steps were not done in {_LONGEST_SECS:.0f} seconds:\n{errors[-_SHOWN:]}")
    if code != 0:
        raise BridgeError(f"the training of three steps ended with {code}:\n{errors[-_SHOWN:]}")
    return output


def _read_scalars(directory: str) -> dict[str, dict[str, int]]:
    scalars: dict[str, dict[str, int]] = {}
    found = discover(directory)
    for run in [*found.runs, *found.twins]:
        tags = scalars.setdefault(run.format, {})
        for point in read_points(run, RunReading()):
            if point.kind == "scalar":
                tags[point.tag] = tags.get(point.tag, 0) + 1
    return {form: dict(sorted(tags.items())) for form, tags in sorted(scalars.items())}


def _find_alarms(config: MonitorConfig, outcomes: Path, files: Mapping[str, int]) -> dict[str, str]:
    if config.callback.type not in OWN_TYPES:
        return {}
    content = outcomes.read_bytes() if outcomes.exists() else b"[]"
    problems: dict[str, str] = {}
    for name, problem in msgspec.json.decode(content, type=list[tuple[str, str]]):
        problems[name] = problems.get(name) or problem
    found: dict[str, str] = {}
    actions = list_actions(config)
    for action in actions:
        name = name_action(action, actions)
        if action.kind in OUTSIDE:
            problem = problems.get(name, "it was not over before the end")
        elif action.kind in _TRACES and not any(_TRACES[action.kind] in name for name in files):
            problem = "it has left no file"
        else:
            problem = ""
        found[name] = problem
    return found


def _find_missing(config: MonitorConfig, files: Mapping[str, int], scalars: Mapping[str, Any]) -> list[str]:
    missing: list[str] = []
    if config.callback.type not in OWN_TYPES:
        return missing  # what a class of the user's writes is its own affair
    if not any(name.endswith("metrics.jsonl") and size for name, size in files.items()):
        missing.append("the journal, metrics.jsonl")
    if "tensorboard" in config.backends and not scalars.get("tensorboard"):
        missing.append("scalars for TensorBoard")
    if "mindinsight" in config.backends and not scalars.get("mindspore"):
        missing.append("scalars for MindInsight")
    return missing
