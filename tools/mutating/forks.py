"""Runs a function in a fork, with bounds for what it may take."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_ROOM = 4 << 30  # bytes of addresses that a fork may take beside those it has

_Result = TypeVar("_Result")


def in_fork(
    call: Callable[[], _Result], wall_secs: float | None = None, told: Callable[[str], object] | None = None
) -> _Result | None:
    """Returns what `call` returns, called in a fork; None where that raised, was killed, or took too long.

    All processes that it started are killed with it.
    """
    with tempfile.TemporaryFile() as answer:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.setpgid(0, 0)  # and no session of its own: Linux would forget that it is to be nice
                if wall_secs is not None:
                    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, used + _ROOM))
                    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                answer.write(pickle.dumps(call()))
                answer.flush()
                code = 0
            except BaseException:
                if told is not None:
                    told(traceback.format_exc())
            finally:
                os._exit(code)
        ended = select.poll()
        descriptor = os.pidfd_open(pid)
        try:
            ended.register(descriptor, select.POLLIN)
            ended.poll(None if wall_secs is None else wall_secs * 1000)
        finally:
            os.close(descriptor)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
        if status:
            return None
        answer.seek(0)
        result: _Result = pickle.load(answer)
        return result
