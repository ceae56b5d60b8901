"""The child process that keeps a mirror up to date: `python -m ms_summary_bridge.mirror HOME SOURCE TARGET LIMIT`.

Each line of its output is one message: `warning TEXT`, or `fault TEXT` as the last one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from typing import Final

from ms_summary_bridge.mirror.home import Home
from ms_summary_bridge.mirror.mirror import Mirror

__all__ = ["main"]

_NICENESS: Final = 5


def main(arguments: list[str]) -> int:
    """Follows the logdir until the viewer is gone."""
    path, source, target, limit = arguments
    parent = os.getppid()
    threading.Thread(target=_end_with_viewer, name="end-with-viewer", daemon=True).start()
    _be_nice()  # a training on the same machine goes first

    def wait(secs: float) -> bool:
        time.sleep(secs)
        return os.getppid() != parent  # a process forked from the viewer may hold our stdin open

    home = Home(path, source)
    try:
        home.hold()
        Mirror(home, target, int(limit), lambda line: _say("warning", line)).run(wait)
    except Exception as error:  # the border: whatever it is, the viewer goes on, and is told why
        _say("fault", f"{type(error).__name__}: {error} (see {_keep_traceback(home)})")
        return 1
    return 0


def _be_nice() -> None:
    if sys.platform == "win32":
        import psutil

        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        os.nice(_NICENESS)


def _end_with_viewer() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)  # also in the middle of a conversion: the next one goes on from what lies there


def _say(kind: str, text: str) -> None:
    line = " ".join(text.split())
    sys.stdout.buffer.write(f"{kind} {line}\n".encode(errors="backslashreplace"))
    sys.stdout.buffer.flush()


def _keep_traceback(home: Home) -> str:
    path = os.path.join(home.path, "fault.txt")
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exc(file=file)
    except OSError as error:
        return f"no file: {error}"
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
