"""Trainings that end in a way of their own, each in its own process.

Usage: python tests/bridge_scripts/ends.py MODE DIRECTORY

* `endless`: trains until a signal comes; after each step its number is added to DIRECTORY/steps.
* `paced`: says `<step>` on stdout after each step, and waits for a line on stdin before the next.
* `readonly`: trains into DIRECTORY/there and into a new directory beside it, neither of which can be written to, and
  then into one that this user may not make; says `done`.
* `ranks`: one rank of a distributed training (under msrun), into DIRECTORY/run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import mindspore
from small import AtStep, note_step, train, vector_model, vectors

from ms_summary_bridge import SummaryBridge

NOBODY = 65534


def endless(directory: Path) -> None:
    bridge = SummaryBridge(str(directory / "run"), collect_freq=1)
    train(vector_model(), 100, bridge, AtStep(note_step(str(directory / "steps"))), epochs=1000)


def paced(directory: Path) -> None:
    def wait(step: int) -> None:
        os.write(1, b"%d\n" % step)
        sys.stdin.readline()

    bridge = SummaryBridge(
        str(directory / "run"), collect_freq=1, collect_trainable_params=False, collect_graph=False, flush_secs=0.5
    )
    train(vector_model(), 6, bridge, AtStep(wait))


def readonly(directory: Path) -> None:
    for name in ("there", "new", "forbidden"):
        if name == "forbidden" and os.geteuid() == 0:
            os.seteuid(NOBODY)
            directory = directory.parent
        bridge = SummaryBridge(str(directory / name), collect_freq=1)
        train(vector_model(), 3, bridge)
        bridge.add_scalar("x", 1.0)
        bridge.summary_writer.add_scalar("x", 1.0, 1)
        assert bridge.flush() in (True, False)
        bridge.close()
    os.write(1, b"done\n")


def ranks(directory: Path) -> None:
    from mindspore.communication import get_rank, init

    init()
    mindspore.set_auto_parallel_context(parallel_mode=mindspore.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    bridge = SummaryBridge(str(directory / "run"), collect_freq=1)
    train(vector_model(), 3, bridge, AtStep(lambda step: bridge.add_scalar("rank", get_rank())), data=vectors(3))


if __name__ == "__main__":
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    {"endless": endless, "paced": paced, "readonly": readonly, "ranks": ranks}[sys.argv[1]](Path(sys.argv[2]))
