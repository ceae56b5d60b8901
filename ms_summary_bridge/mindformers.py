"""The monitor and SummaryBridge as callbacks of MindFormers, which a YAML file names.

Imports mindspore and mindformers.

`import ms_summary_bridge.mindformers` before the Trainer is made registers both::

    callbacks:
      - type: SummaryBridgeMonitor
        collect_freq: 10
      - type: MindSporeTransformersMonitor
        interval: 30
        metrics: [loss, lr, grad_norm, tokens_per_second]

Without a change to any program MindFormers' `auto_register` does it. MindFormers copies the named module out of the
directory REGISTER_PATH and imports the copy; this file is such a module, so that directory can be this package::

    export REGISTER_PATH=$(python -c "import ms_summary_bridge; print(ms_summary_bridge.__path__[0])")

    callbacks:
      - type: SummaryBridgeMonitor
        auto_register: mindformers.SummaryBridgeMonitor

Source: mindformers 1.9.0, measured: a callback that is not MindFormers' own gets its YAML arguments and nothing else;
`core/callback/callback.py` has the attributes of MFLossMonitor and the rule by which it divides the loss.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Mapping
from typing import Any, Final

import mindspore
from mindformers.core.callback import MFLossMonitor
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindformers.tools.utils import get_output_root_path
from mindspore.train.callback import RunContext

from ms_summary_bridge.callback.bridge import SummaryBridge
from ms_summary_bridge.errors import ConfigError, UsageError
from ms_summary_bridge.monitor.callback import MindSporeTransformersMonitor as _Monitor
from ms_summary_bridge.monitor.pynative_events import PyNativeEvents
from ms_summary_bridge.training.parameters import TrainingParameters, seq_length_of_model

__all__ = ["MindSporeTransformersMonitor", "SummaryBridgeMonitor"]

# What MFLossMonitor is given, by its attribute (one of them misspelt) and by our name.
_FACTS: Final = {
    "global_batch_size": "global_batch_size",
    "initial_step": "initial_step",
    "origin_epochs": "epochs",
    "steps_per_epoch": "steps_per_epoch",
    "mirco_size": "micro_batch_num",
    "micro_batch_interleave_num": "micro_batch_interleave_num",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "calculate_per_token_loss": "calculate_per_token_loss",  # of words  # nosec B105
}


class _ConfigurationError(ConfigError):
    """A ConfigError that can be made of its text alone, as MindFormers makes errors anew to name the class."""

    def __init__(self, text: str) -> None:
        super().__init__(text.splitlines())


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class SummaryBridgeMonitor(SummaryBridge):
    """SummaryBridge for a MindFormers YAML file; it replaces SummaryMonitor.

    Args:
        summary_dir: As for SummaryBridge; `summary` in MindFormers' output directory when None.
        arguments: The other arguments of SummaryBridge.
    """

    def __init__(self, summary_dir: str | None = None, **arguments: Any) -> None:
        if summary_dir is None:
            summary_dir = os.path.join(get_output_root_path(), "summary")
        super().__init__(summary_dir, **_plain(arguments))
        self._count = _Count()

    def training_options(self, parameters: Any) -> Mapping[str, Any]:
        """Returns what MindFormers knows of this training."""
        return _training_facts(parameters)

    def on_train_begin(self, run_context: Any, state: Any = None, **_: Any) -> None:
        """As SummaryBridge's; a training that was resumed counts on from where it was.

        Raises:
            UsageError: It is the PyNative trainer that calls, which has nothing of what a bridge collects.
        """
        if state is not None:
            raise UsageError(
                "SummaryBridgeMonitor cannot collect from MindFormers' PyNative trainer: use the callback "
                "MindSporeTransformersMonitor with backend: [tensorboard, mindinsight]"
            )
        self._count = _Count(_loss_monitor_facts(run_context.original_args()))
        super().on_train_begin(self._count.over_sessions(run_context))

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """As SummaryBridge's, but at the beginning of an epoch only."""
        if self._count.is_between_epochs(run_context):
            super().on_train_epoch_begin(run_context)

    def on_train_step_end(self, run_context: Any) -> None:
        """As SummaryBridge's."""
        super().on_train_step_end(self._count.over_sessions(run_context))

    def on_train_epoch_end(self, run_context: Any) -> None:
        """As SummaryBridge's, but at the end of an epoch only."""
        if self._count.is_between_epochs(run_context):
            super().on_train_epoch_end(self._count.over_sessions(run_context))


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class MindSporeTransformersMonitor(PyNativeEvents, _Monitor):
    """The monitor for a MindFormers YAML file, of the trainer on graphs and of the PyNative one.

    What MindFormers knows of a training and does not say is found: the global batch size, the step to begin at and
    what the loss is a sum over in the MFLossMonitor beside it, the length of a sequence and the operations of a step in
    the model's configuration.
    What neither knows is taken from YAML.

    Args:
        config: As for the monitor: a file or a dict.
        options: The keys of `monitor_config` one by one, in the place of `config`.
    """

    def __init__(self, config: Any = None, **options: Any) -> None:
        try:
            super().__init__(_plain(config), **_plain(options))
        except ConfigError as error:
            raise _ConfigurationError("\n".join(error.problems)) from error
        self._count = _Count()

    def training_options(self, parameters: Any) -> Mapping[str, Any]:
        """Returns what MindFormers knows of this training, by the names of MonitorConfig."""
        facts = _training_facts(parameters)
        self._count = _Count(facts)
        return {**facts, "model_flops": _model_flops(parameters, facts.get("global_batch_size"))}

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """As the monitor's, but at the beginning of an epoch only."""
        if self._count.is_between_epochs(run_context):
            super().on_train_epoch_begin(run_context)

    def on_train_step_end(self, run_context: Any) -> None:
        """As the monitor's, which adds the steps of earlier sessions itself."""
        super().on_train_step_end(self._count.in_epochs(run_context))

    def on_train_epoch_end(self, run_context: Any) -> None:
        """As the monitor's, but at the end of an epoch only."""
        if self._count.is_between_epochs(run_context):
            super().on_train_epoch_end(run_context)


class _Count:
    """Steps and epochs of the whole training, where MindSpore counts those of one session.

    It begins each session at step 0. In data sink mode its epoch is one sink, of a single step by MindFormers' default.

    Args:
        facts: What MFLossMonitor knows.
    """

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        facts = facts or {}
        self._initial_step: int = facts.get("initial_step", 0)
        self._steps_per_epoch: int = facts.get("steps_per_epoch", 0)

    def over_sessions(self, run_context: Any) -> Any:
        """Returns the context with step and epoch of the training."""
        return self._with(run_context, self._initial_step)

    def in_epochs(self, run_context: Any) -> Any:
        """Returns the context with the epoch of the training, and the step of the session."""
        return self._with(run_context, 0)

    def is_between_epochs(self, run_context: Any) -> bool:
        """Whether what MindSpore calls an epoch's beginning or end is one of the training."""
        parameters = run_context.original_args()
        return not self._counts_sinks(parameters) or self._step(parameters) % self._steps_per_epoch == 0

    def _counts_sinks(self, parameters: Any) -> bool:
        return bool(self._steps_per_epoch and parameters.get("dataset_sink_mode"))

    def _step(self, parameters: Any) -> int:
        return int(parameters.get("cur_step_num") or 0) + self._initial_step

    def _with(self, run_context: Any, added: int) -> Any:
        parameters = run_context.original_args()
        counts_sinks = self._counts_sinks(parameters)
        if not added and not counts_sinks:
            return run_context
        changed = type(parameters)(parameters)
        if added:
            changed["cur_step_num"] = self._step(parameters)
        if counts_sinks:
            changed["cur_epoch_num"] = max(0, self._step(parameters) - 1) // self._steps_per_epoch + 1
        context = RunContext(changed)
        context.request_stop = run_context.request_stop  # MindSpore's loop asks its own context
        return context


def _plain(value: Any) -> Any:
    """Returns a value with MindFormers' own kind of dict, which gives None for keys that it lacks, made plain."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _training_facts(parameters: Any) -> dict[str, Any]:
    """Returns what MindFormers knows of a training, by the names of MonitorConfig."""
    return {"seq_length": seq_length_of_model(TrainingParameters(parameters)), **_loss_monitor_facts(parameters)}


def _model_flops(parameters: Any, samples: int | None) -> float | None:
    """Returns the operations of a step by MindFormers' own count; None for its older models, which it has none for."""
    with contextlib.suppress(Exception):  # another version's, or another network
        from mindformers.models.utils import (
            convert_transformer_config_to_args_for_tflops,
            num_floating_point_operations,
        )
        from mindformers.wrapper.wrapper import get_real_models

        config = copy.copy(get_real_models(parameters.get("train_network")).get_gpt_transformer_config())
        return float(num_floating_point_operations(convert_transformer_config_to_args_for_tflops(config), samples))
    return None


def _loss_monitor_facts(parameters: Any) -> dict[str, int]:
    """Returns what MFLossMonitor has been told; nothing without one, and not what is left at a default."""
    callbacks = parameters.get("list_callback") or []
    for callback in getattr(callbacks, "_callbacks", callbacks):
        if isinstance(callback, MFLossMonitor):
            found = {name: getattr(callback, attribute, None) for attribute, name in _FACTS.items()}
            if parameters.get("initial_step") is not None:  # MindSpore's own word goes first there, too
                found["initial_step"] = parameters.get("initial_step")
            known = {name: value for name, value in found.items() if isinstance(value, int) and value}
            if mindspore.get_auto_parallel_context("pipeline_stages") <= 1:
                known["micro_batch_num"] = 1  # only a pipeline sums over micro batches
            return known
    return {}
