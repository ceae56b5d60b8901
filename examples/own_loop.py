"""Records a training loop that is written by hand, without MindSpore or any other framework.

Usage: python examples/own_loop.py DIRECTORY

The loop fits a line with numpy, in less than a second. Afterwards look at what the monitor has kept with

    ms-summary-bridge watch DIRECTORY --once
    tensorboard --logdir DIRECTORY
"""

from __future__ import annotations

import sys

import numpy as np

from ms_summary_bridge.monitor import Monitor

STEPS = 60
BATCH = 16


def main(directory: str) -> None:
    """Trains."""
    rng = np.random.default_rng(0)
    slope, offset = 0.0, 0.0
    rate = 0.3

    # The same keys as in a section `monitor_config:` of a YAML file, whose path may stand here as well.
    config = {
        "save_dir": directory,
        "project": "line",
        "interval": 0,  # seconds between two samples; 0 records every step
        "metrics": ["loss", "lr", "step_time", "samples_per_second", "grad_norm"],
        "backend": ["local", "tensorboard"],
    }
    # Told how many steps there are, the console says how long it will take.
    with Monitor(config, epochs=1, steps_per_epoch=STEPS) as monitor:
        for step in range(1, STEPS + 1):
            x = rng.uniform(-1, 1, BATCH)
            error = slope * x + offset - (3 * x + 1)
            gradient = np.array([2 * (error * x).mean(), 2 * error.mean()])
            slope, offset = np.array([slope, offset]) - rate * gradient

            # Once a step, with what the loop knows of it.
            monitor.step(
                loss=(error**2).mean(), lr=rate, samples=BATCH, grad_norm=np.linalg.norm(gradient), slope=slope
            )
            if step % 20 == 0:
                with monitor.timing("evaluation"):  # this time is left out of step_time and samples_per_second
                    x = np.linspace(-1, 1, 100)
                    print(f"step {step}: off by {abs(slope * x + offset - (3 * x + 1)).max():.6f} at most")
    print(f"y = {slope:.3f} x + {offset:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
