"""The backend prometheus: its files are read by Prometheus' own parser, as node_exporter would hand them on."""

from __future__ import annotations

import logging
import math
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_summary_bridge.errors import WriteError
from ms_summary_bridge.monitor import load_config
from ms_summary_bridge.monitor.config.advice import find_advice
from ms_summary_bridge.monitor.model.metric_names import METRICS
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.backends import prometheus_directory
from ms_summary_bridge.monitor.sinks.prometheus_file import MEASURED, PrometheusFile
from ms_summary_bridge.training.distributed import ProcessRank
from tests.monitor_run import START, Engine, FakeClock

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
text_string_to_metric_families = parser.text_string_to_metric_families

pytestmark = pytest.mark.timeout(60)

Labels = tuple[tuple[str, str], ...]
LABELS = {"project": "p", "run": "run", "rank": "0"}


def read(path: Path) -> dict[str, dict[Labels, float]]:
    """Returns the values of a file by name and by the labels that are not those of all; checks what all must have."""
    found: dict[str, dict[Labels, float]] = {}
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in ("gauge", "counter")
        assert found.keys().isdisjoint({family.name}), "a family stands in one place"
        for sample in family.samples:
            assert sample.timestamp is None, "which the textfile collector refuses"
            own = tuple((key, value) for key, value in sample.labels.items() if key not in LABELS)
            values = found.setdefault(sample.name, {})
            assert own not in values, "a series that stands there twice is refused"
            values[own] = sample.value
    return found


def sink(tmp_path: Path, run: str = "run", *, rank: int = 0, wall_clock: Any = time.time) -> PrometheusFile:
    clock = FakeClock()
    made = PrometheusFile(
        str(tmp_path / "textfiles"), "p", str(tmp_path / "p" / run), rank, clock=clock, wall_clock=wall_clock
    )
    made.__dict__["hand"] = clock
    made.open()
    return made


def sample(at: int, **values: float) -> Sample:
    return Sample(step=at, wall_time=START + at, values=values)


def test_a_loop_is_seen_by_prometheus(tmp_path: Path) -> None:
    place = ProcessRank(rank=3, ranks=4, host="host")
    options = {
        "backend": ["local", "prometheus"],
        "project": "p",
        "metrics": ["loss", "lr", "step_time", "host_memory"],
    }
    engine = Engine(tmp_path, place, interval=0, prometheus_dir=str(tmp_path / "t"), **options)
    engine.begin(rank=3, ranks=4)
    for step in range(1, 4):
        engine.step(step, outputs=float("nan") if step == 3 else 0.5)
    assert engine.recorder.flush(30)
    (path,) = (tmp_path / "t").iterdir()
    assert re.fullmatch(r"ms_summary_bridge_p-run_[0-9a-f]{12}_rank_3\.prom", path.name)
    deadline = time.monotonic() + 30
    while not (found := read(path)).get("msb_step_time_seconds") and time.monotonic() < deadline:
        engine.step(int(engine.clock.now))  # a second later there is more to write
        time.sleep(0.3)
    assert found["msb_running"] == {(): 1.0}
    assert found["msb_step_time_seconds"][()] > 0
    engine.end()
    found = read(path)
    assert found["msb_running"] == {(): 0.0}
    assert found["msb_alarms_total"] == {(("rule", "nonfinite"),): 1.0}
    assert found["msb_step"][()] >= 3
    assert "msb_loss" not in found, "an alert would look at it for ever"
    assert 'rank="3"' in path.read_text()
    assert [name.name for name in (tmp_path / "t").iterdir()] == [path.name], "nothing is left beside it"


def test_values_have_base_units_and_their_names_say_so(tmp_path: Path) -> None:
    made = sink(tmp_path)
    values = {"loss": math.nan, "grad_norm": math.inf, "loss_scale": -math.inf, "memory_usage": 1.5, "temperature": 61}
    made.write_sample(sample(7, **values, npu_utilization=50.0, step_time=0.25, step=7, overflow=2))
    made.write_sample(sample(8, **{"lr/group_0": 0.1, "lr/group_1": 0.2, "my metric/x": 3.0}))
    made.flush()
    found = read(Path(made.path))
    assert math.isnan(found["msb_loss"][()])
    assert found["msb_gradient_norm"] == {(): math.inf}
    assert found["msb_loss_scale"] == {(): -math.inf}
    assert found["msb_device_memory_bytes"] == {(): 1.5 * 2**20}
    assert found["msb_device_temperature_celsius"] == {(): 61.0}
    assert found["msb_npu_utilization_ratio"] == {(): 0.5}
    assert found["msb_step_time_seconds"] == {(): 0.25}
    assert found["msb_step"] == {(): 8.0}
    assert found["msb_learning_rate"] == {(("part", "group_0"),): 0.1, (("part", "group_1"),): 0.2}
    assert found["msb_metric"] == {(("name", "my metric/x"),): 3.0}
    assert found["msb_last_sample_timestamp_seconds"] == {(): START + 8}


def test_each_metric_has_a_name_of_its_own() -> None:
    assert METRICS.keys() - {"step"} <= MEASURED.keys()
    assert len({name.name for name in MEASURED.values()}) == len(MEASURED)
    units = {"MiB": "_bytes", "per cent": "_ratio", "seconds": "_seconds", "watt": "_watts", "Celsius": "_celsius"}
    for name, known in MEASURED.items():
        assert re.fullmatch("[a-z_]+", known.name)
        for word, ending in units.items():
            if word in METRICS[name].meaning:
                assert known.name.endswith(ending), name


@settings(max_examples=40)
@given(
    run=st.text(st.characters(exclude_characters="/\0", exclude_categories=()), min_size=1, max_size=60),
    project=st.text(max_size=80),
    name=st.text(min_size=1, max_size=20),
    rule=st.text(max_size=20),
    value=st.floats(),
)
def test_any_name_is_escaped(
    tmp_path_factory: pytest.TempPathFactory, run: str, project: str, name: str, rule: str, value: float
) -> None:
    directory = tmp_path_factory.getbasetemp() / "escaped"
    made = PrometheusFile(str(directory), project, os.path.join("/runs", run), 0)
    made.open()
    made.write_sample(Sample(step=1, wall_time=START, values={f"x{name}": value}))
    made.write_note(Note(kind="alert", step=1, wall_time=START, text="", fields={"rule": rule}))
    made.flush()
    text = Path(made.path).read_bytes().decode()
    labels = [one.labels for family in text_string_to_metric_families(text) for one in family.samples]

    def plain(given: str) -> str:
        return given.encode("utf-8", "backslashreplace").decode()

    assert {one["run"] for one in labels} == {plain(run)}
    assert {one["project"] for one in labels} == {plain(project)}
    assert [one["name"] for one in labels if "name" in one] == [plain(f"x{name}")]
    assert [one["rule"] for one in labels if "rule" in one] == [plain(rule)]
    os.unlink(made.path)


def test_a_run_and_a_rank_have_a_file_each(tmp_path: Path) -> None:
    paths = {sink(tmp_path, run, rank=rank).path for run in ("a b", "a-b", "x" * 255, "ä" * 120) for rank in (0, 1)}
    assert len(paths) == 8
    for path in paths:
        Path(path).write_text("")  # the system takes the name


def test_it_is_written_once_a_second_at_most(tmp_path: Path) -> None:
    made = sink(tmp_path)
    for step in range(1, 50):
        made.write_sample(sample(step, loss=1.0))
        made.flush()
    assert read(Path(made.path))["msb_step"] == {(): 1.0}
    made.__dict__["hand"].now += 1.1
    made.flush()
    assert read(Path(made.path))["msb_step"] == {(): 49.0}
    before = os.stat(made.path).st_ino
    made.__dict__["hand"].now += 100
    made.flush()
    assert os.stat(made.path).st_ino == before, "nothing is new"


def test_files_that_nobody_writes_any_more_go(tmp_path: Path) -> None:
    places = [sink(tmp_path, f"run{number}") for number in range(3)]
    for made in places:
        made.write_sample(sample(1, loss=1.0))
        made.flush()
    others = Path(places[0].path).parent / "node.prom"
    others.write_text("node_up 1\n")
    old = time.time() - 25 * 3600
    os.utime(places[0].path, (old, old))
    os.utime(others, (old, old))
    sink(tmp_path, "new")
    assert sorted(path.name for path in others.parent.iterdir()) == sorted(
        [others.name, *(os.path.basename(made.path) for made in places[1:])]
    )


def test_a_directory_that_cannot_be_written_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        engine = Engine(
            tmp_path, backend=["local", "prometheus"], interval=0, prometheus_dir=str(tmp_path / "file" / "t")
        )
        engine.begin()
        for step in range(1, 4):
            engine.step(step)
        engine.end()
    assert len(engine.samples()) == 3
    said = [record.getMessage() for record in caplog.records if "PrometheusFile.open" in record.getMessage()]
    assert len(said) == 1
    assert "cannot be made" in said[0]


def test_a_full_disk_leaves_the_old_file_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sink(tmp_path)
    made.write_sample(sample(1, loss=1.0))
    made.flush()
    made.__dict__["hand"].now += 2
    made.write_sample(sample(2, loss=1.0))
    with monkeypatch.context() as full:

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        full.setattr("ms_summary_bridge.files.atomic.replace", refuse)
        with pytest.raises(WriteError, match="No space left"):
            made.flush()
    assert read(Path(made.path))["msb_step"] == {(): 1.0}
    made.__dict__["hand"].now += 2
    made.flush()
    assert read(Path(made.path))["msb_step"] == {(): 2.0}


def test_where_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prometheus_directory(load_config({"save_dir": str(tmp_path)})) == str(tmp_path / "prometheus")
    monkeypatch.setenv("TEXTFILES", "/var/lib/node")
    given = load_config({"backend": "prometheus", "prometheus_dir": "${TEXTFILES}/x"})
    assert prometheus_directory(given) == "/var/lib/node/x"
    assert not any("prometheus" in line for line in find_advice(given))
    assert "prometheus_dir has no effect" in " ".join(find_advice(load_config({"prometheus_dir": "x"})))
