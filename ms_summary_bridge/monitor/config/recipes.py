"""Sections for what people fear most, by name: each is small, and a test runs it until it speaks.

`config init --recipe NAME` writes one, and docs/recipes.md explains them.
"""

from __future__ import annotations

from typing import Final

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.monitor.config.fields import OWN_TYPES

__all__ = ["RECIPES", "write_recipe"]

RECIPES: Final = {
    "device-overload": """\
project: my-model
interval: 10                  # seconds between two looks at the device
metrics: [loss, temperature, npu_utilization, npu_memory]
alerts:
  - {rule: overload, temperature: 90, memory: 60000, secs: 60, actions: [log, save_checkpoint, stop]}
exit_code: 3                  # by which a launcher knows that an alarm has stopped it
""",
    "memory": """\
project: my-model
interval: 30
metrics: [loss, memory_usage, host_memory]
alerts:
  - {rule: memory_trend, hours: 12, actions: [log, save_checkpoint]}  # said when 12 hours or fewer are left
""",
    "data-worker": """\
project: my-model
interval: 30
metrics: [loss, step_time, data_time, samples_per_second]
alerts:
  - {rule: throughput_drop, ratio: 0.5, secs: 60, actions: [log, dump_stacks]}
watchdog: {floor: 300, action: report}  # or kill, so that a launcher can begin again
""",
    "warm-up": """\
project: my-model
interval: 30
metrics: [loss, samples_per_second]
warn_on_value: {loss: 50.0, samples_per_second: {below: 1000}}
warn_after_steps: 500         # without this line it warns from the first step on
""",
    "mfu": """\
project: my-model
interval: 30
metrics: [loss, step_time, mfu]
model_flops: 2.0e+13          # floating point operations of one step over all cards, forward and backward
peak_flops: 3.0e+14           # floating point operations per second of one card
""",
}
"""The keys of each, as the section and an entry of MindFormers' `callbacks:` both take them."""


def write_recipe(name: str, *, mindformers: bool = False) -> str:
    """Returns the text of a file that holds a recipe; for MindFormers, an entry of its `callbacks:`.

    Raises:
        UsageError: No recipe has that name.
    """
    if name not in RECIPES:
        raise UsageError(f"no recipe is called {name!r}; there are {', '.join(RECIPES)}")
    head, indent = ("callbacks:\n  - type: " + OWN_TYPES[0], "    ") if mindformers else ("monitor_config:", "  ")
    return "\n".join([head, *(indent + line for line in RECIPES[name].splitlines())]) + "\n"
