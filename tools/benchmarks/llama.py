"""What a rank's own numbers take of a step of a tiny Llama of MindFormers, in GRAPH and in PYNATIVE mode.

The Llama of the tests is trained in turns, in the environment `mindformers`, with the monitor's usual metrics, and with
`local_loss`, `local_grad_norm`, `local_grad_norms`, `sub_losses` and `mfu` in addition. What the hooks take more of the
training thread in each step, and what a recorded step of GradientSummary takes more, shared by 100 steps, must together
stay below 1 % of a step. All is processor time. MindFormers' own `local_norm`, at each step, stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Spread, spread

NAME = "llama"

_ROOT = Path(__file__).resolve().parent.parent.parent
_SCRIPT = Path(__file__).resolve().parent / "train_llama_numbers.py"
_MODES = {"GRAPH": 0, "PYNATIVE": 1}
_EVERY = 100
_LIMIT = 0.01


class Result(msgspec.Struct):
    """One mode, over all pairs; microseconds of processor time."""

    mode: str
    step: Spread
    hooks: Spread
    """How much longer the monitor's hooks take in each step, of the training thread."""
    recorded: Spread
    """How much longer a step takes in which GradientSummary records."""
    share: float
    """Of both in a step, with one recorded step of 100."""
    local_norm: float
    """How much longer a step is with MindFormers' own norms, as a share."""
    is_met: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--pairs", type=int, default=7, help="turns (default 7)")
    parser.add_argument("--steps", type=int, default=150, help="steps of a training (default 150)")
    parser.add_argument("--mode", choices=_MODES, action="append", help="one mode alone (default both)")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when the limit is passed."""
    modes = arguments.mode or list(_MODES)
    results = [_measure(mode, arguments.pairs, arguments.steps) for mode in modes]
    code = 0 if all(result.is_met for result in results) else 1
    if arguments.json:
        print(msgspec.json.encode({"llama": results, "is_met": code == 0}).decode())
        return code
    table = Table(title="microseconds of processor time (min / median / max)")
    for heading in ("", "step", "hooks more", "a recorded step more", "share", "limit", "local_norm: step longer by"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for result in results:
        numbers = (str(result.step), str(result.hooks), str(result.recorded))
        table.add_row(result.mode, *numbers, f"{result.share:.2%}", f"{_LIMIT:.0%}", f"{result.local_norm:.0%}")
    Console(width=160).print(table)
    return code


def _measure(mode: str, pairs: int, steps: int) -> Result:
    subprocess.run([str(_ROOT / "tools" / "environment"), "mindformers"], check=True)
    environments = Path(os.environ.get("MSB_VENVS") or _ROOT / ".venvs").resolve()
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as output:
        # No pipe: a process that writes would hold it open.
        subprocess.run(
            [
                *(str(environments / "mindformers" / "bin" / "python"), str(_SCRIPT)),
                *(str(_MODES[mode]), str(pairs), str(steps), scratch),
            ],
            check=True,
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        output.seek(0)
        rows = json.loads(output.read().splitlines()[-1])
    step = spread([row["step"] for row in rows])
    hooks = spread([row["own"] - row["usual"] for row in rows])
    recorded = spread([row["recorded"] - row["others"] for row in rows])
    share = (hooks.median + recorded.median / _EVERY) / step.median
    longer = statistics.median(row["local_norm"] / row["step"] for row in rows) - 1
    return Result(mode, step, hooks, recorded, share, longer, share <= _LIMIT)
