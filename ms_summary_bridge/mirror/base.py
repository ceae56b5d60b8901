"""Base: the directory that MindInsight is given, with a directory for each run that it can show."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Final

from ms_summary_bridge.convert.names import flatten, shorten
from ms_summary_bridge.mirror.directory import MirroredDirectory
from ms_summary_bridge.mirror.home import Home
from ms_summary_bridge.mirror.linked_run import link_run, unlink_run
from ms_summary_bridge.mirror.overlay import join_names
from ms_summary_bridge.runs.logdir import Run

__all__ = ["show_runs"]

_BESIDE: Final = "mindspore"  # in the name of a run whose own is that of a run of TensorBoard's


def show_runs(home: Home, directories: Collection[MirroredDirectory], say: Callable[[str], None]) -> None:
    """Brings the base up to date: a directory for each run, native or converted, and none for what is gone.

    A run that cannot be shown is reported to `say`, and the others are shown.

    Raises:
        OSError: The base cannot be written.
    """
    os.makedirs(home.base, exist_ok=True)
    names = _choose_names(sorted(directories, key=lambda one: one.name))
    entries = [name for name in os.listdir(home.base) if os.path.isdir(os.path.join(home.base, name))]
    for name in {".", *entries} - names.keys():
        unlink_run(os.path.normpath(os.path.join(home.base, name)), is_base=name == ".")
    for name, run in names.items():
        try:
            link_run(run, os.path.normpath(os.path.join(home.base, name)), home.path)
        except OSError as error:
            say(f"{name}: cannot be shown: {error}")


def _choose_names(directories: list[MirroredDirectory]) -> dict[str, Run]:
    """Returns the runs by their directories below the base. Converted runs have the names that `convert` gives."""
    names: dict[str, Run] = {}
    for one in directories:
        names.update((shorten(flatten(join_names(one.name, run.name))), run) for run in one.converted_runs)
    for one in directories:
        for run in one.native_runs:
            base = join_names(one.name, run.name).replace("/", "+")
            if shorten(base) in names:
                base = _BESIDE if base == "." else f"{base}+{_BESIDE}"
            name, number = shorten(base), 2
            while name in names:
                name, number = shorten(f"{base}_{number}"), number + 1
            names[name] = run
    return names
