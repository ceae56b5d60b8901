"""Profiles beside a run: the columns that MindSpore's profiler documents, and what it really writes on a CPU.

The files of Ascend are written anew with the names of columns of mindspore/profiler/analysis/viewer in MindSpore 2.10
(`StepTraceTimeHeaders`, `AscendKernelDetailsViewer.RENAME_HEADERS`) and of CANN's documentation of `op_statistic`
(hiascend.com, profiling/atlasprofiling_16_0068); the numbers are made up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.columns import profile as module
from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.columns.profile import Profile, find_profiles, read_profile
from tests.conftest import TESTS
from tests.mindspore_run import scalars, write_summary

STEPS = """\
Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,\
Communication(Not Overlapped and Exclude Receive),Preparing
1,600.0,200.0,100.0,300.0,200.0,1000.0,0.0,200.0,0.0
2,800.0,100.0,100.0,200.0,100.0,1000.0,0.0,100.0,0.0
"""
OPERATORS = """\
Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)
0,MatMulV2,AI_CORE,40,3000.0,50,75,100,60
0,Cast,AI_VECTOR_CORE,100,500.0,1,5,9,10
0,FlashAttentionScore,MIX_AIC,10,1500.0,100,150,200,30
"""
KERNELS = """\
Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)
1,Default/MatMul-op1,MatMul,AI_CORE,1\t,30.0,0
1,Default/MatMul-op2,MatMul,AI_CORE,2\t,20.0,0
1,"Default/Add, odd",Add,AI_VECTOR_CORE,3\t,5.0,0
"""


def write_profile(directory: Path, *, rank: int | None = None, **files: str) -> Path:
    place = directory / "host_1_20261130120000_ascend_ms"
    output = place / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    for name, text in files.items():
        (output / f"{name}.csv").write_text(text)
    if rank is not None:
        (place / f"profiler_info_{rank}.json").write_text("{}")
    return place


def parts_of(profile: Profile) -> dict[str, tuple[float, float | None]]:
    return {part.name: (part.mean_us, part.share) for part in profile.parts}


def test_steps_and_operators_of_the_documented_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(tmp_path / "run", scalars("loss", range(3)))
    place = write_profile(tmp_path / "run" / "profiler", rank=3, step_trace_time=STEPS, op_statistic=OPERATORS)
    (profile,) = inspect_logdir(tmp_path / "run").profiles
    assert (profile.directory, profile.run, profile.rank, profile.steps) == (str(place), ".", 3, 2)
    parts = parts_of(profile)
    assert parts["Computing"] == (700.0, 0.7)
    assert parts["Communication(Not Overlapped)"] == (150.0, 0.15)
    assert parts["Free"] == (150.0, 0.15)
    assert parts["Overlapped"] == (100.0, None), "it is a part of both"
    assert [(one.type, one.core, one.count, one.total_us) for one in profile.operators] == [
        ("MatMulV2", "AI_CORE", 40, 3000.0),
        ("FlashAttentionScore", "MIX_AIC", 10, 1500.0),
        ("Cast", "AI_VECTOR_CORE", 100, 500.0),
    ]
    assert [one.share for one in profile.operators] == [0.6, 0.3, 0.1]
    assert profile.problems == []
    assert main(["inspect", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert f"profile {place}: 2 steps, rank 3, of run ." in out
    assert any(line.split() == ["Computing", "0.700", "70.0", "%"] for line in out.splitlines())
    assert any(line.split() == ["MatMulV2", "AI_CORE", "40", "3.000", "60.0", "%"] for line in out.splitlines())
    assert main(["inspect", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profiles"][0]["steps"] == 2


def test_kernels_stand_for_types_that_nobody_summed_up(tmp_path: Path) -> None:
    profile = read_profile(str(write_profile(tmp_path, kernel_details=KERNELS)))
    assert [(one.type, one.count, one.total_us) for one in profile.operators] == [("MatMul", 2, 50.0), ("Add", 1, 5.0)]
    assert profile.source.endswith("kernel_details.csv")


def test_where_profiles_are_looked_for(tmp_path: Path) -> None:
    """Inside of a run it is the run's; above it may be of several."""
    runs = [("a", str(tmp_path / "exp" / "a")), ("b", str(tmp_path / "exp" / "b"))]
    for _, directory in runs:
        write_profile(Path(directory), step_trace_time=STEPS)
    write_profile(tmp_path / "exp" / "profiler", step_trace_time=STEPS)
    write_profile(tmp_path / "exp" / "c" / "deep", step_trace_time=STEPS)
    found = find_profiles(str(tmp_path / "exp"), runs)
    assert sorted(profile.run for profile in found) == ["", "a", "b"]
    (alone, *others) = find_profiles(str(tmp_path / "exp" / "a"), runs[:1])
    assert {profile.run for profile in (alone, *others)} == {"a", ""}
    assert not any("/exp/b/" in profile.directory for profile in (alone, *others)), "of another run"


def test_damaged_files_cost_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = STEPS + "3,900.0\n4,x,0,0,0,0,0,0,0,0\n"
    place = write_profile(tmp_path, step_trace_time=torn, op_statistic="OP Type\nMatMul\n")
    (place / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").write_bytes(b"\xff\xfe\0garbage")
    profile = read_profile(str(place))
    assert profile.steps == 2
    assert sorted(problem.partition(": ")[2] for problem in profile.problems) == [
        "1 row is damaged and left out",
        "a row whose times are no numbers is left out",
        "has no column 'Total Time(us)'",
        "has no column 'Type', 'Duration(us)'",
    ]
    monkeypatch.setattr(module, "_MOST_BYTES", 10)
    assert "is larger than" in read_profile(str(place)).problems[0]
    assert read_profile(str(tmp_path / "missing")).problems[0].endswith("cannot be read: No such file or directory")


@pytest.mark.slow
@pytest.mark.mindspore
def test_what_the_profiler_writes_on_a_cpu(tmp_path: Path) -> None:
    """No CSV of steps or operators in its output there; the operators are in FRAMEWORK, and no time of a step."""
    script = TESTS / "columns" / "profile_training.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=240, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (profile,) = find_profiles(str(tmp_path))
    output = Path(profile.directory) / "ASCEND_PROFILER_OUTPUT"
    assert [path.name for path in output.iterdir()] == ["trace_view.json"]
    assert profile.parts == []
    assert profile.source.endswith("cpu_op_type_info_0.csv")
    assert {"MatMul", "SGD"} <= {one.type for one in profile.operators}
    assert sum(one.share for one in profile.operators) == pytest.approx(1.0, abs=0.01)
    assert all(one.count > 0 for one in profile.operators)
    assert profile.problems == []
    recorded = (TESTS / "data" / "mindspore-2.10-cpu-op-types.csv").read_text().splitlines()
    assert recorded[0] == Path(profile.source).read_text().splitlines()[0], "what other tests read is what it writes"
