"""Says what is allowed in a configuration, but perhaps not meant."""

from __future__ import annotations

import math
import os
import re
from typing import Final

from ms_summary_bridge.monitor.alarms.actions.message import STEP_METRICS
from ms_summary_bridge.monitor.alarms.rules.rule import make_rule
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.metric_names import METRICS, say_mfu_needs, say_needs
from ms_summary_bridge.monitor.model.packages import find_missing
from ms_summary_bridge.monitor.watchdog.collective_limits import find_collective_advice

__all__ = ["find_advice", "find_needs"]

_SHORT_SECS: Final = 5.0


def find_advice(config: MonitorConfig) -> list[str]:
    """Returns a line for each thing to think about."""
    if not config.enable:
        return ["enable is false: nothing will be recorded"]
    advice = []
    names = {metric.name for metric in config.metrics}
    if isinstance(config.interval, float) and config.interval < _SHORT_SECS:
        often = "every step" if config.interval == 0 else f"every {config.interval:g} s"
        advice.append(f"interval: a sample {often} makes large files; 10 s or more is enough for a long training")
    for metric in config.metrics:
        if METRICS[metric.name].is_costly and metric.to_step is None:
            advice.append(
                f"metrics: {metric.name} takes time of the step it is measured in; give it from_step and to_step, "
                f"like {{name: {metric.name}, from_step: {metric.from_step}, to_step: {metric.from_step + 1000}}}"
            )
    if "mfu" in names and _mfu_needs(config):
        advice.append(f"metrics: mfu is left out: {_mfu_needs(config)}")
    if "tokens_per_second" in names and config.seq_length is None:
        advice.append("metrics: tokens_per_second without seq_length takes it from the model or the shape of the batch")
    for name, bounds in config.callback.warn_on_value.items():
        if bounds.above == math.inf or bounds.below == -math.inf:
            advice.append(f"warn_on_value: the limit of {name} is infinite: it never warns")
    if config.callback.warn_on_value and config.callback.log_level in ("ERROR", "CRITICAL"):
        advice.append(f"log_level {config.callback.log_level} keeps the warnings of warn_on_value off the console")
    if config.per_print_step is not None and not config.auto_print:
        advice.append("per_print_step has no effect: auto_print is false")
    advice += [f"backend: {name} is not installed here: pip install {name}" for name in find_missing(config)]
    if config.prometheus_dir is not None and "prometheus" not in config.backends:
        advice.append("prometheus_dir has no effect: prometheus is not among backend")
    actions = [*config.alert_actions, *(action for alert in config.alerts for action in alert.actions or ())]
    if config.exit_code is not None and all(action.kind != "stop" for action in actions):
        advice.append("exit_code has no effect: no alarm has the action stop")
    if config.watchdog.enable:
        advice += find_collective_advice(config.watchdog, os.environ)
    for name in re.findall(r"\$\w+", config.save_dir):
        advice.append(f"save_dir: {name} is taken as it stands; write ${{{name[1:]}}} for the variable")
    place = _find_unwritable(config.save_dir)
    if place:
        advice.append(f"save_dir: {place} is not a directory that can be written to here")
    return advice


def find_needs(config: MonitorConfig) -> list[str]:
    """Returns what listed metrics and rules take that a plain Model on a CPU does not give, a line for each need."""
    listed = [metric.name for metric in config.metrics]
    given = {"lr", "samples_per_second"}  # by each Model
    if config.seq_length is not None:
        given.add("tokens_per_second")
    told = {"mfu": _mfu_needs(config)}
    if not told["mfu"]:
        given.add("mfu")
    rules: dict[str, list[str]] = {}
    for alert in config.alerts:
        metrics = make_rule(alert.rule, alert.params).metrics
        if not any(name in (*listed, *STEP_METRICS) and not METRICS[name].needs for name in metrics):
            rules.setdefault(metrics[0], []).append(alert.rule)
    names = [name for name in listed if METRICS[name].needs and name not in given]
    return say_needs(dict.fromkeys([*names, *rules]), rules, listed, told)


def _mfu_needs(config: MonitorConfig) -> str:
    """Returns which figures mfu lacks, if the training tells how many tokens a step has."""
    return say_mfu_needs(
        has_peak=config.peak_flops is not None,
        has_model=config.model_flops is not None,
        has_token=config.flops_per_token is not None,
        has_tokens=True,
    )


def _find_unwritable(directory: str) -> str:
    """Returns the nearest directory that exists, if nothing can be made in it."""
    place = os.path.abspath(os.path.expanduser(directory))
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return "" if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK) else place
