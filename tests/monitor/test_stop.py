"""Ranks that agree to stop after the same step: with threads whose collective is a barrier, and by hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ms_summary_bridge.monitor.alarms.stop import StopAgreement, Verdict


def test_one_rank_stops_at_once(tmp_path: Path) -> None:
    stop = StopAgreement(0, 1, 60.0)
    stop.open(str(tmp_path))
    assert stop.poll(1) == "go"
    stop.ask("nonfinite: loss is NaN")
    assert stop.poll(2) == "stop"
    assert stop.reason == "nonfinite: loss is NaN"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("asking", [[2], [0, 1, 2, 3]])
def test_all_ranks_stop_after_the_same_step(tmp_path: Path, asking: list[int]) -> None:
    """B26: a NaN on one rank alone, or on all. No rank is left in the collective of another step."""
    ranks = 4
    collective = threading.Barrier(ranks)
    stopped: dict[int, tuple[int, str, int]] = {}
    failed: list[BaseException] = []

    def train(rank: int) -> None:
        try:
            stop = StopAgreement(rank, ranks, 30.0)
            collective.wait(30)
            stop.open(str(tmp_path))
            for step in range(1, 1_000_000):
                collective.wait(30)
                if step == 5 and rank in asking:
                    stop.ask("nonfinite: loss is NaN")
                if stop.poll(step) == "stop":
                    stopped[rank] = (step, stop.reason, stop.proposer)
                    return
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=train, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert sorted(stopped) == [0, 1, 2, 3]
    assert len(set(stopped.values())) == 1
    step, reason, proposer = stopped[0]
    assert step > 5
    assert reason == "nonfinite: loss is NaN"
    assert proposer in asking


class Clock:
    """Seconds that pass when somebody sleeps; `then` is what happens meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept = 0.0
        self.then: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, secs: float) -> None:
        self.now += secs
        self.slept += secs
        self.then()


def two_ranks(directory: Path, clock: Clock, patience: float = 60.0) -> tuple[StopAgreement, StopAgreement]:
    first, second = (
        StopAgreement(rank, 2, patience, clock=clock, wall_clock=clock, sleep=clock.sleep) for rank in (0, 1)
    )
    first.open(str(directory))
    second.open(str(directory))
    return first, second


def step_until(stop: StopAgreement, clock: Clock, first: int, last: int) -> list[Verdict]:
    """Polls after each step of half a second."""
    verdicts = []
    for step in range(first, last + 1):
        clock.now += 0.5
        verdicts.append(stop.poll(step))
    return verdicts


def target_of(directory: Path, attempt: int) -> int:
    return int(json.loads((directory / ".stop" / f"proposal-{attempt}.json").read_text())["step"])


def test_a_rank_that_saw_it_too_late_makes_all_go_on_to_a_later_step(tmp_path: Path) -> None:
    clock = Clock()
    asking, late = two_ranks(tmp_path, clock)
    asking.ask("spike")
    assert step_until(asking, clock, 1, 2) == ["go", "go"]  # the first to learn how long a step takes
    target = target_of(tmp_path, 1)
    assert target == 4
    step_until(asking, clock, 3, target - 1)
    seen: list[Verdict] = []

    def other_goes_past() -> None:
        if not seen:
            seen.append(late.poll(target + 1))

    clock.then = other_goes_past
    assert asking.poll(target) == "go"
    assert seen == ["go"]
    assert clock.slept < 1
    clock.then = lambda: None
    assert asking.poll(target + 1) == "go"
    farther = target_of(tmp_path, 2)
    assert farther >= target + 1 + 8
    assert late.poll(target + 2) == "go"
    clock.then = lambda: None
    assert late.poll(farther) == "stop"
    assert asking.poll(farther) == "stop"
    assert (late.reason, late.proposer) == ("spike", 0)


def test_a_rank_that_does_not_answer_is_waited_for_and_then_left(tmp_path: Path) -> None:
    clock = Clock()
    asking, _ = two_ranks(tmp_path, clock, patience=10.0)
    asking.ask("spike")
    step_until(asking, clock, 1, 3)
    assert asking.poll(target_of(tmp_path, 1)) == "go"  # the other may be in a collective, waiting for this one
    assert clock.slept == pytest.approx(10.0, abs=0.1)
    asking.poll(5)
    assert asking.poll(target_of(tmp_path, 2)) == "leave"
    assert clock.slept == pytest.approx(20.0, abs=0.1)


def test_a_rank_without_a_reason_never_leaves(tmp_path: Path) -> None:
    clock = Clock()
    asking, other = two_ranks(tmp_path, clock, patience=10.0)
    asking.ask("spike")
    step_until(asking, clock, 1, 2)
    (tmp_path / ".stop" / "ack-1-0.json").unlink()  # as if the one that asked were gone
    for step in range(1, 50):
        clock.now += 0.5
        assert other.poll(step) == "go"
    assert clock.slept == pytest.approx(10.0, abs=0.1)


def test_what_an_earlier_session_left_stops_nobody(tmp_path: Path) -> None:
    clock = Clock()
    directory = tmp_path / ".stop"
    directory.mkdir()
    old = {"step": 5, "rank": 1, "reason": "old", "wall_time": clock.now - 3600}

    def leave_files() -> None:
        directory.mkdir(exist_ok=True)
        (directory / "proposal-1.json").write_text(json.dumps(old))
        for rank in (0, 1):
            (directory / f"ack-1-{rank}.json").write_text(json.dumps({"step": 3}))

    leave_files()
    first, second = two_ranks(tmp_path, clock)
    assert not list(directory.glob("proposal-*"))
    leave_files()  # even if rank 0 came too late to remove them
    for step in range(1, 20):
        clock.now += 0.5
        assert first.poll(step) == second.poll(step) == "go"
    assert clock.slept == 0.0


def test_where_no_file_can_be_written_the_rank_leaves_after_its_patience(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "file").write_text("")
    first, _ = two_ranks(tmp_path / "file", clock, patience=5.0)
    first.ask("spike")
    assert step_until(first, clock, 1, 11) == ["go"] * 10 + ["leave"]
