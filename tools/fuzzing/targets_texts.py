"""Targets: what is text: configurations, journals, tables, logs of CANN, and the monitor's small files."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable

from ms_summary_bridge.aggregate.aggregate import aggregate_ranks
from ms_summary_bridge.columns.profile import read_profile
from ms_summary_bridge.diagnose.cann_log import find_log_files, read_logs, say_fact
from ms_summary_bridge.diagnose.diagnosis import diagnose_ranks, render_diagnosis
from ms_summary_bridge.doctor.configs import read_config
from ms_summary_bridge.errors import BridgeError, UsageError
from ms_summary_bridge.monitor.alarms.earlier import read_level
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import STATE_NAME, read_state
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.config.mindformers_fix import move_misplaced
from ms_summary_bridge.monitor.config.recipes import RECIPES, write_recipe
from ms_summary_bridge.monitor.config.template import write_template
from ms_summary_bridge.monitor.metrics.npu_smi import parse_fields, parse_mapping, parse_table
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.monitor.sinks.csv_file import CsvFile
from ms_summary_bridge.monitor.sinks.journal import read_journal
from ms_summary_bridge.monitor.sinks.line_file import LineFile
from ms_summary_bridge.monitor.suggest import suggest_limits, write_suggestion
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.runs.reading import RunReading, read_points
from ms_summary_bridge.states.watcher import RunWatcher
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts, is_journal
from tools.fuzzing.target import Target, empty, put

_MOST_CONFIG = 64 << 10
_NOW = 1_700_000_500.0


# ---------------------------------------------------------------- configurations


def take_config(data: bytes) -> None:
    """Any bytes as a YAML file with a configuration, and as an override."""
    path = put("config.yaml", data)
    if len(data) > _MOST_CONFIG:  # each of the following reads it once more
        load_config(path)
        return
    read_config(path)
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(BridgeError):
        move_misplaced(text, "config.yaml")
    with contextlib.suppress(BridgeError):
        load_config({}, overrides=[text.replace("\0", "")[:200]])
    load_config(path)


_FORMERS = """seed: 0
runner_config:
  epochs: 2
  batch_size: 4
monitor_config:
  monitor_on: true
  interval: 5
callbacks:
- type: MFLossMonitor
- type: MindSporeTransformersMonitor
  interval: 10
"""


def _config_seeds() -> Iterable[bytes]:
    for name in RECIPES:
        yield write_recipe(name).encode()
    yield write_template().encode()
    yield write_recipe("memory", mindformers=True).encode()
    yield _FORMERS.encode()
    yield b"monitor_config: true\nextends: other.yaml\n"
    yield b"interval=30"
    yield b"a: &a [1, 2]\nb: *a\n<<: {x: 1}\n"


# ---------------------------------------------------------------- journals


def take_journal(data: bytes) -> None:
    """Any bytes as the journals and the watchdog's file of a rank, by all that reads them."""
    directory = empty("journals")
    for name in ("rank_0/metrics.jsonl", "rank_0/hang.jsonl", "metrics.jsonl"):
        put(f"journals/{name}", data)
    rank = os.path.join(directory, "rank_0")
    for run in RunWatcher(directory).look(_NOW):
        json.dumps(run.plain(), allow_nan=False)
    facts = JournalFacts(rank)
    for _ in facts.read():
        pass
    assert not facts.error, facts.error
    is_journal(facts.path)
    list(read_journal(rank))
    read_level(rank, "loss", initial_step=2)
    CsvFile(rank, 0, lambda kind, text: None, lambda: True).write_sample(
        Sample(step=9, epoch=1, wall_time=_NOW, monotonic=1.0, interval_steps=1, values={"loss": 1.0})
    )
    with contextlib.suppress(UsageError):
        write_suggestion(suggest_limits(read_journal(rank)))
    with contextlib.suppress(BridgeError):
        aggregate_ranks(directory, os.path.join(directory, "over_ranks"))
    list(render_diagnosis(diagnose_ranks(directory, now=_NOW, cann_logs=[])))
    heal = LineFile(os.path.join(rank, "metrics.jsonl"), lambda kind, text: None)
    heal.append(b'{"kind":"x"}')
    assert heal.flush(), "a line cannot be added"
    heal.close()
    with open(os.path.join(rank, "metrics.jsonl"), "rb") as file:
        assert file.read().endswith(b'{"kind":"x"}\n'), "the line is not behind the others"


def _journal_seeds() -> Iterable[bytes]:
    head = {"kind": "header", "format": 1, "wall_time": 1_700_000_000.0, "project": "p", "run": "r", "rank": 0,
            "ranks": 2, "host": "h", "pid": 7, "tags": {}, "versions": {"mindspore": "2.10"}}  # fmt: skip
    samples = [
        {"kind": "sample", "step": step, "epoch": 1, "wall_time": 1_700_000_000.0 + step, "monotonic": 1.0, "rank": 0,
         "interval_steps": 1, "is_first": step == 1, "values": {"loss": 1 / step, "lr": 0.1, "step_time": 0.2},
         "min": {"loss": 0.1}, "max": {"loss": 2.0}, "mean": {"loss": 1.0}, "nonfinite_steps": {"loss": 2}}
        for step in range(1, 14)
    ]  # fmt: skip
    notes = [
        {"kind": "alert", "rule": "spike", "metric": "loss", "step": 3, "wall_time": 1_700_000_003.0, "rank": 0,
         "severity": "warning", "message": "m", "value": 3.0, "bound": 1.0, "fields": {"phase": "x"}},
        {"kind": "evaluation", "step": 4, "wall_time": 1_700_000_004.0, "metrics": {"acc": 0.5}, "text": "e"},
        {"kind": "hang", "rule": "hang", "rank": 0, "wall_time": 1_700_000_010.0, "step": 4, "value": 30.0,
         "bound": 20.0, "message": "hangs", "found": {"cpu": 0.1}, "stack": ["a.py:1 in f"]},
        {"kind": "end", "step": 4, "wall_time": 1_700_000_020.0, "rank": 0, "text": "ends",
         "best": {"loss": 0.25, "step": 4}},
    ]  # fmt: skip
    lines = [json.dumps(line, separators=(",", ":")).encode() for line in (head, *samples, *notes)]
    yield b"\n".join(lines) + b"\n"
    yield b"\n".join(lines[:3])
    yield b"[" * 3000 + b"\n"


# ---------------------------------------------------------------- tables


def take_msprobe(data: bytes) -> None:
    """Any bytes as a table of msprobe."""
    directory = empty("msprobe")
    put("msprobe/time-rank3-id/grad_reduced_0-4.csv", data)
    for run in discover(directory).runs:
        list(read_points(run, RunReading()))


def _msprobe_seeds() -> Iterable[bytes]:
    yield (
        b'vpp_stage,name,step,norm,max,min,mean,shape\n0,layers.0.weight,0,1.5,2.5,-2.5,1e-06,"[4096, 4]"\n'
        b'0,layers.0.weight,1,nan,inf,-inf,0,"[4096, 4]"\n'
    )
    yield b"vpp_stage,name,step,micro_step,norm,nans\r\n1,mlp.output,0,0,2.0,0\r\n1,mlp.output,0,1,4.0,0\r\n"
    yield b"vpp_stage,step,module_name,scope,min,max,mean,norm,nans,odd\n0,0,m,input,0,1,0.5,1,0,7\n"


def take_profile(data: bytes) -> None:
    """Any bytes as each table of a profile."""
    place = os.path.join(empty("profiles"), "h_ascend_ms")
    names = ("step_trace_time", "op_statistic_1", "kernel_details")
    for name in names:
        put(f"profiles/h_ascend_ms/ASCEND_PROFILER_OUTPUT/{name}.csv", data)
    put("profiles/h_ascend_ms/FRAMEWORK/cpu_op_type_info_0.csv", data)
    profile = read_profile(place)
    for part in (*profile.parts, *profile.operators):
        assert part.share is None or 0 <= part.share <= 1.000001, f"a share of {part.share}"


def _profile_seeds() -> Iterable[bytes]:
    yield (
        b"Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing\n"
        b"0,1,700.0,150.0,100.0,250.0,150.0,0,0,0\n0,2,700.0,150.0,100.0,250.0,150.0,0,0,0\n"
    )
    yield b"Device_id,OP Type,Core Type,Count,Total Time(us)\n0,MatMulV2,AI_CORE,40,3000.0\n0,Cast,AI_VECTOR_CORE,9,5\n"
    yield b"Name,Type,Accelerator Core,Duration(us)\nx,MatMul,AI_CORE,3.5\n"
    yield b"\xef\xbb\xbfop_type,type_occurrences,total_compute_time\nMatMul,3,0.25\n"


# ---------------------------------------------------------------- logs of CANN


def take_cann(data: bytes) -> None:
    """Any bytes as a log of CANN."""
    directory = empty("cann")
    put("cann/debug/plog/plog-77_20261130120000000.log", data)
    put("cann/rank_0/metrics.jsonl", b'{"kind":"header","pid":77,"rank":0,"ranks":2,"host":""}\n')
    problems: list[str] = []
    for fact in read_logs(find_log_files([directory], problems), problems).facts:
        say_fact(fact)
    list(render_diagnosis(diagnose_ranks(directory, now=_NOW, cann_logs=[directory])))


def _cann_seeds() -> Iterable[bytes]:
    yield (
        b"[ERROR] HCCL(77,python):2026-11-30-10:00:00.000.000 [task_exception_handler.cc:610]EI0002 timeout, "
        b"remote rank:[3], group:[hccl_world_group], rankSize[8], rankId[1]\n"
        b"[ERROR] HCCL(77,python):2026-11-30-10:00:01.000.000 [x.cc:1]Cluster Exception Location[IP/ID]:[10.0.0.1/3], "
        b"Arrival Time:[Mon Nov 30 10:00:00 2026], Discoverer:[x], ExceptionType:[Heartbeat Lost Occurred]\n"
        b"[INFO] HCCL(77,python):2026-11-30-09:00:00.000.000 [op_base.cc:1]Entry-HcclCommInitRootInfoInner:ranks[8], "
        b"rank[1], rootinfo: host ip[x] port[1] nicDeploy[1] identifier[hccl_world_group], deviceLogicId[0]\n"
    )
    yield b"EI0006: [PID: 77] 2026-11-30-10:00:00.123.456 Getting socket times out.\n\tSolution: check.\n"


def take_npu_smi(data: bytes) -> None:
    """Any bytes as what npu-smi prints."""
    text = data.decode("utf-8", "replace")
    parse_table(text)
    parse_mapping(text)
    parse_fields(text, 0)


def _npu_smi_seeds() -> Iterable[bytes]:
    yield (
        b"+---------------------------+-----------------+------------------------------------------------------+\n"
        b"| NPU     Name              | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |\n"
        b"| Chip    Device            | Bus-Id          | AICore(%)    Memory-Usage(MB)  HBM-Usage(MB)         |\n"
        b"+===========================+=================+======================================================+\n"
        b"| 0       910B3             | OK              | 90.5         45                0    / 0              |\n"
        b"| 0       0                 | 0000:C1:00.0    | 30           1500 / 15137      4000 / 65536          |\n"
    )
    yield b"NPU ID Chip ID Chip Logic ID Chip Name\n0 0 0 Ascend\n0 1 - Mcu\n"
    yield b"\tNPU ID : 0\n\tChip Count : 1\n\n\tAicore Usage Rate(%) : 33\n\tHBM Usage Rate(%) : 5\n\tChip ID : 0\n"


# ---------------------------------------------------------------- other files of the monitor


def take_checkpoints(data: bytes) -> None:
    """Any bytes as the state of a directory of checkpoints."""
    directory = empty("checkpoints")
    put(f"checkpoints/{STATE_NAME}", data)
    state = read_state(directory)
    assert state is not None
    assert state.newest is None, "a checkpoint that is not there"


def _checkpoint_seeds() -> Iterable[bytes]:
    yield json.dumps({
        "monitor": "loss", "mode": "min", "format": 1,
        "best": {"file": "best-1.ckpt", "step": 1, "epoch": 1, "bytes": 10, "value": 0.5, "weights": "ab"},
        "last": [{"file": "step-2.ckpt", "step": 2}],
    }).encode()  # fmt: skip


TARGETS = [
    Target("config", "configurations in YAML", take_config, _config_seeds, "yaml"),
    Target("journal", "journals and watchdogs' files", take_journal, _journal_seeds, "json_lines"),
    Target("msprobe", "tables of msprobe", take_msprobe, _msprobe_seeds, "lines"),
    Target("profile", "tables of MindSpore's profiler", take_profile, _profile_seeds, "lines"),
    Target("cann", "logs of CANN (from documentation)", take_cann, _cann_seeds, "lines"),
    Target("npu_smi", "what npu-smi prints (from documentation)", take_npu_smi, _npu_smi_seeds, "lines"),
    Target("checkpoints", "states of checkpoints", take_checkpoints, _checkpoint_seeds, "json"),
]
