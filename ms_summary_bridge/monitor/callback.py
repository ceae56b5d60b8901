"""MindSporeTransformersMonitor: the monitor as a callback of MindSpore's `Model`.

Layer: monitor.recorder < **monitor.callback**. Imports mindspore.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mindspore.train.callback import Callback

from ms_summary_bridge.monitor.config import MonitorConfig
from ms_summary_bridge.monitor.config_file import load_config

__all__ = ["MindSporeTransformersMonitor"]


class MindSporeTransformersMonitor(Callback):
    """Records a training: values at intervals, console lines, a journal, and warnings.

    Args:
        config: A `monitor_config` section as a dict, the path of a file that holds one, or a checked configuration.
        options: The keys of the section one by one, in the place of `config`.

    Raises:
        ConfigError: The configuration has problems; it names all of them.

    Example:
        `model.train(10, dataset, callbacks=[MindSporeTransformersMonitor({"interval": 30})])`
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | os.PathLike[str] | MonitorConfig | bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(config, MonitorConfig):
            config = load_config(options if config is None else config)
        self._config = config

    def training_options(self, parameters: Any) -> Mapping[str, Any]:
        """Returns what a framework around MindSpore knows of this training, by the names of MonitorConfig.

        A subclass looks for `global_batch_size`, `seq_length`, `initial_step`, `micro_batch_num`,
        `micro_batch_interleave_num`, `gradient_accumulation_steps` and `calculate_per_token_loss`; what it returns goes
        before the configuration. It is asked once, at the beginning of a training.
        """
        return {}
