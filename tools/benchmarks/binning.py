"""Counting values into even buckets, against np.histogram with the same edges.

Both count 1M float32 of a normal distribution into the 90 buckets that MindSpore's writer uses, in alternating pairs;
the counts must be the same.
"""

from __future__ import annotations

import argparse

import msgspec
import numpy as np
from rich.console import Console

from benchmarks.measure import measure_pairs, spread
from ms_summary_bridge.live_writer.pack import bucket_counts

NAME = "binning"

_ELEMENTS = 1_000_000
_BUCKETS = 90
_LIMIT = 1 / 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--pairs", type=int, default=15, help="alternating pairs (default 15)")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when it takes more than a third of np.histogram's time."""
    values = np.random.default_rng(0).standard_normal(_ELEMENTS).astype(np.float32)
    edges = np.linspace(values.min(), values.max(), _BUCKETS + 1, dtype=values.dtype)
    counts = {"ours": np.empty(0), "numpy": np.empty(0)}

    def ours() -> None:
        counts["ours"] = bucket_counts(values, edges)

    def numpys() -> None:
        counts["numpy"] = np.histogram(values, bins=edges)[0]

    pairs = measure_pairs(ours, numpys, arguments.pairs, lambda note: None)
    if not np.array_equal(counts["ours"], counts["numpy"]):
        raise SystemExit("the counts differ")
    share = spread([1 / ratio for ratio in pairs.ratios])
    is_met = share.median <= _LIMIT
    if arguments.json:
        print(msgspec.json.encode({"binning": share, "limit": _LIMIT, "is_met": is_met}).decode())
    else:
        shown = f"{share.min:.3f} / {share.median:.3f} / {share.max:.3f}"
        verdict = "met" if is_met else "MISSED"
        Console().print(f"share of np.histogram's time, min / median / max: {shown}, limit {_LIMIT:.3f}: {verdict}")
    return 0 if is_met else 1
