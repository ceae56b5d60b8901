"""Finds our entries in a configuration of MindFormers, and our keys where MindFormers does not take them.

MindFormers has a `monitor_config` of its own, which is closed: a key that it does not know ends the training (measured
on MindFormers 1.9.0; its template is the same in 2.1.0). So our keys live in an entry of `callbacks:` there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import yaml

from ms_summary_bridge.monitor.config.fields import OWN_TYPES, PARAMS, SECTION
from ms_summary_bridge.monitor.config.problems import Problems, join_path, nearest
from ms_summary_bridge.monitor.model.keys import BridgeArgument

__all__ = [
    "BRIDGE_TYPE",
    "MONITOR_TYPE",
    "build_entry",
    "check_bridge_entries",
    "find_entries",
    "find_misplaced",
    "is_mindformers",
    "refuse_misplaced",
]

MONITOR_TYPE: Final = OWN_TYPES[0]
BRIDGE_TYPE: Final = "SummaryBridgeMonitor"

# What MindFormers takes in its monitor_config: class MonitorConfig of mindformers/tools/register/template.py, 1.9.0.
_THEIR_KEYS: Final = {
    *("check_for_global_norm", "device_local_loss_format", "device_local_norm_format", "dump_path"),
    *("global_norm_spike_count_threshold", "global_norm_spike_threshold", "health_checkpoint", "invert"),
    *("local_loss_format", "local_norm_format", "max_attention_logit_format", "monitor_on", "optimizer_state_format"),
    *("print_struct", "stable_rank_config", "step_interval", "target", "throughput_baseline", "weight_state_format"),
}
_THEIR_TOP_KEYS: Final = {"runner_config", "runner_wrapper", "train_dataset_task"}


def is_mindformers(data: Mapping[Any, Any]) -> bool:
    """Whether a whole file is one of MindFormers."""
    section = data.get("monitor_config")
    has_theirs = isinstance(section, Mapping) and bool(section.keys() & _THEIR_KEYS)
    return has_theirs or bool(data.keys() & _THEIR_TOP_KEYS) or any(True for _ in find_entries(data))


def find_entries(data: Mapping[Any, Any]) -> Iterator[tuple[str, str, Mapping[Any, Any]]]:
    """Yields path, type and entry of each callback of ours."""
    callbacks = data.get("callbacks")
    if isinstance(callbacks, list | tuple):
        for number, entry in enumerate(callbacks):
            if isinstance(entry, Mapping) and entry.get("type") in (MONITOR_TYPE, BRIDGE_TYPE):
                yield join_path("$.callbacks", number), entry["type"], entry


def check_bridge_entries(data: Mapping[Any, Any], problems: Problems) -> None:
    """Checks the names of the arguments that entries of the bridge have; their values are left to SummaryBridge."""
    for path, kind, entry in find_entries(data):
        if kind == BRIDGE_TYPE:
            for name in entry:
                if name not in ("type", "auto_register", *get_args(BridgeArgument)):
                    hint = nearest(name, get_args(BridgeArgument))
                    problems.add(join_path(path, name), f"SummaryBridge has no argument {name!r}{hint}")


def refuse_misplaced(data: Mapping[Any, Any], problems: Problems) -> None:
    """Adds a problem for our keys in the `monitor_config` of MindFormers, with the lines to write in their place."""
    section = data.get("monitor_config")
    ours = find_misplaced(data)
    for key in section if isinstance(section, Mapping) else ():
        if key in _THEIR_KEYS or key in ours:
            continue
        hint = nearest(key, sorted(_THEIR_KEYS | SECTION.keys() | PARAMS.keys()))
        problems.add(join_path("$.monitor_config", key), f"neither MindFormers nor the monitor has a key {key!r}{hint}")
    if ours:
        them, noun = ("it", "key") if len(ours) == 1 else ("them", "keys")
        said = (
            "in a file of MindFormers this section is MindFormers' own and stops the training because of the "
            f"{noun} {', '.join(ours)}; move {them} "
        )
        there = [(path, entry) for path, kind, entry in find_entries(data) if kind == MONITOR_TYPE]
        if there:
            path, entry = there[0]
            place = f"{path}.config" if isinstance(entry.get("config"), Mapping) else path
            said += f"by hand into {place.removeprefix('$.')}, the entry that the monitor has already"
        elif isinstance(data.get("callbacks") or [], list):
            said += f"into an entry of callbacks, as `config check --fix` does:\n{_show_entry(ours)}"
        else:
            said += f"by hand into an entry of callbacks, which must be a list:\n{_show_entry(ours)}"
        problems.add("$.monitor_config", said)


def find_misplaced(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns our keys in the `monitor_config` of MindFormers, with their values."""
    section = data.get("monitor_config")
    ours = {*SECTION, *PARAMS, "callback", "extends"} - _THEIR_KEYS
    return {key: value for key, value in section.items() if key in ours} if isinstance(section, Mapping) else {}


def build_entry(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what to add to `callbacks:` for these keys."""
    callback = section.get("callback")
    if isinstance(callback, Mapping) and isinstance(callback.get("params"), Mapping):  # an entry is a callback already
        section = {**{key: value for key, value in section.items() if key != "callback"}, **callback["params"]}
    return [{"type": MONITOR_TYPE, **section}]


def _show_entry(section: Mapping[str, Any]) -> str:
    entry = build_entry(section)
    text = yaml.safe_dump({"callbacks": entry}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    return "\n".join(f"    {line}" for line in text.splitlines())
