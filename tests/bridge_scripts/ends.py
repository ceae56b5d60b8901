"""Trainings that end in a way of their own, each in its own process.

Usage: python tests/bridge_scripts/ends.py MODE DIRECTORY

* `endless`: trains until a signal comes; after each step its number is added to DIRECTORY/steps.
* `paced`: says `<step>` on stdout after each step, and waits for a line on stdin before the next.
* `readonly`: trains into DIRECTORY/there and into a new directory beside it, neither of which can be written to, and
  then into one that this user may not make; says `done`.
* `forked`, `spawned`: a bridge made here, and a training in another process, into DIRECTORY/run.
* `daemon`: the same in a process that outlives the one that made the bridge.
* `ranks`: one rank of a distributed training (under msrun), into DIRECTORY/run.
"""

from __future__ import annotations

import multiprocessing
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


def _train_there(bridge: SummaryBridge) -> None:
    train(vector_model(), 3, bridge)


def forked(directory: Path) -> None:
    _in_process("fork", directory)


def spawned(directory: Path) -> None:
    _in_process("spawn", directory)


def _in_process(method: str, directory: Path) -> None:
    bridge = SummaryBridge(str(directory / "run"), collect_freq=1)
    process = multiprocessing.get_context(method).Process(target=_train_there, args=(bridge,))
    process.start()
    process.join()
    sys.exit(process.exitcode)


def daemon(directory: Path) -> None:
    bridge = SummaryBridge(str(directory / "run"), collect_freq=1)
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os.read(reading, 1)  # until the child is gone
        return
    os.setsid()
    _train_there(bridge)


def ranks(directory: Path) -> None:
    from mindspore.communication import get_rank, init

    init()
    mindspore.set_auto_parallel_context(parallel_mode=mindspore.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    bridge = SummaryBridge(str(directory / "run"), collect_freq=1)
    train(vector_model(), 3, bridge, AtStep(lambda step: bridge.add_scalar("rank", get_rank())), data=vectors(3))


if __name__ == "__main__":
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    {function.__name__: function for function in (endless, paced, readonly, forked, spawned, daemon, ranks)}[
        sys.argv[1]
    ](Path(sys.argv[2]))
