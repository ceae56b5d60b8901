"""Writes a commented section to begin with, for MindSpore or for MindFormers, from the descriptions of the keys."""

from __future__ import annotations

import textwrap
from typing import Final

from ms_summary_bridge.monitor.config.fields import OWN_TYPES, PARAMS, SECTION, SHARED, read_fields, say_flow
from ms_summary_bridge.monitor.model.config import CallbackConfig
from ms_summary_bridge.monitor.model.metric_names import METRICS

__all__ = ["write_template"]

_USED: Final = ("enable", "backend", "project", "interval", "save_dir", "metrics", "tags")
"""Keys that stand in the section; the others are offered behind `#`."""
_USED_PARAMS: Final = ("log_level", "warn_on_value")
_COLUMN: Final = 36
_FIELDS: Final = {**SECTION, **PARAMS}


def write_template(*, mindformers: bool = False) -> str:
    """Returns the text of a file; for MindFormers, an entry of its `callbacks:`."""
    used = [_line(name) for name in _USED]
    params = [_line(name) for name in _USED_PARAMS]
    within = {**PARAMS, **SHARED}
    offered = [_line(name, "# ") for name in _FIELDS if name not in _USED and name not in within]
    more = [_line(name, "# ") for name in within if name not in _USED_PARAMS]
    metrics = textwrap.wrap(f"Metrics: {', '.join(METRICS)}.", 100, initial_indent="# ", subsequent_indent="# ")
    if mindformers:
        lines = [
            "# Put this entry into the callbacks: of the training's YAML. monitor_config there is MindFormers' own.",
            "# What makes the name known is a line of the program, before it makes the Trainer:",
            "#   import ms_summary_bridge.mindformers",
            "# or, without a change to any program, a variable and the key auto_register below:",
            '#   export REGISTER_PATH=$(python -c "import ms_summary_bridge; print(ms_summary_bridge.__path__[0])")',
            *metrics,
            "callbacks:",
            f"  - type: {OWN_TYPES[0]}",
            f"    # auto_register: mindformers.{OWN_TYPES[0]}",
            *(f"    {line}" for line in (*used, *params, *offered, *more)),
        ]
    else:
        meaning = read_fields(CallbackConfig)["type"].meaning
        lines = [
            "# What the monitor records. `monitor_config: true` alone: all defaults, and the best checkpoint.",
            "# Check this file: ms-summary-bridge config check FILE --try",
            *metrics,
            "monitor_config:",
            *(f"  {line}" for line in (*used, *offered)),
            "  callback:",
            f"    type: {OWN_TYPES[0]}  # {meaning}",
            "    params:",
            *(f"      {line}" for line in (*params, *more)),
        ]
    return "\n".join(lines) + "\n"


def _line(name: str, mark: str = "") -> str:
    field = _FIELDS[name]
    return f"{mark}{name}: {say_flow(field.example)}".ljust(_COLUMN) + f"  # {field.meaning}"
