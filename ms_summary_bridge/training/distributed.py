"""Which process of a training this is: rank, device, host; and the directory of one rank's files.

Everybody asks here: bridge, monitor, checkpoints and watchdog have one rank, in all paths and files. Asks mindspore
only where the training has loaded it.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import re
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

__all__ = ["MOST_RANKS", "ProcessRank", "find_process_rank", "rank_directory"]

MOST_RANKS: Final = 1 << 20
"""No training has more; a name or a line of a file that says a higher number does not speak of a rank."""

_LOG: Final = logging.getLogger("ms_summary_bridge")
# Rank and size as set by msrun (which says the size under the third name) and the rank table's launchers, by
# torchrun-like launchers, by mpirun. Slurm's are left alone: they stand in every shell of a job, one process or many.
_VARIABLES: Final = (
    ("RANK_ID", ("RANK_SIZE", "MS_WORKER_NUM")),
    ("RANK", ("WORLD_SIZE",)),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
)
_END_NUMBER: Final = re.compile(r"(?<!\d)(\d+)$", re.ASCII)


class ProcessRank(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process stands in a training.

    Attributes:
        rank: Global rank.
        ranks: How many processes there are.
        source: Where the rank was read from.
        device: Kind of device, such as `Ascend`.
        device_id: Its number on this host.
        host: Name of this host.
    """

    rank: int = 0
    ranks: int = 1
    source: str = "default"
    device: str = "CPU"
    device_id: int = 0
    host: str = ""


def find_process_rank(environment: Mapping[str, str] | None = None) -> ProcessRank:
    """Returns where this process stands.

    MindSpore's own word goes first, once its communication is initialised; then the launcher's variables, of which a
    rank counts only together with a size that it is below: such variables outlive the job that set them, and many
    scripts set RANK_ID to the number of the device. What does not count is named in the log, once.

    Args:
        environment: The launcher's variables; those of this process when None.
    """
    environment = os.environ if environment is None else environment
    device, device_id = "CPU", _number(environment.get("DEVICE_ID")) or 0
    found: tuple[int, int, str] | None = None
    if sys.modules.get("mindspore") is not None:
        import mindspore
        from mindspore.communication import management

        try:
            if management.GlobalComm.INITED:
                found = int(management.get_rank()), int(management.get_group_size()), "mindspore.communication"
        except (RuntimeError, ValueError, AttributeError):
            pass
        try:
            device = str(mindspore.get_context("device_target"))
            device_id = int(mindspore.get_context("device_id"))
        except (RuntimeError, ValueError, TypeError):
            pass
    rank, ranks, source = found or _from_environment(environment)
    return ProcessRank(rank=rank, ranks=ranks, source=source, device=device, device_id=device_id, host=platform.node())


def rank_directory(directory: str, rank: int, ranks: int | None = None) -> str:
    """Returns the directory of one rank's files: `rank_<n>` below the one that all ranks are given.

    Both viewers take all files of a directory for one run, so each of several ranks needs one of its own. A directory
    whose name ends in the number of the rank, as `"summary_dir" + str(get_rank())` does, is taken for one.

    Args:
        directory: What all ranks are given, or one that is the rank's own already.
        rank: Global rank.
        ranks: How many there are. None in the monitor's directory of a run, whose ranks are below it in any case: a
            single process too, and whatever the name is.
    """
    if ranks is not None:
        number = _END_NUMBER.search(os.path.basename(os.path.normpath(directory)))
        if ranks <= 1 or (number is not None and int(number[1]) == rank):
            return directory
    return os.path.join(directory, f"rank_{rank}")


def _from_environment(environment: Mapping[str, str]) -> tuple[int, int, str]:
    for name, size_names in _VARIABLES:
        text = environment.get(name)
        if not text:
            continue
        rank = _number(text)
        size_name = next((each for each in size_names if environment.get(each)), size_names[0])
        size = _number(environment.get(size_name))
        if rank is not None and size is not None and rank < size:
            return rank, size, f"environment variable {name}"
        if rank == 0 and not environment.get(size_name):
            continue  # as scripts for one process set it
        size_text = f"{size_name}={environment[size_name]!r}" if environment.get(size_name) else f"no {size_name}"
        _say_once(f"{name}={text!r} with {size_text} is not the rank of a distributed training and is not used")
    return 0, 1, "default: no launcher"


def _number(text: str | None) -> int | None:
    text = "" if text is None else text.strip()
    return int(text) if text.isascii() and text.isdigit() else None


@functools.cache
def _say_once(message: str) -> None:
    _LOG.warning("%s", message)
