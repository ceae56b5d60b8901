"""TensorBoard's data server reads our outputs by rules of its own: it shows the scalars that are in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from tests.mindspore_run import event, scalar
from tests.scripted import build_file, build_record, mindspore_name, put, version_payload
from tools.fuzzing.data_server import is_installed

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


def strange_numbers() -> bytes:
    from ms_summary_bridge.formats.mindspore import MindSporeEncoder

    numbers = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e-45, 3e38)
    events = [event(step, ("损失/x", scalar(number))) for step, number in enumerate(numbers)]
    payloads = [MindSporeEncoder().encode(item).payload or b"" for item in events]
    return b"".join(map(build_record, [version_payload("mindspore"), *payloads]))


@pytest.mark.tensorboard
def test_the_data_server_shows_the_scalars_that_we_wrote(tmp_path: Path) -> None:
    if not is_installed():
        pytest.skip("this TensorBoard has no data server for this system")
    files = {
        "plain": (build_file("mindspore", range(40)), 40),
        "restarted": (build_file("mindspore", [0, 1, 2, 3, 4, 5, 2, 3, 4]), 5),
        "recorded": ((DATA / "mindspore-2.10-summary.bin").read_bytes(), 4),
        "strange": (strange_numbers(), 7),
        "torn": (build_file("mindspore", range(9))[:-3], 8),
    }
    for name, (data, _) in files.items():
        put(tmp_path / name / "run" / mindspore_name(), data)
        convert_logdir(tmp_path / name, tmp_path / "outputs" / name, to="tensorboard")
    done = subprocess.run(
        [sys.executable, "-m", "tools.fuzzing.data_server", *(tmp_path / "outputs" / name for name in files)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert [int(line) for line in done.stdout.split()] == [points for _, points in files.values()]
