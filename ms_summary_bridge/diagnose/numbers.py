"""The rules about numbers: a loss that is not finite, a rank that is slow."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Final

from ms_summary_bridge.diagnose.facts import Bad, RankFacts
from ms_summary_bridge.diagnose.finding import Evidence, Finding, last_step, name_ranks

__all__ = ["find_not_finite", "find_slow"]

_LOSSES: Final = ("local_loss", "loss")
_SLOW_SECS: Final = 1800.0  # a rank that is slow for less is not named
_SLOW_PARTS: Final = 6
_FEWEST_PARTS: Final = 4  # in which there are samples
_SLOW_FACTOR: Final = 1.2
_FEWEST: Final = 12  # samples


def find_not_finite(ranks: Sequence[RankFacts]) -> list[Finding]:
    """Returns the ranks whose loss was the first that is not finite."""
    for metric in _LOSSES:
        bad = [(rank, rank.bad[metric]) for rank in ranks if metric in rank.bad]
        if not bad or (len(bad) == 1 and bad[0][1].steps < 2):
            continue  # a step that is skipped for its overflow is no fault
        step = min(fact.step for _, fact in bad)
        first = sorted(((rank, fact) for rank, fact in bad if fact.step == step), key=lambda pair: pair[0].rank)
        numbers = [rank.rank for rank, _ in first]
        with_metric = sum(metric in rank.metrics for rank in ranks)
        text = f"{metric} is {first[0][1].text} from step {step} on, "
        text += "on all ranks at once" if len(numbers) == with_metric > 1 else f"first on {name_ranks(numbers)}"
        evidence = [Evidence(rank.rank, fact.where, f"{metric}: {fact.text}") for rank, fact in first[:3]]
        later = [(rank, fact) for rank, fact in bad if fact.step > step]
        if later:
            rank, fact = min(later, key=lambda pair: pair[1].step)
            text += f"; on {name_ranks([other.rank for other, _ in later])} from step {fact.step} on"
            evidence.append(Evidence(rank.rank, fact.where, f"{metric}: {fact.text}"))
        return [Finding("nan", numbers, max(step - 1, 0), _since(first), text, evidence)]
    return []


def _since(bad: Sequence[tuple[RankFacts, Bad]]) -> float:
    return min(fact.wall_time for _, fact in bad)


def find_slow(ranks: Sequence[RankFacts]) -> list[Finding]:
    """Returns the ranks that are slow in each part of the last half hour."""
    paced = [rank for rank in ranks if len(rank.pace) >= _FEWEST]
    if len(paced) < 2:
        return []
    until = min(rank.pace[-1][0] for rank in paced)
    since = max(rank.pace[0][0] for rank in paced)
    if until - since < _SLOW_SECS:
        return []
    edges = [until - _SLOW_SECS * (1 - part / _SLOW_PARTS) for part in range(_SLOW_PARTS + 1)]
    tables = {rank.rank: [_medians(rank, *edge) for edge in itertools.pairwise(edges)] for rank in paced}
    step = statistics.median(row[0] for table in tables.values() for row in table if row is not None)
    odd: list[tuple[RankFacts, str]] = []
    for rank in paced:
        words = []
        for column, name in enumerate(("a step took", "waiting for data took")):
            pairs = []
            for part, own in enumerate(tables[rank.rank]):
                others = [row for other, table in tables.items() if other != rank.rank and (row := table[part])]
                if own is None or not others:
                    continue  # all stood still
                usual = statistics.median(row[column] for row in others)
                if own[column] - usual < (_SLOW_FACTOR - 1) * step or step <= 0.0:
                    break
                pairs.append((own[column], usual))
            else:
                if len(pairs) >= _FEWEST_PARTS:
                    mine, usual = (statistics.median(column) for column in zip(*pairs, strict=True))
                    words.append(f"{name} {mine:.3g} s, {usual:.3g} s on the median rank")
        if words:
            odd.append((rank, ", ".join(words)))
    if not odd or len(odd) * 2 > len(paced):
        return []
    numbers = [rank.rank for rank, _ in odd]
    text = f"{name_ranks(numbers)} {'is' if len(odd) == 1 else 'are'} slow, for half an hour at least: {odd[0][1]}"
    evidence = [Evidence(rank.rank, rank.last.where, words) for rank, words in odd[:3] if rank.last]
    return [Finding("slow", numbers, last_step(odd[0][0]), edges[0], text, evidence)]


def _medians(rank: RankFacts, begin: float, end: float) -> tuple[float, float] | None:
    rows = [row for row in rank.pace if begin < row[0] <= end]
    if not rows:
        return None
    return statistics.median(row[1] for row in rows), statistics.median(row[2] for row in rows)
