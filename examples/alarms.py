"""Shows what happens when a loss becomes NaN: a log line, a message to a webhook, a report, and the end of the loop.

Usage: python examples/alarms.py DIRECTORY

The loop goes wrong on purpose at step 30. A small server in this program takes the place of Feishu, DingTalk, WeCom or
Slack; for those, put the address of your robot into an environment variable and name it in `url`, with its `dialect`.
"""

from __future__ import annotations

import html
import json
import math
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from ms_summary_bridge.monitor import Monitor


class Robot(BaseHTTPRequestHandler):
    """Prints the messages that come in."""

    def do_POST(self) -> None:
        """Takes one message, in which Slack wants &, < and > escaped."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(f"the robot hears: {html.unescape(message['text'])}", flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing else."""


def main(directory: str) -> None:
    """Runs the loop until the alarm stops it."""
    server = HTTPServer(("127.0.0.1", 0), Robot)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["ALARM_URL"] = f"http://127.0.0.1:{server.server_port}/"

    config = {
        "save_dir": directory,
        "interval": 0,
        "metrics": ["loss"],
        "backend": "local",
        "alerts": [
            # Actions are done in this order. `stop` asks the loop to end, here through `should_stop`.
            {"rule": "nonfinite", "actions": ["log", {"webhook": {"url": "${ALARM_URL}", "dialect": "slack"}}, "stop"]}
        ],
    }
    with Monitor(config) as monitor:
        step = 0
        while not monitor.should_stop and step < 1000:
            step += 1
            monitor.step(loss=math.nan if step >= 30 else 1 / step)
    print(f"the loop ended after step {step}", flush=True)
    server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
