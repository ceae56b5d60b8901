"""Computes mean, min, max, std and median over the ranks of a training, and tells which rank is odd.

Usage: python examples/aggregate_ranks.py DIRECTORY

It writes the logs of four ranks to DIRECTORY/ranks first: one of them goes wrong, another ends early. TensorBoard
overlays the statistics in one chart: `tensorboard --logdir DIRECTORY/over_ranks`. The same from the command line is
`ms-summary-bridge aggregate RANKS DESTINATION`.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from tensorboardX import SummaryWriter

from ms_summary_bridge import aggregate_ranks, read_scalars


def write_ranks(directory: Path) -> None:
    """Writes a log for each rank, as a training on four cards does."""
    for rank in range(4):
        with SummaryWriter(str(directory / f"rank_{rank}")) as writer:
            for step in range(15 if rank == 3 else 20):
                loss = math.nan if rank == 2 and step >= 18 else 1 / (step + 1) + rank / 100
                writer.add_scalar("loss", loss, step, walltime=1_700_000_000 + step)


def main(directory: str) -> None:
    """Aggregates."""
    base = Path(directory)
    write_ranks(base / "ranks")
    report = aggregate_ranks(base / "ranks", base / "over_ranks")
    for rank in report.ranks:
        print(f"rank {rank.rank}: {rank.values} values up to step {rank.last_step}, {rank.gaps} missing")
    for fault in report.first_bad:
        print(f"rank {fault.rank}: {fault.tag} is not finite since step {fault.step}")
    steps, means = read_scalars(base / "over_ranks", runs="^mean$").series("loss")
    print(f"mean at step {steps[0]}: {means[0]:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
