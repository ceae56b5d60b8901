"""Shows every step and every sample to the rules, and raises an alarm once for what they find.

Imports no mindspore.

Steps are seen by the thread that settles them, one thread at a time; samples by the thread that writes, with rules of
their own. What an alarm does is done by `alarm_sink`; what only the training thread can do, a checkpoint and a
stop, waits here for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.alarms.actions.message import OUTSIDE
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

__all__ = ["Alarms", "AlertNote", "alert_note", "describe_checkpoint", "list_actions", "watchdog_note"]

_OF_STEPS: Final = ("loss", "grad_norm", "loss_scale", "overflow", "step_time", "data_time")
"""What is known of every step, whether it is measured or not."""

_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.CRITICAL}
_WIDTH: Final = 78
_KEPT: Final = 64  # checkpoints that are remembered


class AlertNote(Note, kw_only=True):
    """An alarm on its way to the sinks.

    `actions` is what is to be done. `checkpoint` is step and path of the last checkpoint from before it; None for none
    that is known.
    """

    alert: Alert
    actions: tuple[ActionConfig, ...] = ()
    checkpoint: tuple[int, str] | None = None


class _Armed:
    """A rule, and when it spoke last of each value."""

    def __init__(self, rule: Rule, config: AlertConfig, actions: tuple[ActionConfig, ...], cool_down: float) -> None:
        self.rule = rule
        self.after_steps = config.after_steps
        self.is_default = not config.params
        self.actions = actions
        self.cool_down = cool_down
        self.last: dict[str, float] = {}
        self.silent: dict[str, int] = {}


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
        self.counts: dict[str, int] = {}
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
            if any(name in _OF_STEPS for name in metrics):
                self._steps.append(_Armed(make_rule(alert.rule, params), alert, actions, cool_down))
            if any(name not in _OF_STEPS for name in metrics):
                self._samples.append(_Armed(make_rule(alert.rule, params), alert, actions, cool_down))
        except Exception as error:
            self._faults.warn(f"rule {alert.rule}", f"the rule {alert.rule} is left out: {error!r}")

    def says_nonfinite(self) -> frozenset[str]:
        """Returns the metrics of which NaN and infinity are an alarm."""
        found = [name for armed in self._steps if armed.rule.name == "nonfinite" for name in armed.rule.metrics]
        return frozenset(found)

    def find_blind(self, waiting: Collection[str]) -> dict[str, list[str]]:
        """Returns the rules none of whose metrics was ever seen, or is waited for, under the first of them.

        That a CPU has no figures of its own is nothing to tell of a rule which nobody wrote down.
        """
        on_cpu = self._training.device.startswith("CPU")
        found: dict[str, list[str]] = {}
        for armed in dict.fromkeys((*self._steps, *self._samples)):
            metrics = armed.rule.metrics
            is_told = not (on_cpu and armed.is_default and all(is_of_device(name) for name in metrics))
            if is_told and not self._seen.union(waiting).intersection(metrics):
                rules = found.setdefault(metrics[0], [])
                rules += [armed.rule.name] if armed.rule.name not in rules else []
        return found

    def recall(self, directory: str) -> None:
        """Learns from the journal in a rank's directory what the run had reached before, on the thread that writes."""
        known: dict[str, Level | None] = {}
        for armed in (*self._steps, *self._samples):
            if type(armed.rule).recall is Rule.recall:
                continue
            metric = armed.rule.metrics[0]
            if metric not in known:
                known[metric] = read_level(directory, metric, initial_step=self._training.initial_step)
            level = known[metric]
            if level is not None:
                armed.rule.recall(level)

    # ------------------------------------------------------------------ what is seen

    def observe_step(self, facts: StepFacts, given: Mapping[str, float], monotonic: float, wall_time: float) -> None:
        """Takes one step, on the thread that settles it."""
        self._session_steps += facts.steps
        if not self._steps:
            return
        of_step = {
            "loss": facts.loss,
            "grad_norm": facts.grad_norm,
            "loss_scale": facts.loss_scale,
            "step_time": facts.step_time,
            "data_time": facts.data_time,
            "overflow": None if facts.overflow is None else float(facts.overflow),
        }
        values = {**given, **{name: value for name, value in of_step.items() if value is not None}}
        self._seen.update(values)
        point = Observation(
            facts.step, values, monotonic, wall_time, facts.steps, facts.epoch, self._training.rank, facts.overflow
        )
        self._show(self._steps, point)

    def observe_sample(self, sample: Sample) -> None:
        """Takes one sample, on the thread that writes."""
        if not self._samples:
            return
        values = {name: value for name, value in sample.values.items() if name not in _OF_STEPS}
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
        if armed.after_steps and self._session_steps <= armed.after_steps:
            return
        last = armed.last.get(alert.metric)
        if last is not None and now - last < armed.cool_down:
            armed.silent[alert.metric] = armed.silent.get(alert.metric, 0) + 1
            return
        armed.last[alert.metric] = now
        self.raise_alarm(alert, armed.actions, silent=armed.silent.pop(alert.metric, 0))

    # ------------------------------------------------------------------ what is raised

    def _count(self, alert: Alert) -> int:
        count = self.counts[alert.rule] = self.counts.get(alert.rule, 0) + 1
        return count

    def take(self, alert: Alert, titles: Sequence[str]) -> None:
        """Takes an alarm of the watchdog, which has told the console and done its actions itself."""
        count = 0 if alert.severity == "info" else self._count(alert)
        self._put(watchdog_note(alert, ranks=self._training.ranks, count=count, titles=titles))

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
        good = [saved for saved in self._checkpoints if saved[0] < alert.first_step and os.path.exists(saved[1])]
        note = alert_note(
            alert,
            ranks=self._training.ranks,
            count=self._count(alert),
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


def alert_note(
    alert: Alert,
    *,
    ranks: int,
    count: int,
    titles: Sequence[str],
    silent: int = 0,
    stops: bool = False,
    checkpoint: tuple[int, str] | None = None,
) -> AlertNote:
    """Returns an alarm as all sinks take it; there is nothing to be done for it, and the console does not say it.

    `count` is how many of its rule there were, with this one; `silent` how often it would have been raised since the
    last. `stops` is whether it ends the training, and `checkpoint` the last one from before it.
    """
    fields: dict[str, Any] = {**msgspec.structs.asdict(alert), "fields": alert.plain()["fields"]}
    for name in ("step", "wall_time", "rank"):  # every line of a journal has these
        del fields[name]
    fields |= {"since_step": alert.first_step, "actions": list(titles), "count": count, "silent": silent}
    return AlertNote(
        kind="alert",
        step=alert.step,
        wall_time=alert.wall_time,
        text=_describe(alert, ranks, silent, stops, checkpoint),
        fields=fields,
        level=None,
        alert=alert,
        checkpoint=checkpoint,
    )


def watchdog_note(alert: Alert, *, ranks: int, count: int, titles: Sequence[str]) -> Note:
    """Returns an alarm of the watchdog as all sinks take it, or that one is over; arguments as `alert_note`."""
    if alert.severity == "info":
        return Note(kind="milestone", step=alert.step, wall_time=alert.wall_time, text=alert.message, level=None)
    return alert_note(alert, ranks=ranks, count=count, titles=titles)


def list_actions(config: MonitorConfig) -> tuple[ActionConfig, ...]:
    """Returns every action of a configuration, each once."""
    watchdog = config.watchdog
    actions = [*config.alert_actions, *(action for alert in config.alerts for action in alert.actions or ())]
    # The watchdog, which is another process, does these alone.
    actions += [action for action in watchdog.actions or () if watchdog.enable and action.kind in OUTSIDE]
    return tuple(dict.fromkeys(actions))


def _describe(alert: Alert, ranks: int, silent: int, stops: bool, checkpoint: tuple[int, str] | None) -> str:
    title = f" ALARM: {alert.rule} "
    place = f"step {alert.step}" + (f", epoch {alert.epoch}" if alert.epoch is not None else "")
    place += f", rank {alert.rank}" if ranks > 1 else ""
    lines = [title.center(_WIDTH, "="), f"{place}: {alert.message}"]
    lines += [alert.advice] if alert.advice else []
    lines += [f"{silent} more since the last alarm"] if silent else []
    if stops:
        lines.append("the training is stopped; " + describe_checkpoint(checkpoint))
    return "\n".join([*lines, "=" * _WIDTH])


def describe_checkpoint(checkpoint: tuple[int, str] | None) -> str:
    """Returns the last good checkpoint in words."""
    if checkpoint is None:
        return "no checkpoint from before it is known"
    return f"the last checkpoint from before it is of step {checkpoint[0]}: {checkpoint[1]}"
