"""The journal of the whole run, which rank 0 keeps: the samples of all ranks side by side.

The others' values are read from their journals, so there is no communication. Where their disk is not shared, the
journal is about rank 0 alone, and `ranks` says so.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.monitor.model.sample import Sample, strict_numbers
from ms_summary_bridge.monitor.sinks.journal import JOURNAL, Journal, json_lines, sample_line
from ms_summary_bridge.training.distributed import rank_directory

__all__ = ["RunJournal"]

_LOOK_SECS: Final = 5.0
_START_SPREAD_SECS: Final = 120.0  # the other ranks may have begun before rank 0
_LAST_SECS: Final = 5.0
_LAST_LOOK_SECS: Final = 0.1
_MAX_READ: Final = 4 << 20  # of one rank at a time
_COPIED: Final = ("warning", "alert", "healed", "end")


class RunJournal(Journal):
    """Writes `metrics.jsonl` of a run: for each sample of rank 0 the mean, least and greatest over the ranks.

    `loss_ranks` are those that have the training's loss.
    """

    def __init__(
        self,
        run_directory: str,
        ranks: int,
        loss_ranks: range,
        header: dict[str, Any],
        warn: Callable[[str, str], None],
        *,
        max_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(run_directory, 0, header, warn, max_bytes=max_bytes)
        self._others = [_Follower(rank_directory(run_directory, rank), rank) for rank in range(1, ranks)]
        self._loss_ranks = loss_ranks
        self._clock = clock
        self._wall_clock = wall_clock
        self._looked = float("-inf")
        self._held: dict[str, Any] | None = None

    def open(self) -> None:
        """Opens the journal, and passes over what the other ranks wrote in earlier sessions."""
        super().open()
        for follower in self._others:
            follower.since = self._wall_clock() - _START_SPREAD_SECS

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample of rank 0; it waits for those of the other ranks until the next one comes."""
        if sample.of_all:
            self.write(sample_line(sample, 0))
            return
        self._release()
        self._held = sample_line(sample, 0)

    def flush(self) -> bool:
        """Looks for the other ranks' samples, at times; hands all to the operating system."""
        if self._held is not None:
            now = self._clock()
            if self._others and now - self._looked >= _LOOK_SECS:
                self._looked = now
                self._look()
            if all(follower.is_fresh for follower in self._others):
                self._release()
        return super().flush()

    def close(self) -> None:
        """Writes the last line, after those ranks that come a little later, and closes the journal."""
        step = 0 if self._held is None else self._held["step"]

        def look() -> bool | None:
            self._look()
            return all(follower.has_reached(step) for follower in self._others) or None

        wait_for(look, _LAST_LOOK_SECS, _LAST_SECS)
        self._release()
        super().close()

    def _look(self) -> None:
        for follower in self._others:
            for line in follower.read():
                self.write(line)

    def _release(self) -> None:
        own, self._held = self._held, None
        if own is None:
            return
        self._look()
        lines = {0: own, **{other.rank: other.sample for other in self._others if other.sample is not None}}
        for follower in self._others:
            follower.is_fresh = False
        self.write({**own, **_merge(lines, self._loss_ranks)} if len(lines) > 1 else {**own, "ranks": [0]})


def _merge(lines: dict[int, dict[str, Any]], loss_ranks: range) -> dict[str, Any]:
    """Returns what the line of several ranks has in the place of rank 0's own. A loss is of those that have it."""
    merged: dict[str, dict[str, float]] = {"values": {}, "min": {}, "mean": {}, "max": {}}
    nonfinite: dict[str, str] = {}
    names = dict.fromkeys(name for line in lines.values() for name in line["values"])
    for name in names:
        own = [line for rank, line in lines.items() if name != "loss" or rank in loss_ranks]
        if not any(name in line["values"] for line in own):
            continue
        numbers = [line["values"][name] for line in own if line["values"].get(name) is not None]
        if numbers:
            mean = statistics.fmean(numbers)
            merged["values"][name] = merged["mean"][name] = mean
            merged["min"][name], merged["max"][name] = min(numbers), max(numbers)
        else:
            merged["values"][name] = float("nan")
        for line in own:
            if name in line.get("nonfinite", {}):
                nonfinite[name] = line["nonfinite"][name]
    result: dict[str, Any] = {kind: strict_numbers(numbers)[0] for kind, numbers in merged.items()}
    result["ranks"] = sorted(lines)
    result["steps"] = {str(rank): line["step"] for rank, line in sorted(lines.items())}
    return {**result, **({"nonfinite": nonfinite} if nonfinite else {})}


class _Follower:
    """Reads on in the journal of one rank."""

    def __init__(self, directory: str, rank: int) -> None:
        self._path = os.path.join(directory, JOURNAL)
        self._inode = (0, 0)
        self._offset = 0
        self.rank = rank
        self.since = 0.0
        self.sample: dict[str, Any] | None = None
        """The last one."""
        self.is_fresh = False
        """Whether it came since the last line."""
        self._has_ended = False

    def has_reached(self, step: int) -> bool:
        """Whether nothing more is to be waited for: the step is there, the rank has ended, or it never began here."""
        if self._has_ended or self._inode == (0, 0):
            return True
        return self.sample is not None and self.sample["step"] >= step

    def read(self) -> list[dict[str, Any]]:
        """Takes the newest sample; returns the other lines that the run's journal has too."""
        copied = []
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._inode or status.st_size < self._offset:
                    self._inode, self._offset = (status.st_dev, status.st_ino), 0
                file.seek(self._offset)
                data = file.read(_MAX_READ)
        except OSError:
            return []
        whole = data.rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else (len(data) if len(data) == _MAX_READ else 0)
        for line in json_lines(whole.splitlines()):
            if line.get("wall_time", 0.0) < self.since:
                continue
            if line.get("kind") == "header":
                self.sample, self.is_fresh, self._has_ended = None, False, False  # another session's
            elif line.get("kind") == "sample":
                self.sample, self.is_fresh = line, True
            elif line.get("kind") in _COPIED or (line.get("kind") == "evaluation" and line.get("rank") == 0):
                self._has_ended = self._has_ended or line["kind"] == "end"
                copied.append(line)
        return copied
