"""The directory of a run, and what is stored with it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any, Final

import psutil

from ms_summary_bridge._version import __version__
from ms_summary_bridge.monitor.model.alert_config import hide_secrets
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.sinks.launch import file_name, join_run, make_run_directory
from ms_summary_bridge.training.distributed import ProcessRank

__all__ = ["choose_run_directory", "describe_run", "find_commit", "project_directory"]

_PACKAGES: Final = ("mindspore", "mindformers", "numpy", "protobuf")


def choose_run_directory(config: MonitorConfig, place: ProcessRank, made: str | None = None) -> str:
    """Returns the directory of this run, `save_dir/project/run`, and makes it if that is possible; waits for nobody.

    Without a `run_id` it is named by the time, or where several ranks train by the launcher's job id.

    `made` is a directory that was made for this run already.
    """
    project = project_directory(config)
    if config.run_id is not None:
        return os.path.join(project, file_name(config.run_id))
    if place.ranks > 1:
        return join_run(project, place, made)
    return made or make_run_directory(project)


def project_directory(config: MonitorConfig) -> str:
    """Returns where the runs of a project are."""
    return os.path.abspath(os.path.expanduser(os.path.join(config.save_dir, file_name(config.project))))


def describe_run(config: MonitorConfig, place: ProcessRank, run_directory: str) -> dict[str, Any]:
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
        # HCCL names a rank by the address of its host and the number of its device.
        "addresses": _addresses() if place.device == "Ascend" and place.ranks > 1 else [],
        "config_source": config.source,
        "config": _plain(hide_secrets(config.raw)),
        "versions": versions,
        "commit": find_commit(),
        "command": list(sys.orig_argv),
        "directory": os.getcwd(),
    }


def _addresses() -> list[str]:
    """Returns the addresses of this host, IPv4 and IPv6, but for those that every host has."""
    with contextlib.suppress(OSError, psutil.Error):
        every = [each for group in psutil.net_if_addrs().values() for each in group]
        found = {each.address.partition("%")[0] for each in every if each.family in (socket.AF_INET, socket.AF_INET6)}
        return sorted(address for address in found if not address.startswith(("127.", "::1", "fe80")))
    return []


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
