"""The stacks of all Python threads of a process that may do nothing any more, taken from outside.

Linux only (memfd); `offer_stacks` raises OSError elsewhere.

A thread of the process waits for the question, and answers it wherever the GIL is free: nothing of the training is
touched. So do its forks. Where a C call keeps the GIL, a signal runs faulthandler's handler, in C, which takes no lock.
A signal ends some system calls, though, those that sleep or wait for several descriptors. So it goes to a thread that
computes, or that waits in a call which the kernel begins anew; where there is none, nobody is asked, unless the process
is to be killed anyway. What is answered goes to memory shared with the one who asked: no disk can hold it up.

Source: Python's Modules/faulthandler.c (`faulthandler_register`, `faulthandler_user`), measured on 3.11: at most 100
threads and 100 frames of each, SA_RESTART.
"""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import os
import re
import signal
import socket
import time
from typing import Final

import msgspec

from ms_summary_bridge.monitor.watchdog.process_state import (
    ProcessState,
    catches,
    ends_call,
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
_HEADER: Final = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)\b.*")


class Offer(msgspec.Struct, frozen=True):
    """How to ask a process for its stacks.

    Attributes:
        pid: The process; forks of it answer as well.
        signum: What to send where the thread that answers cannot; 0 for nothing, since all signals are in use.
        descriptor: Where the answer comes.
        key: Of the sockets, beside the pid.
    """

    pid: int
    signum: int
    descriptor: int
    key: str

    def address(self, pid: int) -> str:
        """Returns the address of the socket on which a process is asked."""
        return f"\0ms_summary_bridge stacks {self.key} {pid}"


_offered: list[Offer] = []
_sockets: list[socket.socket] = []


def offer_stacks() -> Offer:
    """Makes this process and its forks answer.

    The handler stays until the end of the process: without it a signal that is on its way would kill.
    """
    if _offered and _offered[-1].pid == os.getpid():
        return _offered[-1]
    # The signals without a meaning of their own, from the middle: libraries that use one take the first or the last.
    middle = (signal.SIGRTMIN + signal.SIGRTMAX) // 2
    inherited = [offer.signum for offer in _offered if offer.signum]  # from before a fork
    free = [
        number for number in (*inherited, *range(middle, signal.SIGRTMAX - 1)) if number in inherited or is_free(number)
    ]
    offer = Offer(os.getpid(), free[0] if free else 0, os.memfd_create("ms_summary_bridge stacks"), os.urandom(8).hex())
    if offer.signum:
        faulthandler.register(offer.signum, file=offer.descriptor, all_threads=True)
    if not _offered:
        os.register_at_fork(after_in_child=_answer)
    _offered.append(offer)
    _answer()
    return offer


def _answer() -> None:
    """Starts the thread that answers in this process. Without it a signal may be all that is left."""
    while _sockets:
        _sockets.pop().close()  # of the process that this one is a fork of
    with contextlib.suppress(Exception):
        offer = _offered[-1]
        questions = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        questions.bind(offer.address(os.getpid()))
        _sockets.append(questions)
        # Not of `threading`: nobody's list of threads grows, and nothing waits for its beginning or end.
        _thread.start_new_thread(_answer_all, (questions, offer.descriptor))


def _answer_all(questions: socket.socket, descriptor: int) -> None:
    with contextlib.suppress(Exception):
        while True:
            _, who = questions.recvfrom(16)
            faulthandler.dump_traceback(descriptor, all_threads=True)
            questions.sendto(b"done", who)


class StackReader:
    """Asks for stacks.

    Args:
        offer: Of the process; its descriptor is inherited.
    """

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def read(self, children: list[ProcessState], *, may_interrupt: bool = False) -> dict[int, str]:
        """Returns the stacks of the process and of those of its children that are forks of it, by pid.

        One that does not answer is left out.

        Args:
            children: Those it began.
            may_interrupt: Whether a system call may be ended by a signal, because the process is to be ended anyway.
        """
        pid, descriptor = self._offer.pid, self._offer.descriptor
        answers = {}
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)  # it is the offset of all who write as well
            answers[pid] = self._ask(pid) or self._interrupt(pid, may_interrupt)
            for child in [child for child in children if is_same_program(pid, child.pid)][:_MAX_CHILDREN]:
                if time.time() - child.started > _SETTLED_SECS:
                    answers[child.pid] = self._ask(child.pid) or self._interrupt(child.pid, may_interrupt)
        return {pid: text for pid, text in answers.items() if text}

    def _ask(self, pid: int) -> str:
        """Returns what the thread that answers in a process says; empty if it does not."""
        begin = os.fstat(self._offer.descriptor).st_size
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.bind("")  # the kernel finds an address for the answer
            asking.settimeout(_SHARED_SECS)
            try:
                asking.sendto(b"?", self._offer.address(pid))
                asking.recv(16)
            except OSError:
                return ""
        return self._answer_since(begin)

    def _answer_since(self, begin: int) -> str:
        descriptor = self._offer.descriptor
        return os.pread(descriptor, os.fstat(descriptor).st_size - begin, begin).decode(errors="replace")

    def _interrupt(self, pid: int, may_interrupt: bool) -> str:
        """Returns what the handler of a signal says in a process; empty if it does not, or would not survive it.

        A signal that is sent to a thread's number is for the process, but Linux hands it to that thread first.
        """
        signum = self._offer.signum
        if not signum or not catches(pid, signum):
            return ""
        threads = [thread for thread in find_threads(pid) if catches(pid, signum, thread=thread)]
        fit = [thread for thread in threads if not ends_call(pid, thread)]
        if not fit and may_interrupt:  # not one in a driver's call, which no signal reaches
            fit = [thread for thread in threads if (state := read_state(thread)) and state.state != "disk-sleep"]
        if not fit:
            return ""
        begin = size = os.fstat(self._offer.descriptor).st_size
        os.kill(fit[0], signum)
        asked = changed = time.monotonic()
        while True:
            time.sleep(_POLL_SECS)
            last, size, now = size, os.fstat(self._offer.descriptor).st_size, time.monotonic()
            if size != last:
                changed = now
            if now - changed > _QUIET_SECS if size > begin else now - asked > _SHARED_SECS:
                return self._answer_since(begin)


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
