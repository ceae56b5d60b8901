"""What one rank left, read from its journal and its `hang.jsonl`: the last session alone."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ms_summary_bridge.diagnose.places import find_place
from ms_summary_bridge.errors import NOT_JSON, counted
from ms_summary_bridge.files.file_names import HANG_LOG
from ms_summary_bridge.files.lines import read_lines
from ms_summary_bridge.training.distributed import MOST_RANKS

__all__ = ["Bad", "End", "Gone", "Hung", "RankFacts", "Sight", "read_rank"]

_JOURNAL_FILE: Final = re.compile(r"metrics(?:\.(\d+))?\.jsonl")
_KEPT: Final = 4096  # samples of which the pace is kept; of a longer training every second, fourth, ...
_TOLD_SECS: Final = 1.0  # clocks are read one after the other


class Sight(msgspec.Struct, frozen=True):
    """A sample: that the rank was at a step. `where` is file and line, here and below."""

    step: int
    wall_time: float
    where: str


class Bad(msgspec.Struct, frozen=True):
    """A metric that is not finite from a step on, to the last sample, in so many `steps` that are known."""

    step: int
    steps: int
    wall_time: float
    text: str
    where: str


class End(msgspec.Struct, frozen=True):
    """The training of a rank has ended; `reason` is empty where it came to its end."""

    reason: str
    step: int
    wall_time: float
    where: str


class Hung(msgspec.Struct, frozen=True):
    """A rank that shows no sign of life since `since`; `place` is its phase, or what its stack says more exactly.

    It hangs where it `is_told` so; else it may take as long as it does, and was asked since another one hangs.
    """

    place: str
    phase: str
    step: int
    since: float
    told: float
    cpu_share: float
    state: str
    stack: tuple[str, ...]
    where: str
    is_told: bool = True


class Gone(msgspec.Struct, frozen=True):
    """A process that died without a word; `lost_before` are the ranks that its watchdog found lost before."""

    ending: str
    wall_time: float
    lost_before: tuple[int, ...]
    where: str


class RankFacts(msgspec.Struct, kw_only=True):
    """One rank, in its last session.

    `pace` has (wall time, seconds of a step, seconds of it that waited for data) of samples, evenly thinned; 0.0 where
    a sample has no such number. `size` is how many ranks it says there are. `pid`, `host`, `device_id` and `addresses`
    (of the host) are of the process; -1 for a device that nobody says.
    """

    rank: int
    directory: str
    size: int = 0
    pid: int = 0
    host: str = ""
    device_id: int = -1
    addresses: list[str] = []
    began: float | None = None
    last: Sight | None = None
    interval_secs: float = 0.0
    end: End | None = None
    hung: Hung | None = None
    gone: Gone | None = None
    bad: dict[str, Bad] = {}
    metrics: set[str] = set()
    pace: list[tuple[float, float, float]] = []
    problems: list[str] = []

    @property
    def newest(self) -> float:
        """When the rank is last known to have done anything."""
        return max(
            self.began or 0.0,
            self.last.wall_time if self.last is not None else 0.0,
            self.end.wall_time if self.end is not None else 0.0,
        )


class _Line(msgspec.Struct):
    """What is read of a line of either file."""

    kind: str = ""
    step: int = 0
    wall_time: float = 0.0
    pid: int = 0
    host: str = ""
    device: str = ""
    addresses: list[str] = []
    ranks: Any = 0
    reason: str = ""
    values: dict[str, float | None] = {}
    mean: dict[str, float | None] = {}
    nonfinite: dict[str, str] = {}
    nonfinite_steps: dict[str, int] = {}
    value: Any = None
    ending: str = ""
    fields: dict[str, Any] = {}
    found: dict[str, Any] = {}
    stack: str = ""


_DECODER: Final = msgspec.json.Decoder(_Line)


def read_rank(rank: int, directory: str, *, since: float | None = None, tail_bytes: int | None = None) -> RankFacts:
    """Reads what a rank left; what cannot be read is in its `problems`.

    Args:
        rank: Its number.
        directory: Its directory.
        since: Seconds since the epoch; what is older is of an earlier session.
        tail_bytes: Read no more than this of the end of the journal; lines have no numbers then.
    """
    reading = _Reading(RankFacts(rank=rank, directory=directory, began=since), since or 0.0)
    for path in _journal_files(directory):
        for where, line in _lines(path, reading.facts.problems, tail_bytes):
            reading.take(where, line)
    reading.end()
    path = os.path.join(directory, HANG_LOG)
    if os.path.exists(path):
        for where, line in _lines(path, reading.facts.problems, None):
            reading.take_told(where, line)
    if tail_bytes is not None and reading.facts.pid and not reading.facts.host:
        for journal in _journal_files(directory)[:1]:
            header = next((line for _, line in _lines(journal, [], None)), None)
            if header is not None and (header.kind, header.pid) == ("header", reading.facts.pid):
                reading.take_place(header)
    return reading.facts


def _journal_files(directory: str) -> list[str]:
    """Returns the files of the journal, oldest first."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if match := _JOURNAL_FILE.fullmatch(name):
                found.append((int(match[1]) if match[1] else 1 << 60, os.path.join(directory, name)))
    return [path for _, path in sorted(found)]


def _lines(path: str, problems: list[str], tail_bytes: int | None) -> Iterator[tuple[str, _Line]]:
    name = f"{os.path.basename(os.path.dirname(path))}/{os.path.basename(path)}"
    torn: list[int] = []
    number = 0
    try:
        is_cut = tail_bytes is not None and os.path.getsize(path) > tail_bytes
        for number, raw in enumerate(read_lines(path, tail_bytes if is_cut else None), 1):
            try:
                line = _DECODER.decode(raw)
            except NOT_JSON:
                torn.append(number)
                continue
            yield (name if is_cut else f"{name}:{number}"), line
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
    torn = torn[:-1] if torn and torn[-1] == number else torn  # the last one is being written, or a crash tore it
    if torn:
        problems.append(
            f"{path}: {counted(len(torn), 'line is', 'lines are')} damaged and left out, the first is line {torn[0]}"
        )
    if not number:
        problems.append(f"{path}: is empty")


class _Reading:
    def __init__(self, facts: RankFacts, since: float) -> None:
        self.facts = facts
        self._since = since
        self._process: tuple[str, int] | None = None
        self._first: Sight | None = None
        self._samples = 0
        self._every = 1

    def take(self, where: str, line: _Line) -> None:
        """Takes a line of the journal."""
        facts = self.facts
        if line.wall_time < self._since:
            return
        if line.kind == "header":
            if (line.host, line.pid) != self._process or facts.end is not None:  # else a file was full
                self.facts = RankFacts(
                    rank=facts.rank, directory=facts.directory, began=line.wall_time, problems=facts.problems
                )
                self._first, self._samples, self._every = None, 0, 1
            self._process = line.host, line.pid
            self.facts.size = line.ranks if isinstance(line.ranks, int) else 0
            if self.facts.size > MOST_RANKS:
                text = f"{where}: {counted(self.facts.size, 'rank')} are beyond all that a training can have: left out"
                self.facts.problems.append(text)
                self.facts.size = 0
            self.take_place(line)
        elif line.kind == "sample":
            self._take_sample(where, line)
        elif line.kind == "end":
            facts.end = End(line.reason, line.step, line.wall_time, where)

    def take_place(self, header: _Line) -> None:
        """Takes from a header which process it is of."""
        number = header.device.rpartition(" ")[2]
        self.facts.pid, self.facts.host, self.facts.addresses = header.pid, header.host, header.addresses
        self.facts.device_id = int(number) if number.isdecimal() else -1

    def _take_sample(self, where: str, line: _Line) -> None:
        facts = self.facts
        facts.last = Sight(line.step, line.wall_time, where)
        self._first = self._first or facts.last
        facts.metrics.update(line.values)
        for name in [name for name in facts.bad if name in line.values and name not in line.nonfinite]:
            del facts.bad[name]  # it was a matter of some steps
        for name, text in line.nonfinite.items():
            steps, known = max(line.nonfinite_steps.get(name, 1), 1), facts.bad.get(name)
            facts.bad[name] = (
                Bad(line.step - steps + 1, steps, line.wall_time, text, where)
                if known is None
                else msgspec.structs.replace(known, steps=known.steps + steps)
            )
        self._samples += 1
        if self._samples % self._every == 0:
            secs = [line.mean.get(name) or line.values.get(name) or 0.0 for name in ("step_time", "data_time")]
            facts.pace.append((line.wall_time, *secs))  # type: ignore[arg-type]
            if len(facts.pace) == _KEPT:
                del facts.pace[::2]
                self._every *= 2

    def end(self) -> None:
        """The journal has been read."""
        facts = self.facts
        if self._first is not None and facts.last is not None and self._samples > 1:
            facts.interval_secs = (facts.last.wall_time - self._first.wall_time) / (self._samples - 1)

    def take_told(self, where: str, line: _Line) -> None:
        """Takes a line of the watchdog."""
        facts = self.facts
        if facts.began is not None and line.wall_time < facts.began - _TOLD_SECS:
            return  # of an earlier session
        if not facts.pid and isinstance(pid := line.fields.get("pid"), int):
            facts.pid = pid  # the journal was read from its middle on
        if line.kind == "hang" or (line.kind == "state" and facts.hung is None):
            age = line.value if isinstance(line.value, (int, float)) else 0.0
            stack = tuple(text.strip() for text in line.stack.splitlines())
            phase = str(line.fields.get("phase", ""))
            facts.hung = Hung(
                place=find_place(phase, stack),
                phase=phase,
                step=line.step,
                since=line.wall_time - age,
                told=line.wall_time,
                cpu_share=float(line.found.get("cpu_share") or 0.0),
                state=str((line.found.get("thread") or line.found.get("process") or {}).get("state", "")),
                stack=stack,
                where=where,
                is_told=line.kind == "hang",
            )
            if line.kind == "state" and facts.newest > line.wall_time:
                facts.hung = None  # it went on
        elif line.kind == "recovered":
            facts.hung = None
        elif line.kind == "gone":
            facts.gone = Gone(line.ending, line.wall_time, (), where)
        elif line.kind == "death" and facts.gone is not None:
            lost = tuple(rank for rank in line.fields.get("lost_ranks", ()) if isinstance(rank, int))
            facts.gone = msgspec.structs.replace(facts.gone, lost_before=lost)
