"""What stands beside the monitor in a training: its network, a SummaryBridge, a LossMonitor.

Imports mindspore.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import mindspore
from mindspore import nn
from mindspore.train.callback import LossMonitor

from ms_summary_bridge.callback.gradient_summary import GradientSummary
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.sinks.viewer_steps import NearBridge
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.parameters import TrainingParameters

__all__ = ["find_bridge", "find_gradient_summary", "meet_loss_monitors", "save_checkpoint", "trainable_parameters"]


def trainable_parameters(parameters: TrainingParameters) -> list[Any]:
    """Returns what the network learns; nothing without a network."""
    network = parameters.get("network") or parameters.get("train_network")
    return list(network.trainable_params()) if hasattr(network, "trainable_params") else []


def save_checkpoint(parameters: TrainingParameters, path: str) -> None:
    """Saves the network that is trained, its optimizer with it."""
    mindspore.save_checkpoint(parameters.get("train_network") or parameters.get("network"), path)


def find_bridge(callbacks: Iterable[Any]) -> NearBridge | None:
    """Returns a SummaryBridge among the callbacks; None without one, or where it cannot take values."""
    from ms_summary_bridge.callback.bridge import SummaryBridge

    for callback in callbacks:
        if isinstance(callback, SummaryBridge):
            link = callback.link
            if link is not None:
                return NearBridge(link, link.config.tensorboard_dir, partial(getattr, callback, "steps_behind"))
    return None


def find_gradient_summary(parameters: TrainingParameters) -> GradientSummary | None:
    """Returns the GradientSummary that trains, or one inside the network that does."""
    network = parameters.get("train_network")
    cells = network.cells_and_names() if isinstance(network, nn.Cell) else ()
    return next((cell for _, cell in cells if isinstance(cell, GradientSummary)), None)


def meet_loss_monitors(callbacks: Iterable[Any], config: MonitorConfig, faults: Faults) -> None:
    """Silences MindSpore's LossMonitor if the configuration says so; else gives one hint that it can be."""
    for callback in callbacks:
        if not isinstance(callback, LossMonitor):
            continue
        if config.quiet_loss_monitor:
            callback._per_print_times = 0  # it goes on checking the loss, and says nothing more
        else:
            faults.warn(
                "loss monitor",
                "LossMonitor prints the loss as well; `quiet_loss_monitor: true` in monitor_config silences it",
            )
