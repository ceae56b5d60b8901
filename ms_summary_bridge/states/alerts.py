"""Alerts of a watch: a run that stalls, fails or loses its loss, and each alarm of a monitor; each is new once."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import msgspec

from ms_summary_bridge.diagnose.finding import name_ranks
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.states.judgement import State
from ms_summary_bridge.states.run_state import RunState

__all__ = ["NewAlerts", "RunAlert", "find_alerts", "fold_alerts"]

_ADVICE: Final[dict[State, str]] = {
    "non-finite": "the weights are most likely lost from that step on: go back to a checkpoint before it",
    "failed": "look at the console's last lines of that rank, and at its last checkpoint",
    "stalled": "look at the stacks and at what the process waits for; the ranks of a run wait for the one that stalls",
}


class RunAlert(msgspec.Struct, frozen=True):
    """An alert, and the run that it is of."""

    run: RunState
    alert: Alert

    @property
    def key(self) -> Hashable:
        """What it is known by: of a state there is one while it lasts."""
        alert = self.alert
        if alert.rule in _ADVICE:
            return self.run.name, alert.rule
        return self.run.name, alert.rule, alert.rank, alert.step, alert.wall_time


def find_alerts(runs: Sequence[RunState], since: float = 0.0) -> Iterator[RunAlert]:
    """Yields the alerts of runs.

    Args:
        runs: As a look found them.
        since: Seconds since the epoch; older alarms are left out.
    """
    for run in runs:
        if run.state in _ADVICE:
            bad = [rank for rank in run.ranks if rank.state == run.state]
            first = min(bad, key=lambda rank: (rank.last_time, rank.rank), default=run.main)
            yield RunAlert(
                run,
                Alert(
                    rule=run.state,
                    metric=first.loss_tag if run.state == "non-finite" else "",
                    value=first.loss if run.state == "non-finite" else None,
                    step=first.step or 0,
                    rank=first.rank,
                    wall_time=first.last_time,
                    severity="critical",
                    message="; ".join(run.evidence),
                    advice=_ADVICE[run.state],
                ),
            )
        for alarm in run.alarms:
            if alarm.wall_time >= since:
                yield RunAlert(run, alarm)


def fold_alerts(alerts: Sequence[Alert]) -> list[tuple[float, str]]:
    """Returns `(wall_time, headline)` of the alerts of one run: one for all ranks to which the same befell at one step.

    Ranks rarely agree to the last digit, so messages are compared without numbers; shown is that of the first.
    """
    folded: list[dict[int, Alert]] = []
    newest: dict[Hashable, dict[int, Alert]] = {}
    for one in alerts:
        key = one.severity, one.rule, one.metric, one.step, one.epoch, re.sub(r"\d+", "", one.message)
        if key not in newest or one.rank in newest[key]:  # which has befallen a rank again
            newest[key] = {}
            folded.append(newest[key])
        newest[key][one.rank] = one
    firsts = [(next(iter(by_rank.values())), name_ranks(list(by_rank))) for by_rank in folded]
    return [(first.wall_time, first.headline(ranks)) for first, ranks in firsts]


class NewAlerts:
    """Tells which alerts were not there at the look before."""

    def __init__(self) -> None:
        self._known: set[Hashable] = set()

    def take(self, alerts: Sequence[RunAlert]) -> list[RunAlert]:
        """Returns the new ones; what has passed may come again."""
        new = [one for one in alerts if one.key not in self._known]
        self._known = {one.key for one in alerts}
        return new
