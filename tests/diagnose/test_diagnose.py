"""Who is to blame: faults planted in simulated trainings, healthy ones, damaged files, and two real ranks."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.diagnose.diagnosis import Diagnosis, diagnose_ranks, render_diagnosis
from ms_summary_bridge.diagnose.finding import list_ranks
from ms_summary_bridge.diagnose.rules import RULES
from ms_summary_bridge.errors import LogdirError, NoEventsError
from tests.bridge_scripts.runs import msrun, output_of, script, wait_until
from tests.conftest import TESTS
from tests.diagnose.simulated import FAULTS, Training, plant

RULE_OF = {"killed": "killed", "lost host": "silent", "exception": "failed", "slow": "slow", "nan": "nan"}


def check_evidence(directory: Path, diagnosis: Diagnosis) -> None:
    """Every place that is named holds a line of that rank."""
    for finding in diagnosis.findings:
        assert finding.evidence
        for evidence in finding.evidence:
            name, _, number = evidence.where.rpartition(":")
            line = json.loads((directory / name).read_text().splitlines()[int(number) - 1])
            assert line["rank"] == evidence.rank


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_with_the_fault_is_named(tmp_path: Path, fault: str, is_late: bool) -> None:
    for seed in range(4):
        ranks = 64 if seed < 3 else 4
        training, odd, now = plant(random.Random(seed * 31 + is_late), fault, is_late=is_late, ranks=ranks)
        directory = tmp_path / str(seed)
        training.write(directory, torn=seed % 2 == 0)
        diagnosis = diagnose_ranks(directory, now=now)
        assert [finding.ranks for finding in diagnosis.findings] == [[odd]], "\n".join(render_diagnosis(diagnosis))
        (finding,) = diagnosis.findings
        if fault in RULE_OF:
            assert finding.rule == RULE_OF[fault]
        assert not diagnosis.problems
        check_evidence(directory, diagnosis)


def healthy(rng: random.Random) -> tuple[Training, float]:
    """Returns a training with all that happens in one where no rank is at fault."""
    training = Training(rng, rng.choice((1, 2, 8, 16)), samples=rng.randrange(5, 60))
    if rng.random() < 0.3:  # an earlier session, in which a rank was killed
        training.begin()
        training.run(5)
        for rank in training.members:
            rank.die(training.step, training.moment + 3.0 * (rank.rank > 0), "SIGKILL", [0] if rank.rank else [])
        training.moment += 4000.0
    slow = rng.randrange(training.ranks) if rng.random() < 0.3 else -1  # for some minutes
    training.data_secs = lambda rank, number: 0.5 if rank == slow and number % 40 < 5 else 0.02
    overflow = rng.randrange(1, 30) * training.interval
    usual = training.loss
    if rng.random() < 0.3:  # a step is skipped
        training.loss = lambda rank, step: float("inf") if step == overflow and rank == 0 else usual(rank, step)
    training.begin()
    training.run()
    if rng.random() < 0.3:  # shared storage stood still for a while
        told = [rank.hang("data", training.step, training.moment, 300.0, "data") for rank in training.members]
        training.moment = max(told) + 60.0
        for rank in training.members:
            rank.recovered(training.moment)
        training.run(3)
    how = rng.choice(("running", "ended", "KeyboardInterrupt", "SIGTERM", "the end of the process"))
    if how == "running":
        training.lag()
        return training, training.moment + rng.uniform(0.0, 3.0)
    for rank in training.members:
        reason = "" if how == "ended" else how
        rank.end(training.step, training.moment + rng.uniform(0.0, 2.0), reason)
    return training, training.moment + rng.choice((10.0, 1e6))


def test_no_rank_of_a_healthy_training_is_blamed(tmp_path: Path) -> None:
    for seed in range(100):
        training, now = healthy(random.Random(seed))
        directory = tmp_path / str(seed)
        training.write(directory, torn=seed % 3 == 0)
        diagnosis = diagnose_ranks(directory, now=now)
        assert diagnosis.findings == [], "\n".join(render_diagnosis(diagnosis))
        assert list(render_diagnosis(diagnosis))[-1] == "no rank is to blame"


def test_what_all_ranks_share_is_no_single_rank(tmp_path: Path) -> None:
    training = Training(random.Random(1), 8)
    training.begin()
    training.run()
    for rank in training.members:
        rank.hang("data", training.step, training.moment, 300.0, "data")
    training.write(tmp_path)
    (finding,) = diagnose_ranks(tmp_path, now=training.moment + 400.0).findings
    assert (finding.rule, sorted(finding.ranks)) == ("together", list(range(8)))


def test_an_early_end_that_others_wait_for_is_named(tmp_path: Path) -> None:
    training = Training(random.Random(2), 8)
    training.begin()
    training.run()
    for rank in training.members:
        if rank.rank == 5:
            rank.end(training.step, training.moment, "")
        else:
            rank.hang("compute", training.step, training.moment, 300.0, "compute")
    training.write(tmp_path)
    (finding,) = diagnose_ranks(tmp_path, now=training.moment + 400.0).findings
    assert (finding.rule, finding.ranks) == ("failed", [5])
    assert "came to its end" in finding.text


@pytest.mark.parametrize(("of_others", "blamed"), [("SIGTERM", [[2]]), ("the end of the process", [])])
def test_an_exit_is_a_fault_where_the_launcher_ends_the_others(
    tmp_path: Path, of_others: str, blamed: list[list[int]]
) -> None:
    training = Training(random.Random(7), 4)
    training.begin()
    training.run()
    for rank in training.members:
        is_odd = rank.rank == 2
        rank.end(training.step, training.moment + 3.0 * (not is_odd), "the end of the process" if is_odd else of_others)
    training.write(tmp_path)
    assert [finding.ranks for finding in diagnose_ranks(tmp_path).findings] == blamed


@pytest.mark.parametrize(("steps", "blamed"), [(1, []), (2, [[1]])])
def test_a_last_step_that_overflowed_is_no_fault(tmp_path: Path, steps: int, blamed: list[list[int]]) -> None:
    training = Training(random.Random(8), 4, samples=9)
    training.interval = 1
    training.bad_from = lambda rank: 10 - steps if rank == 1 else 1 << 60
    training.begin()
    training.run()
    training.write(tmp_path)
    assert [finding.ranks for finding in diagnose_ranks(tmp_path).findings] == blamed


def test_a_rank_that_never_began_is_named(tmp_path: Path) -> None:
    training = Training(random.Random(3), 8)
    training.begin()
    del training.members[6]
    for rank in training.members:
        rank.hang("compile", 0, training.moment, 1800.0, "compute")
    training.write(tmp_path)
    diagnosis = diagnose_ranks(tmp_path, now=training.moment + 2000.0)
    assert diagnosis.missing == [6]
    assert [(finding.rule, finding.ranks) for finding in diagnosis.findings] == [("absent", [6])]


def test_more_ranks_than_a_training_can_have_are_told_and_not_looked_for(tmp_path: Path) -> None:
    for rank, ranks in enumerate((2, 10**18)):
        directory = tmp_path / "run" / f"rank_{rank}"
        directory.mkdir(parents=True)
        line = {"kind": "header", "format": 1, "wall_time": 1e9, "rank": rank, "ranks": ranks, "host": "h", "pid": 7}
        (directory / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    diagnosis = diagnose_ranks(tmp_path / "run", now=1e9 + 5, cann_logs=[])
    assert (diagnosis.ranks, diagnosis.missing) == (2, [])
    assert [f"{10**18:,} ranks are beyond" in problem for problem in diagnosis.problems] == [True]


def test_damaged_and_empty_files_cost_their_rank_and_are_named(tmp_path: Path) -> None:
    training, odd, now = plant(random.Random(4), "data", is_late=True, ranks=8)
    training.write(tmp_path)
    one, other = [rank for rank in range(8) if rank != odd][:2]
    (tmp_path / f"rank_{one}" / "metrics.jsonl").write_bytes(b"")
    path = tmp_path / f"rank_{other}" / "metrics.jsonl"
    path.write_bytes(b"\xff\x00{}\n" + b'[1]\n{"kind": 3}\n' + path.read_bytes())
    diagnosis = diagnose_ranks(tmp_path, now=now)
    assert [finding.ranks for finding in diagnosis.findings] == [[odd]]
    assert len(diagnosis.problems) == 2
    assert any("is empty" in problem for problem in diagnosis.problems)
    assert any("3 lines are damaged" in problem for problem in diagnosis.problems)


def test_what_cannot_be_diagnosed_is_said(tmp_path: Path) -> None:
    with pytest.raises(LogdirError):
        diagnose_ranks(tmp_path / "missing")
    with pytest.raises(NoEventsError, match=r"metrics\.jsonl"):
        diagnose_ranks(tmp_path)


def test_of_several_trainings_the_newest_is_taken_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(("c/1", "a/2", "b/1")):  # the newest is neither the first nor the last by name
        training, odd, _ = plant(random.Random(number), "data", is_late=True, ranks=4)
        for member in training.members:
            for line in [*member.journal, *member.told]:
                line["wall_time"] += 86_400.0 * (3 if name == "a/2" else number)
        training.write(tmp_path / name)
        if name == "a/2":
            blamed = odd
    alone = list(render_diagnosis(diagnose_ranks(tmp_path / "a" / "2")))
    diagnosis = diagnose_ranks(tmp_path)
    assert [finding.ranks for finding in diagnosis.findings] == [[blamed]]
    assert diagnosis.source == str(tmp_path / "a" / "2")
    assert diagnosis.others == [str(tmp_path / "b" / "1"), str(tmp_path / "c" / "1")]
    first, said, *more = render_diagnosis(diagnosis)
    doing = {group.doing.partition(" ")[0]: len(group.ranks) for group in diagnosis.groups}
    assert doing == {"hang": 3, "hangs": 1}  # three ranks hang, and one hangs
    assert [first, *more] == alone
    assert said.startswith("  the newest of 3 trainings; for another: ms-summary-bridge diagnose DIR (")
    assert main(["diagnose", str(tmp_path)]) == 5
    assert said in capsys.readouterr().out
    assert main(["diagnose", diagnosis.others[0]]) == 5
    assert "the newest of" not in capsys.readouterr().out


def test_ranks_of_hosts_side_by_side_are_one_training(tmp_path: Path) -> None:
    training, odd, now = plant(random.Random(3), "data", is_late=True, ranks=4)
    training.write(tmp_path / "host0")
    for rank in (2, 3):
        (tmp_path / "host1").mkdir(exist_ok=True)
        (tmp_path / "host0" / f"rank_{rank}").rename(tmp_path / "host1" / f"rank_{rank}")
    diagnosis = diagnose_ranks(tmp_path, now=now)
    assert (diagnosis.ranks, diagnosis.others) == (4, [])
    assert [finding.ranks for finding in diagnosis.findings] == [[odd]]


def test_the_command_prints_and_exits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training, odd, _ = plant(random.Random(6), "data", is_late=True, ranks=8)
    training.write(tmp_path / "bad")
    assert main(["diagnose", str(tmp_path / "bad")]) == 5
    assert f"1. hang: rank {odd} hangs waiting for data after step {training.step}; " in capsys.readouterr().out
    assert main(["diagnose", str(tmp_path / "bad"), "--json"]) == 5
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["rule"], finding["ranks"]) == ("hang", [odd])
    training, _ = healthy(random.Random(6))
    training.write(tmp_path / "good")
    assert main(["diagnose", str(tmp_path / "good")]) == 0
    assert capsys.readouterr().out.endswith("no rank is to blame\n")


def test_ranks_in_words() -> None:
    assert list_ranks([3, 0, 1, 2, 7, 9, 10]) == "0-3, 7, 9-10"


def test_the_page_has_every_rule() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "diagnose.md").read_text(encoding="utf-8")
    for name, words in RULES.items():
        assert f"| `{name}` | {words} |" in page


# ------------------------------------------------------------------ real ranks


def told(directory: Path, rank: int, name: str, kind: str) -> list[dict[str, Any]]:
    path = directory / f"rank_{rank}" / name
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [line for line in map(json.loads, (text for text in lines if text.endswith("\n"))) if line["kind"] == kind]


@pytest.mark.slow
@pytest.mark.mindspore
@pytest.mark.parametrize(
    ("fault", "rule", "words"),
    [
        ("data", "hang", "rank 1 hangs waiting for data after step 5; rank 0 waits"),
        ("callback", "hang", "rank 1 hangs in callbacks after step 5; rank 0 waits"),
        ("optimizer", "hang", "rank 1 hangs in the optimizer after step 5; rank 0 waits"),
        ("compile", "hang", "rank 1 hangs compiling after step 0; rank 0 waits"),
        ("killed", "killed", "rank 1 died by SIGKILL, without a word"),
        ("nan", "nan", "loss is nan from step 6 on, first on rank 1; on rank 0 from step 7 on"),
    ],
)
def test_one_of_two_real_ranks_is_named(tmp_path: Path, fault: str, rule: str, words: str) -> None:
    """While it hangs the watchdog of the other rank says so as well, however long that rank may take."""
    run = tmp_path / "out" / "default" / "run"
    program = msrun(8151 + sum(map(ord, fault)) % 40, tmp_path / "logs")

    def is_told() -> bool:
        if rule == "hang":
            return any(line["rule"] == "hang" for line in told(run, 0, "metrics.jsonl", "alert"))
        return all(told(run, rank, "metrics.jsonl", "end") for rank in (0, 1))

    odd_rank = TESTS / "monitor_scripts" / "odd_rank.py"
    with script(str(odd_rank), str(tmp_path / "out"), fault, cwd=tmp_path, program=program) as process:
        wait_until(lambda: is_told() or process.poll() is not None, timeout_secs=200)
        assert is_told(), output_of(tmp_path)
        diagnosis = diagnose_ranks(run)
        for rank in (0, 1):  # which msrun has put into sessions of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(told(run, rank, "metrics.jsonl", "header")[0]["pid"], signal.SIGKILL)
    finding = diagnosis.findings[0]
    assert (finding.rule, finding.ranks) == (rule, [1]), "\n".join(render_diagnosis(diagnosis))
    assert finding.text.startswith(words)
    check_evidence(run, diagnosis)
    if rule == "hang":
        assert [line["text"] for line in told(run, 0, "hang.jsonl", "blame")] == [finding.text]
        (alert,) = [line for line in told(run, 0, "metrics.jsonl", "alert") if line["rule"] == "hang"]
        assert alert["message"].endswith(f"; {finding.text}")
