"""The process of a tracker's client: takes lines of JSON from the training, and answers in lines.

    {"begin": {...}}, {"values": ...}, {"tell": ...}; {"end": reason} -> ["ended", what is missing, or nothing]
    ["fault", ...] comes at any time, once for each

Where the training has gone without a word, the run ends as one that failed. When all is taken there is a limit, so that
a client that hangs does not stay behind for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from ms_summary_bridge.errors import BridgeError, counted
from ms_summary_bridge.monitor.sinks.tracker_clients import Client, make_client

__all__ = ["main"]

_MOST_FAULTS: Final = 20  # that are told
_LOST: Final = "the training has ended without a word"


def main() -> None:
    """Runs until the training says that it ends, or is gone."""
    # What a client prints goes to the log, and one that asks for something gets no answer.
    orders, answers = os.dup(0), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    _Run(answers).work(_read(orders))
    sys.stdout.flush()
    os._exit(0)  # what a client left for the end of its process may wait for a network


def _read(orders: int) -> Iterator[dict[str, Any]]:
    """Yields orders until the training is gone: forks of it, data workers perhaps, may hold its end of the pipe."""
    training = os.getppid()
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    rest = b""
    while True:
        if poll.poll(1000):
            data = os.read(orders, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            yield from map(json.loads, lines)
        elif os.getppid() != training:
            break
    yield {"end": _LOST}


class _Run:
    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._faults: set[str] = set()
        self._lost = 0
        self._client: Client | None = None
        self._is_ending = threading.Event()

    def work(self, orders: Iterator[dict[str, Any]]) -> None:
        for order in orders:
            if "begin" in order:
                self._begin(order["begin"])
            elif "end" in order:
                self._end(order["end"])
                return
            else:
                self._take(order)

    def _begin(self, about: dict[str, Any]) -> None:
        threading.Thread(target=self._leave, args=(os.getppid(), about["alone_secs"]), daemon=True).start()
        try:
            self._client = make_client(about, self._say)
        except BaseException as error:  # SystemExit too: whatever a package does at its import
            self._say(_words(error))

    def _leave(self, parent: int, secs: float) -> None:
        """Ends the process some time after the training has ended, whatever the client does."""
        while os.getppid() == parent and not self._is_ending.wait(1.0):
            pass
        time.sleep(secs)
        os._exit(1)

    def _take(self, order: dict[str, Any]) -> None:
        if self._client is None:
            self._lost += 1
            return
        try:
            if "tell" in order:
                self._client.tell(order["kind"], order["title"], order["tell"], order["step"])
            else:
                self._client.log(order["values"], order["step"], order["wall_time"])
        except BaseException as error:
            self._lost += 1
            self._say(_words(error))

    def _end(self, reason: str) -> None:
        self._is_ending.set()
        missing = [f"lacks {counted(self._lost, 'value or note', 'values or notes')}"] if self._lost else []
        if self._client is not None:
            try:
                self._client.finish(reason)
            except BaseException as error:
                missing.append(f"{_words(error)}, at its end")
        self._answer("ended", " and ".join(missing))

    def _say(self, fault: str) -> None:
        if fault not in self._faults and len(self._faults) < _MOST_FAULTS:
            self._faults.add(fault)
            self._answer("fault", fault)

    def _answer(self, word: str, text: str) -> None:
        with contextlib.suppress(OSError):  # the training is gone
            self._answers.write(json.dumps([word, text]).encode() + b"\n")


def _words(error: BaseException) -> str:
    if isinstance(error, BridgeError):
        return str(error)
    text = " ".join(str(error).split())
    return f"failed: {type(error).__name__}: {text[:600]}" if text else f"failed: {type(error).__name__}"
