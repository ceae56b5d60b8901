"""Finds what the ranks of one training left, the newest one where there are several."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from typing import Final, NamedTuple

from ms_summary_bridge.diagnose.facts import read_rank
from ms_summary_bridge.errors import LogdirError, NoEventsError
from ms_summary_bridge.files.file_names import HANG_LOG, JOURNAL

__all__ = ["FoundRanks", "find_rank_directories"]

_RANK: Final = re.compile(r"rank_(\d+)", re.ASCII)
_TAIL_BYTES: Final = 1 << 16  # of a journal, which tell when it was written last


class FoundRanks(NamedTuple):
    """The ranks of one training.

    Attributes:
        source: The training's directory where it is one of several, else the directory that was looked into.
        ranks: Number and directory of each rank, by number.
        others: Directories of the other trainings, the newest first.
    """

    source: str
    ranks: list[tuple[int, str]]
    others: list[str]


def find_rank_directories(source: str) -> FoundRanks:
    """Finds what the ranks of one training left: directories `rank_<n>` with a journal or a `hang.jsonl`, at any depth.

    All are of one training where no two have the same number, as when the directories of hosts were copied beside each
    other. Else those side by side are one, and the training is taken whose journals have the newest line.

    Raises:
        LogdirError: The source is not a directory.
        NoEventsError: No rank left anything below it.
    """
    if not os.path.isdir(source):
        raise LogdirError(f"{source}: not a directory that can be read: give the directory of one training")
    trainings: dict[str, dict[int, str]] = defaultdict(dict)
    for directory, names, files in os.walk(source):
        names.sort()
        match = _RANK.fullmatch(os.path.basename(os.path.abspath(directory)))
        if match is not None and {JOURNAL, HANG_LOG} & set(files):
            trainings[os.path.dirname(directory)][int(match[1])] = directory
    if not trainings:
        raise NoEventsError(f"{source}: no rank_<n> with a journal ({JOURNAL}) or a {HANG_LOG} was found below it")
    found = {rank: path for ranks in trainings.values() for rank, path in ranks.items()}
    if len(found) == sum(map(len, trainings.values())):
        return FoundRanks(source, sorted(found.items()), [])
    newest, *others = sorted(trainings, key=lambda place: _newest(trainings[place]), reverse=True)
    return FoundRanks(newest, sorted(trainings[newest].items()), others)


def _newest(ranks: dict[int, str]) -> float:
    """Returns when a training is last known to have done anything, in seconds since the epoch."""
    facts = [read_rank(rank, path, tail_bytes=_TAIL_BYTES) for rank, path in ranks.items()]
    return max(max(rank.newest, rank.hung.told if rank.hung is not None else 0.0) for rank in facts)
