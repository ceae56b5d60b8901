"""Which run the ranks of one launch have in common, found without waiting for each other.

The first rank that comes to a disk makes the run's directory and leaves a note beside it, under the address of the
launch; the others read the note. A rank takes its part by making its own directory in the run's: who finds that one
there already has the note of an earlier launch, and leaves the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import psutil

from ms_summary_bridge.errors import NOT_JSON
from ms_summary_bridge.monitor.sinks.writer import Sink
from ms_summary_bridge.training.distributed import ProcessRank, rank_directory

__all__ = ["ADDRESSES", "JOBS", "RankCheck", "file_name", "join_run", "make_run_directory"]

_START_SPREAD_SECS: Final = 120.0  # how far apart the processes of one training may start
_CHECK_SECS: Final = 30.0
_ATTEMPTS: Final = 20
_PAUSE_SECS: Final = 0.005  # a note is not whole yet: its writer is between two system calls
_calls = itertools.count(1)  # all ranks of a launch begin their trainings in the same order
ADDRESSES: Final = ("MS_SCHED_HOST", "MS_SCHED_PORT", "MASTER_ADDR", "MASTER_PORT", "RANK_TABLE_FILE")
# Equal for all processes of a job on all its hosts: Slurm, PBS, LSF, ModelArts, MindCluster, torchrun-like, PMIx, ORTE.
JOBS: Final = (
    *("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "MA_VJ_NAME", "MINDX_TASK_ID", "TORCHELASTIC_RUN_ID"),
    *("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
)


class _LaunchNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the first rank of a launch leaves for the others."""

    run: str
    wall_time: float
    host: str
    process: int
    parent: int
    parent_started: float


def join_run(project: str, place: ProcessRank, made: str | None = None) -> str:
    """Returns the directory of the run that the ranks of this launch have on this disk; waits for none of them.

    The one who is first names it: by the launcher's job id, so that disks which are not shared have one name, else by
    the time.

    `made` is a directory there that is this rank's already; it is the run's if no other rank came before.
    """
    address = "_".join(os.environ[name] for name in ADDRESSES if os.environ.get(name))
    stem = f".launch-{file_name(address or 'local')[-100:]}-{next(_calls)}."
    own = made
    for _ in range(_ATTEMPTS):
        number = _newest(project, stem)
        note = _read_note(os.path.join(project, f"{stem}{number}.json")) if number else None
        if note is not None and _is_ours(note, project, place.rank, is_addressed=bool(address)):
            if own is not None and own != made:
                with contextlib.suppress(OSError):
                    os.rmdir(own)
            return os.path.join(project, note.run)
        if own is None:
            job = _job()
            own = make_run_directory(project, None if job is None else f"job-{file_name(job[1])}")
        try:
            _leave_note(os.path.join(project, f"{stem}{number + 1}.json"), os.path.basename(own))
        except FileExistsError:
            continue  # another rank was faster
        except OSError:
            break  # said by those who write there
        _claim(own, place.rank)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(project, f"{stem}{number}.json"))
        break
    return own or make_run_directory(project)


def file_name(name: str) -> str:
    """Returns a name that is one part of a path and stays where it is put."""
    safe = re.sub(r"[\x00-\x1f/\\]", "_", name).strip()
    return safe if safe not in ("", ".", "..") else "_"


def make_run_directory(project: str, name: str | None = None) -> str:
    """Makes a directory for a run, named by the time if no name is given, and returns it."""
    name = name or time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        directory = os.path.join(project, name if number == 1 else f"{name}-{number}")
        try:
            os.makedirs(directory)
        except FileExistsError:
            continue
        except OSError:
            pass  # said by those who write there
        return directory
    return os.path.join(project, f"{name}-{os.getpid()}")


def _job() -> tuple[str, str] | None:
    """Returns the variable that holds the launcher's job id, and the id; None without one."""
    found = ((name, os.environ.get(name, "").strip()) for name in JOBS)
    return next(((name, job) for name, job in found if job and job.lower() != "none"), None)


def _newest(project: str, stem: str) -> int:
    with contextlib.suppress(OSError):
        names = (name.removeprefix(stem).removesuffix(".json") for name in os.listdir(project) if name.startswith(stem))
        return max((int(name) for name in names if name.isdecimal()), default=0)
    return 0


def _leave_note(path: str, run: str) -> None:
    parent, started = os.getppid(), 0.0
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(parent).create_time()
    note = _LaunchNote(
        run=run, wall_time=time.time(), host=platform.node(), process=os.getpid(), parent=parent, parent_started=started
    )
    with open(path, "xb", buffering=0) as file:  # who makes it is the first one, on network disks too
        file.write(msgspec.json.encode(note))


def _read_note(path: str) -> _LaunchNote | None:
    for _ in range(_ATTEMPTS):
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=_LaunchNote)
        except OSError:
            return None
        except NOT_JSON:
            time.sleep(_PAUSE_SECS)
    return None


def _is_ours(note: _LaunchNote, project: str, rank: int, *, is_addressed: bool) -> bool:
    """Whether a note is of this launch; takes this rank's part in the run if so."""
    run = os.path.join(project, file_name(note.run))
    own = psutil.Process().create_time()
    is_near = note.wall_time > own - _START_SPREAD_SECS
    if note.host == platform.node():
        lives = psutil.pid_exists(note.process)
        if not lives and own > note.wall_time:
            return False  # the launch before this one
        with contextlib.suppress(psutil.Error):
            is_sibling = note.parent == os.getppid()
            if is_sibling and abs(psutil.Process(note.parent).create_time() - note.parent_started) < 1:
                # A rank that the launcher has started again goes on in its place.
                return _claim(run, rank) or (lives and is_addressed)
    return is_near and _claim(run, rank)


def _claim(run: str, rank: int) -> bool:
    try:
        os.mkdir(rank_directory(run, rank))
    except FileExistsError:
        return False
    except OSError:
        pass  # said by those who write there
    return True


class RankCheck(Sink):
    """Says once which ranks have no files in the run's directory, and what to do; a sink, on the writing thread.

    `warn` is called where the run has more than one name, and `tell` where all is as it has to be.
    """

    def __init__(
        self,
        run_directory: str,
        place: ProcessRank,
        warn: Callable[[str, str], None],
        tell: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._run = run_directory
        self._place = place
        self._warn = warn
        self._tell = tell
        self._clock = clock
        self._due_at: float | None = None

    def open(self) -> None:
        """Gives the others some time to come."""
        self._due_at = self._clock() + _CHECK_SECS

    def flush(self) -> None:
        """Looks, if it is time."""
        if self._due_at is not None and self._clock() >= self._due_at:
            self.close()

    def close(self) -> None:
        """Looks, if nobody has yet."""
        if self._due_at is None:
            return
        self._due_at = None
        others = range(1, self._place.ranks) if self._place.rank == 0 else (0,)
        missing = [str(rank) for rank in others if not os.path.isdir(rank_directory(self._run, rank))]
        if not missing:
            return
        listed = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        text = f"{self._run} has no files of rank {listed}: save_dir is another disk there, or no monitor runs there"
        job = _job()
        if job is not None and os.path.basename(self._run).startswith("job-"):
            self._tell(f"{text}; the run's name is made of {job[0]}, so it is the same on every disk")
        elif self._place.rank == 0:
            self._tell(text)  # a monitor on rank 0 alone is nothing unusual
        else:
            self._warn(
                "ranks",
                f"{text}; this rank's files stay in {self._run} on {self._place.host}, under a name of its own: "
                "give all ranks one `run_id`, or a save_dir that they share",
            )
