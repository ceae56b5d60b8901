"""One small AllGather between two steps of a training: what each rank tells goes to all of them.

Loads mindspore where the training has done so.

A rank that calls a collective while another one calls none, or another one, leaves both waiting for ever. So whether
there is one depends on the configuration and on MindSpore's number of the step alone, never on what this rank has seen
or could not do: a rank without a value sends NaN. It is called between two steps, where each rank that has ended the
step comes by, and never at the end of a training, where one may come alone. The first one compares what the ranks were
told to do, and all of them see the same answer. Nobody waits for a rank that does not come but the collective itself.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ms_summary_bridge.monitor.ranks.statistics import join_rows, make_row
from ms_summary_bridge.training.faults import Faults

__all__ = ["Gathering", "Told"]

Told = Callable[[int, dict[str, float], str], None]
"""Takes the values over all ranks: the step of the training, values by name, and the same in words."""

_FORMAT: Final = 1
_EXACT: Final = 1 << 24  # below it float32 has every whole number
_LAST_SECS: Final = 5.0
_AGREEMENT: Final = -1  # in the place of a step: what is compared first
_UNKNOWN: Final = -2


class Gathering:
    """One rank's part in one training.

    `names` are the metrics, and `every` is the number of steps between two collectives; `told` is called on rank 0, by
    the training thread.
    """

    def __init__(self, names: Sequence[str], every: int, faults: Faults, told: Told) -> None:
        self._names = names
        self._every = every
        self._faults = faults
        self._told = told
        self._gather: Callable[[npt.NDArray[np.float32]], Any] | None = None
        self._rank = 0
        self._last = 0  # step before this one
        self._pending: tuple[int, Any] | None = None  # step of the training, and what is being gathered
        self.is_off = False
        """Whether there is nothing to gather, or it has failed: then this rank calls no collective any more."""

    def passes(self, number: int | None) -> bool:
        """Notes a step after which there is nothing to do; returns whether it is such a one. It takes no time."""
        number = self._last + 1 if number is None else number
        if not self.is_off:
            if self._pending is not None or self._gather is None or number // self._every != self._last // self._every:
                return False
            self._last = number
        return True

    def end_step(self, number: int | None, read: Callable[[], tuple[int, dict[str, float]]]) -> None:
        """A step has ended on this rank, and so it does on all others.

        Args:
            number: MindSpore's number of the step in this session; None to count them.
            read: Reads this rank's values: the step of the training, and values by name. May raise anything.
        """
        last, number = self._last, self._last + 1 if number is None else number
        self._last = number
        if not self._take():  # the ranks do not agree, and all of them know by now
            return
        if self._gather is None:
            self._begin(number)
        elif number // self._every != last // self._every:
            step, values = _UNKNOWN, dict[str, float]()
            try:
                step, values = read()
            except Exception as error:
                self._faults.warn("aggregate", f"aggregate: this rank's values cannot be read, NaN is sent: {error!r}")
            self._send(step, make_row(self._names, values))

    def end(self) -> None:
        """The training ends: what is still on its way is taken if it comes soon. No collective is called."""
        if self._pending is None or self.is_off:
            return
        taking = threading.Thread(target=self._take, name="ms_summary_bridge aggregate", daemon=True)
        taking.start()
        taking.join(_LAST_SECS)
        self.is_off = True
        if taking.is_alive():
            self._faults.warn("aggregate end", "aggregate: the last values of all ranks have not come")

    # ------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        """Finds out whether ranks can be asked, and compares what each was told to do. The same on all ranks."""
        try:
            reason = self._connect()
        except Exception as error:  # of a version that says it otherwise, on all ranks alike
            reason = f"communication cannot be asked: {error!r}"
        if reason:
            self._leave(reason)
            return
        told = zlib.crc32(",".join(self._names).encode())
        asked = [_FORMAT, self._every, len(self._names), told % _EXACT, told // _EXACT, number]
        self._send(_AGREEMENT, np.asarray(asked, dtype=np.float64).astype(np.float32))

    def _connect(self) -> str:
        """Makes the collective; returns why there can be none, empty where there is one."""
        mindspore = sys.modules.get("mindspore")
        if mindspore is None:
            return "this program has not imported mindspore, whose communication it takes"
        from mindspore.communication import get_group_size, get_rank, management

        if not management.GlobalComm.INITED:
            return "communication is not initialised: call mindspore.communication.init() before the training"
        if get_group_size() <= 1:
            return "there is one rank: its own values are all there is"
        self._rank = int(get_rank())
        operation = mindspore.ops.AllGather()

        def gather(row: npt.NDArray[np.float32]) -> Any:
            return operation(mindspore.Tensor(row[np.newaxis]))

        self._gather = gather
        return ""

    def _send(self, step: int, row: npt.NDArray[np.float32]) -> None:
        assert self._gather is not None
        try:
            self._pending = step, self._gather(row)
        except Exception as error:  # a backend without the operation raises on all ranks alike
            self._leave(f"the collective fails here: {str(error).strip().partition(chr(10))[0] or repr(error)}")

    def _take(self) -> bool:
        """Takes what was gathered after an earlier step, which has long come; by rank 0 alone once all agree.

        Returns whether to go on.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return True
        step, gathered = pending
        if step != _AGREEMENT and (self._rank != 0 or step == _UNKNOWN):
            return True
        try:
            rows = gathered.asnumpy()
            if step == _AGREEMENT:
                self._compare(rows)
            else:
                self._told(step, *join_rows(self._names, rows))
        except Exception as error:
            self._faults.warn("aggregate read", f"aggregate: the values of all ranks cannot be read: {error!r}")
            self.is_off |= step == _AGREEMENT
        return not self.is_off

    def _compare(self, rows: npt.NDArray[np.float32]) -> None:
        """Goes on only where all ranks were told the same, which each of them finds in the same numbers."""
        odd = [str(rank) for rank in range(len(rows)) if (rows[rank] != rows[0]).any()]
        if odd:
            self._leave(
                f"rank{'s' if len(odd) > 1 else ''} {', '.join(odd[:8])}{', ...' if len(odd) > 8 else ''} and rank 0 "
                "differ in aggregate, in aggregate_steps or in the number of the first step: give all ranks the same"
            )

    def _leave(self, reason: str) -> None:
        self.is_off = True
        self._faults.warn("aggregate off", f"aggregate: left out on this rank, {reason}")
