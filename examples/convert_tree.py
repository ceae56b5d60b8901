"""Converts a tree of TensorBoard logs for MindInsight and back, and proves that nothing was lost.

Usage: python examples/convert_tree.py DIRECTORY

It writes three small logs of its own to DIRECTORY/runs first, so it needs neither MindSpore nor TensorBoard. With
yours, one line does the same: `ms-summary-bridge convert RUNS DESTINATION`. The direction is found from the files.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from tensorboardX import SummaryWriter

from ms_summary_bridge import convert_logdir, verify_logdirs


def write_runs(directory: Path) -> None:
    """Writes logs as any framework does: scalars, histograms, an image and a text."""
    rng = np.random.default_rng(0)
    for name, rate in (("rate_0.1/first", 0.1), ("rate_0.1/second", 0.1), ("rate_0.3", 0.3)):
        with SummaryWriter(str(directory / name)) as writer:
            for step in range(50):
                writer.add_scalar("loss", math.exp(-rate * step) + rng.uniform(0, 0.01), step)
            writer.add_histogram("weights", rng.normal(size=1000), 49)
            writer.add_image("picture", rng.uniform(size=(3, 8, 8)), 49)
            writer.add_text("note", f"with a rate of {rate}", 0)


def main(directory: str) -> None:
    """Converts there and back."""
    base = Path(directory)
    write_runs(base / "runs")

    report = convert_logdir(base / "runs", base / "for_mindinsight", to="mindinsight")
    for run in report.runs:
        print(f"{run.run} -> {run.destination}: {run.values}")
        for loss in run.losses:  # what the other format has no place for, or holds in another form
            print(f"    {loss.count} x {loss.kind} {loss.tag}: {loss.reason}")

    # A text has no place in MindSpore's format. It is kept in an archive beside the output, so the way back is exact.
    convert_logdir(base / "for_mindinsight", base / "and_back", to="tensorboard")
    for name in ("for_mindinsight", "and_back"):
        print(f"{name} has all of runs:", verify_logdirs(base / "runs", base / name).is_equal)


if __name__ == "__main__":
    main(*sys.argv[1:])
