"""A configuration of the monitor: what is wrong with it, and the five questions for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from ms_summary_bridge.doctor.finding import Finding, fault, good
from ms_summary_bridge.doctor.machine import DiskFacts
from ms_summary_bridge.doctor.trainings import PASS_IT, JournalFacts, check_rank_here, check_writable
from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.config.advice import find_advice
from ms_summary_bridge.monitor.config.document import read_file
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.config.mindformers_section import (
    MONITOR_TYPE,
    check_bridge_entries,
    find_entries,
    refuse_misplaced,
)
from ms_summary_bridge.monitor.config.problems import Problems
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.sinks.run_record import project_directory
from ms_summary_bridge.training.distributed import ProcessRank

__all__ = ["ConfigFacts", "check_config", "is_config", "read_config", "save_directory"]

_SHOWN_BY: Final = {
    "tensorboard": "TensorBoard",
    "mindinsight": "MindInsight",
    "prometheus": "Prometheus",
    "wandb": "Weights & Biases",
    "swanlab": "SwanLab",
    "mlflow": "MLflow",
    "trackio": "Trackio",
}
_LONG_SECS: Final = 1800.0


class ConfigFacts(msgspec.Struct, frozen=True):
    """One file."""

    path: str
    config: MonitorConfig | None
    """None for a file with mistakes, or one that has no monitor."""
    problems: list[str] = []
    entries: list[str] = []
    """Types of the entries of ours in MindFormers' `callbacks:`."""


def is_config(target: str) -> bool:
    """Whether a target is a configuration rather than a log."""
    return target.lower().endswith((".yaml", ".yml"))


def read_config(path: str) -> ConfigFacts:
    """Reads a file."""
    entries: list[str] = []
    try:
        data = read_file(path).data
        if isinstance(data, Mapping):
            entries = [kind for _, kind, _ in find_entries(data)]
        return ConfigFacts(path, load_config(path), entries=entries)
    except ConfigError as error:
        if entries and MONITOR_TYPE not in entries:  # the bridge alone, whose arguments it checks itself
            return ConfigFacts(path, None, _of_bridge(path), entries)
        return ConfigFacts(path, None, error.problems, entries)


def _of_bridge(path: str) -> list[str]:
    document = read_file(path)
    problems = Problems(document.places)
    refuse_misplaced(document.data, problems)
    check_bridge_entries(document.data, problems)
    return problems.lines


def save_directory(facts: ConfigFacts) -> str:
    """Returns the directory that runs of it are in; empty where none is known."""
    return project_directory(facts.config) if facts.config is not None and facts.config.enable else ""


def check_config(
    facts: ConfigFacts, journals: list[JournalFacts], disk: DiskFacts, place: ProcessRank
) -> Iterator[Finding]:
    """Yields what there is to say; `journals` are those of the project it names."""
    for problem in facts.problems:
        first, _, rest = problem.partition("\n")
        mend = rest or f"ms-summary-bridge config check {facts.path}; config init writes one to begin with"
        yield fault("config.valid", "wrong", first, mend)
    config = facts.config
    if config is None:
        if not facts.problems:
            yield good("config.valid", f"{facts.path}: right")
            yield good("self.enabled", f"enabled: {', '.join(facts.entries)} in callbacks:")
            yield good("self.passed", "passed: MindFormers passes what stands in callbacks:")
        return
    yield good("config.valid", f"{facts.path}: right")
    if not config.enable:
        yield fault("self.enabled", "wrong", "enabled: no, nothing will be recorded", "enable: true")
        return
    yield good("self.enabled", "enabled: true")
    for advice in find_advice(config):
        yield fault("config.advice", "warning", advice, f"ms-summary-bridge config check {facts.path}")
    shown = [viewer for backend, viewer in _SHOWN_BY.items() if backend in config.backends]
    if shown:
        yield good("config.backend", f"shown by {', '.join(shown)}")
    else:
        text = "backend: only files and the console, nothing for a viewer"
        yield fault("config.backend", "warning", text, "backend: [local, tensorboard, mindinsight]")
    yield _check_interval(config)
    yield _check_passed(facts, journals)
    yield check_writable(disk, has_files=False)
    yield check_rank_here(place)


def _check_interval(config: MonitorConfig) -> Finding:
    if isinstance(config.interval, float) and config.interval > _LONG_SECS:
        text = f"interval: {config.interval:g} s: a short training leaves its first and last step alone"
        return fault("self.interval", "warning", text, "interval: 30")
    return good("self.interval", f"interval: {config.interval}" + (" s" if config.interval != "auto" else ""))


def _check_passed(facts: ConfigFacts, journals: list[JournalFacts]) -> Finding:
    if any(one.last_step >= 0 for one in journals):
        newest = max(journals, key=lambda one: one.mtime)
        return good("self.passed", f"passed: {newest.directory} reached step {newest.last_step}")
    if MONITOR_TYPE in facts.entries:
        text = "passed: MindFormers passes what stands in callbacks:"
        return good("self.passed", text)
    text = f"passed: the file does not tell, and no run is in {os.path.dirname(save_directory(facts)) or '.'}"
    return Finding("self.passed", "not known", text, PASS_IT)
