"""A monitor made in one process, and a training in another.

Usage: python tests/monitor_scripts/forks.py MODE DIRECTORY

* `forked`, `spawned`: the callbacks of a configuration go to a process that trains; the journal is in DIRECTORY.
* `daemon`: the same in a process that outlives the one that made the callbacks.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import mindspore

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import train, vector_model

from ms_summary_bridge.monitor import build_monitor_callbacks


def make(directory: Path) -> list[Any]:
    section = {"interval": 0, "save_dir": str(directory), "run_id": "run", "metrics": ["loss"], "save_best_ckpt": True}
    return build_monitor_callbacks(section)


def train_there(callbacks: list[Any]) -> None:
    train(vector_model(), 3, *callbacks)


def main(mode: str, directory: Path) -> int:
    mindspore.set_device("CPU")
    callbacks = make(directory)
    if mode in ("forked", "spawned"):
        process = multiprocessing.get_context(mode[:-2]).Process(target=train_there, args=(callbacks,))
        process.start()
        process.join()
        return process.exitcode or 0
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os.read(reading, 1)  # until the child is gone
        return 0
    os.setsid()
    train_there(callbacks)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
