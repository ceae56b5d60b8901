"""The other callbacks of a training, as far as they concern SummaryBridge."""

from __future__ import annotations

import sys
from typing import Any

from mindspore.train.callback import Callback, SummaryCollector

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.training.parameters import callbacks_of

__all__ = ["refuse_others", "saved_checkpoints"]


def refuse_others(bridge: Callback, kind: type[Callback], parameters: Any) -> None:
    """Refuses what would record the same training once more.

    Args:
        bridge: The SummaryBridge that asks.
        kind: Its class, or the one that it extends.
        parameters: Those of the training.

    Raises:
        UsageError: A SummaryCollector or another SummaryBridge is in the list of callbacks.
    """
    for other in callbacks_of(parameters):
        if other is bridge:
            continue
        if isinstance(other, SummaryCollector):
            name = type(other).__name__
            if "mindformers" in sys.modules:
                name += " (SummaryMonitor in a MindFormers YAML file)"
            raise UsageError(f"{name} is in the list of callbacks beside SummaryBridge, which replaces it: remove one")
        if isinstance(other, kind):
            raise UsageError(
                "two SummaryBridge are in the list of callbacks: remove one; build_monitor_callbacks brings one, "
                "unless its configuration says backend: [local]"
            )


def saved_checkpoints(parameters: Any) -> list[str]:
    """Returns the file that each ModelCheckpoint in the list saved last, empty where there is none."""
    return [str(getattr(callback, "latest_ckpt_file_name", None) or "") for callback in callbacks_of(parameters)]
