"""Looks at a path, a configuration or the environment alone, and says all that was found."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Final

from ms_summary_bridge.doctor.configs import check_config, is_config, read_config, save_directory
from ms_summary_bridge.doctor.finding import Examination, Finding
from ms_summary_bridge.doctor.logs import check_damage, check_found, check_times
from ms_summary_bridge.doctor.look import LogFacts, look_at
from ms_summary_bridge.doctor.machine import PortFacts, check_disk, check_ports, find_disk, find_ports
from ms_summary_bridge.doctor.packages import PackageFacts, check_packages, find_packages
from ms_summary_bridge.doctor.processes import find_process
from ms_summary_bridge.doctor.states import check_states
from ms_summary_bridge.doctor.trainings import check_process, check_rank_here, check_training, read_journals
from ms_summary_bridge.doctor.viewers import check_mindinsight, check_tensorboard
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.training.distributed import find_process_rank

__all__ = ["examine"]

_ORDER: Final = {"wrong": 0, "warning": 1, "not known": 2, "ok": 3}


def examine(
    target: Any = None,
    *,
    packages: PackageFacts | None = None,
    ports: list[PortFacts] | None = None,
    now: float | None = None,
) -> Examination:
    """Asks why there is nothing to see.

    It writes nothing, and reads heads and tails: as much of a large directory as of a middling one.

    Args:
        target: A directory or file of any run, a YAML file of the monitor or of MindFormers, the number of a process
            that trains, or None.
        packages: What is installed; by default it is looked up.
        ports: Which ports are taken; by default they are tried.
        now: Seconds since the epoch; by default those of the clock.

    Raises:
        UsageError: `target` cannot be a path, or is a URL.
    """
    path = "" if target is None else check_path("target", target, is_local=True)
    packages = find_packages() if packages is None else packages
    ports = find_ports() if ports is None else ports
    log = LogFacts("")
    findings = [*check_packages(packages), *check_ports(ports, "" if is_config(path) else path)]
    now = time.time() if now is None else now
    if not path:
        findings += [*check_disk(find_disk(os.getcwd())), check_rank_here(find_process_rank(os.environ))]
    elif is_config(path):
        facts = read_config(path)
        place = save_directory(facts)
        if place and os.path.isdir(place):
            log = look_at(place)
        disk = find_disk(place or os.path.dirname(os.path.abspath(path)))
        journals = read_journals(log)
        findings += [*check_disk(disk), *check_config(facts, journals, disk, find_process_rank(os.environ))]
    elif path.isdecimal() and not os.path.exists(path):
        process = find_process(int(path))
        findings += check_process(process)
        if process.logs:
            log = look_at(os.path.commonpath([os.path.dirname(name) for name in process.logs]))
            findings += _examine_log(log, packages, now)
    else:
        log = look_at(path)
        findings += _examine_log(log, packages, now)
    findings.sort(key=lambda finding: _ORDER[finding.verdict])  # stable: the worst first
    return Examination(path, findings, log.bytes_read)


def _examine_log(log: LogFacts, packages: PackageFacts, now: float) -> Iterator[Finding]:
    disk = find_disk(log.target)
    yield from check_found(log, now)
    yield from check_damage(log, now)
    yield from check_times(log, now)
    yield from check_tensorboard(log, packages)
    yield from check_mindinsight(log)
    yield from check_states(log)
    yield from check_disk(disk)
    yield from check_training(log, read_journals(log), disk, now)
