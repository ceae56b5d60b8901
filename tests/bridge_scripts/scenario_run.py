"""Runs scenarios one after the other in one process, since importing mindspore takes longer than most of them."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mindspore
from mindspore.train import SummaryRecord


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def run_all(scenarios: Mapping[str, Callable[[Path], Any]]) -> None:
    """Runs those that the command line names: `DIRECTORY RESULT.json [NAME ...]`, all where it names none.

    Each gets DIRECTORY/<name>. RESULT.json has for each what it `returned`, what this package logged (`log`), how many
    `secs` it took, and `failed` with a traceback where it ended by an exception.
    """
    directory, result = Path(sys.argv[1]), Path(sys.argv[2])
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    log = _Log()
    logging.getLogger("ms_summary_bridge").addHandler(log)
    answers: dict[str, Any] = {}
    for name in sys.argv[3:] or scenarios:
        print("===", name, flush=True)
        log.messages = []
        (directory / name).mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        answer: dict[str, Any] = {"returned": None, "failed": ""}
        try:
            answer["returned"] = scenarios[name](directory / name)
        except BaseException:
            answer["failed"] = traceback.format_exc()
            SummaryRecord.count = 0  # so that the next one can run
        answers[name] = {**answer, "log": log.messages, "secs": round(time.monotonic() - begun, 2)}
    result.write_text(json.dumps(answers, default=str, indent=1))
