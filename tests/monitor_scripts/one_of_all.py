"""A training of one process whose section asks for values over all ranks.

Usage: python tests/monitor_scripts/one_of_all.py DIRECTORY

First without communication, then as if it were initialised with one rank. What was said goes to DIRECTORY/said.json.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import mindspore
from mindspore.communication import management

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from all_ranks import Said
from small import train, vector_model

from ms_summary_bridge.monitor import MindSporeTransformersMonitor


def main(directory: str) -> None:
    mindspore.set_device("CPU")
    handler = Said()
    logging.getLogger("ms_summary_bridge").addHandler(handler)
    section = {"interval": 0, "backend": ["local"], "save_dir": directory, "aggregate": True}
    said = {}
    for name in ("alone", "one_rank"):
        management.GlobalComm.INITED = name == "one_rank"
        train(vector_model(), 3, MindSporeTransformersMonitor({**section, "run_id": name}))
        said[name], handler.lines = [line for line in handler.lines if "aggregate" in line], []
    Path(directory, "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
