"""Runs the blocks of a page one after the other, as somebody does who types them: python run_page.py PAGE.

Python blocks share their names, as in one session; the lines of a bash block run one by one. A yaml block is saved
under the name that the text before it gives in backticks, if it gives one. Blocks in other languages are left out.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# What runs until it is ended, and what it says when it is at work.
ENDLESS = {"tensorboard": "http://", "ms-summary-bridge view": "http://127.0.0.1:"}
# What other tests run, since it takes minutes: tests/project/test_quickstart.py, and tools/test runs this.
LEFT_OUT = ("./tools/quickstart", "./tools/test")


def run_line(line: str) -> None:
    """Runs one line of a bash block to its end, or until it is at work."""
    signs = [sign for start, sign in ENDLESS.items() if line.startswith(start)]
    if line.startswith(LEFT_OUT):
        return
    if not signs:
        subprocess.run(["bash", "-euc", line], check=True, timeout=240)
        return
    process = subprocess.Popen(
        shlex.split(line, comments=True), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    said, deadline = b"", time.monotonic() + 180
    while signs[0].encode() not in said:
        assert time.monotonic() < deadline, (line, said)
        assert process.poll() is None, (line, said)
        said += process.stdout.read() or b""
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def main(page: Path) -> None:
    """Runs the page below the working directory."""
    sys.path.insert(0, os.getcwd())
    names: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        language, block = match[1], match[2]
        print(f"=== {language}\n{block}", flush=True)
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
        elif language == "bash":
            for line in block.splitlines():
                run_line(line)
        elif language == "yaml" and (
            name := re.search(r"`([\w-]+\.yaml)`", text[: match.start()].rsplit("\n\n", 2)[1])
        ):
            Path(name[1]).write_text(block, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
