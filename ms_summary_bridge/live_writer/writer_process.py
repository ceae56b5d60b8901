"""One writer process, as the training that started it sees it.

Imports no mindspore and no tensorboardX.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from ms_summary_bridge.live_writer.ring import RingProducer, open_pipe
from ms_summary_bridge.live_writer.run_config import LiveRunConfig

__all__ = ["WriterProcess", "environment", "search_path"]


class WriterProcess:
    """A process that takes what is put into a ring. Not a fork: a copy of a training holds its memory and its locks.

    Args:
        ring: Its consumer's ends are handed over, and closed here.
        config: The run.

    Raises:
        OSError: It cannot be started.
        ValueError: A name cannot be an argument of a command.
    """

    def __init__(self, ring: RingProducer, config: LiveRunConfig) -> None:
        self.reports, theirs = open_pipe()
        """Descriptor on which the process says what the training is to know."""
        self._heard = b""
        given = (ring.memory_fd, ring.doorbell_fd, theirs)
        arguments = [*map(str, given), str(os.getpid()), *config.to_arguments()]
        # Without the working directory, which -c puts first, and the training's search path behind the standard
        # library: a json.py in the one and a types.py in the other, put there late, are not the training's own.
        end = 1 + len(arguments)
        code = f"import sys; del sys.path[:sys.path[0] == '']; sys.path += sys.argv[{end}:]; "
        code += f"from ms_summary_bridge.live_writer.worker_start import start; start(sys.argv[1:{end}])"
        flags = ["-S", f"-Xutf8={sys.flags.utf8_mode}"]  # -S: see `worker_start`; utf8: names mean the same to both
        if sys.flags.ignore_environment:  # PYTHONHOME of another Python
            flags.append("-E")
        try:
            self.process = subprocess.Popen(
                [sys.executable, *flags, "-c", code, *arguments, *search_path()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=given,
                env=environment(),
                start_new_session=True,
            )
        except (OSError, ValueError):
            os.close(self.reports)
            raise
        finally:
            os.close(theirs)
        ring.close_consumer_ends()
        os.set_blocking(self.reports, False)

    @property
    def has_ended(self) -> bool:
        """Whether it is gone."""
        return self.process.poll() is not None

    def read_reports(self) -> Iterator[dict[str, Any]]:
        """Yields what it has said since the last call: a warning, the number of a flush, or what it ended with."""
        with contextlib.suppress(BlockingIOError):
            self._heard += os.read(self.reports, 1 << 16)
        if not self._heard:
            return
        *lines, self._heard = self._heard.split(b"\n")
        yield from map(json.loads, lines)

    def wait_for_report(self, secs: float) -> None:
        """Waits until it says something or has ended."""
        poll = select.poll()  # not select(), which knows no descriptor above 1023
        poll.register(self.reports, select.POLLIN)
        poll.poll(secs * 1000)

    def forget(self) -> None:
        """Listens no more; it goes on by itself until all is written. A dead one is reaped, if that can be at once."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.1)
        os.close(self.reports)


def search_path() -> list[str]:
    """Where the training finds modules: whatever else a script put into `sys.path`, imports pass over it."""
    given: list[Any] = sys.path
    paths = [path for path in given if isinstance(path, str)]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if root not in paths:  # found by an import hook
        paths.append(root)
    return paths


def environment() -> dict[str, str]:
    """The training's environment, without what it set for its own needs: threads for numpy, slow protobuf."""
    variables = dict(os.environ)
    variables.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
    variables.pop("PYTHONPATH", None)  # in `search_path`
    variables.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    return variables
