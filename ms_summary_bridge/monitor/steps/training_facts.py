"""What is known of a training when it begins: from a framework around MindSpore, from the configuration, or found."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.learning_rate import find_optimizer
from ms_summary_bridge.training.parameters import TrainingParameters, flops_per_token_of_model, read_facts

__all__ = ["find_facts"]

_CONFIGURED: Final = (
    "global_batch_size",
    "seq_length",
    "initial_step",
    "micro_batch_num",
    "micro_batch_interleave_num",
    "gradient_accumulation_steps",
    "calculate_per_token_loss",
)


def find_facts(parameters: TrainingParameters, config: MonitorConfig, options: Mapping[str, Any]) -> TrainingFacts:
    """Returns the facts of a training that begins.

    What a framework around MindSpore says (`options`, by the names of MonitorConfig, and `epochs`, `steps_per_epoch`)
    goes before the configuration.
    """
    given = {name: getattr(config, name) if options.get(name) is None else options[name] for name in _CONFIGURED}
    facts = read_facts(parameters, {**options, **given})
    facts.flops_per_token, facts.model_flops = config.flops_per_token, config.model_flops
    if facts.flops_per_token is None and facts.model_flops is None:
        facts.model_flops = options.get("model_flops")
        with contextlib.suppress(Exception):  # a configuration of the user's own
            facts.flops_per_token = flops_per_token_of_model(parameters)
    facts.peak_flops = config.peak_flops
    facts.gradient_names = lambda: [parameter.name for parameter in find_optimizer(parameters).parameters]
    return facts
