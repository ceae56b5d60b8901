"""Saves checkpoints without pause until it is killed; says each one that is saved.

Usage: python tests/save_endlessly.py DIRECTORY SEED [--mindspore] [--place] [--anew]

A checkpoint holds its step many times over, so that a torn or mixed one is seen. What is said are lines of JSON: at the
start `start`, the last step and the best one; before a save `begin`, its step and value; after it `done`, step, value,
and the best step and value.

With `--mindspore` MindSpore writes the files, of a cell with an optimizer, and first of all those that are there are
loaded: `loaded` and their steps. With `--place` the directory is one that no other process has, which `place` says.
With `--anew` each process begins from scratch.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ms_summary_bridge.monitor.checkpoints.checkpoint_files import CheckpointFiles
from ms_summary_bridge.monitor.checkpoints.checkpoint_place import CheckpointPlace
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import read_state
from ms_summary_bridge.training.distributed import find_process_rank

LINES = 20_000


def write_text(step: int, value: float) -> Callable[[str], None]:
    """Returns what writes a checkpoint of lines; about 600 kB, in pieces."""

    def write(path: str) -> None:
        with open(path, "w") as file:
            for _ in range(20):
                file.write(f"{step} {value!r}\n" * (LINES // 20))
                file.flush()

    return write


def write_with_mindspore() -> Callable[[int, float], Callable[[str], None]]:
    """Returns what makes a checkpoint of a training cell."""
    import mindspore
    import numpy as np
    from mindspore import nn

    mindspore.set_device("CPU")
    network = nn.Dense(300, 300)
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    cell = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), optimizer)

    def at(step: int, value: float) -> Callable[[str], None]:
        def write(path: str) -> None:
            for parameter in (network.weight, optimizer.moments[0]):
                parameter.set_data(mindspore.Tensor(np.full(parameter.shape, step, np.float32)))
            mindspore.save_checkpoint(cell, path, integrated_save=False, append_dict={"value": value})

        return write

    return at


def load_all(directory: Path) -> list[int]:
    """Loads the checkpoints that the state names; returns their steps, read from what was loaded."""
    import mindspore
    import numpy as np

    state = read_state(str(directory))
    steps = []
    for checkpoint in () if state is None else (state.best, *state.last):
        assert checkpoint is not None
        values = mindspore.load_checkpoint(str(directory / checkpoint.file))
        for name in ("network._backbone.weight", "weight", "moments.weight"):
            if name in values:
                assert (values[name].asnumpy() == np.float32(checkpoint.step)).all()
        steps.append(int(values["moments.weight"].asnumpy()[0, 0]))
    return steps


def main() -> None:
    """Saves."""
    directory, seed = Path(sys.argv[1]), int(sys.argv[2])
    make: Callable[[int, float], Callable[[str], None]] = write_text
    if "--mindspore" in sys.argv:
        make = write_with_mindspore()
        say("loaded", load_all(directory))
    if "--place" in sys.argv:
        place = CheckpointPlace(str(directory), find_process_rank())
        say("place", place.directory, place.user)
        directory = Path(place.directory)
        rank = find_process_rank()
        directory = directory if rank.ranks == 1 else directory / f"rank_{rank.rank}"
    rng = random.Random(seed)
    files = CheckpointFiles(
        str(directory),
        monitor="loss",
        mode="min",
        keep=2,
        warn=lambda text: say("warning", text),
        goes_on=(lambda state: False) if "--anew" in sys.argv else None,
    )
    say("start", files.last and files.last.step, files.best and [files.best.step, files.best.value])
    step = files.last.step if files.last else 0
    while True:
        step += 1
        value = round(rng.random(), 6)
        say("begin", step, value)
        files.save(step, make(step, value), value=value)
        assert files.best is not None
        say("done", step, value, files.best.step, files.best.value)


def say(*words: Any) -> None:
    """Writes a line at once."""
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main()
