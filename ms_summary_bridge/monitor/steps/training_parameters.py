"""What MindSpore's callback parameters say of a training, whatever object they come in.

Source: the keys were measured on MindSpore 2.7 to 2.10. A missing one is a KeyError there and not an AttributeError, so
`getattr` with a default does not do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.facts import TrainingFacts
from ms_summary_bridge.training.measures import batch_size

__all__ = ["TrainingParameters", "complete_facts", "read_facts", "seq_length_of_model"]

_INNER_NETWORKS: Final = ("network", "_network", "_backbone", "backbone", "model")
_DEPTH: Final = 4


class TrainingParameters:
    """The parameters behind a `get` that never raises.

    Args:
        given: A mapping, as MindSpore's own is, or any object with attributes.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        self.get: Callable[..., Any] = given.get if isinstance(given, dict) else self._get
        """Returns a parameter by its name, or a default where there is none."""

    def _get(self, name: str, default: Any = None) -> Any:
        if isinstance(self._given, Mapping):
            return self._given.get(name, default)
        try:
            return getattr(self._given, name, default)
        except KeyError:
            return default

    def number(self, name: str, default: int = 0) -> int:
        """Returns a parameter that is a whole number."""
        value = self.get(name)
        try:
            return default if value is None else int(value)
        except (TypeError, ValueError):
            return default

    @property
    def callbacks(self) -> list[Any]:
        """All callbacks of the training."""
        callbacks = self.get("list_callback") or []
        return list(getattr(callbacks, "_callbacks", callbacks))


def read_facts(parameters: TrainingParameters, config: MonitorConfig, options: Mapping[str, Any]) -> TrainingFacts:
    """Returns what is known when a training begins.

    Args:
        parameters: Of the callback.
        config: The configuration.
        options: What a framework around MindSpore says, by the names of MonitorConfig (and `epochs`,
            `steps_per_epoch`); it goes before the configuration.
    """

    def known(name: str) -> Any:
        value = options.get(name)
        return getattr(config, name) if value is None else value

    # MindFormers returns the sum over these; one per token still is a sum over interleaved ones (measured on 1.9.0).
    summed = ["micro_batch_interleave_num"]
    if not known("calculate_per_token_loss"):
        summed += ["micro_batch_num", "gradient_accumulation_steps"]
    initial_step = int(known("initial_step") or 0)
    return TrainingFacts(
        epochs=options.get("epochs") or parameters.number("epoch_num") or None,
        steps_per_epoch=options.get("steps_per_epoch") or _steps_per_epoch(parameters),
        samples_per_step=known("global_batch_size"),
        seq_length=known("seq_length") or seq_length_of_model(parameters),
        initial_step=initial_step,
        steps_before=initial_step if options.get("epochs") else None,
        loss_divisor=math.prod(max(1, int(known(name) or 1)) for name in summed),
        flops_per_token=config.flops_per_token,
        model_flops=config.model_flops,
        peak_flops=config.peak_flops,
    )


def complete_facts(facts: TrainingFacts, parameters: TrainingParameters, config: MonitorConfig) -> None:
    """Fills in what only the first batch can tell."""
    if facts.steps_before is None:
        facts.steps_before = 0
        _count_earlier_epochs(facts, parameters)
    element = parameters.get("train_dataset_element")
    if facts.samples_per_step is None:
        size = batch_size(parameters)
        if size is not None:
            is_parallel = parameters.get("parallel_mode") == "data_parallel"
            cards = max(1, parameters.number("device_number", 1)) if is_parallel else 1
            facts.samples_per_step = size * cards * max(1, config.gradient_accumulation_steps)
    if facts.seq_length is None:
        first = element[0] if isinstance(element, (list, tuple)) and element else element
        shape: Any = getattr(first, "shape", ())
        if len(shape) == 2 and "int" in str(getattr(first, "dtype", "")).lower():  # token ids: [batch, sequence]
            facts.seq_length = int(shape[1])


def _steps_per_epoch(parameters: TrainingParameters) -> int | None:
    """Returns the steps of one epoch, or of one sink, which is MindSpore's epoch where it sinks data.

    `batch_num` is the size of a sink that was asked for even where there is none, as on a CPU (measured on 2.10).
    """
    steps = parameters.number("batch_num") or None
    if parameters.get("dataset_sink_mode") is False:
        with contextlib.suppress(Exception):  # no data set, or one of the user's own
            steps = int(parameters.get("train_dataset").get_dataset_size()) or steps
    return steps


def _count_earlier_epochs(facts: TrainingFacts, parameters: TrainingParameters) -> None:
    """Counts the epochs before `initial_epoch`, which `epoch_num` leaves out and `cur_epoch_num` has.

    Steps begin at 1 there all the same (measured on MindSpore 2.10).
    """
    earlier = parameters.number("cur_epoch_num") - 1
    if earlier <= 0 or not facts.epochs or not facts.steps_per_epoch:
        return
    if parameters.number("cur_step_num") > facts.steps_per_epoch:  # the monitor was called in the middle of a training
        return
    facts.epochs += earlier
    facts.steps_before = earlier * facts.steps_per_epoch


def seq_length_of_model(parameters: TrainingParameters) -> int | None:
    """Returns `config.seq_length` of the network, or of one of those inside it; None where none has one."""
    networks = [parameters.get("network"), parameters.get("train_network")]
    for _ in range(_DEPTH):
        for network in networks:
            for name in ("config", "model_config", "transformer_config"):
                length = getattr(getattr(network, name, None), "seq_length", None)
                if isinstance(length, int) and length > 0:
                    return length
        inner = (getattr(network, name, None) for network in networks for name in _INNER_NETWORKS)
        networks = [network for network in inner if network is not None]
    return None
