"""What changed between two runs of the page, in the words of `diff`; its shape is in `run_table`.

Imports no tensorboard.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from ms_summary_bridge.errors import NoEventsError
from ms_summary_bridge.states.compare.diff import describe_loss, diff_trainings, show_value
from ms_summary_bridge.states.compare.training import FoundTraining, read_training
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun

__all__ = ["ChangeReader"]

_MOST_KEPT: Final = 16
_IDLE_SHARE: Final = 20
"""Reading two runs that grow, again and again, may take one part in so many of the time."""


class ChangeReader:
    """Compares runs, and keeps what the last comparisons came to.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], tuple[object, float, dict[str, Any]]] = OrderedDict()

    def read(self, a: PageRun, b: PageRun) -> dict[str, Any]:
        """Returns what `diff` says of two runs, A first.

        Raises:
            LogdirError: One cannot be read.
            NoEventsError: One has neither a value nor a line of a journal.
        """
        key, mark = (a.key, b.key), [_mark_of(a), _mark_of(b)]
        kept = self._kept.get(key)
        if kept is not None and (kept[0] == mark or self._clock() < kept[1]):
            return kept[2]
        began = self._clock()
        diff = diff_trainings(*(read_training(_found(run)) for run in (a, b)))
        diff.a, diff.b = a.directory, b.directory
        answer = {
            **diff.plain(),
            "texts": [[None if side is None else show_value(side) for side in (one.a, one.b)] for one in diff.changes],
            "loss_text": describe_loss(diff.loss),
        }
        now = self._clock()
        self._kept[key] = mark, now + _IDLE_SHARE * (now - began), answer
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return answer


def _mark_of(run: PageRun) -> object:
    return (
        run.found,
        [(part.run.sources, part.facts.changes) for part in run.parts],
        [one.changes for one in run.journals],
    )


def _found(run: PageRun) -> FoundTraining:
    if run.found is None:
        raise NoEventsError(f"{run.directory}: holds no event file and no journal that could be compared")
    return FoundTraining(run.found, [part.run for part in run.parts])
