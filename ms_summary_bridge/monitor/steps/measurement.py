"""What the metrics measure between two samples: values, and their least, mean and greatest."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from ms_summary_bridge.monitor.metrics import Metric, make_metric
from ms_summary_bridge.monitor.model.config import MetricConfig
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window
from ms_summary_bridge.training.faults import Faults

__all__ = ["OWN_NAMES", "Check", "Measurement"]

Check = Callable[[str, str, float], None]
"""Is told of a value to compare with its limits: metric, name of the value, value."""

OWN_NAMES = ("loss", "lr", "grad_norm", "loss_scale", "local_loss")
"""Numbers of a step that have metrics of ours; others that a loop hands over are shown as they are."""


class _Slot:
    """One metric, and its numbers since the last sample."""

    def __init__(self, config: MetricConfig, metric: Metric) -> None:
        self.name = config.name
        self.metric = metric
        self.first = config.from_step
        self.last = math.inf if config.to_step is None else config.to_step
        self.observes = type(metric).observe is not Metric.observe
        self.samples = type(metric).sample is not Metric.sample
        self.taken = 0
        self.is_fed = False  # whether there ever was a number
        self.clear()

    def clear(self) -> None:
        self.value: float | None = None
        self.count = 0
        self.total = 0.0
        self.low = math.inf
        self.high = -math.inf
        self.nonfinite = 0

    def add(self, value: float) -> None:
        self.value = value
        self.is_fed = True
        if not math.isfinite(value):
            self.nonfinite += 1
            return
        self.count += 1
        self.total += value
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value


class Measurement:
    """Asks metrics, at every step and at every sample. One that fails is left out from then on.

    `check` is told of every value: of each step where a step has its own number, else of each sample. Values of metrics
    that the writing thread samples come from that thread.
    """

    def __init__(self, configs: Iterable[MetricConfig], training: TrainingFacts, faults: Faults, check: Check) -> None:
        self._faults = faults
        self._check = check
        self._slots: list[_Slot] = []
        self._given: dict[str, _Slot] = {}
        for config in configs:
            try:
                metric = make_metric(config.name)
                metric.begin(training)
            except Exception as error:  # a class of the user's own
                faults.warn(f"metric {config.name}", f"{config.name} is not measured: {error!r}")
                continue
            self._slots.append(_Slot(config, metric))
        self._silent = list(self._slots)  # without a number so far

    @property
    def is_bound(self) -> bool:
        """Whether a metric's sample must be taken by the training thread."""
        return any(slot.samples and not (slot.metric.off_thread or slot.metric.anywhere) for slot in self._slots)

    def is_at_once(self, limits: Container[str]) -> bool:
        """Whether every step must be observed before the next one runs, by metrics or their `limits`.

        The limit of the loss is looked at by `StepTap`.
        """
        return any(
            slot.metric.at_once or (slot.observes and not slot.samples and slot.name != "loss" and slot.name in limits)
            for slot in self._slots
        )

    def observe(self, facts: StepFacts, given: Mapping[str, float]) -> None:
        """Takes one step, and the numbers that a training loop handed over by name."""
        step = facts.step
        for slot in self._slots:
            if not slot.observes or not slot.first <= step <= slot.last:
                continue
            try:
                value = slot.metric.observe(facts)
                number = None if value is None else float(value)  # a class of the user's own returns what it likes
            except Exception as error:
                self._drop(slot, error)
                continue
            if number is not None:
                self._add(slot, number, facts)
        for name, value in given.items():
            if name not in OWN_NAMES:
                self._add(self._slot_given(name), value, facts)

    def _slot_given(self, name: str) -> _Slot:
        slot = self._given.get(name)
        if slot is None:
            slot = self._given[name] = _Slot(MetricConfig(name=name), Metric())
            slot.observes = True
        return slot

    def _add(self, slot: _Slot, value: float, facts: StepFacts) -> None:
        slot.add(value)
        if not slot.samples and not facts.overflow:  # a skipped step's numbers are no alarm
            self._check(slot.name, slot.name, value)

    def _drop(self, slot: _Slot, error: Exception) -> None:
        self._slots = [other for other in self._slots if other is not slot]
        slot.is_fed = True  # what it lacks is said here
        self._faults.warn(f"metric {slot.name}", f"{slot.name} cannot be measured and is left out: {error!r}")

    def take(self, sample: Sample, window: Window) -> None:
        """Puts the values into a sample, and begins the next interval."""
        for slot in (*self._slots, *self._given.values()):
            if slot.first <= sample.step <= slot.last:
                slot.taken += 1
                self._fill(sample, slot, window)
            slot.clear()

    def _fill(self, sample: Sample, slot: _Slot, window: Window) -> None:
        name = slot.name
        if slot.count:
            sample.low[name], sample.high[name] = slot.low, slot.high
            sample.mean[name] = slot.total / slot.count
        if slot.nonfinite:
            sample.nonfinite_steps[name] = slot.nonfinite
        if not slot.samples:
            if slot.value is not None:
                sample.values[name] = slot.value
        elif slot.metric.off_thread:
            sample.pending.append((name, lambda: dict(self._sampled(slot, window))))
        else:
            try:
                for key, number in self._sampled(slot, window):
                    sample.values[key] = number
                    if key in sample.mean:  # of a rate the mean over the steps is not the rate of the interval
                        sample.mean[key] = number
            except Exception as error:
                self._drop(slot, error)

    def _sampled(self, slot: _Slot, window: Window) -> Iterator[tuple[str, float]]:
        value = slot.metric.sample(window)
        if value is None:
            return
        for key, number in value.items() if isinstance(value, Mapping) else ((slot.name, value),):
            slot.is_fed = True
            yield key, float(number)
            self._check(slot.name, key, float(number))

    def find_unfed(self, samples: int) -> tuple[list[str], list[str]]:
        """Returns the metrics that had no number in so many samples, and those whose first one may still come."""
        self._silent = [slot for slot in self._silent if not slot.is_fed]
        waiting = [slot.name for slot in self._silent if slot.metric.is_waiting()]
        return [slot.name for slot in self._silent if slot.taken >= samples and slot.name not in waiting], waiting

    def say_needs(self) -> dict[str, str]:
        """Returns what the metrics without a number take in this training, of those that know it."""
        return {slot.name: slot.metric.say_needs() for slot in self._silent}

    def close(self) -> None:
        """Lets go of all metrics."""
        for slot in self._slots:
            try:
                slot.metric.close()
            except Exception as error:
                self._faults.warn(f"close {slot.name}", f"{slot.name} cannot be closed: {error!r}")
        self._slots = []
