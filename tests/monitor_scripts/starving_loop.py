"""A loop whose data worker, a process of its own, stops giving batches while the loss looks fine.

Usage: python tests/monitor_scripts/starving_loop.py FILE, with a monitor_config in FILE. It goes on until it is killed.
"""

from __future__ import annotations

import sys
import time
from multiprocessing import Process, Queue

from ms_summary_bridge.monitor import Monitor

BATCHES = 5


def give_batches(queue: Queue[int]) -> None:
    """Gives some, and then waits for a lock that nobody gives back."""
    for number in range(BATCHES):
        queue.put(number)
    time.sleep(600)


def main() -> None:
    queue: Queue[int] = Queue(1)
    with Monitor(sys.argv[1]) as monitor:
        Process(target=give_batches, args=(queue,), daemon=True).start()
        for step in range(1000):
            with monitor.timing("data"):
                queue.get()
            monitor.step(loss=1.0 / (step + 1), samples=64)


if __name__ == "__main__":
    main()
