"""The directory of a run, the same for all its ranks, and what is stored with it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any, Final

import psutil

from ms_summary_bridge._version import __version__
from ms_summary_bridge.files.atomic import replace_file
from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.monitor.model.alert_config import hide_secrets
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.training.distributed import Place

__all__ = [
    "choose_run_directory",
    "describe_run",
    "find_commit",
    "make_run_directory",
    "project_directory",
]

_WAIT_SECS: Final = 30.0
_START_SPREAD_SECS: Final = 120.0  # how far apart the processes of one training may start
_calls = itertools.count(1)  # all ranks of a launch begin their trainings in the same order
_PACKAGES: Final = ("mindspore", "mindformers", "numpy", "protobuf")


def choose_run_directory(config: MonitorConfig, place: Place) -> str:
    """Returns the directory of this run, `save_dir/project/run`, and makes it if that is possible.

    Without a `run_id` it is named by the time. All ranks must use the same one and may have no other way to talk yet:
    rank 0 leaves a note beside the runs, under the address of the launch, and the others wait for it.
    """
    project = project_directory(config)
    if config.run_id is not None:
        return os.path.join(project, _file_name(config.run_id))
    note = os.path.join(project, f".launch-{_launch()}-{next(_calls)}.json")
    if place.rank == 0:
        directory = make_run_directory(project)
        if place.ranks > 1:
            _leave_note(note, os.path.basename(directory))
        return directory
    run = wait_for(lambda: _read_note(note), 0.1, _WAIT_SECS)
    return (
        os.path.join(project, run) if run is not None else make_run_directory(project)
    )  # no shared disk, or rank 0 has none


def project_directory(config: MonitorConfig) -> str:
    """Returns where the runs of a project are."""
    return os.path.abspath(os.path.expanduser(os.path.join(config.save_dir, _file_name(config.project))))


def _file_name(name: str) -> str:
    """Returns a name that is one part of a path and stays where it is put."""
    safe = re.sub(r"[\x00-\x1f/\\]", "_", name).strip()
    return safe if safe not in ("", ".", "..") else "_"


def make_run_directory(project: str) -> str:
    """Makes a directory for a run, named by the time, and returns it."""
    name = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        directory = os.path.join(project, name if number == 1 else f"{name}-{number}")
        try:
            os.makedirs(directory)
        except FileExistsError:
            continue
        except OSError:
            pass  # said by those who write there
        return directory
    return os.path.join(project, f"{name}-{os.getpid()}")


def _launch() -> str:
    names = ("MS_SCHED_HOST", "MS_SCHED_PORT", "MASTER_ADDR", "MASTER_PORT", "RANK_TABLE_FILE")
    return _file_name("_".join(os.environ[name] for name in names if os.environ.get(name)) or "local")[-100:]


def _parent() -> tuple[str, int, float]:
    """Returns host, launcher and the launcher's start: equal for all ranks of one launch on one host."""
    parent = os.getppid()
    with contextlib.suppress(psutil.Error, OSError):
        return platform.node(), parent, psutil.Process(parent).create_time()
    return platform.node(), parent, 0.0


def _leave_note(note: str, run: str) -> None:
    host, parent, started = _parent()
    content = {"run": run, "wall_time": time.time(), "host": host, "parent": parent, "parent_started": started}
    with contextlib.suppress(OSError):
        replace_file(note, json.dumps(content).encode())


def _read_note(note: str) -> str | None:
    """Returns the run of rank 0's note; None while there is none, or that of an earlier launch."""
    try:
        content = json.loads(Path(note).read_text(encoding="utf-8"))
        host, parent, started = _parent()
        if content["host"] == host:
            is_ours = content["parent"] == parent and abs(content["parent_started"] - started) < 1
        else:
            is_ours = content["wall_time"] > psutil.Process().create_time() - _START_SPREAD_SECS
        return _file_name(str(content["run"])) if is_ours else None
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None


def describe_run(config: MonitorConfig, place: Place, run_directory: str) -> dict[str, Any]:
    """Returns what is stored with a run: configuration, versions, commit, command line."""
    versions = {"python": platform.python_version(), "ms_summary_bridge": __version__}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "project": config.project,
        "run": os.path.basename(run_directory),
        "tags": dict(config.tags),
        "rank": place.rank,
        "ranks": place.ranks,
        "rank_source": place.source,
        "host": place.host,
        "device": f"{place.device} {place.device_id}",
        "pid": os.getpid(),
        "config_source": config.source,
        "config": _plain(hide_secrets(config.raw)),
        "versions": versions,
        "commit": find_commit(),
        "command": list(sys.orig_argv),
        "directory": os.getcwd(),
    }


def _plain(value: Any) -> Any:
    """Returns a value of which JSON can be made: what it does not know becomes its text."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def find_commit(start: str | None = None) -> str | None:
    """Returns the git commit of the training's code: of the script's directory, else of the working directory.

    Read from git's own files, because a process is not started for it inside a training.
    """
    starts = [start] if start else [os.path.dirname(os.path.abspath(sys.argv[0] or ".")), os.getcwd()]
    for place in starts:
        for directory in (Path(place), *Path(place).parents):
            with contextlib.suppress(OSError, ValueError, IndexError):
                commit = _commit_of(directory / ".git")
                if commit:
                    return commit
    return None


def _commit_of(git: Path) -> str | None:
    if git.is_file():  # a worktree or a submodule names its directory
        git = (git.parent / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()).resolve()
    if not git.is_dir():
        return None
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return head or None
    reference = head.partition(":")[2].strip()
    shared = git
    with contextlib.suppress(OSError):
        shared = (git / (git / "commondir").read_text(encoding="utf-8").strip()).resolve()
    for directory in (git, shared):
        with contextlib.suppress(OSError):
            return (directory / reference).read_text(encoding="utf-8").strip()
    for line in (shared / "packed-refs").read_text(encoding="utf-8").splitlines():
        if line.endswith(f" {reference}"):
            return line.split()[0]
    return None
