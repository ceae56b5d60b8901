"""Converts a log while it still grows, as `ms-summary-bridge convert SRC DST --follow` does.

Usage: python examples/follow_training.py DIRECTORY

A thread plays the training: it writes a log to DIRECTORY/training for about two seconds. The follower writes what is
new to DIRECTORY/converted in rounds, and may be killed at any moment: a later one goes on where it was.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from tensorboardX import SummaryWriter

from ms_summary_bridge import Report, follow_logdir, read_scalars

STEPS = 30


def train(directory: Path, ended: threading.Event) -> None:
    """Writes a scalar a step, as a training does."""
    with SummaryWriter(str(directory), flush_secs=1) as writer:
        for step in range(STEPS):
            writer.add_scalar("loss", 1 / (step + 1), step)
            writer.flush()
            time.sleep(0.05)
    ended.set()


def main(directory: str) -> None:
    """Trains and follows."""
    source, destination = Path(directory, "training"), Path(directory, "converted")
    ended, stop = threading.Event(), threading.Event()
    threading.Thread(target=train, args=(source, ended), daemon=True).start()

    found = 0

    def tell(report: Report) -> None:
        nonlocal found
        values = sum(run.values.get("scalar", 0) for run in report.runs)
        found += values
        print(f"{values} new scalars, {found} in all", flush=True)
        if ended.is_set() and found == STEPS:
            stop.set()  # without it, it follows until Ctrl-C

    follow_logdir(source, destination, stop=stop, on_round=tell)
    steps, values = read_scalars(destination).series("loss")
    print(f"converted: steps {steps[0]} to {steps[-1]}, the last loss {values[-1]:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
