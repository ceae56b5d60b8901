"""Trainings in environments that a launcher, or an earlier job, has left; one after the other in one process.

Usage: python tests/monitor_scripts/rank_environments.py DIRECTORY RESULT.json ENVIRONMENTS.json

Training n has DIRECTORY/<n>. RESULT.json has for each what the watchdog was told and what was logged.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import mindspore

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import train, vector_model

from ms_summary_bridge import SummaryBridge
from ms_summary_bridge.monitor import build_monitor_callbacks
from ms_summary_bridge.monitor.watchdog.assignment import Assignment
from ms_summary_bridge.monitor.watchdog.watchdog_link import WatchdogLink

NAMES = ("RANK", "WORLD_SIZE", "DEVICE_ID", "OMPI_", "SLURM_", "MS_WORKER_NUM", "MS_NODE_ID", "LOCAL_RANK")


class Log(logging.Handler):
    """Keeps what was said above INFO."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main() -> None:
    directory, result, environments = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text())
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    told: list[Any] = []
    tell = WatchdogLink._tell

    def note(link: WatchdogLink, message: Any) -> None:
        if isinstance(message, Assignment):
            told.append(message.place.rank)
        elif "directory" in message:
            told.append(message["directory"])
        tell(link, message)

    WatchdogLink._tell = note  # type: ignore[method-assign]
    answers = []
    model = vector_model()
    for number, environment in enumerate(environments):
        for name in [name for name in os.environ if name.startswith(NAMES)]:
            del os.environ[name]
        os.environ.update(environment)
        log = Log()
        logging.getLogger("ms_summary_bridge").addHandler(log)
        told.clear()
        place = directory / str(number)
        section = {
            "interval": 0,
            "backend": ["local", "tensorboard"],
            "save_dir": str(place),
            "run_id": "run",
            "save_checkpoint_steps": 1,
        }
        train(model, 2, *build_monitor_callbacks(section))
        rank = os.environ.get("RANK_ID", "")
        bridge = SummaryBridge(str(place / ("summary_dir" + rank)))
        bridge.add_scalar("x", 1.0, 1)
        bridge.close()
        logging.getLogger("ms_summary_bridge").removeHandler(log)
        answers.append({"watchdog": list(told), "said": log.messages})
    result.write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
