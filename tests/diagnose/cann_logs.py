"""CANN's logs of a training of several ranks, written anew in the documented shapes; nothing here is a copy of a log.

Sources:

* The shape of a line, `[Level] ModuleName(PID,PName):DateTimeMS [FileName:LineNumber]LogContent`, and the names and
  directories of files: CANN 8.0 and 8.5, "Log Overview" (hiascend.com, maintenref/logreference/logreference_0001).
* `Cluster Exception Location[IP/ID]`, `Heartbeat Lost Occurred` and `Stuck Occurred`: HCCL's guide to a process that
  is stuck or whose heartbeat is lost (docs of the public repository hcomm).
* EI0002 with base, task and group information, `rankSize[..], rankId[..]` and `remote rank:[..]`: reports in public,
  such as vllm-project/vllm-ascend issue 3413 and InternLM/lmdeploy issue 3354, and the same guides.
* EI0006: hiascend.com, maintenref/troubleshooting/atlaserrorcode_15_0246; EL0004: atlaserrorcode_15_0267.
* `Entry-HcclCommInitRootInfoConfigInner:ranks[..], rank[..], ... identifier[..]`: HCCL's guide to its logs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

WORLD = "hccl_world_group"


def moment(wall_time: float) -> str:
    return time.strftime("%Y-%m-%d-%H:%M:%S", time.localtime(wall_time)) + ".049.385"


class CannLog:
    """The logs of one process, in one directory for all."""

    def __init__(self, place: Path, pid: int) -> None:
        self.pid = pid
        self.debug = place / "debug" / "plog" / f"plog-{pid}_20261130120000000.log"
        self.run = place / "run" / "plog" / f"plog-{pid}_20261130120000000.log"

    def _write(self, path: Path, level: str, module: str, wall_time: float, place: str, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"[{level}] {module}({self.pid},python):{moment(wall_time)} [{place}][{self.pid}]{text}\n")

    def join(self, wall_time: float, group: str, size: int, rank: int, device: int = 0) -> None:
        text = f"Entry-HcclCommInitRootInfoConfigInner:ranks[{size}], rank[{rank}], rootinfo: host ip[10.0.0.1] "
        text += f"port[60000] nicDeploy[1] identifier[{group}], deviceLogicId[{device}]"
        self._write(self.run, "INFO", "HCCL", wall_time, "op_base.cc:1300", text)

    def chatter(self, wall_time: float, lines: int) -> None:
        for number in range(lines):
            self._write(self.run, "INFO", "HCCL", wall_time, "op_base.cc:9", f"Entry-HcclAllReduce: tag[{number}]")

    def exception(self, wall_time: float, kind: str, address: str, device: int) -> None:
        arrival = time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(wall_time))
        text = f"[TaskExecStage][HeartbeatAbnormal]Cluster Exception Location[IP/ID]:[{address}/{device}], "
        text += f"Arrival Time:[{arrival}], Discoverer:[{address}/0], ExceptionType:[{kind}], Possible Reason:1. gone"
        self._write(self.debug, "ERROR", "HCCL", wall_time + 100, "task_exception_handler.cc:610", text)

    def notify_timeout(self, wall_time: float, group: str, size: int, rank: int, remote: int | str) -> None:
        text = f"EI0002: [PID: {self.pid}] {moment(wall_time)} The wait execution of the Notify register times out. "
        text += f"Reason: no Notify record came from remote rank: [{remote}]. base information: [streamID:[1], "
        text += f"taskID[2], tag[AllReduce_{group}]]. task information: [notify id:[0x2], stage:[0], "
        text += f"remote rank:[{remote}]]. group information: [group:[{group}], user define information[Unspecified], "
        text += f"rankSize[{size}], rankId[{rank}]]"
        self.debug.parent.mkdir(parents=True, exist_ok=True)
        with self.debug.open("a", encoding="utf-8") as file:
            file.write(text + "\n        Possible Cause: 1. An exception occurs on some NPUs\n")

    def error(self, wall_time: float, code: str, text: str) -> None:
        self._write(self.debug, "ERROR", "RUNTIME", wall_time, "npu_driver.cc:780", f"{code}: {text}")


def write_ranks(run: Path, began: float, ranks: int, *, per_host: int = 8, **more: Any) -> list[int]:
    """Writes a journal for each rank, that ends at step 5 without a word; returns their pids."""
    pids = []
    for rank in range(ranks):
        pid = 4000 + rank
        host = rank // per_host
        header = {"kind": "header", "format": 1, "wall_time": began, "rank": rank, "ranks": ranks, "pid": pid}
        header |= {"host": f"node-{host}", "device": f"Ascend {rank % per_host}", "addresses": [f"10.0.0.{host + 1}"]}
        sample = {"kind": "sample", "step": 5, "wall_time": began + 60, "values": {"loss": 1.0}}
        directory = run / f"rank_{rank}"
        directory.mkdir(parents=True)
        lines = [{**header, **more}, sample]
        (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        pids.append(pid)
    return pids
