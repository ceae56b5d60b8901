"""How a training is judged, by its evidence alone."""

from __future__ import annotations

import pytest

from ms_summary_bridge.states.judgement import End, Evidence, Judgement, Process, judge, judge_ranks

NOW = 1_700_010_000.0
FRESH, OLD = NOW - 5, NOW - 7200
ALIVE, GONE, LOST = Process(7, True, True, True), Process(7, False, True), Process(7, False, True, True)
WELL, BADLY = End(OLD, False, "its lineage"), End(OLD, True, "ended by SIGKILL")

CASES: dict[str, tuple[str, Evidence]] = {
    "written a moment ago": ("running", Evidence(last_time=FRESH)),
    "silent, and no end": ("stalled", Evidence(last_time=OLD)),
    "its own pace is slow": ("running", Evidence(last_time=OLD, interval_secs=600)),
    "it has paused as long before": ("running", Evidence(last_time=NOW - 1000, longest_secs=400)),
    "an end was recorded": ("ended", Evidence(last_time=OLD, end=WELL)),
    "an evaluation after the end": ("ended", Evidence(last_time=FRESH, end=WELL, losses_after_end=1)),
    "an evaluation's file that was left open": (
        "ended",
        Evidence(last_time=OLD, end=WELL, opened=NOW, is_closed=False),
    ),
    "an evaluation that runs": ("running", Evidence(last_time=FRESH, end=WELL, opened=NOW - 9, is_closed=False)),
    "trained on after the end": ("running", Evidence(last_time=FRESH, end=WELL, losses_after_end=2)),
    "a new session after a failure": ("running", Evidence(last_time=FRESH, end=BADLY, began=OLD + 60)),
    "a new session that is silent": ("stalled", Evidence(last_time=OLD + 70, end=BADLY, began=OLD + 60)),
    "a failure was recorded": ("failed", Evidence(last_time=OLD, end=BADLY)),
    "nothing yet": ("unknown", Evidence(is_empty=True)),
    "the watchdog tells of a hang": ("stalled", Evidence(last_time=NOW - 20, hang=(NOW - 3, "no sign of life"))),
    "it went on after a hang": ("running", Evidence(last_time=FRESH, hang=(NOW - 60, "no sign of life"))),
    "its process is gone that was seen": ("failed", Evidence(last_time=NOW - 30, process=LOST)),
    "gone just now": ("running", Evidence(last_time=FRESH, process=LOST)),
    "its process is perhaps another container's": ("running", Evidence(last_time=NOW - 30, process=GONE)),
    "its process was never seen, and it is silent": ("failed", Evidence(last_time=OLD, process=GONE)),
    "it compiles for its first step": ("running", Evidence(last_time=NOW - 1000, is_beginning=True)),
    "its first step never comes": ("stalled", Evidence(last_time=OLD, is_beginning=True)),
    "gone, and its writer records no end": ("ended", Evidence(last_time=OLD, process=Process(7, False, False))),
    "its process lives but is silent": ("stalled", Evidence(last_time=OLD, process=ALIVE)),
    "its heart beats": ("running", Evidence(last_time=OLD, process=ALIVE, beat=("evaluation", 60.0))),
    "its heart stands still": ("stalled", Evidence(last_time=OLD, process=ALIVE, beat=("network", 7000.0))),
    "its heart beats, and it ended": ("ended", Evidence(last_time=OLD, end=WELL, process=ALIVE, beat=("start", 1.0))),
    "closed": ("ended", Evidence(last_time=OLD, is_closed=True)),
    "closed while the journal goes on": ("running", Evidence(last_time=FRESH, is_closed=True, has_journal=True)),
    "closed without its end's lineage": ("failed", Evidence(last_time=OLD, is_closed=True, lacks_lineage=True)),
    "closed, and its lineage may come yet": ("running", Evidence(last_time=FRESH, is_closed=True, lacks_lineage=True)),
    "open and silent": ("stalled", Evidence(last_time=OLD, is_closed=False)),
    "files that record no end, for days": ("unknown", Evidence(last_time=NOW - 3e5, records_end=False)),
    "files that record no end, for hours": ("stalled", Evidence(last_time=OLD, records_end=False)),
    "a clock that is ahead": ("running", Evidence(last_time=NOW + 500)),
    "not finite": ("non-finite", Evidence(last_time=FRESH, nonfinite="nan", nonfinite_step=2)),
    "not finite, and ended well": ("non-finite", Evidence(last_time=OLD, end=WELL, nonfinite="inf", nonfinite_step=2)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_evidence_has_its_state(name: str) -> None:
    state, evidence = CASES[name]
    found = judge(evidence, NOW)
    assert found.state == state, found
    assert all(found.evidence)


def test_a_loss_that_is_not_finite_is_told_first_and_the_rest_too() -> None:
    evidence = Evidence(last_time=OLD, end=WELL, nonfinite="nan", nonfinite_step=2, nonfinite_count=19, loss_count=20)
    found = judge(evidence, NOW)
    assert (found.state, found.life) == ("non-finite", "ended")
    assert found.evidence == (
        "the loss is nan since step 2 (19 of the last 20 are not finite)",
        "ended: its lineage",
    )


def test_the_limit_can_be_given() -> None:
    evidence = Evidence(last_time=NOW - 10, interval_secs=600)
    assert judge(evidence, NOW, stall_after=9).state == "stalled"
    assert judge(evidence, NOW, stall_after=11).state == "running"


def test_a_judgement_says_how_long_it_holds() -> None:
    running = judge(Evidence(last_time=FRESH), NOW)
    assert judge(Evidence(last_time=FRESH), running.holds_until).state == "running"
    assert judge(Evidence(last_time=FRESH), running.holds_until + 1).state == "stalled"
    assert judge(Evidence(end=WELL), NOW).holds_until == float("inf")


def test_a_run_is_as_its_worst_rank_and_tells_of_the_first() -> None:
    fine = Judgement("running", "running", ("fine",), NOW + 9)
    silent = Judgement("stalled", "stalled", ("silent",), 0.0)
    lost = Judgement("non-finite", "ended", ("nan", "ended"), NOW)
    assert judge_ranks([(3, silent, 1.0)]) == silent
    two = judge_ranks([(0, silent, 20.0), (1, fine, 30.0), (5, silent, 10.0)])
    assert (two.state, two.evidence) == ("stalled", ("rank 5 and 1 more of 3: silent",))
    all_of_them = judge_ranks([(0, silent, 20.0), (1, silent, 10.0)])
    assert all_of_them.evidence == ("all 2 ranks: silent",)
    mixed = judge_ranks([(0, silent, 20.0), (1, lost, 30.0)])
    assert (mixed.state, mixed.life, mixed.evidence) == ("non-finite", "stalled", ("rank 1 of 2: nan", "ended"))
    assert judge_ranks([]).state == "unknown"
