"""Figures of devices: what npu-smi and NVML say, and what happens when they do not."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.monitor.metrics import Metric, make_metric
from ms_summary_bridge.monitor.metrics.device import _SAMPLERS, MemoryUsage
from ms_summary_bridge.monitor.metrics.device_sampler import DeviceError, DeviceReading, DeviceSampler
from ms_summary_bridge.monitor.metrics.gpu import Nvml
from ms_summary_bridge.monitor.metrics.npu_smi import NpuSmi, parse_fields, parse_mapping, parse_table
from ms_summary_bridge.training.distributed import ProcessRank
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window
from tests.monitor_run import Engine

_LINE = "+---------------------------+---------------+----------------------------------------------------+"
_PROCESSES = f"""\
{_LINE}
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 4711          | python                   | 30000                   |
| 1       0                 | 4712          | python                   | 30100                   |
+===========================+===============+====================================================+
"""

# One chip on a card: Atlas 800 with 910B.
ATLAS_800 = f"""\
{_LINE}
| npu-smi 24.1.0                   Version: 24.1.0                                               |
{_LINE}
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 101.8       43                0    / 0             |
| 0                         | 0000:C1:00.0  | 87          0    / 0          33118/ 65536         |
+===========================+===============+====================================================+
| 1     910B3               | Warning       | 92.0        39                0    / 0             |
| 0                         | 0000:C2:00.0  | 4           0    / 0          3314 / 65536         |
+===========================+===============+====================================================+
{_PROCESSES}"""

# Two chips on a card, wider columns: Atlas 800 A3. The second chip has no power of its own.
ATLAS_A3 = """\
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.0.rc2                            Version: 26.0.rc2                                                    |
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip  Phy-ID              | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 0     Ascend910           | OK            | 162.6                34                      0    / 0                |
| 0     0                   | 0000:9D:00.0  | 11                   0    / 0                3419 / 65536            |
+------------------------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -                    35                      0    / 0                |
| 1     1                   | 0000:9F:00.0  | 22                   0    / 0                2874 / 65536            |
+===========================+===============+======================================================================+
"""

# No HBM, no power, cards numbered by slot: Atlas 300I Duo.
ATLAS_300I = """\
+--------------------------------------------------------------------------------------------------------+
| npu-smi 25.2.1                                   Version: 25.2.1                                       |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 0       310P3                 | OK              | NA           49                8728  / 8728          |
| 0       0                     | 0000:01:00.0    | 3            19435/ 21527                            |
+===============================+=================+======================================================+
| 32      310P3                 | OK              | NA           50                0     / 0             |
| 0       1                     | 0000:02:00.0    | 0            1910 / 21527                            |
+===============================+=================+======================================================+
"""

# Card 1 of a host with two chips on each card.
MAPPING = """\
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name
\t0                              0                              0                              Ascend 910B3
\t0                              1                              -                              Mcu
\t32                             0                              1                              Ascend 910B3
\t32                             1                              -                              Mcu
"""
COMMON = """\
        NPU ID                         : 32
        Chip Count                     : 1

        Chip ID                        : 0
        Memory Usage Rate(%)           : 6
        HBM Usage Rate(%)              : 91
        Aicore Usage Rate(%)           : 57
        Aicore Freq(MHZ)               : 1800
        Aicore curFreq(MHZ)            : 900
        Aicore Count                   : 20
        Temperature(C)                 : 46
        NPU Real-time Power(W)         : 130.4

        Chip Name                      : mcu
        Temperature(C)                 : 40
"""
USAGES = """\
        NPU ID                         : 32
        Chip Count                     : 1

        DDR Capacity(MB)               : 0
        DDR Usage Rate(%)              : 0
        HBM Capacity(MB)               : 65536
        HBM Usage Rate(%)              : 91
        Aicore Usage Rate(%)           : 58
        Aicpu Usage Rate(%)            : 0
        Chip ID                        : 0
"""


def reading(*figures: float | None) -> DeviceReading:
    return DeviceReading(**dict(zip(DeviceReading.__struct_fields__, figures, strict=True)))


class TestTable:
    def test_one_chip_on_a_card(self) -> None:
        assert parse_table(ATLAS_800) == [reading(87, 33118, 65536, 101.8, 43), reading(4, 3314, 65536, 92, 39)]

    def test_two_chips_on_a_card(self) -> None:
        assert parse_table(ATLAS_A3) == [reading(11, 3419, 65536, 162.6, 34), reading(22, 2874, 65536, None, 35)]

    def test_no_hbm_and_no_power(self) -> None:
        assert parse_table(ATLAS_300I) == [reading(3, 19435, 21527, None, 49), reading(0, 1910, 21527, None, 50)]

    @pytest.mark.parametrize("text", ["", _PROCESSES, MAPPING, "dcmi model initialized failed, because ret is -8005\n"])
    def test_anything_else_is_no_table(self, text: str) -> None:
        assert parse_table(text) == []

    def test_cut_anywhere_it_keeps_whole_chips(self) -> None:
        whole = parse_table(ATLAS_800)
        for length in range(len(ATLAS_800)):
            got = parse_table(ATLAS_800[:length])
            assert got == whole[: len(got)]


class TestFields:
    def test_mapping_is_by_the_logic_id_and_leaves_the_controller_out(self) -> None:
        assert parse_mapping(MAPPING) == {0: (0, 0), 1: (32, 0)}
        assert parse_mapping("NPU ID  Chip ID  Chip Logic ID  Chip Phy-ID  Chip Name\n0 1 1 9 Ascend910\n") == {
            1: (0, 1)
        }

    def test_common(self) -> None:
        assert parse_fields(COMMON, 0) == reading(57, None, None, 130.4, 46)

    def test_usages(self) -> None:
        assert parse_fields(USAGES, 0) == reading(58, 0.91 * 65536, 65536, None, None)

    def test_of_several_chips_one_is_read(self) -> None:
        second = "\nChip ID : 1\nAicore Usage Rate(%) : 99\nTemperature(C) : NA\n"
        assert parse_fields(COMMON + second, 1) == reading(99, None, None, None, None)
        assert parse_fields(COMMON + second, 0) == reading(57, None, None, 130.4, 46)
        # -t usages has the chip at the foot of its lines.
        usages = "DDR Capacity(MB) : 100\nDDR Usage Rate(%) : 10\nChip ID : 0\nDDR Capacity(MB) : 200\n"
        assert parse_fields(f"{usages}DDR Usage Rate(%) : 20\nChip ID : 1\n", 1) == reading(None, 40, 200, None, None)

    def test_the_controllers_lines_need_no_blank_line_before_them(self) -> None:
        assert parse_fields(COMMON.replace("\n\n", "\n"), 0) == reading(57, None, None, 130.4, 46)


@pytest.fixture
def npu_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the `npu-smi` that is found first; nothing is there yet."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    return tmp_path / "npu-smi"


def write_program(path: Path, answers: dict[str, str], otherwise: str = "exit 3") -> None:
    """Makes a program that prints an answer for each of its command lines."""
    lines = ["#!/bin/sh", f'echo "$*" >>{path}.asked', 'case "$*" in']
    for number, (arguments, answer) in enumerate(answers.items()):
        answer_path = path.with_name(f"answer-{number}.txt")
        answer_path.write_text(answer)
        lines.append(f'  "{arguments}") cat {answer_path} ;;')
    path.write_text("\n".join([*lines, f"  *) {otherwise} ;;", "esac", ""]))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def asked(path: Path) -> list[str]:
    return Path(f"{path}.asked").read_text().splitlines()


class TestNpuSmi:
    def test_the_table_is_all_that_is_needed(self, npu_smi: Path) -> None:
        write_program(npu_smi, {"info": ATLAS_800})
        assert NpuSmi(1).read() == reading(4, 3314, 65536, 92, 39)
        assert asked(npu_smi) == ["info"]

    def test_fields_are_read_where_there_is_no_table(self, npu_smi: Path) -> None:
        write_program(
            npu_smi,
            {
                "info": "unknown\n",
                "info -m": MAPPING,
                "info -t common -i 32": COMMON,
                "info -t usages -i 32 -c 0": USAGES,
            },
        )
        source = NpuSmi(1)
        assert source.read() == reading(57, 0.91 * 65536, 65536, 130.4, 46)
        first = len(asked(npu_smi))
        source.read()
        assert asked(npu_smi)[first:] == ["info -t common -i 32", "info -t usages -i 32 -c 0"]

    def test_one_kind_of_fields_is_enough(self, npu_smi: Path) -> None:
        write_program(npu_smi, {"info": "", "info -m": MAPPING, "info -t usages -i 32 -c 0": USAGES})
        assert NpuSmi(1).read() == reading(58, 0.91 * 65536, 65536, None, None)
        write_program(npu_smi, {"info": "", "info -m": MAPPING})
        with pytest.raises(DeviceError, match="npu-smi info -t usages -i 32 -c 0 ended with 3"):
            NpuSmi(1).read()

    def test_a_process_may_see_a_few_of_the_chips(self, npu_smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_program(npu_smi, {"info": ATLAS_800})
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1, 0")
        assert NpuSmi(0).read().temperature == 39

    def test_a_device_that_is_not_listed(self, npu_smi: Path) -> None:
        write_program(npu_smi, {"info": ATLAS_800, "info -m": MAPPING})
        with pytest.raises(DeviceError, match="lists 2 chips, and none of them as device 7"):
            NpuSmi(7).read()

    def test_missing(self) -> None:
        with pytest.raises(DeviceError, match="no-such-npu-smi cannot be run: No such file") as caught:
            NpuSmi(0, "no-such-npu-smi").read()
        assert caught.value.is_final

    def test_failing(self, npu_smi: Path) -> None:
        write_program(npu_smi, {}, "echo 'dcmi init failed'; exit 3")
        with pytest.raises(DeviceError, match="npu-smi info ended with 3: dcmi init failed") as caught:
            NpuSmi(0).read()
        assert not caught.value.is_final

    def test_garbage(self, npu_smi: Path) -> None:
        write_program(npu_smi, {}, r"head -c 5000 /dev/urandom; printf '|\377|\n| 1 | 2 | 3 |\n'")
        with pytest.raises(DeviceError, match="lists 0 chips"):
            NpuSmi(0).read()

    def test_hanging_it_is_killed_with_its_children(self, npu_smi: Path) -> None:
        pids = npu_smi.with_name("pids")
        write_program(npu_smi, {}, f"sleep 300 & echo $! $$ >{pids}; wait")
        with pytest.raises(DeviceError, match=r"gave no answer in 1 s and was killed"):
            NpuSmi(0, timeout_secs=1).read()
        for pid in map(int, pids.read_text().split()):  # a killed one is gone as soon as the system gets to it
            assert wait_for(lambda pid=pid: None if is_running(pid) else True, 0.01, 30.0)


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Scripted:
    """A source that gives what it was told, and counts."""

    def __init__(self, *answers: DeviceReading | Exception) -> None:
        self._answers = list(answers)
        self.used_up = threading.Event()

    def read(self) -> DeviceReading:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if len(self._answers) == 1:
            self.used_up.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        pass


class TestSampler:
    def test_the_last_reading_and_its_age(self) -> None:
        now = [100.0]
        sampler = DeviceSampler(Scripted(reading(1, 2, 3, 4, 5)), "npu_power", period_secs=10, clock=lambda: now[0])
        try:
            assert sampler.wait(30)
            now[0] = 107.5
            assert sampler.latest() == reading(1, 2, 3, 4, 5)
            now[0] = 100.0 + 61
            assert sampler.latest() is None, "it says nothing of now"
        finally:
            sampler.close()

    def test_it_does_not_wait_for_the_source(self) -> None:
        may_end = threading.Event()

        class Slow:
            def read(self) -> DeviceReading:
                may_end.wait(60)
                return reading(1, 2, 3, 4, 5)

            def close(self) -> None:
                may_end.set()

        sampler = DeviceSampler(Slow(), "npu_power")
        assert sampler.latest() is None
        may_end.set()
        assert sampler.wait(30)
        assert sampler.latest() is not None
        sampler.close()

    def test_closing_ends_what_hangs(self, npu_smi: Path, caplog: pytest.LogCaptureFixture) -> None:
        os.mkfifo(npu_smi.with_name("begun"))
        write_program(npu_smi, {}, f"echo $$ >{npu_smi.with_name('begun')}; exec sleep 300")
        sampler = DeviceSampler(NpuSmi(0, timeout_secs=200), "npu_power")
        sampler.latest()
        pid = int(npu_smi.with_name("begun").read_text())  # waits until it runs
        sampler.close()
        assert not is_running(pid)
        assert not caplog.records

    def test_unavailable_is_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        source = Scripted(DeviceError("no answer"), ValueError("odd"), DeviceError("again"), reading(1, 2, 3, 4, 5))
        with caplog.at_level(logging.WARNING, "ms_summary_bridge"):
            sampler = DeviceSampler(source, "npu_power, temperature", period_secs=0.001)
            sampler.latest()
            assert source.used_up.wait(30), "it is asked again after a failure"
            sampler.close()
        assert [record.getMessage() for record in caplog.records] == ["npu_power, temperature: unavailable: no answer"]

    def test_a_missing_tool_is_not_asked_again(self, caplog: pytest.LogCaptureFixture) -> None:
        sampler = DeviceSampler(NpuSmi(0, "no-such-npu-smi"), "npu_power", period_secs=0.001)
        with caplog.at_level(logging.WARNING, "ms_summary_bridge"):
            assert sampler.wait(30)
            sampler.close()
            assert sampler.latest() is None
        assert len(caplog.records) == 1


class NVMLError(Exception):
    """As pynvml's."""


def make_pynvml(**functions: object) -> types.ModuleType:
    """Returns a module with the functions of pynvml that are asked, of one GPU as number 1."""

    def handle_by_index(index: int) -> str:
        if index != 1:
            raise NVMLError("Invalid Argument")
        return "handle"

    module = types.ModuleType("pynvml")
    module.__dict__.update(
        NVMLError=NVMLError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=handle_by_index,
        nvmlDeviceGetHandleByUUID=lambda uuid: {"GPU-abc": "handle"}[uuid],
        nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(used=3 << 30, total=80 << 30),
        nvmlDeviceGetUtilizationRates=lambda handle: types.SimpleNamespace(gpu=97, memory=40),
        nvmlDeviceGetPowerUsage=lambda handle: 250_500,
        nvmlDeviceGetTemperature=lambda handle, sensor: 66,
    )
    module.__dict__.update(functions)
    return module


def refuse(*arguments: object) -> None:
    raise NVMLError("Not Supported")


class TestNvml:
    @pytest.mark.parametrize(("visible", "device_id"), [("", 1), ("0,1", 1), ("1", 0), ("0,GPU-abc", 1)])
    def test_reading(self, monkeypatch: pytest.MonkeyPatch, visible: str, device_id: int) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", make_pynvml())
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert Nvml(device_id).read() == reading(97, 3072, 81920, 250.5, 66)

    def test_figures_that_a_gpu_does_not_have(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setitem(sys.modules, "pynvml", make_pynvml(nvmlDeviceGetPowerUsage=refuse))
        assert Nvml(1).read().power is None

    def test_no_such_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setitem(sys.modules, "pynvml", make_pynvml())
        with pytest.raises(DeviceError, match="NVML finds no GPU 5: Invalid Argument"):
            Nvml(5).read()

    def test_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", make_pynvml(nvmlInit=refuse))
        with pytest.raises(DeviceError, match="no NVIDIA driver answers: Not Supported"):
            Nvml(0).read()

    def test_no_module(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]
        with pytest.raises(DeviceError, match="pip install nvidia-ml-py") as caught:
            Nvml(0).read()
        assert caught.value.is_final


NPU_METRICS = ("npu_utilization", "npu_memory", "npu_power", "temperature")
WINDOW = Window(last=StepFacts(step=1))


def sample_when_asked(names: tuple[str, ...], training: TrainingFacts) -> dict[str, object]:
    """Returns what metrics say once their tool has answered or failed; they are closed again."""
    metrics: list[Metric] = [make_metric(name) for name in names]
    for metric in metrics:
        metric.begin(training)
    try:
        ((sampler, users),) = _SAMPLERS._users.values()
        assert users == len(names), "they share one sampler"
        assert sampler.wait(30)
        return {name: metric.sample(WINDOW) for name, metric in zip(names, metrics, strict=True)}
    finally:
        for metric in metrics:
            metric.close()
        assert not _SAMPLERS._users


class TestMetrics:
    def test_npu(self, npu_smi: Path) -> None:
        write_program(npu_smi, {"info": ATLAS_800})
        got = sample_when_asked(NPU_METRICS, TrainingFacts(device="Ascend 1", device_id=1))
        assert got == {"npu_utilization": 4, "npu_memory": 3314, "npu_power": 92, "temperature": 39}
        assert asked(npu_smi) == ["info"], "asked once for all"

    def test_no_npu_smi(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        with caplog.at_level(logging.WARNING, "ms_summary_bridge"):
            got = sample_when_asked(NPU_METRICS, TrainingFacts(device="CPU"))
        assert got == dict.fromkeys(NPU_METRICS)
        assert [record.getMessage() for record in caplog.records] == [
            "metrics of npu-smi: unavailable: npu-smi cannot be run: No such file or directory"
        ]

    def test_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", make_pynvml())
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        names = ("gpu_utilization", "gpu_memory", "temperature")
        got = sample_when_asked(names, TrainingFacts(device="GPU 1", device_id=1))
        assert got == {"gpu_utilization": 97, "gpu_memory": 3072, "temperature": 66}

    def test_before_its_beginning_and_after_its_end_a_metric_says_nothing(self) -> None:
        metric = make_metric("npu_power")
        assert metric.sample(WINDOW) is None
        metric.close()

    def test_memory_usage_is_the_devices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runtime = types.SimpleNamespace(memory_allocated=lambda: 5 << 20, memory_reserved=lambda: 9 << 20)
        monkeypatch.setitem(sys.modules, "mindspore", types.SimpleNamespace(runtime=runtime))
        assert MemoryUsage().sample(WINDOW) == 5

    def test_memory_usage_on_a_cpu_is_the_processs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runtime = types.SimpleNamespace(memory_allocated=lambda: 0, memory_reserved=lambda: 0)
        monkeypatch.setitem(sys.modules, "mindspore", types.SimpleNamespace(runtime=runtime))
        with_mindspore = MemoryUsage().sample(WINDOW)
        monkeypatch.delitem(sys.modules, "mindspore")
        for got in (with_mindspore, MemoryUsage().sample(WINDOW)):
            assert isinstance(got, float)
            assert 10 < got < 10_000


def train_with_device(engine: Engine) -> None:
    """Trains four steps of 40 s, once the device's tool has answered."""
    ((sampler, _),) = _SAMPLERS._users.values()
    assert sampler.wait(30)
    for step in range(1, 5):
        engine.step(step, 40.0)
        engine.recorder.flush()
    engine.end()


class TestRules:
    """What a rule looks at is measured on the device, though no metric names it."""

    def test_the_default_rules_on_an_npu(self, npu_smi: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        write_program(npu_smi, {"info": ATLAS_800.replace("101.8       43 ", "101.8       99 ")})
        place = ProcessRank(device="Ascend", device_id=0, host="node")
        engine = Engine(tmp_path, place, interval=0, metrics=["loss"]).begin()
        train_with_device(engine)
        values = engine.samples()[-1]["values"]
        assert (values["temperature"], values["npu_memory"]) == (99, 33118)
        assert values["host_memory"] > 10
        (alert,) = (line for line in engine.lines("alert"))
        assert (alert["rule"], alert["metric"]) == ("overload", "temperature")
        assert not any("for overload" in record.getMessage() for record in caplog.records)

    @pytest.mark.parametrize(
        ("bounds", "metric", "value"),
        [
            ({"memory": 3000}, "gpu_memory", 3072),
            ({"utilization": 95}, "gpu_utilization", 97),
            ({"temperature": 60}, "temperature", 66),
        ],
    )
    def test_the_overload_of_a_gpu(
        self, bounds: dict[str, float], metric: str, value: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """What NVML says of the card reaches the rule, and its alarm the journal."""
        monkeypatch.setitem(sys.modules, "pynvml", make_pynvml())
        monkeypatch.setenv("PATH", "/nonexistent")  # where npu-smi would be
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        place = ProcessRank(device="GPU", device_id=1, host="node")
        rule = {"rule": "overload", **bounds}
        engine = Engine(tmp_path, place, interval=0, metrics=["loss"], alerts=[rule]).begin()
        train_with_device(engine)
        values = engine.samples()[-1]["values"]
        assert values[metric] == value
        assert not [name for name in values if name.startswith("npu_")]
        (alert,) = engine.lines("alert")
        assert (alert["rule"], alert["metric"], alert["value"]) == ("overload", metric, value)
        assert (alert["bound"], alert["step"], alert["since_step"]) == (*bounds.values(), 3, 1)

    @pytest.mark.parametrize("missing", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo"])
    def test_a_figure_that_a_gpu_does_not_give_is_named(
        self, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A MIG slice has no utilization."""
        monkeypatch.setitem(sys.modules, "pynvml", make_pynvml(**{missing: refuse}))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        rule = {"rule": "overload", "memory": 3000, "utilization": 95, "secs": 0}
        place = ProcessRank(device="GPU", device_id=1, host="node")
        engine = Engine(tmp_path, place, interval=0, metrics=["loss"], alerts=[rule]).begin()
        train_with_device(engine)
        given, lacking = ("gpu_memory", "gpu_utilization")[:: 1 if "Utilization" in missing else -1]
        assert {line["metric"] for line in engine.lines("alert")} == {given}
        (said,) = (text for text in (r.getMessage() for r in caplog.records) if "no number comes for" in text)
        assert f"no number comes for {lacking}: pip install nvidia-ml-py" in said

    def test_no_npu_smi_is_told_with_the_rule(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        engine = Engine(tmp_path, ProcessRank(device="Ascend", host="node"), interval=0, metrics=["loss"]).begin()
        ((sampler, _),) = _SAMPLERS._users.values()
        assert sampler.wait(30)
        for step in (1, 2, 3):
            engine.step(step)
        engine.end()
        tool, heat = (text for text in (r.getMessage() for r in caplog.records) if "no number comes for" in text)
        assert "npu_utilization, npu_memory: npu-smi must be on PATH and answer for this device" in tool
        assert "temperature (for overload): on an NPU npu-smi must be on PATH and answer for this device" in heat

    def test_while_the_tool_has_not_answered_nothing_is_said_of_it(
        self, npu_smi: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write_program(npu_smi, {}, otherwise="exec sleep 30")
        keys = {"interval": 0, "metrics": ["loss"], "auto_print": True}
        engine = Engine(tmp_path, ProcessRank(device="Ascend", host="node"), **keys).begin()
        for step in (1, 2, 3):
            engine.step(step)
        engine.end()
        (said,) = (text for text in (r.getMessage() for r in caplog.records) if "no number comes for" in text)
        assert "temperature" not in said
        assert "npu_memory" not in said

    def test_on_a_cpu_no_tool_is_asked(self, npu_smi: Path, tmp_path: Path) -> None:
        write_program(npu_smi, {"info": ATLAS_800})
        engine = Engine(tmp_path, interval=0).begin()
        engine.step(1)
        engine.end()
        assert not Path(f"{npu_smi}.asked").exists()


def test_host_memory_counts_what_data_workers_have_alone() -> None:
    """A worker that leaked is seen; what a fork shares with the training is counted once."""
    shared = bytearray(b"x") * (64 << 20)
    metric = make_metric("host_memory")
    before = metric.sample(Window(last=StepFacts(step=1)))
    reading, writing = os.pipe()
    code = "import sys; kept = bytearray(b'x') * (200 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        fork = os.fork()
        if not fork:
            os.read(reading, 1)
            os._exit(0)
        now = metric.sample(Window(last=StepFacts(step=1)))
        os.close(writing)
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)
        os.close(reading)
        assert child.stdin is not None
        child.stdin.close()
    assert isinstance(before, float)
    assert isinstance(now, float)
    assert 195 < now - before < 255
    assert len(shared) == 64 << 20
