"""Records a training loop with a Monitor on Weights & Biases, reads its offline file back. Imports no mindspore.

Usage: python tests/monitor_scripts/wandb_loop.py SAVE_DIR [MODE]

With a mode there is a run of the loop's own beside the monitor's, with one value before and one after it. The last line
on stdout is JSON: what the files say of each run, the monitor's first: its history, its alerts and how it ended.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import wandb
from wandb.proto.wandb_internal_pb2 import Record

from ms_summary_bridge.monitor import Monitor

LOSSES: Final = (2.5, 3.5, float("nan"), 1.5)
_BLOCK: Final = 32 << 10


def train(save_dir: str) -> None:
    section = {
        "interval": 0,
        "backend": "wandb",
        "project": "offline",
        "run_id": "run",
        "save_dir": save_dir,
        "metrics": ["loss", "lr"],
        "tags": {"dataset": "v3", "layers": 12, "monitor": "theirs"},
        "callback": {"params": {"warn_on_value": {"loss": 3.0}}},
    }
    with Monitor(section) as monitor:
        for step, loss in enumerate(LOSSES, 1):
            monitor.step(loss=loss, lr=0.1 / 2 ** (step - 1), accuracy=step / 4)


def records(path: Path) -> Iterator[Record]:
    """Yields the records of a `.wandb` file. Since 0.31 the package has no reader of it in Python any more.

    The file is a log of LevelDB behind a header of 7 bytes: in each block of 32 KiB chunks of checksum (4 bytes),
    length (2) and type (1: whole, 2: first, 3: middle, 4: last), with zeros where no chunk fits at its end.
    """
    content = path.read_bytes()
    assert content.startswith(b":W&B"), content[:7]
    at, payload = 7, b""
    while at < len(content):
        if _BLOCK - at % _BLOCK < 7:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        payload += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(payload)
            payload = b""


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"run": None, "config": {}, "history": [], "alerts": [], "exit_code": None}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found["run"] = {"project": run.project, "name": run.display_name, "group": run.run_group}
            found["config"] |= {item.key: json.loads(item.value_json) for item in run.config.update}
        elif kind == "history":
            items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
            values = {name: value for name, value in items.items() if not name.startswith("_")}  # its own: _runtime
            found["history"].append([record.history.step.num, values])
        elif kind == "alert":
            found["alerts"].append([record.alert.title, record.alert.text])
        elif kind == "exit":
            found["exit_code"] = record.exit.exit_code
    return found


def main() -> None:
    save_dir, *modes = sys.argv[1:]
    own = wandb.init(project="own", dir=save_dir, mode=modes[0]) if modes else None
    if own is not None:
        own.log({"mine": 1})
    train(save_dir)
    if own is not None:
        assert wandb.run is own
        own.log({"mine": 2})
        own.finish()
    wandb.teardown()  # the process that writes the files has ended when it returns
    paths = [
        path for place in ("offline/run/", "") for path in Path(save_dir).glob(f"{place}wandb/offline-run-*/*.wandb")
    ]
    print(json.dumps([read(path) for path in paths]))


if __name__ == "__main__":
    main()
