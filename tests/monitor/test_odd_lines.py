"""Lines of JSON that no monitor writes, in files of ours: each costs itself alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ms_summary_bridge.aggregate.aggregate import aggregate_ranks
from ms_summary_bridge.aggregate.outputs import AGGREGATE_FILE
from ms_summary_bridge.aggregate.reading import read_aggregate
from ms_summary_bridge.diagnose.facts import read_rank
from ms_summary_bridge.errors import LogdirError, ReadError
from ms_summary_bridge.monitor.alarms.earlier import read_level
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import STATE_NAME, read_state
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.monitor.sinks.csv_file import CsvFile
from ms_summary_bridge.monitor.sinks.journal import read_journal
from ms_summary_bridge.monitor.sinks.line_file import LineFile
from tests.scripted import START, put

DEEP = b"[" * 100_000
SAMPLES = [
    {"kind": "sample", "step": step, "wall_time": START + step, "values": {"loss": 1.0 / step}, "interval_steps": 1}
    for step in range(1, 4)
]


def put_journal(directory: Path, *odd: bytes, rank: int = 0) -> Path:
    lines = [json.dumps({**line, "rank": rank}).encode() for line in SAMPLES]
    put(directory / "metrics.jsonl", b"\n".join([*lines[:2], *odd, *lines[2:]]) + b"\n")
    return directory


@pytest.mark.parametrize("odd", [DEEP, b'{"a":' + DEEP, b'"\xff"'], ids=["deep", "object", "text"])
def test_lines_that_are_not_json(tmp_path: Path, odd: bytes) -> None:
    torn: list[int] = []
    journal = put_journal(tmp_path / "rank_0", odd)
    assert [line["step"] for line in read_journal(journal, torn.append)] == [1, 2, 3]
    assert torn == [3]
    facts = read_rank(0, str(journal))
    assert len(facts.problems) == 1
    assert "1 line is damaged and left out, the first is line 3" in facts.problems[0]
    read_level(str(journal), "loss")
    put(tmp_path / STATE_NAME, odd)
    with pytest.raises(LogdirError, match="cannot be read"):
        read_state(str(tmp_path))


@pytest.mark.parametrize(
    "odd", [DEEP, b'{"columns":' + DEEP, b"{}", b'"\xff"'], ids=["deep", "object", "empty", "text"]
)
def test_what_aggregate_did_not_write_is_an_error(tmp_path: Path, odd: bytes) -> None:
    with pytest.raises(ReadError, match="is not as `aggregate` writes it"):
        read_aggregate(str(put(tmp_path / AGGREGATE_FILE, odd)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_what_aggregate_wrote_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / AGGREGATE_FILE
    os.mkfifo(path)
    with pytest.raises(ReadError, match="cannot be read"):
        read_aggregate(str(path))


def test_a_torn_line_that_is_nested_too_deep_is_cut_off(tmp_path: Path) -> None:
    path = put(tmp_path / "metrics.jsonl", b'{"kind":"x"}\n' + DEEP)
    file = LineFile(str(path), lambda kind, text: None)
    file.append(b"{}")
    assert file.flush()
    file.close()
    assert (path.read_bytes(), file.healed) == (b'{"kind":"x"}\n{}\n', len(DEEP))


@pytest.mark.parametrize(
    "odd", [b'{"kind":"sample"}', b'{"kind":"sample","values":3}', b'{"kind":"all","values":{},"nonfinite":[]}']
)
def test_samples_without_values_are_no_rows(tmp_path: Path, odd: bytes) -> None:
    put_journal(tmp_path, odd)
    table = CsvFile(str(tmp_path), 0, lambda kind, text: None, lambda: True)
    table.write_sample(Sample(step=3, wall_time=START + 3.0, values={"loss": 1 / 3}))
    table.close()
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize("step", [1 << 63, 10**30, -1])
def test_a_step_that_no_training_has_is_left_out_of_the_statistics(tmp_path: Path, step: int) -> None:
    odd = json.dumps({**SAMPLES[0], "step": step}).encode()
    for rank in range(2):
        put_journal(tmp_path / "source" / f"rank_{rank}", odd, rank=rank)
    report = aggregate_ranks(tmp_path / "source", tmp_path / "output")
    assert sum("1 line is torn, or no sample" in problem for problem in report.problems) == 2
