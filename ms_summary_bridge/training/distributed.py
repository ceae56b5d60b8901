"""Which process of a training this is: rank, device, host.

Asks mindspore only where the training has loaded it.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping

import msgspec

__all__ = ["Place", "find_place"]

# Set by msrun and the rank table's launchers, by torchrun-like launchers, by mpirun.
_RANK_VARIABLES = (("RANK_ID", "RANK_SIZE"), ("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))


class Place(msgspec.Struct, frozen=True, kw_only=True):
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


def find_place(environment: Mapping[str, str] | None = None) -> Place:
    """Returns where this process stands, from MindSpore's communication if it is up, else from the launcher."""
    environment = os.environ if environment is None else environment
    rank, ranks, source = _from_environment(environment)
    device, device_id = "CPU", _number(environment.get("DEVICE_ID"), 0)
    if "mindspore" in sys.modules:
        import mindspore
        from mindspore.communication import management

        try:
            if management.GlobalComm.INITED:
                rank, ranks = int(management.get_rank()), int(management.get_group_size())
                source = "mindspore.communication"
        except (RuntimeError, ValueError, AttributeError):
            pass
        try:
            device = str(mindspore.get_context("device_target"))
            device_id = int(mindspore.get_context("device_id"))
        except (RuntimeError, ValueError, TypeError):
            pass
    return Place(rank=rank, ranks=ranks, source=source, device=device, device_id=device_id, host=platform.node())


def _from_environment(environment: Mapping[str, str]) -> tuple[int, int, str]:
    for rank_name, ranks_name in _RANK_VARIABLES:
        rank = _number(environment.get(rank_name), -1)
        if rank >= 0:
            # msrun says how many there are under a name of its own.
            size = environment.get(ranks_name) or environment.get("MS_WORKER_NUM")
            return rank, max(rank + 1, _number(size, 1)), f"environment variable {rank_name}"
    return 0, 1, "default: no launcher"


def _number(text: str | None, default: int) -> int:
    try:
        return int(text) if text else default
    except ValueError:
        return default
