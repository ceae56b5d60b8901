"""Writes a commented section to begin with, for MindSpore or for MindFormers.

The comments are those of the table that the check is made from, so that no key is missing and none is explained twice.
"""

from __future__ import annotations

import textwrap
from typing import Final

from ms_summary_bridge.monitor.config.keys import CALLBACK_TYPE, PARAMS, SECTION, WITHIN_BOTH
from ms_summary_bridge.monitor.config.mindformers_section import MONITOR_TYPE
from ms_summary_bridge.monitor.model.metric_names import METRICS

__all__ = ["write_template"]

_USED: Final = {
    "enable": "true",
    "backend": "[local, tensorboard, mindinsight]",
    "project": "my-model",
    "interval": "auto",
    "save_dir": "./monitor_output",
    "metrics": "[loss, lr, step_time, samples_per_second, memory_usage]",
    "tags": "{dataset: v1}",
}
"""Keys that stand in the section, with their values."""

_USED_PARAMS: Final = {"log_level": "INFO", "warn_on_value": "{loss: 50.0}"}

_OFFERED: Final = {
    "tensorboard": "true",
    "run_id": "first-try",
    "csv": "true",
    "per_print_step": "100",
    "auto_print": "true",
    "quiet_loss_monitor": "true",
    "max_journal_bytes": "268435456",
    "bridge": "{collect_freq: 10}",
    "watchdog": "{floor: 300, action: report}",
    "save_checkpoint_steps": "1000",
    "save_epochs": "1",
    "keep_checkpoint_max": "5",
    "save_best_ckpt": "true",
    "global_batch_size": "64",
    "seq_length": "4096",
    "initial_step": "0",
    "micro_batch_num": "1",
    "micro_batch_interleave_num": "1",
    "gradient_accumulation_steps": "1",
    "calculate_per_token_loss": "false",
    "flops_per_token": "6.0e+9",
    "model_flops": "1.0e+15",
    "peak_flops": "3.0e+14",
    "alerts": "[{rule: nonfinite, patience: 3, actions: [log, stop]}]",
    "alert_actions": "[log, {webhook: '${ALARM_URL}'}]",
    "exit_code": "3",
    "stop_patience": "60",
    "warn_after_steps": "100",
    "cool_down": "300",
}
"""Keys that are offered behind `#`, with examples."""

_COLUMN: Final = 36


def write_template(*, mindformers: bool = False) -> str:
    """Returns the text of a file; for MindFormers, an entry of its `callbacks:`."""
    keys = {**SECTION, **PARAMS}
    used = [_line(name, value, keys[name].meaning) for name, value in _USED.items()]
    params = [_line(name, value, PARAMS[name].meaning) for name, value in _USED_PARAMS.items()]
    within = {**PARAMS, **WITHIN_BOTH}
    if mindformers:
        offered = [_line(name, value, keys[name].meaning, "# ") for name, value in _OFFERED.items()]
        body = [*used, *params, *offered]
        return _join(
            "# Put this entry into the callbacks: of the training's YAML. monitor_config there is MindFormers' own.",
            "# What makes the name known is a line of the program, before it makes the Trainer:",
            "#   import ms_summary_bridge.mindformers",
            "# or, without a change to any program, a variable and the key auto_register below:",
            '#   export REGISTER_PATH=$(python -c "import ms_summary_bridge; print(ms_summary_bridge.__path__[0])")',
            *_list_metrics(),
            "callbacks:",
            f"  - type: {MONITOR_TYPE}",
            f"    # auto_register: mindformers.{MONITOR_TYPE}",
            *(f"    {line}" for line in body),
        )
    offered = [_line(name, value, keys[name].meaning, "# ") for name, value in _OFFERED.items() if name not in within]
    more = [_line(name, value, within[name].meaning, "# ") for name, value in _OFFERED.items() if name in within]
    return _join(
        "# What the monitor records. `monitor_config: true` alone: all defaults, and the best checkpoint.",
        "# Check this file: ms-summary-bridge config check FILE --try",
        *_list_metrics(),
        "monitor_config:",
        *(f"  {line}" for line in (*used, *offered)),
        "  callback:",
        f"    {_line('type', MONITOR_TYPE, CALLBACK_TYPE.meaning)}",
        "    params:",
        *(f"      {line}" for line in (*params, *more)),
    )


def _list_metrics() -> list[str]:
    return textwrap.wrap(f"Metrics: {', '.join(METRICS)}.", 100, initial_indent="# ", subsequent_indent="# ")


def _line(name: str, value: str, meaning: str, mark: str = "") -> str:
    return f"{mark}{name}: {value}".ljust(_COLUMN) + f"  # {meaning}"


def _join(*lines: str) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"
