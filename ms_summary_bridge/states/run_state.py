"""What a look tells of each run and of each of its ranks, as plain data for tables and programs."""

from __future__ import annotations

from typing import Any

import msgspec

from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.states.judgement import State

__all__ = ["RankState", "RunState"]


class RankState(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a run.

    Attributes:
        rank: Its number.
        state: How it is.
        life: The same without regard to the loss.
        evidence: What that is known by, the strongest first.
        step: The highest; None before there is one.
        loss: The newest value; None where there is none.
        loss_tag: Whose that is.
        loss_step: Its step.
        losses: The last values, oldest first.
        lr: Learning rate.
        rate: How fast it goes.
        rate_unit: In what: `tokens/s`, `samples/s`, `steps/s`.
        memory: MiB of the device, or of the process where there is no device's.
        last_time: Seconds since the epoch, the newest sign of life; 0 for none.
        host: Where it is; empty where nothing says so.
    """

    rank: int
    state: State
    life: State
    evidence: tuple[str, ...]
    step: int | None = None
    loss: float | None = None
    loss_tag: str = ""
    loss_step: int | None = None
    losses: tuple[float, ...] = ()
    lr: float | None = None
    rate: float | None = None
    rate_unit: str = ""
    memory: float | None = None
    last_time: float = 0.0
    host: str = ""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the state of its worst rank, the numbers of the lowest rank that has a loss.

    Attributes:
        name: Path below the source; `.` for the source itself.
        directory: Where it is.
        state: As of a rank, and so `life` and `evidence`.
        main: The rank whose numbers are shown.
        step: The highest of all ranks.
        last_time: The newest sign of life of all ranks.
        ranks: Each of them, by number.
        alarms: Of all ranks, oldest first.
        milestones: `(step, wall_time, text)` of the main rank.
        problems: Files that are damaged, empty or unreadable, each with what is wrong.
        is_partial: Whether one of them is damaged or unreadable.
    """

    name: str
    directory: str
    state: State
    life: State
    evidence: tuple[str, ...]
    main: RankState
    step: int | None
    last_time: float
    ranks: tuple[RankState, ...]
    alarms: tuple[Alert, ...] = ()
    milestones: tuple[tuple[int, float, str], ...] = ()
    problems: tuple[str, ...] = ()
    is_partial: bool = False

    def plain(self) -> dict[str, Any]:
        """Returns it for strict JSON: a number that is not finite becomes its text."""
        shown = msgspec.structs.asdict(self)
        shown["main"] = self.main.rank
        shown["ranks"] = [_plain_rank(rank, ("losses",)) for rank in self.ranks]
        shown["alarms"] = [alarm.plain() for alarm in self.alarms]
        return {**_plain_rank(self.main, ("rank", "host")), **shown}


def _plain_rank(rank: RankState, left_out: tuple[str, ...]) -> dict[str, Any]:
    shown = msgspec.structs.asdict(rank) | {"losses": [_plain(value) for value in rank.losses]}
    return {name: _plain(value) for name, value in shown.items() if name not in left_out}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and value - value != 0 else value
