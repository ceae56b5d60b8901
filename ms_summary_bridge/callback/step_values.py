"""What is recorded of one training step beside what SummaryCollector finds: loss, rates, times, parameters.

Imports mindspore. All numbers but the parameters come from `training.measuring`, in which a monitor beside the bridge
takes part. `loss/auto` is what the network returned, as SummaryCollector records it: a sum where a framework sums over
micro batches. MindInsight's dashboard draws the first two tags of the alphabet, so no scalar of a step has one before
the loss: `epoch` and `grad_norm` are below `train_info/`. Of an evaluation, see `callback.dashboard_loss`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import mindspore
import numpy as np

from ms_summary_bridge.callback.dashboard_loss import DASHBOARD_LOSS, LOSS, DashboardLoss
from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.learning_rate import find_optimizer, rate_reader
from ms_summary_bridge.training.measures import device_memory, read_outputs, to_array
from ms_summary_bridge.training.measuring import Measuring, join
from ms_summary_bridge.training.parameters import (
    TrainingParameters,
    complete_facts,
    read_facts,
    steps_of_first_call,
)

__all__ = ["StepValues", "eval_metrics", "metric_items", "metric_numbers", "scalar_item"]

_MOST_CLASSES: Final = 32  # that get a curve each: MindInsight keeps 300 tags of a run
_FIRST_PARAMETERS: Final = 5  # histograms without histogram_regular, as SummaryCollector


class StepValues:
    """Reads values from a callback's parameters, over one training.

    Args:
        specified: SummaryCollector's `collect_specified_data`, with its defaults.
        collects_histograms: Whether parameters are recorded at all.
        collects_lr: Whether what SummaryCollector does not collect is recorded.
        warn: Is told once of each thing that cannot be recorded.
    """

    def __init__(
        self,
        specified: dict[str, Any],
        *,
        collects_histograms: bool,
        collects_lr: bool,
        warn: Callable[[str, str], None],
    ) -> None:
        self._specified = specified
        self._collects_histograms = collects_histograms
        self._collects_lr = collects_lr
        self._warn = warn
        self.measuring = Measuring(TrainingFacts(), warn)
        """Measures the training, for a monitor beside the bridge too."""
        self.measuring.follow()
        self._tells = True  # whether nobody else says when steps begin and end
        self._parameters: list[Any] = []
        self._best_loss = math.inf
        self._is_new_best = False

    # ------------------------------------------------------------------ what the framework tells

    def begin_training(self, parameters: Any, others: Iterable[Any], options: Mapping[str, Any]) -> None:
        """A training begins, beside other callbacks; `options` is what a framework around MindSpore knows of it."""
        given = TrainingParameters(parameters)
        self.measuring, self._tells = join(given, "bridge", lambda: Measuring(read_facts(given, options), self._warn))
        self.measuring.follow()
        if self._tells:
            self.measuring.time_callbacks(others)

    def begin_step(self, now: float) -> None:
        """A step begins at `now`, seconds of a monotonic clock."""
        if self._tells:
            self.measuring.step_clock.note(("start", now, None))

    def end_step(self, last: int | None, number: int, now: float, parameters: Any) -> None:
        """A step, or a sink of several, has ended at `now`: the first one, or the next behind `last`."""
        if last is None:
            self._begin(TrainingParameters(parameters))
            steps = steps_of_first_call(TrainingParameters(parameters))
        else:
            steps = number - last if number > last else 1
        self.measuring.end_step((number, steps, None, None, None), now, tells=self._tells)

    def _begin(self, parameters: TrainingParameters) -> None:
        """Does what only the first step can tell."""
        complete_facts(self.measuring.facts, parameters)
        optimizer = find_optimizer(parameters)
        if optimizer is None:
            self._warn("optimizer", "no optimizer is found: learning rate and parameters are not recorded")
            return
        self.measuring.rates.read_from(rate_reader(optimizer))
        if self._collects_histograms and "histogram_regular" in self._specified:
            regular = self._specified["histogram_regular"]
            first = optimizer.parameters[:_FIRST_PARAMETERS]
            matching = (each for each in optimizer.parameters if re.match(regular, each.name))
            self._parameters = list(first if regular is None else matching)

    # ------------------------------------------------------------------ what is recorded

    def scalars(self, parameters: Any, number: int, step: int, dashboard_loss: DashboardLoss) -> list[dict[str, Any]]:
        """Returns the scalars of the step `number` that has just ended, and is recorded as `step`."""
        outputs = read_outputs(parameters.get("net_outputs"))
        items = []
        if self._specified.get("collect_metric"):
            if outputs.loss is None:
                self._warn("loss", "the network's output holds no number that can be the loss")
            else:
                items.append(scalar_item(LOSS, outputs.loss))
                if dashboard_loss.is_needed:
                    items.append(scalar_item(DASHBOARD_LOSS, outputs.loss))
                else:
                    dashboard_loss.keep(step, outputs.loss)
                if outputs.loss < self._best_loss:  # a NaN is never the best
                    self._best_loss, self._is_new_best = outputs.loss, True
        if not self._collects_lr:
            return items
        extras: dict[str, float | None] = {"train_info/epoch": float(parameters.get("cur_epoch_num") or 0)}
        rate = outputs.learning_rate
        extras |= self.measuring.rates.at(number) if rate is None else {"lr": rate}
        extras |= {"loss_scale": outputs.loss_scale, "train_info/grad_norm": outputs.grad_norm}
        window = self.measuring.take()
        if window is not None:
            extras |= {"step_time": window.step_time, "samples_per_second": window.samples_per_second}
        extras |= device_memory(mindspore)
        return items + [scalar_item(tag, number) for tag, number in extras.items() if number is not None]

    def histograms(self) -> list[dict[str, Any]]:
        """Returns the parameters' arrays, not copied: they are copied into the shared memory before the next step."""
        items = []
        for parameter in self._parameters:
            array = to_array(parameter.data)
            if array is not None and array.ndim:
                items.append({"tag": f"{parameter.name}/auto", "value": array})
        return items

    def take_best_loss(self) -> float | None:
        """Returns the lowest recorded loss if it is new since the last call, else None."""
        is_new, self._is_new_best = self._is_new_best, False
        return self._best_loss if is_new else None


def scalar_item(tag: str, number: float) -> dict[str, Any]:
    """Returns a scalar in the form in which SummaryRecord hands values over."""
    return {"tag": tag, "value": np.asarray(number)}


def metric_items(name: str, value: Any, warn: Callable[[str, str], None]) -> dict[str, list[dict[str, Any]]]:
    """Returns what is recorded of a metric of an evaluation, by plugin.

    A number is `eval/<name>`. One for each class, as `Recall` gives, is `eval/<name>/<class>`: a mean would hide the
    class that fails. More of them than a page has room for are a histogram.
    """
    tag, array = f"eval/{name}", to_array(value)
    if array is None or not array.size or array.dtype.kind not in "biuf":
        warn(f"metric {name}", f"the metric {name!r} is not a number and is left out")
        return {}
    if array.size == 1:
        return {"scalar": [scalar_item(tag, array.item())]}
    if array.ndim == 1 and array.size <= _MOST_CLASSES:
        return {"scalar": [scalar_item(f"{tag}/{index}", number) for index, number in enumerate(array.tolist())]}
    warn(f"metric {name}", f"the metric {name!r} has the shape {list(array.shape)} and is recorded as a histogram")
    return {"histogram": [{"tag": tag, "value": array}]}


def eval_metrics(parameters: Any) -> dict[str, Any]:
    """Returns the metrics of an evaluation that has ended, and with those of `model.fit` the loss that it adds."""
    return {**(parameters.get("metrics") or {}), **(parameters.get("eval_results") or {})}


def metric_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers among metrics, under the names of their tags but for `eval/`."""
    found = [metric_items(name, value, lambda *_: None).get("scalar", []) for name, value in metrics.items()]
    return {item["tag"].removeprefix("eval/"): float(item["value"].item()) for items in found for item in items}
