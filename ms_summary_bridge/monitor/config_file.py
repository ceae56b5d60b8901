"""Reads a `monitor_config` section from a YAML file or a dict.

Layer: monitor.config < **monitor.config_file**.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.config import MonitorConfig

__all__ = ["load_config"]


def load_config(
    source: str | os.PathLike[str] | Mapping[str, Any] | bool, *, overrides: Sequence[str] = ()
) -> MonitorConfig:
    """Returns a checked configuration.

    Args:
        source: Path of a YAML file, or a dict: a whole file with `monitor_config` among its keys, or the section alone.
            True for all defaults.
        overrides: `a.b=value`, paths relative to the section, values as YAML.

    Raises:
        ConfigError: Names every problem.
    """
    if source is True or source == {}:
        return MonitorConfig()
    raise ConfigError(["$: not read yet"])
