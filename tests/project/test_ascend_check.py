"""The check for machines with NPUs, on one without: it says so, and its report names nobody."""

from __future__ import annotations

import getpass
import json
import os
import platform
import stat
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.monitor.test_device_metrics import ATLAS_800
from tools.ascend_check import NPU_METRICS, Names, main, summarise


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """A run of ten seconds on the CPU, with an npu-smi that says what the documentation's says; report and output."""
    directory = tmp_path_factory.mktemp("ascend_check")
    program = directory / "bin" / "npu-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{ATLAS_800}END\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    report = directory / "report.json"
    done = subprocess.run(
        [str(ROOT / "tools" / "ascend_check"), "--seconds", "10", "--report", str(report)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**environment, "PYTHON": sys.executable},
    )
    assert done.returncode == 0, (done.stdout, done.stderr, report.read_text() if report.exists() else "")
    return json.loads(report.read_text()), done.stdout


@pytest.mark.mindspore
@pytest.mark.slow
def test_without_an_npu_it_says_so(checked: tuple[dict[str, Any], str]) -> None:
    report, output = checked
    assert output.startswith("no NPU was found: trained on the CPU, so nothing here says anything of Ascend\n")
    assert "npu-smi lists 2 chips, but this MindSpore does not train on them" in output
    assert (report["npu_found"], report["device"], report["ok"]) == (False, "CPU", True)
    assert report["training"]["exit_code"] == 0
    assert report["training"]["secs"] >= 10


@pytest.mark.mindspore
@pytest.mark.slow
def test_every_metric_of_the_device_is_asked(checked: tuple[dict[str, Any], str]) -> None:
    """By an npu-smi of the documented output: device 0 of it."""
    report, output = checked
    assert report["npu_smi"] == {"found": True, "version": "24.1.0", "models": ["910B3"], "chips": 2}
    expected = dict(zip(NPU_METRICS, (87.0, 33118.0, 101.8, 43.0), strict=True))
    for name, value in expected.items():
        metric = report["metrics"][name]
        assert metric["samples"] > 0, name
        assert (metric["min"], metric["max"]) == (value, value)
    assert report["metrics"]["loss"]["samples"] > 1
    assert report["files"]["points"] > 0
    assert report["files"]["problems"] == []
    assert "both formats the same" in output


@pytest.mark.mindspore
@pytest.mark.slow
def test_the_report_names_nobody(checked: tuple[dict[str, Any], str]) -> None:
    report, _ = checked
    text = json.dumps(report)
    assert platform.node() not in text
    assert str(ROOT) not in text
    assert "/tmp" not in text
    assert not any(line.startswith("/") for line in report["training"]["last_lines"])


def test_names_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "trainer-7.example.org")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    names = Names()
    text = "alice on trainer-7 (10.1.2.3, trainer-7.example.org): /home/alice/job/train.py line 3, ~/x/y, loss 1.25"
    assert names.clean(text) == "<name> on <name> (<address>, <name>): <path> line 3, <path>, loss 1.25"
    assert names.clean({"alice": ["/data/set/one", 1, 2.7, None]}) == {"<name>": ["<path>", 1, 2.7, None]}
    assert names.clean("malice 2.10.0 8.0.RC2") == "malice 2.10.0 8.0.RC2"


def test_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seconds", "0"])
    assert "--seconds and --npus must be above 0" in capsys.readouterr().err


def test_what_is_said_of_an_npu() -> None:
    report = {
        "npu_found": True,
        "npus": 8,
        "cann": "8.0.RC2",
        "npu_smi": {"models": ["910B3"], "chips": 8},
        "metrics": {"loss": {"samples": 2, "min": 0.5, "max": 1.0}},
        "files": {"points": 0, "runs": 0, "problems": ["MindSpore's and TensorBoard's file are not equal"]},
        "training": {"exit_code": 1},
        "ok": False,
    }
    lines = list(summarise(report))
    assert lines[0] == "trained on 8 NPU(s) (910B3), CANN 8.0.RC2"
    assert any(line.split() == ["npu_power", "0", "samples", "no", "number", "came"] for line in lines)
    assert "the training ended with 1: its last lines are in the report" in lines
    assert lines[-1].startswith("something does not work")
