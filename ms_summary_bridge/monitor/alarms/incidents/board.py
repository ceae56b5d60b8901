"""Where the processes of one training tell each other of incidents: files in a directory that they share.

No process waits for another here, and none is asked. The first one that comes makes an incident's file, which no other
can make as well; whoever finds it lays its report beside it. The one that made it tells the outside. If it does not
within some time, another makes the next file of the same kind and tells in its place.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from ms_summary_bridge.errors import NOT_JSON
from ms_summary_bridge.files.atomic import replace_file
from ms_summary_bridge.monitor.alarms.incidents.report import LOST, Report

__all__ = ["BOARD", "HOUR_SECS", "Board", "Claim"]

BOARD: Final = ".incidents"
"""The directory, in that of a run."""
_LEAST_SECS: Final = 60.0  # in which alarms of one kind are one incident, whatever the cool-down is
_LONG_SECS: Final = 3600.0  # ranks that hang are ended by HCCL after 1836 s: that is the same incident
HOUR_SECS: Final = 3600.0
"""In which a receiver gets no more than its limit."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who tells the outside of an incident, and since when, in seconds since the epoch."""

    key: str = ""
    number: int = 0
    rank: int = 0
    host: str = ""
    pid: int = 0
    wall_time: float = 0.0
    stops: bool = False

    @property
    def name(self) -> str:
        """Name of the incident, as its files have it."""
        return f"{self.key}.{self.number}"


class Board:
    """The shared directory, seen by one process. Every method raises OSError where the disk does not do.

    `pid` is that of the training, for its watchdog too. `window_secs` is how long after its beginning an incident takes
    further alarms, a minute at least; `began` is when the session of this process did, in seconds since the epoch.
    """

    def __init__(
        self,
        run_directory: str,
        *,
        rank: int,
        host: str,
        pid: int,
        window_secs: float,
        began: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = Path(run_directory, BOARD)
        self._rank, self._host, self._pid = rank, host, pid
        self._window_secs = max(window_secs, _LEAST_SECS)
        self.since = began
        """When the session of this process began."""
        self._clock = clock

    def clear(self) -> None:
        """Forgets incidents of earlier sessions; done by one rank, since the others may be in the next one."""
        for claim in list(self._claims()):
            if claim.wall_time < self.since:
                for path in self._directory.glob(f"{glob.escape(claim.name)}.*"):
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink(missing_ok=True)

    def _claims(self) -> Iterator[Claim]:
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return
        for name in names:
            key, _, number = name.removesuffix(".json").rpartition(".")
            if not name.endswith(".json") or not number.isdecimal():
                continue
            with contextlib.suppress(FileNotFoundError):
                path = self._directory / name
                try:
                    claim = msgspec.json.decode(path.read_bytes(), type=Claim)
                except NOT_JSON:  # it is being written
                    claim = Claim(wall_time=path.stat().st_mtime)
                yield msgspec.structs.replace(claim, key=key, number=int(number))

    def join(self, key: str, *, stops: bool = False) -> tuple[Claim, bool]:
        """Returns the incident to which an alarm belongs, and whether this process is the one that made it."""
        self._directory.mkdir(parents=True, exist_ok=True)
        while True:
            now, claims = self._clock(), list(self._claims())
            ours = [claim for claim in claims if claim.key == key]
            newest = max(ours, key=lambda claim: claim.number, default=None)
            if newest is not None and self._is_open(newest, now):
                return newest, False
            if key == LOST:  # a training that an alarm stops is left by its ranks one after the other
                stopping = [claim for claim in claims if claim.stops and self._is_open(claim, now)]
                if stopping:
                    return max(stopping, key=lambda claim: claim.wall_time), False
            claim = Claim(
                key=key,
                number=1 if newest is None else newest.number + 1,
                rank=self._rank,
                host=self._host,
                pid=self._pid,
                wall_time=now,
                stops=stops,
            )
            if self._make_whole(f"{claim.name}.json", msgspec.json.encode(claim)):
                return claim, True

    def _is_open(self, claim: Claim, now: float) -> bool:
        secs = _LONG_SECS if claim.key == LOST or claim.stops else self._window_secs
        return now - claim.wall_time < secs and not self.is_marked(claim, "over")

    def end(self, key: str) -> None:
        """An incident is over: the next alarm of its kind is another one."""
        for claim in self._claims():
            if claim.key == key:
                self.mark(claim, "over")

    def _make_whole(self, name: str, data: bytes) -> bool:
        """As `_make`, and nobody ever reads less than all of it; where the disk has no links, that is but likely."""
        written = self._directory / f"{name}.{self._rank}-{self._pid}-{threading.get_ident()}.new"
        written.write_bytes(data)
        try:
            os.link(written, self._directory / name)
        except FileExistsError:
            return False
        except OSError:
            return self._make(name, data)
        finally:
            written.unlink(missing_ok=True)
        return True

    def _make(self, name: str, data: bytes = b"") -> bool:
        """Makes a file that was not there, on network disks too; returns False where another process has."""
        try:
            with open(self._directory / name, "xb", buffering=0) as file:
                file.write(data)
        except FileExistsError:
            return False
        return True

    def report(self, claim: Claim, report: Report, role: str) -> None:
        """Lays a report beside an incident; `role` tells a training from its watchdog."""
        directory = self._directory / f"{claim.name}.reports"
        directory.mkdir(exist_ok=True)
        replace_file(str(directory / f"rank_{report.rank}-{role}.json"), msgspec.json.encode(report))

    def reports(self, claim: Claim) -> list[Report]:
        """Returns all reports of an incident."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for path in sorted((self._directory / f"{claim.name}.reports").glob("rank_*.json")):
                with contextlib.suppress(FileNotFoundError, *NOT_JSON):
                    found.append(msgspec.json.decode(path.read_bytes(), type=Report))
        return found

    def mark(self, claim: Claim, word: str) -> None:
        """Says something of an incident."""
        self._make(f"{claim.name}.{word}")

    def is_marked(self, claim: Claim, word: str) -> bool:
        """Whether anybody has said it."""
        return (self._directory / f"{claim.name}.{word}").exists()

    def take_over(self, claim: Claim, number: int) -> bool:
        """Whether this process is the one that tells in the place of another, at its first, second, ... chance."""
        return self._make(f"{claim.name}.takeover-{number}")

    def abandoned(self) -> list[Claim]:
        """Returns the incidents of which this process's training was to tell, and has not."""
        own = [claim for claim in self._claims() if (claim.host, claim.pid) == (self._host, self._pid)]
        return [claim for claim in own if claim.wall_time >= self.since and not self.is_marked(claim, "told")]

    def take_turn(self, name: str, most: int) -> int | None:
        """Takes one of `most` messages within an hour to the receiver `name`.

        Returns:
            How many were left out since the last one that was sent; None if there is none left.
        """
        place = self._directory / f"limit-{name}"
        place.mkdir(parents=True, exist_ok=True)
        missed = place / "missed"
        for number in range(most):
            path = place / str(number)
            with contextlib.suppress(FileNotFoundError):
                if self._clock() - path.stat().st_mtime < HOUR_SECS:
                    continue
                path.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):
                open(path, "xb").close()
                left_out = missed.stat().st_size if missed.exists() else 0
                missed.unlink(missing_ok=True)
                return left_out
        with open(missed, "ab", buffering=0) as file:
            file.write(b".")
        return None
