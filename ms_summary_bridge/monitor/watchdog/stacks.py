"""The stacks of all Python threads of a process that may do nothing any more, taken from outside.

Linux only (memfd); `offer_stacks` raises OSError elsewhere.

A signal runs faulthandler's handler, in C: it takes no lock and no GIL, and it works while a C call holds the GIL for
ever. A signal would end some system calls of the thread that gets it, those that sleep or wait for several descriptors.
So there is a thread, in the process and in each of its forks, that does nothing but wait for it; no other is touched.
What the handler writes goes to memory shared with the one who asked: no disk can hold it up.

Sources: Python's Modules/faulthandler.c (`faulthandler_register`, `faulthandler_user`), measured on 3.11: at most 100
threads and 100 frames of each; signal(7); Linux hands a signal that is sent to a thread's number to that thread, if it
neither blocks it nor has another one waiting (`complete_signal` in kernel/signal.c).
"""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import os
import re
import signal
import time
from pathlib import Path
from typing import Final

import msgspec

from ms_summary_bridge.monitor.watchdog.process_state import (
    ProcessState,
    catches,
    find_threads,
    is_free,
    is_same_program,
    read_state,
)

__all__ = ["Offer", "StackReader", "offer_stacks", "stack_of"]

_SHARED_SECS: Final = 2.0  # how long one process may take to answer
_QUIET_SECS: Final = 0.25  # nothing more has come for so long: that was all
_POLL_SECS: Final = 0.02
_MAX_CHILDREN: Final = 16
_SETTLED_SECS: Final = 1.0  # a younger child may be about to become another program
_READY_SECS: Final = 1.0  # how long the thread that waits may take to start; a microsecond, with a free processor
_HEADER: Final = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)\b.*")
_NAME: Final = "msb stacks"
"""Of the thread that waits for the signal; the kernel keeps 15 characters."""


class Offer(msgspec.Struct, frozen=True):
    """How to ask a process for its stacks.

    The process `pid`, and forks of it, answer the signal `signum` in `descriptor`.
    """

    pid: int
    signum: int
    descriptor: int


_offered: list[Offer] = []


def offer_stacks() -> Offer | None:
    """Makes this process and its forks answer; returns None if all signals that could be used are used by others.

    The handler stays until the end of the process: without it a signal that is on its way would kill.
    """
    if _offered and _offered[-1].pid == os.getpid():
        return _offered[-1]
    # The signals without a meaning of their own, from the middle: libraries that use one take the first or the last.
    middle = (signal.SIGRTMIN + signal.SIGRTMAX) // 2
    inherited = [offer.signum for offer in _offered]  # from before a fork
    for signum in (*inherited, *range(middle, signal.SIGRTMAX - 1)):
        if signum in inherited or is_free(signum):
            offer = Offer(os.getpid(), signum, os.memfd_create("ms_summary_bridge stacks"))
            faulthandler.register(signum, file=offer.descriptor, all_threads=True)
            if not _offered:
                ready = _thread.allocate_lock()
                ready.acquire()
                _wait_for_signals(ready)
                ready.acquire(timeout=_READY_SECS)  # whoever has the offer may ask at once
                os.register_at_fork(after_in_child=_wait_for_signals)
            _offered.append(offer)
            return offer
    return None


def _wait_for_signals(ready: _thread.LockType | None = None) -> None:
    """Starts the thread that gets the signal in this process; it releases `ready` as soon as it can be asked."""
    with contextlib.suppress(Exception):
        # Not of `threading`: nobody's list of threads grows, and nothing waits for its beginning or end.
        _thread.start_new_thread(_wait_for_ever, (ready,))


def _wait_for_ever(ready: _thread.LockType | None) -> None:
    with contextlib.suppress(Exception):
        Path(f"/proc/self/task/{_thread.get_native_id()}/comm").write_text(_NAME, encoding="ascii")
        if ready is not None:
            ready.release()
        lock = _thread.allocate_lock()
        lock.acquire()
        lock.acquire()


class StackReader:
    """Asks for stacks."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def read(self, children: list[ProcessState]) -> dict[int, str]:
        """Returns the stacks of the process and of those of its children that are forks of it, by pid.

        One that does not answer is left out.
        """
        pid, descriptor = self._offer.pid, self._offer.descriptor
        answers = {}
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)  # it is the offset of all who write as well
            answers[pid] = self.ask(pid)
            for child in [child for child in children if is_same_program(pid, child.pid)][:_MAX_CHILDREN]:
                if time.time() - child.started > _SETTLED_SECS:
                    answers[child.pid] = self.ask(child.pid)
        return {pid: text for pid, text in answers.items() if text}

    def ask(self, pid: int) -> str:
        """Returns what one process answers; empty if it does not, or has no thread for it."""
        signum, descriptor = self._offer.signum, self._offer.descriptor
        thread = _find_waiting(pid)
        if thread is None or not catches(pid, signum, thread=thread):
            return ""
        begin = size = os.fstat(descriptor).st_size
        os.kill(thread, signum)
        began = changed = time.monotonic()
        while True:
            time.sleep(_POLL_SECS)
            last, size, now = size, os.fstat(descriptor).st_size, time.monotonic()
            if size != last:
                changed = now
            if now - changed > _QUIET_SECS if size > begin else now - began > _SHARED_SECS:
                return os.pread(descriptor, size - begin, begin).decode(errors="replace")


def _find_waiting(pid: int) -> int | None:
    """Returns the thread of a process that waits for the signal."""
    for thread in find_threads(pid):
        state = read_state(thread) if thread != pid else None
        if state is not None and state.name == _NAME:
            return thread
    return None


def stack_of(text: str, thread: int) -> str:
    """Returns the stack of one thread, by its `threading.get_ident()`, out of all; empty if it is not there."""
    found: list[str] = []
    is_in = False
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        if header is not None:
            is_in = int(header[1], 16) == thread
        elif is_in and line.strip():
            found.append(line)
    return "\n".join(found)
