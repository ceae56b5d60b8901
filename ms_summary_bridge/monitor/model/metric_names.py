"""The names of all metrics, which way is bad for each, and which cost time.

A configuration is checked against these names without loading what measures them. `register_metric` adds a user's own
through `add_name`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ms_summary_bridge.errors import UsageError

__all__ = [
    "AGGREGATES",
    "ALIASES",
    "DEFAULT_AGGREGATE",
    "METRICS",
    "MetricName",
    "Way",
    "add_name",
    "resolve",
    "say_mfu_needs",
    "say_needs",
]

Way = Literal["above", "below"]


class MetricName(msgspec.Struct, frozen=True):
    """What a configuration has to know of a metric: what it is, with its unit, and what it `needs` of a training.

    `bad` is the way in which it should not go, None where only the user can know. One that `is_costly` takes noticeable
    time of a step, so that `from_step` and `to_step` are worth while.
    """

    meaning: str
    bad: Way | None = None
    is_costly: bool = False
    needs: str = ""


# What `training.measures.read_outputs` finds; the network of a plain Model returns the loss alone.
_OUTPUTS: Final = "the training cell must return (loss, overflow, loss scale{}); a loop gives it to Monitor.step"
_SCALED: Final = _OUTPUTS.format("")
_OWN_LOSS: Final = (
    "in (semi-)automatic parallel mode the loss is reduced in the network: MindFormers then tells of it with "
    "monitor_config: {monitor_on: True, device_local_loss_format: log}; a loop on several ranks gives local_loss; "
    "in a pipeline the last stage alone has one"
)
_OWN_NORM: Final = (
    "the training cell must keep it, in stand-alone or data parallel mode: GradientSummary around it, or "
    "runner_wrapper: {local_norm: True} of MindFormers"
)
_NPU: Final = "npu-smi must be on PATH and answer for this device"
_GPU: Final = "pip install nvidia-ml-py, and a driver that answers for this device"

METRICS: Final[dict[str, MetricName]] = {
    "loss": MetricName("loss of the step", "above"),
    "lr": MetricName("learning rate", needs="the training needs an optimizer of MindSpore, a loop gives lr itself"),
    "epoch": MetricName("epoch, from 1"),
    "step": MetricName("step over all epochs"),
    "step_time": MetricName("seconds of a step", "above"),
    "data_time": MetricName("seconds of a step that waited for data", "above"),
    "samples_per_second": MetricName("samples per second over all cards", "below", needs="give global_batch_size"),
    "tokens_per_second": MetricName(
        "tokens per second over all cards", "below", needs="give seq_length (and global_batch_size)"
    ),
    "mfu": MetricName(
        "part of the peak floating point operations that the model uses, 0 to 1",
        "below",
        needs="give peak_flops, and model_flops, or flops_per_token and seq_length",
    ),
    "grad_norm": MetricName(
        "norm of all gradients",
        "above",
        needs=_OUTPUTS.format(", learning rate, norm"),
    ),
    "local_loss": MetricName("loss of this rank's own batch, before any reduction", "above", needs=_OWN_LOSS),
    "local_grad_norm": MetricName(
        "norm of this rank's own gradients, before they are reduced", "above", needs=_OWN_NORM
    ),
    "local_grad_norms": MetricName(
        "the same of each parameter, as local_grad_norms/<parameter>", "above", needs=_OWN_NORM
    ),
    "sub_losses": MetricName(
        "parts of the loss of a mixture of experts or multi-token prediction, by their names",
        "above",
        needs="MindFormers must say them: print_separate_loss: True, use_legacy: False",
    ),
    "loss_scale": MetricName("loss scale of mixed precision", "below", needs=_SCALED),
    "overflow": MetricName("steps that overflowed, since the last sample", "above", needs=_SCALED),
    "memory_usage": MetricName("device memory in use, MiB", "above"),
    "host_memory": MetricName("memory of the process on the host, MiB", "above"),
    "npu_utilization": MetricName("how busy the NPU is, per cent", "below", needs=_NPU),
    "npu_memory": MetricName("NPU memory in use, MiB", "above", needs=_NPU),
    "npu_power": MetricName("power of the NPU, watt", "above", needs=_NPU),
    "temperature": MetricName(
        "temperature of the device, degrees Celsius", "above", needs=f"on an NPU {_NPU}; on a GPU {_GPU}"
    ),
    "gpu_utilization": MetricName("how busy the GPU is, per cent", "below", needs=_GPU),
    "gpu_memory": MetricName("GPU memory in use, MiB", "above", needs=_GPU),
    "global_rank": MetricName("rank of this process among all"),
    "update_ratio": MetricName(
        "norm of the update by norm of the weights", is_costly=True, needs="a loop gives Monitor its parameters"
    ),
}

DEFAULT_AGGREGATE: Final = ("loss", "step_time", "samples_per_second", "memory_usage")
AGGREGATES: Final = (
    *DEFAULT_AGGREGATE,
    *("local_loss", "grad_norm", "local_grad_norm", "data_time", "tokens_per_second", "mfu", "host_memory"),
    *("npu_memory", "gpu_memory", "npu_utilization", "gpu_utilization", "npu_power", "temperature"),
)
"""What each rank can tell of itself at a step, for one value over all of them."""

ALIASES: Final = {"learning_rate": "lr", "npu_temperature": "temperature"}


def resolve(name: str) -> str | None:
    """Returns the name in `METRICS` for a name or an alias; None if there is none."""
    name = ALIASES.get(name, name)
    return name if name in METRICS else None


def add_name(name: str, known: MetricName) -> None:
    """Makes a user's metric known to the check.

    Raises:
        UsageError: The name is taken.
    """
    if resolve(name) is not None:
        raise UsageError(f"a metric {name!r} exists already")
    METRICS[name] = known


def say_mfu_needs(*, has_peak: bool, has_model: bool, has_token: bool, has_tokens: bool) -> str:
    """Returns which figures mfu lacks, of peak_flops, model_flops, flops_per_token and tokens; empty for none."""
    if has_token and not (has_model or has_tokens):
        work = "seq_length, which flops_per_token is multiplied by, or model_flops"
    else:
        work = "" if has_model or has_token else "model_flops, or flops_per_token and seq_length"
    lacking = [text for text in ("" if has_peak else "peak_flops", work) if text]
    return f"give {', and '.join(lacking)}" if lacking else ""


def say_needs(
    names: Iterable[str], rules: Mapping[str, Sequence[str]], listed: Collection[str], told: Mapping[str, str]
) -> list[str]:
    """Returns a line for each thing that metrics take: which take it, with the rules that look at each.

    `told` is what some of them take in this training, where that is known.
    """
    by_need: dict[str, list[str]] = {}
    for name in names:
        need = told.get(name) or (METRICS[name].needs if name in METRICS else "")
        if not need:
            need = "it returns none" if name in listed else "list it in metrics"
        watching = f" (for {', '.join(rules[name])})" if name in rules else ""
        by_need.setdefault(need, []).append(f"{name}{watching}")
    return [f"{', '.join(named)}: {need}" for need, named in by_need.items()]
