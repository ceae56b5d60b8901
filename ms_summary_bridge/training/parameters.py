"""What MindSpore's callback parameters say of a training, whatever object they come in.

Source: the keys were measured on MindSpore 2.7 to 2.10. A missing one is a KeyError there and not an AttributeError, so
`getattr` with a default does not do.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.flops import llama_flops_per_token

__all__ = [
    "TrainingParameters",
    "batch_size",
    "callbacks_of",
    "cards_with_own_data",
    "complete_facts",
    "flops_per_token_of_model",
    "read_facts",
    "seq_length_of_model",
    "steps_of_first_call",
]

_INNER_NETWORKS: Final = ("network", "_network", "_backbone", "backbone", "model")
_DEPTH: Final = 4


class TrainingParameters:
    """The parameters, a mapping as MindSpore's own or any object with attributes, behind a `get` that never raises."""

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

    def keep(self, name: str, value: object) -> None:
        """Leaves something of ours among MindSpore's parameters, where they can take it."""
        if isinstance(self._given, dict):
            self._given[name] = value

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
        return callbacks_of(self)


def callbacks_of(parameters: Any) -> list[Any]:
    """Returns all callbacks of a training from its parameters, whatever has them behind `get`."""
    callbacks = parameters.get("list_callback") or []
    return list(getattr(callbacks, "_callbacks", callbacks))


def read_facts(parameters: TrainingParameters, options: Mapping[str, Any]) -> TrainingFacts:
    """Returns what is known when a training begins.

    Args:
        parameters: Of the callback.
        options: What a configuration, or a framework around MindSpore, says: `global_batch_size`, `seq_length`,
            `initial_step`, `micro_batch_num`, `micro_batch_interleave_num`, `gradient_accumulation_steps`,
            `calculate_per_token_loss`, `epochs`, `steps_per_epoch`; None and what is missing is looked for.
    """
    # MindFormers returns the sum over these; one per token still is a sum over interleaved ones (measured on 1.9.0).
    summed = ["micro_batch_interleave_num"]
    if not options.get("calculate_per_token_loss"):
        summed += ["micro_batch_num", "gradient_accumulation_steps"]
    initial_step = int(options.get("initial_step") or 0)
    return TrainingFacts(
        epochs=options.get("epochs") or parameters.number("epoch_num") or None,
        steps_per_epoch=options.get("steps_per_epoch") or _steps_per_epoch(parameters),
        samples_per_step=options.get("global_batch_size"),
        gradient_accumulation_steps=max(1, int(options.get("gradient_accumulation_steps") or 1)),
        seq_length=options.get("seq_length") or seq_length_of_model(parameters),
        initial_step=initial_step,
        steps_before=initial_step if options.get("epochs") else None,
        loss_divisor=math.prod(max(1, int(options.get(name) or 1)) for name in summed),
        is_local=str(parameters.get("parallel_mode") or "stand_alone") in ("stand_alone", "data_parallel"),
    )


def complete_facts(facts: TrainingFacts, parameters: TrainingParameters) -> None:
    """Fills in what only the first batch can tell."""
    if facts.steps_before is None:
        facts.steps_before = 0
        _count_earlier_epochs(facts, parameters)
    if facts.samples_per_step is None:
        size, cards = batch_size(parameters), cards_with_own_data(parameters)
        if size is not None and cards is not None:
            facts.samples_per_step = size * cards * facts.gradient_accumulation_steps
    if facts.seq_length is None:
        first = _first_input(parameters)
        shape: Any = getattr(first, "shape", ())
        if len(shape) == 2 and "int" in str(getattr(first, "dtype", "")).lower():  # token ids: [batch, sequence]
            facts.seq_length = int(shape[1])


def _first_input(parameters: TrainingParameters) -> Any:
    """Returns the first input of the last batch, where MindSpore keeps the batch."""
    element = parameters.get("train_dataset_element")
    return element[0] if isinstance(element, (list, tuple)) and element else element


def batch_size(parameters: TrainingParameters) -> int | None:
    """Returns the samples of one batch of one card: from the data set, else from the first input's first axis."""
    dataset = parameters.get("train_dataset")
    with contextlib.suppress(Exception):  # a data set of the user's own may raise anything
        size = int(dataset.get_batch_size())
        if size > 0:
            return size
    shape = getattr(_first_input(parameters), "shape", None)
    return int(shape[0]) if shape else None


def cards_with_own_data(parameters: TrainingParameters) -> int | None:
    """Returns how many cards are given different samples of one step; None where nobody can know.

    Stand-alone is one; data parallel is all. In (semi-)automatic parallel each card is given the whole batch
    (`full_batch`), or its part of it: by default one part for each card of a pipeline stage, else as the first axis of
    the first input is cut.

    Source: MindSpore 2.10, `mindspore/parallel/_utils.py`, `_to_full_shapes` and who calls it.
    """
    mode, cards = str(parameters.get("parallel_mode") or "stand_alone"), max(1, parameters.number("device_number", 1))
    if mode == "stand_alone" or cards == 1:
        return 1
    if mode == "data_parallel":
        return cards
    mindspore = sys.modules.get("mindspore")
    if mode not in ("semi_auto_parallel", "auto_parallel") or mindspore is None:
        return None
    with contextlib.suppress(Exception):  # a context of another version
        strategy = mindspore.get_auto_parallel_context("dataset_strategy")
        if strategy == "full_batch":
            return 1
        if strategy == "data_parallel":
            return max(1, cards // int(mindspore.get_auto_parallel_context("pipeline_stages")))
        return int(strategy[0][0])
    return None


def steps_of_first_call(parameters: TrainingParameters) -> int:
    """Returns how many steps the first call of the training network stands for: those of a sink, else one."""
    if not parameters.get("dataset_sink_mode"):
        return 1
    sink_size = parameters.number("sink_size", -1)
    return sink_size if sink_size > 0 else max(1, parameters.number("batch_num", 1))


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
    lengths = (getattr(config, "seq_length", None) for config in _configs(parameters))
    return next((length for length in lengths if isinstance(length, int) and length > 0), None)


def flops_per_token_of_model(parameters: TrainingParameters) -> float | None:
    """Returns the operations of a token by the configuration of the network; None where it is not known how to count.

    Raises:
        Exception: A configuration that is not what its class says.
    """
    counts = (llama_flops_per_token(config) for config in _configs(parameters))
    return next((count for count in counts if count is not None), None)


def _configs(parameters: TrainingParameters) -> Iterator[Any]:
    """Yields the configurations of the network, and of those inside it."""
    networks = [parameters.get("network"), parameters.get("train_network")]
    for _ in range(_DEPTH):
        for network in networks:
            for name in ("config", "model_config", "transformer_config"):
                if (config := getattr(network, name, None)) is not None:
                    yield config
        inner = (getattr(network, name, None) for network in networks for name in _INNER_NETWORKS)
        networks = [network for network in inner if network is not None]
