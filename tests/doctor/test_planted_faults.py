"""Planted faults: each is named with what mends it, and nothing else is blamed."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME, load_state
from ms_summary_bridge.doctor.examine import examine
from ms_summary_bridge.doctor.finding import Finding
from ms_summary_bridge.doctor.machine import DiskFacts, PortFacts, check_disk, check_ports, find_ports
from ms_summary_bridge.doctor.packages import PackageFacts
from ms_summary_bridge.doctor.trainings import check_writable
from ms_summary_bridge.viewers.environment import PINS
from tests.doctor.facts import NOW, PACKAGES, environment, write_journal
from tests.mindspore_run import START, event, histogram, image, scalar, scalars, summary_name, tensor, write_summary
from tests.scripted import build_file, flip_bit, put, tensorboard_name

ENVIRONMENTS_OF_TOOLS = Path(__file__).resolve().parents[2] / "tools" / "environments"
LINE = ["kind", "pid", "host", "rank", "ranks", "wall_time", "step"]
ANYTHING = st.one_of(
    st.none(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=1),
    st.just(platform.node()),
    st.sampled_from(["header", "sample", "end"]),
    st.just(10**30),
)
DATA = Path(__file__).resolve().parents[1] / "data"
Plant = Callable[[Path], Path]
DAY = 86_400


def faults_of(target: Path | None, packages: PackageFacts = PACKAGES, now: float = NOW) -> list[Finding]:
    found = examine(target, packages=packages, ports=[], now=now).findings
    return [finding for finding in found if finding.verdict in ("wrong", "warning")]


# --- the environment

IN_ONE = {"mindinsight": "2.3.1", "gunicorn": "20.1.0", "mindspore": "", "tensorboard": ""}
ENVIRONMENTS: dict[str, tuple[PackageFacts, str, str, str]] = {
    "an old MindSpore with the protobuf that pip takes": (
        environment(mindspore="2.9.0", protobuf="7.36.2"),
        *("packages.mindspore-protobuf", "wrong", "protobuf==3.20.3"),
    ),
    "a new MindSpore with an old protobuf": (
        environment(mindspore="2.10.0", protobuf="6.33.6"),
        *("packages.mindspore-protobuf", "wrong", "protobuf>=7.34.1"),
    ),
    "MindSpore with NumPy 2": (environment(numpy="2.4.6"), "packages.mindspore-numpy", "warning", "numpy<2"),
    "a TensorBoard too new for its protobuf": (
        environment(mindspore="2.9.0", protobuf="3.20.3"),
        *("packages.tensorboard-protobuf", "wrong", "tensorboard<2.21"),
    ),
    "MindInsight with a new protobuf": (
        environment(**IN_ONE),
        *("packages.mindinsight-protobuf", "wrong", "view DIR --with mindinsight"),
    ),
    "MindInsight with NumPy 2": (
        environment(**IN_ONE, protobuf="3.20.1", numpy="2.0.2"),
        *("packages.mindinsight-numpy", "wrong", "numpy==1.26.4"),
    ),
    "MindInsight with marshmallow 4": (
        environment(**IN_ONE, protobuf="3.20.1", marshmallow="4.0.0"),
        *("packages.mindinsight-marshmallow", "wrong", "marshmallow<4"),
    ),
    "MindInsight without gunicorn": (
        environment(**{**IN_ONE, "gunicorn": ""}, protobuf="3.20.1"),
        *("packages.gunicorn", "wrong", "pip install gunicorn"),
    ),
    "MindInsight with gunicorn out of reach": (
        environment(**IN_ONE, protobuf="3.20.1", programs={}),
        *("packages.gunicorn", "wrong", "export PATH=/env/bin"),
    ),
    "an old vLLM beside the transformers of MindFormers": (
        environment(vllm="0.9.2", transformers="4.57.1"),
        *("packages.vllm-transformers", "wrong", "vllm>=0.10"),
    ),
    "TensorBoard without the plugin": (
        environment(has_plugin=False),
        *("packages.plugin", "wrong", "pip install ms_summary_bridge"),
    ),
    "TensorBoard of another environment": (
        environment(programs={"tensorboard": "/usr/local/bin/tensorboard"}),
        *("packages.tensorboard-program", "warning", "/env/bin/tensorboard"),
    ),
    "TensorBoard with the slow loader alone": (
        environment(**{"tensorboard-data-server": ""}),
        *("packages.slow-loader", "warning", "tensorboard-data-server"),
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_fault_of_the_environment_is_named_with_its_mend(name: str) -> None:
    packages, check, verdict, mend = ENVIRONMENTS[name]
    (found,) = faults_of(None, packages)
    assert (found.id, found.verdict) == (check, verdict)
    assert mend in found.mend


@pytest.mark.parametrize("name", ["mindspore27", "mindspore28", "mindspore29"])
def test_what_pip_takes_for_an_old_mindspore_clashes_and_what_is_tested_does_not(name: str) -> None:
    tested = pins(ENVIRONMENTS_OF_TOOLS / f"{name}.txt")
    assert faults_of(None, environment(**tested)) == []
    by_pip = pins(ENVIRONMENTS_OF_TOOLS / f"{name}-pip.txt")
    assert "protobuf" not in by_pip, "pip chooses"
    (found,) = faults_of(None, environment(**by_pip))
    assert found.id == "packages.mindspore-protobuf"


def test_the_environment_that_view_makes_for_mindinsight_has_no_fault() -> None:
    versions = {"mindspore": "", "tensorboard": "", "gunicorn": "20.1.0", "setuptools": "80.9.0", **pins(Path(PINS))}
    assert faults_of(None, environment(**versions)) == []


def pins(path: Path) -> dict[str, str]:
    """Returns the versions that a file of requirements pins for this Python, by package."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        pin, _, condition = line.partition(";")
        if "==" in pin and not ('"3.12"' in condition and ">=" in condition):
            found[pin.split("==")[0]] = pin.split("==")[1].strip().replace("*", "0")
    return found


# --- the machine


def test_a_port_taken_by_a_viewer_of_another_directory_is_named(tmp_path: Path) -> None:
    viewer = PortFacts(6006, 7, ("python", "tensorboard", "--logdir", "other"), str(tmp_path))
    (found,) = check_ports([viewer], str(tmp_path / "mine"))
    assert (found.id, found.verdict) == ("machine.ports", "warning")
    assert str(tmp_path / "other") in found.text
    assert "view" in found.mend
    (found,) = check_ports([viewer], str(tmp_path / "other" / "run"))
    assert found.verdict == "ok"


def test_a_port_that_is_really_taken_is_seen() -> None:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", 8080))
        except OSError:
            pass  # taken by somebody else, which is as good
        else:
            listener.listen()
        taken = find_ports()
        (found,) = [one for one in check_ports(taken) if "8080" in one.text]
    assert found.id == "machine.ports"


def test_a_full_disk_is_wrong_and_a_filling_one_a_warning() -> None:
    rows = {(1 << 20, 9): "wrong", (500 << 20, 9): "warning", (50 << 30, 0): "wrong", (50 << 30, -1): "ok"}
    for (free, files), verdict in rows.items():
        (found,) = check_disk(DiskFacts("/data", free, files, True))
        assert (found.id, found.verdict, bool(found.mend)) == ("machine.disk", verdict, verdict != "ok")


def test_a_directory_that_cannot_be_written_to_is_wrong_before_a_training() -> None:
    disk = DiskFacts("/data", 1 << 40, -1, False)
    verdicts = [check_writable(disk, has_files=has_files).verdict for has_files in (False, True)]
    assert verdicts == ["wrong", "warning"]
    assert "another directory" in check_writable(disk, has_files=False).mend


# --- files


def plant_nothing(path: Path) -> Path:
    return path / "missing"


def plant_empty_directory(path: Path) -> Path:
    return path


def plant_renamed(path: Path) -> Path:
    put(path / "my_run.events", build_file("tensorboard", range(5)))
    return path


def plant_packed(path: Path) -> Path:
    put(path / "summary_dir.tar.gz", b"\x1f\x8b")
    return path


def plant_version_only(path: Path) -> Path:
    write_summary(path, [])
    return path


def plant_damage(path: Path) -> Path:
    put(path / tensorboard_name(), flip_bit(build_file("tensorboard", range(50)), 200))
    return path


def plant_garbage(path: Path) -> Path:
    put(path / tensorboard_name(), os.urandom(1 << 20))
    return path


def plant_damage_in_the_tail(path: Path) -> Path:
    put(path / tensorboard_name(), flip_bit(build_file("tensorboard", range(20_000)), -300))
    return path


def plant_cut(path: Path) -> Path:
    put(path / tensorboard_name(), build_file("tensorboard", range(50))[:-5])
    os.utime(path / tensorboard_name(), (NOW - DAY, NOW - DAY))
    return path


def plant_zeros(path: Path) -> Path:
    put(path / summary_name(), build_file("mindspore", range(50)) + bytes(1 << 18))
    return path


def plant_absurd_time(path: Path) -> Path:
    write_summary(path, scalars("loss", range(5)), seconds=START * 10**6)
    return path


def plant_future(path: Path) -> Path:
    write_summary(path, scalars("loss", range(5)), seconds=int(NOW) + 30 * DAY)
    return path


def plant_other_format(path: Path) -> Path:
    put(path / summary_name(), build_file("tensorboard", range(5)))
    return path


def plant_deep(path: Path) -> Path:
    write_summary(path / "a" / "b", scalars("loss", range(5)))
    return path


def plant_many_tags(path: Path) -> Path:
    write_summary(path, [event(step, *((f"w{i}", scalar(i)) for i in range(350))) for step in range(3)])
    return path


def plant_lineage_alone(path: Path) -> Path:
    put(path / f"{summary_name().removesuffix('_MS')}_lineage", (DATA / "mindspore-2.10-lineage.bin").read_bytes())
    return path


def plant_two_ranks(path: Path) -> Path:
    for rank in (0, 1):
        write_summary(path, scalars("loss", range(5)), rank=rank)
    return path


def plant_two_writers(path: Path) -> Path:
    put(path / tensorboard_name(), build_file("tensorboard", range(1000)))
    put(path / tensorboard_name(START + 10), build_file("tensorboard", range(5), start=START + 10))
    return path


def plant_link(path: Path) -> Path:
    write_summary(path / "real", scalars("loss", range(5)))
    (path / "shown").mkdir()
    (path / "shown" / "run").symlink_to(path / "real")
    return path / "shown"


def plant_no_scalar(path: Path) -> Path:
    write_summary(path, [event(step, ("w", histogram([1, 2])), ("i", image())) for step in range(3)])
    return path


def plant_nan_alone(path: Path) -> Path:
    write_summary(path, [event(step, ("loss", scalar(math.nan)), ("lr", scalar(0.1))) for step in range(1, 5)])
    return path


def plant_one_step(path: Path) -> Path:
    write_summary(path, scalars("loss", [1]))
    return path


def plant_open_file(path: Path) -> Path:
    file = write_summary(path, scalars("loss", range(5)))
    file.chmod(0o600)
    os.utime(file, (NOW - DAY, NOW - DAY))
    return path


def _converted(path: Path) -> Path:
    write_summary(path / "ms", [event(step, ("t", tensor([1, 2])), ("loss", scalar(step))) for step in range(5)])
    convert_logdir(str(path / "ms"), str(path / "tb"))
    return path / "tb"


def plant_damaged_archive(path: Path) -> Path:
    (archive,) = _converted(path).glob("*.archive")
    archive.write_bytes(flip_bit(archive.read_bytes(), 100))
    return path / "tb"


def plant_damaged_state(path: Path) -> Path:
    (_converted(path) / STATE_NAME).write_text("{", encoding="utf-8")
    return path / "tb"


def plant_lost_output(path: Path) -> Path:
    (run,) = load_state(str(_converted(path))).runs.values()
    output = path / "tb" / run.outputs[0].name
    output.write_bytes(output.read_bytes()[:-5])
    return path / "tb"


def plant_journal_alone(path: Path) -> Path:
    write_journal(path / "default" / "run" / "rank_0", steps=[1, 20], has_end=True)
    return path


def plant_killed(path: Path) -> Path:
    write_journal(path / "rank_0", steps=[1, 20], pid=_gone())
    write_summary(path / "summary", scalars("loss", range(5)))
    return path


def plant_uncalled(path: Path) -> Path:
    write_journal(path / "rank_0", steps=[], has_end=True)
    os.utime(path / "rank_0" / "metrics.jsonl", (NOW - DAY, NOW - DAY))
    write_summary(path / "summary", [])
    return path


def plant_missing_rank(path: Path) -> Path:
    for rank in (0, 2):
        write_journal(path / f"rank_{rank}", steps=[1, 20], rank=rank, ranks=4, has_end=True)
    write_summary(path / "summary", scalars("loss", range(5)))
    return path


def _gone() -> int:
    """Returns the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


PLANTS: dict[Plant, tuple[str, str, str, set[str]]] = {
    plant_nothing: ("files.found", "wrong", "directory that the training names", set()),
    plant_empty_directory: ("files.found", "wrong", "check that the training got the callback", set()),
    plant_renamed: ("files.names", "wrong", "rename them back", {"files.found"}),
    plant_packed: ("files.found", "wrong", "unpack", set()),
    plant_version_only: ("files.empty", "wrong", "collect_freq", {"self.passed"}),
    plant_damage: ("files.damage", "wrong", "convert", set()),
    plant_garbage: ("files.damage", "wrong", "inspect", set()),
    plant_damage_in_the_tail: ("files.damage", "wrong", "convert", set()),
    plant_cut: ("files.tail", "warning", "copy it again", set()),
    plant_zeros: ("files.padding", "warning", "convert", set()),
    plant_absurd_time: ("files.name-time", "wrong", "10 digits", set()),
    plant_future: ("files.future", "warning", "clock", set()),
    plant_other_format: ("files.format", "wrong", "convert", set()),
    plant_deep: ("mindinsight.depth", "warning", "--summary-base-dir {}/a", set()),
    plant_many_tags: ("mindinsight.tags", "warning", "histogram_regular", set()),
    plant_lineage_alone: ("files.found", "warning", "lineage and graph pages", set()),
    plant_two_ranks: ("mindinsight.ranks", "warning", "rank_", set()),
    plant_two_writers: ("files.order", "warning", "a directory for each training", set()),
    plant_link: ("mindinsight.links", "warning", "the directory that the link leads to", set()),
    plant_no_scalar: ("tensorboard.scalars", "warning", "collect_metric", set()),
    plant_nan_alone: ("tensorboard.finite", "warning", "rule: nonfinite", set()),
    plant_one_step: ("self.interval", "warning", "collect_freq", set()),
    plant_open_file: ("files.close", "warning", "SIGTERM", set()),
    plant_damaged_archive: ("ours.archive", "wrong", "--force", set()),
    plant_damaged_state: ("ours.state", "wrong", "--force", set()),
    plant_lost_output: ("ours.outputs", "wrong", "--force", set()),
    plant_journal_alone: ("files.found", "wrong", "backend: [local, tensorboard, mindinsight]", set()),
    plant_killed: ("training.end", "warning", "monitor.log", set()),
    plant_uncalled: ("self.passed", "wrong", "build_monitor_callbacks", {"files.empty"}),
    plant_missing_rank: ("self.rank", "warning", "shared disk", set()),
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_named_with_its_mend(plant: Plant, tmp_path: Path) -> None:
    check, verdict, mend, others = PLANTS[plant]
    found = {finding.id: finding for finding in faults_of(plant(tmp_path))}
    assert check in found, found
    assert found[check].verdict == verdict
    assert mend.format(tmp_path) in found[check].mend
    assert found.keys() - others == {check}
    assert all(finding.mend for finding in found.values())


def test_mindspore_files_without_a_viewer_for_them_are_said(tmp_path: Path) -> None:
    write_summary(tmp_path, scalars("loss", range(5)))
    (found,) = faults_of(tmp_path, environment(tensorboard="", **{"tensorboard-data-server": ""}))
    assert (found.id, found.verdict) == ("tensorboard.reads", "warning")
    assert f"pip install 'tensorboard>=2.17', then ms-summary-bridge view {tmp_path}" in found.mend
    names = {finding.id for finding in faults_of(tmp_path, environment(has_plugin=False))}
    assert names == {"packages.plugin", "tensorboard.reads"}


def test_what_cannot_be_read_is_named_and_not_waited_for(tmp_path: Path) -> None:
    write_summary(tmp_path, scalars("loss", range(5)))
    os.mkfifo(tmp_path / tensorboard_name())
    os.mkfifo(tmp_path / "other")
    (tmp_path / tensorboard_name(START + 1)).symlink_to(tmp_path / "gone")
    (found,) = faults_of(tmp_path)
    assert (found.id, found.verdict) == ("files.readable", "wrong")
    assert tensorboard_name() in found.text
    assert tensorboard_name(START + 1) in found.text
    assert "chmod u+r" in found.mend


def test_a_process_that_writes_nothing_and_one_that_is_gone_are_told() -> None:
    rank = {"RANK_ID": "1", "RANK_SIZE": "2"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=rank) as process:
        assert process.stdin is not None
        found = {finding.id: finding for finding in examine(str(process.pid), packages=PACKAGES, ports=[]).findings}
        process.stdin.write(b"\n")
    assert found["self.passed"].verdict == "wrong"
    assert "build_monitor_callbacks" in found["self.passed"].mend
    assert found["self.rank"].text.startswith("rank: 1 of 2 ")
    (gone,) = faults_of(Path(str(process.pid)))
    assert (gone.id, gone.verdict, "directory" in gone.mend) == ("training.running", "wrong", True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200), line=st.dictionaries(st.sampled_from(LINE), ANYTHING), cut=st.integers(0, 400))
def test_whatever_lies_there_it_is_told_and_never_a_traceback(
    data: bytes, line: dict[str, object], cut: int, tmp_path: Path
) -> None:
    for name in (summary_name(), tensorboard_name(), "ms_summary_bridge.mindspore.archive", "other", "graph.pb"):
        whole = build_file("mindspore" if "summary" in name else "tensorboard", range(5))
        put(tmp_path / name, whole[:cut] + data + whole[cut:])
    put(tmp_path / STATE_NAME, data)
    put(tmp_path / "metrics.jsonl", json.dumps({"kind": "header", **line}).encode() + b"\n" + data)
    put(tmp_path / "train.yaml", data)
    assert all(finding.mend for target in (tmp_path, tmp_path / "train.yaml") for finding in faults_of(target))


# --- configurations

CONFIGS: dict[str, tuple[str, str, str, str]] = {
    "monitor_config:\n  enable: false\n": ("self.enabled", "wrong", "enable: true", ""),
    "monitor_config:\n  intervall: 10\n": ("config.valid", "wrong", "config check", "interval"),
    "monitor_config: [\n": ("config.valid", "wrong", "config check", ""),
    "monitor_config:\n  backend: local\n": ("config.backend", "warning", "backend: [local, tensorboard", ""),
    "monitor_config:\n  interval: 7200\n": ("self.interval", "warning", "interval: 30", "7200"),
    "runner_config: {}\nmonitor_config:\n  metrics: [loss]\n": (
        *("config.valid", "wrong"),
        *("MindSporeTransformersMonitor", "MindFormers"),
    ),
    "callbacks:\n- type: SummaryBridgeMonitor\n  collect_frek: 3\n": (
        "config.valid",
        "wrong",
        "config",
        "collect_freq",
    ),
}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_fault_of_a_configuration_is_named_with_its_mend(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check, verdict, mend, words = CONFIGS[text]
    (tmp_path / "train.yaml").write_text(text, encoding="utf-8")
    (found,) = faults_of(Path("train.yaml"))
    assert (found.id, found.verdict) == (check, verdict)
    assert mend in found.mend
    assert words in found.text + found.mend


def test_a_configuration_whose_directory_is_a_file_is_wrong(tmp_path: Path) -> None:
    put(tmp_path / "taken", b"")
    config = put(tmp_path / "train.yaml", f"monitor_config:\n  save_dir: {tmp_path}/taken/x\n".encode())
    assert "config.advice" in {finding.id for finding in faults_of(config)}


def test_a_conversion_that_was_copied_elsewhere_is_whole(tmp_path: Path) -> None:
    shutil.copytree(_converted(tmp_path), tmp_path / "copy")
    assert faults_of(tmp_path / "copy") == []
