"""Which packages a configuration needs. None is loaded."""

from __future__ import annotations

from importlib.util import find_spec
from typing import get_args

from ms_summary_bridge.monitor.model.config import MonitorConfig, Tracker

__all__ = ["find_missing"]


def find_missing(config: MonitorConfig) -> list[str]:
    """Returns the packages of its backends that are not installed."""
    return [name for name in config.backends if name in get_args(Tracker) and find_spec(name) is None]
