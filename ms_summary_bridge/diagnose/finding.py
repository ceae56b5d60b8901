"""What a finding is, and the words for ranks and places."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import msgspec

from ms_summary_bridge.diagnose.facts import Hung, RankFacts
from ms_summary_bridge.diagnose.places import CODE, COLLECTIVE, COMPILE, COMPUTE, OPTIMIZER
from ms_summary_bridge.training.phases import KINDS

__all__ = [
    "Evidence",
    "Finding",
    "Group",
    "describe_place",
    "group_by",
    "hang_of",
    "last_step",
    "list_ranks",
    "name_ranks",
    "say",
    "tell_waiting",
]


class Evidence(msgspec.Struct, frozen=True):
    """What a finding rests on: a line of a file of one rank."""

    rank: int
    where: str
    text: str


class Finding(msgspec.Struct, frozen=True):
    """Who is to blame, and by which rule.

    `step` is the last that ended before, and `since` seconds since the epoch.
    """

    rule: str
    ranks: list[int]
    step: int
    since: float
    text: str
    evidence: list[Evidence]


class Group(msgspec.Struct, frozen=True):
    """Ranks that do the same."""

    ranks: list[int]
    doing: str
    first_step: int
    last_step: int


_T = TypeVar("_T")
_Key = TypeVar("_Key", bound=Hashable)


def list_ranks(ranks: Sequence[int]) -> str:
    """Returns numbers of ranks in words, such as `0-6, 8`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def say(ranks: Sequence[int], verb: str) -> str:
    """Returns a sentence about ranks, with the verb as it is of one or of several."""
    return f"rank {ranks[0]} {verb}s" if len(ranks) == 1 else f"ranks {list_ranks(ranks)} {verb}"


def describe_place(place: str) -> str:
    """Returns in words what a rank that hangs does."""
    words = {
        **KINDS,
        COLLECTIVE: "in a collective, waiting for other ranks",
        OPTIMIZER: "in the optimizer",
        COMPILE: "compiling",
        CODE: "in Python code of the step",
        COMPUTE: "in the step, computing or waiting for other ranks",
        "start": "before the first step",
    }
    return words.get(place, place or "in an unknown place")


def name_ranks(numbers: Sequence[int]) -> str:
    """Returns what ranks are called, such as `rank 3` or `ranks 0-6, 8`."""
    return f"rank{'s' * (len(numbers) > 1)} {list_ranks(numbers)}"


def last_step(rank: RankFacts) -> int:
    """Returns the last step of which anything is known."""
    steps = [rank.last.step if rank.last else 0, rank.hung.step if rank.hung else 0]
    return max(steps)


def group_by(items: Sequence[_T], key: Callable[[_T], _Key]) -> dict[_Key, list[_T]]:
    """Returns items by a key of each, in the order in which they come."""
    groups: dict[_Key, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def hang_of(rank: RankFacts) -> Hung:
    """Returns the hang of a rank that has one."""
    assert rank.hung is not None
    return rank.hung


def tell_waiting(ranks: Sequence[RankFacts], *but: int) -> list[Evidence]:
    """Returns a line for each place in which others hang."""
    hung = [rank for rank in ranks if rank.hung is not None and rank.rank not in but]
    found = []
    for place, members in group_by(hung, lambda rank: hang_of(rank).place).items():
        one, numbers = members[0], [rank.rank for rank in members]
        text = f"{say(numbers, 'hang')} {describe_place(place)} after step {hang_of(one).step}"
        found.append(Evidence(one.rank, hang_of(one).where, text))
    return found
