"""Limits of the watchdog where several ranks train on Ascend, whose HCCL ends a rank that waits too long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.monitor.model.config import WatchdogConfig
from ms_summary_bridge.monitor.watchdog import watchdog_link
from ms_summary_bridge.monitor.watchdog.collective_limits import exec_timeout, find_collective_advice
from ms_summary_bridge.monitor.watchdog.hang_limits import Near
from ms_summary_bridge.monitor.watchdog.hang_report import describe_near
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat
from ms_summary_bridge.training.distributed import ProcessRank
from tests.monitor.test_watchdog import Timeline

HCCL = 1836.0


class OnAscend(Timeline):
    """One of several ranks on Ascend, whose first step is behind it."""

    def __init__(self, *, secs: float = HCCL, **config: Any) -> None:
        super().__init__(WatchdogConfig(**config))
        self.detector.collective_secs = secs
        self.phase("compile").go(10).end_step().steps(10, 1)
        self.begun = self.now - 1000

    @property
    def nears(self) -> list[tuple[float, str]]:
        """When something neared what a collective allows, in seconds of its phase, and what."""
        return [(at - self.begun, event.beat.phase) for at, event in self.events if isinstance(event, Near)]


@pytest.mark.parametrize("phase", ["evaluation", "checkpoint", "callbacks", "other"])
def test_what_one_rank_does_is_told_before_and_called_a_hang_below(phase: str) -> None:
    training = OnAscend()
    training.phase(phase).go(1800)
    assert training.nears == [(math.floor(0.75 * HCCL) + 1, phase)], "once"
    ((at, hung, _),) = training.hangs
    assert (hung, at - training.begun) == (phase, math.floor(0.9 * HCCL) + 1)
    assert training.nears[0][0] < at - training.begun < HCCL


def test_a_compile_is_told_before() -> None:
    training = Timeline(WatchdogConfig())
    training.detector.collective_secs = HCCL
    training.phase("compile").go(1800)
    near, hang = (at for at, _ in training.events)
    assert isinstance(training.events[0][1], Near)
    assert near == math.floor(0.75 * HCCL) + 1
    assert near < hang == math.floor(0.9 * HCCL) + 1 < HCCL


def test_a_step_that_waits_for_a_lost_rank_is_a_hang_below() -> None:
    training = OnAscend()
    training.steps(40, 250)  # ten times the median would be beyond
    begun = training.now - 1000
    training.phase("compute").go(2000)
    assert [(at - begun, phase) for at, phase, _ in training.hangs] == [(math.floor(0.9 * HCCL) + 1, "compute")]
    assert training.nears == [], "it waits itself"


def test_a_sink_of_many_steps_may_take_longer() -> None:
    training = Timeline(WatchdogConfig())
    training.detector.collective_secs = HCCL
    training.phase("compile").go(1600).end_step().steps(8, 1550)
    assert training.phase("compute").go(3000).hangs == [], "each of its steps has its own time"


def test_what_has_gone_well_may_take_twice_as_long() -> None:
    training = OnAscend()
    training.phase("evaluation").go(1500).phase("data").steps(1, 1)
    assert training.hangs == []
    training.phase("evaluation").go(2900)
    assert training.hangs == [], "where all evaluate, nobody waits"
    assert len(training.nears) == 2


def test_limits_of_the_users_own_are_kept() -> None:
    training = OnAscend(evaluation_limit=5000)
    training.phase("evaluation").go(4900)
    assert training.hangs == []
    assert len(training.nears) == 1


def test_nothing_is_killed_that_may_wait_for_nobody() -> None:
    training = OnAscend(action="kill")
    training.phase("evaluation").go(3500)
    assert training.hangs == []
    assert len(training.nears) == 1
    training.phase("data").steps(1, 1).phase("compute").go(2000)
    assert [phase for _, phase, _ in training.hangs] == ["compute"]


@pytest.mark.parametrize("secs", [math.inf, 100_000.0])
def test_without_hccl_nothing_changes(secs: float) -> None:
    training = OnAscend(secs=secs)
    training.phase("evaluation").go(3590)
    assert training.events == []


@pytest.mark.parametrize(
    ("text", "secs"), [(None, HCCL), ("", HCCL), ("600", 600.0), ("0", math.inf), ("soon", HCCL), ("-5", HCCL)]
)
def test_what_the_variable_says(text: str | None, secs: float) -> None:
    assert exec_timeout({} if text is None else {"HCCL_EXEC_TIMEOUT": text}) == secs


def test_only_several_ranks_on_ascend_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HCCL_EXEC_TIMEOUT", raising=False)
    told = [
        watchdog_link._begun(ProcessRank(ranks=ranks, device=device)).collective_secs
        for ranks, device in ((8, "Ascend"), (1, "Ascend"), (8, "GPU"), (8, "CPU"))
    ]
    assert told == [HCCL, None, None, None]
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "0")
    assert watchdog_link._begun(ProcessRank(ranks=8, device="Ascend")).collective_secs is None


def test_the_warning_says_what_to_do() -> None:
    alert = describe_near(Near(Beat(9, 9, 1, "evaluation", 0.0), 1377.4, HCCL), 3, 7)
    assert alert.headline() == (
        "WARNING hang: step 9, epoch 1, rank 3: evaluating for 1377 s: ranks that wait for this one are ended "
        "after 1836 s"
    )
    assert "HCCL_EXEC_TIMEOUT=3672" in alert.advice


@pytest.mark.parametrize(
    ("config", "environment", "notes"),
    [
        ({}, {}, []),
        ({}, {"HCCL_EXEC_TIMEOUT": "1800", "HCCL_CONNECT_TIMEOUT": "600"}, []),
        ({"evaluation_limit": 1800}, {}, []),
        ({"evaluation_limit": 7200}, {"HCCL_EXEC_TIMEOUT": "9000"}, []),
        ({"evaluation_limit": 7200}, {}, ["watchdog.evaluation_limit: 7200 s is not below HCCL_EXEC_TIMEOUT, 1836 s"]),
        (
            {"floor": 700, "checkpoint_limit": 900},
            {"HCCL_EXEC_TIMEOUT": "600"},
            ["watchdog.floor: 700 s", "watchdog.checkpoint_limit: 900 s"],
        ),
        ({}, {"HCCL_EXEC_TIMEOUT": "0"}, ["HCCL_EXEC_TIMEOUT=0: on Ascend a rank waits for ever"]),
        ({}, {"HCCL_CONNECT_TIMEOUT": "soon"}, ["HCCL_CONNECT_TIMEOUT='soon' is not a number of seconds"]),
        (
            {"compile_limit": 600},
            {"HCCL_CONNECT_TIMEOUT": "7200"},
            ["watchdog.compile_limit: 600 s is below HCCL_CONNECT_TIMEOUT, 7200 s"],
        ),
    ],
)
def test_what_does_not_go_together_is_noted(
    config: dict[str, float], environment: Mapping[str, str], notes: list[str]
) -> None:
    found = find_collective_advice(WatchdogConfig(**config), environment)  # type: ignore[arg-type]
    assert len(found) == len(notes)
    assert all(line.startswith(note) for line, note in zip(found, notes, strict=True))


def test_config_check_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "600")
    path = tmp_path / "monitor.yaml"
    path.write_text("monitor_config: {watchdog: {callback_limit: 900}}\n")
    assert main(["config", "check", str(path)]) == 0
    assert "note: watchdog.callback_limit: 900 s is not below HCCL_EXEC_TIMEOUT, 600 s:" in capsys.readouterr().out
