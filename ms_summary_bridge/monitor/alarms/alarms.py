"""Shows every step and every sample to the rules, and raises an alarm once for what they find.

Imports no mindspore.

Steps are seen by the thread that settles them, one thread at a time; samples by the thread that writes, with rules of
their own. What an alarm does is done by `alarm_sink`; what only the training thread can do, a checkpoint and a
stop, waits here for it.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ms_summary_bridge.monitor.alarms.actions.message import OUTSIDE, STEP_METRICS
from ms_summary_bridge.monitor.alarms.alert_note import alert_note, watchdog_note
from ms_summary_bridge.monitor.alarms.device_rules import is_of_device, memory_limits
from ms_summary_bridge.monitor.alarms.earlier import read_level
from ms_summary_bridge.monitor.alarms.rules.rule import Level, Observation, Rule, make_rule
from ms_summary_bridge.monitor.alarms.stop import StopAgreement
from ms_summary_bridge.monitor.metrics.device import memory_totals
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig, AlertConfig
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts
from ms_summary_bridge.training.faults import Faults

__all__ = ["Alarms", "list_actions"]

_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}
_KEPT: Final = 64  # checkpoints that are remembered


@dataclass(eq=False)
class _Armed:
    """A rule, and when it spoke last of each value."""

    rule: Rule
    config: AlertConfig
    actions: tuple[ActionConfig, ...]
    cool_down: float
    last: dict[str, float] = field(default_factory=dict)
    silent: Counter[str] = field(default_factory=Counter)


class Alarms:
    """The rules of one training.

    `put` takes notes, from either thread.
    """

    def __init__(
        self,
        config: MonitorConfig,
        training: TrainingFacts,
        put: Callable[[Note], None],
        faults: Faults,
        stop: StopAgreement,
    ) -> None:
        self._training = training
        self._put = put
        self._faults = faults
        self.stop = stop
        self.actions = list_actions(config)
        """All that may be done, each once."""
        self.counts: Counter[str] = Counter()
        """How many alarms each rule raised."""
        self.ask: Callable[[], None] | None = None
        """Is called where an alarm asks the training thread for something."""
        self.tell_checkpoint: Callable[[int, str], None] | None = None
        """Is told of each checkpoint as well."""
        self.checkpoint_due: Alert | None = None
        """An alarm whose action `save_checkpoint` waits for the training thread."""
        self._checkpoints: list[tuple[int, str]] = []
        self._session_steps = 0
        self._limits = memory_limits(training)
        self._steps: list[_Armed] = []
        self._samples: list[_Armed] = []
        self._seen: set[str] = set()
        for alert in config.alerts:
            self._arm(alert, config)

    def _arm(self, alert: AlertConfig, config: MonitorConfig) -> None:
        params = dict(alert.params)
        if alert.rule == "memory_trend":
            params["limits"] = self._limits
        actions = config.alert_actions if alert.actions is None else alert.actions
        cool_down = config.callback.cool_down if alert.cool_down is None else alert.cool_down
        try:
            metrics = make_rule(alert.rule, params).metrics
            for rules, is_of_steps in ((self._steps, True), (self._samples, False)):
                if any((name in STEP_METRICS) == is_of_steps for name in metrics):
                    rules.append(_Armed(make_rule(alert.rule, params), alert, actions, cool_down))
        except Exception as error:
            self._faults.warn(f"rule {alert.rule}", f"the rule {alert.rule} is left out: {error!r}")

    def says_nonfinite(self) -> frozenset[str]:
        """Returns the metrics of which NaN and infinity are an alarm."""
        found = [name for armed in self._steps if armed.rule.name == "nonfinite" for name in armed.rule.metrics]
        return frozenset(found)

    def find_blind(self, waiting: Collection[str]) -> tuple[dict[str, list[str]], set[str]]:
        """Returns the rules none of whose metrics was ever seen, or is waited for, under the first of them.

        And those of the metrics for which somebody named such a rule, or which are figures of the training's device.
        That a CPU has no figures of its own is nothing to tell of a rule which nobody named.
        """
        on_cpu = self._training.device.startswith("CPU")
        found: dict[str, dict[str, None]] = {}
        expected = set()
        for armed in (*self._steps, *self._samples):
            metrics = armed.rule.metrics
            of_device = all(is_of_device(name) for name in metrics)
            is_usual = on_cpu and armed.config.is_default and of_device
            if not is_usual and not self._seen.union(waiting).intersection(metrics):
                found.setdefault(metrics[0], {})[armed.rule.name] = None
                if of_device or not armed.config.is_default:
                    expected.add(metrics[0])
        return {metric: list(rules) for metric, rules in found.items()}, expected

    def recall(self, directory: str) -> None:
        """Learns from the journal in a rank's directory what the run had reached before, on the thread that writes."""
        levels: dict[str, Level | None] = {}
        for armed in (*self._steps, *self._samples):
            if type(armed.rule).recall is Rule.recall:
                continue
            metric = armed.rule.metrics[0]
            if metric not in levels:
                levels[metric] = read_level(directory, metric, initial_step=self._training.initial_step)
            if (level := levels[metric]) is not None:
                armed.rule.recall(level)

    # ------------------------------------------------------------------ what is seen

    def observe_step(self, facts: StepFacts, given: Mapping[str, float], monotonic: float, wall_time: float) -> None:
        """Takes one step, on the thread that settles it."""
        self._session_steps += facts.steps
        if not self._steps:
            return
        values = dict(given)
        for name in STEP_METRICS:
            if (value := getattr(facts, name)) is not None:
                values[name] = float(value)
        if self._training.lacks_loss:
            values.pop("loss", None)
        self._seen.update(values)
        point = Observation(
            facts.step, values, monotonic, wall_time, facts.steps, facts.epoch, self._training.rank, facts.overflow
        )
        self._show(self._steps, point)

    def observe_sample(self, sample: Sample) -> None:
        """Takes one sample, on the thread that writes."""
        if not self._samples or sample.of_all:
            return
        values = {name: value for name, value in sample.values.items() if name not in STEP_METRICS}
        self._seen.update(values)
        if "npu_memory" in values or "gpu_memory" in values:
            totals = memory_totals()
            self._limits.update(totals)
            if totals and not self._training.device.startswith("CPU"):
                self._limits["memory_usage"] = min(totals.values())
        point = Observation(
            sample.step,
            values,
            sample.monotonic,
            sample.wall_time,
            sample.interval_steps,
            sample.epoch,
            self._training.rank,
        )
        self._show(self._samples, point)

    def _show(self, rules: list[_Armed], point: Observation) -> None:
        failed = []
        for armed in rules:
            try:
                alert = armed.rule.observe(point)
            except Exception as error:
                failed.append(armed)
                self._faults.warn(f"rule {armed.rule.name}", f"the rule {armed.rule.name} is left out: {error!r}")
                continue
            if alert is not None:
                self._consider(armed, alert, point.monotonic)
        for armed in failed:
            rules.remove(armed)

    def _consider(self, armed: _Armed, alert: Alert, now: float) -> None:
        if armed.config.after_steps and self._session_steps <= armed.config.after_steps:
            return
        last = armed.last.get(alert.metric)
        if last is not None and now - last < armed.cool_down:
            armed.silent[alert.metric] += 1
            return
        armed.last[alert.metric] = now
        self.raise_alarm(alert, armed.actions, silent=armed.silent.pop(alert.metric, 0))

    # ------------------------------------------------------------------ what is raised

    def take(self, alert: Alert, titles: Sequence[str]) -> None:
        """Takes an alarm of the watchdog, which has told the console and done its actions itself."""
        if alert.severity != "info":
            self.counts[alert.rule] += 1
        self._put(watchdog_note(alert, ranks=self._training.ranks, count=self.counts[alert.rule], titles=titles))

    def note_checkpoint(self, step: int, path: str) -> None:
        """Learns of a checkpoint that was saved after a step."""
        self._checkpoints.append((step, path))
        if self.tell_checkpoint is not None:
            self.tell_checkpoint(step, path)
        del self._checkpoints[:-_KEPT]

    def raise_test(self, step: int, wall_time: float) -> None:
        """Raises an alarm about nothing, with every action of the configuration."""
        test = Alert(
            rule="test",
            step=step,
            rank=self._training.rank,
            wall_time=wall_time,
            severity="info",
            message="this is a test of the alarms: nothing is wrong",
        )
        self.raise_alarm(test, self.actions)

    def raise_alarm(self, alert: Alert, actions: tuple[ActionConfig, ...], *, silent: int = 0) -> None:
        """Raises an alarm, whatever its rule and the cool-down say.

        `silent` is how often it would have been raised since the last time.
        """
        kinds = [action.kind for action in actions]
        self.counts[alert.rule] += 1
        good = [saved for saved in self._checkpoints if saved[0] < alert.first_step and os.path.exists(saved[1])]
        note = alert_note(
            alert,
            ranks=self._training.ranks,
            count=self.counts[alert.rule],
            titles=[action.title for action in actions],
            silent=silent,
            stops="stop" in kinds,
            checkpoint=max(good, default=None),
        )
        note.level = _LEVELS[alert.severity] if "log" in kinds or "stop" in kinds else None
        note.actions = actions
        self._put(note)
        if "save_checkpoint" in kinds:
            self.checkpoint_due = alert
        if "stop" in kinds:
            self.stop.ask(f"{alert.rule}: {alert.message}")
        if self.ask is not None and (self.stop.is_asked or self.checkpoint_due is not None):
            self.ask()


def list_actions(config: MonitorConfig) -> tuple[ActionConfig, ...]:
    """Returns every action of a configuration, each once."""
    watchdog = config.watchdog
    actions = [*config.alert_actions, *(action for alert in config.alerts for action in alert.actions or ())]
    # The watchdog, which is another process, does these alone.
    actions += [action for action in watchdog.actions or () if watchdog.enable and action.kind in OUTSIDE]
    return tuple(dict.fromkeys(actions))
