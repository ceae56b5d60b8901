"""Where the time of a step goes, from what MindSpore's profiler left beside a run.

A profile is a directory `<name>_ascend_ms`. On Ascend its `ASCEND_PROFILER_OUTPUT` has `step_trace_time.csv` (a row
for each step, microseconds of each part), `op_statistic.csv` (a row for each type of operator) and `kernel_details.csv`
(one for each kernel). On a CPU MindSpore 2.10 writes none of these there, only `trace_view.json`; what it measured of
the operators is in `FRAMEWORK/cpu_op_type_info_<n>.csv`, in milliseconds.

Sources: MindSpore 2.10's mindspore/profiler/analysis/viewer for the names of columns; CANN's documentation of
`op_statistic`. The files of a CPU are as measured; nothing was run on Ascend.
"""

from __future__ import annotations

import csv
import glob
import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ms_summary_bridge.errors import counted
from ms_summary_bridge.files.system import open_regular

__all__ = ["OperatorTime", "Profile", "StepPart", "find_profiles", "list_profiles", "read_profile"]

_INSIDE: Final = ("*_ascend_ms", "*/*_ascend_ms")
_BESIDE: Final = ("*_ascend_ms", "profiler*/*_ascend_ms", "data/*_ascend_ms")
"""In the directory above a run, where those of other runs may lie; `data` is what MindSpore's own examples say."""
_OUTPUT: Final = "ASCEND_PROFILER_OUTPUT"
_INFO: Final = re.compile(r"profiler_info_(\d+)\.json")
_PARTS: Final = ("Computing", "Communication(Not Overlapped)", "Free", "Preparing", "Bubble")
"""What a step is made of; other columns overlap with these."""
_ALSO: Final = ("Overlapped", "Communication", "Communication(Not Overlapped and Exclude Receive)")
_MOST_BYTES: Final = 256 << 20  # of a file
_MOST_LINE: Final = 1 << 16  # characters; of a longer one, parts are read
_MOST_ROWS: Final = 2_000_000
_MOST_PROFILES: Final = 64
_OPERATORS: Final = 20


class StepPart(msgspec.Struct, frozen=True):
    """A part of a step.

    `share` is of all that a step is made of, 0 to 1; None for what overlaps with other parts.
    """

    name: str
    mean_us: float
    share: float | None


class OperatorTime(msgspec.Struct, frozen=True):
    """All calls of one type of operator; `share` is of the time of all operators, 0 to 1."""

    type: str
    core: str
    count: int
    total_us: float
    share: float


class Profile(msgspec.Struct):
    """One profile.

    Attributes:
        directory: Where it is.
        run: Name of the run beside which it lies; empty where it may be of several.
        rank: Of the process; None where nothing says so.
        steps: How many steps it has times of.
        parts: Mean of each part of a step.
        operators: Types of operators that took the most time, first the longest.
        source: The file that these are from; empty for none.
        problems: What could not be read.
    """

    directory: str
    run: str = ""
    rank: int | None = None
    steps: int = 0
    parts: list[StepPart] = []
    operators: list[OperatorTime] = []
    source: str = ""
    problems: list[str] = []


def find_profiles(source: str, runs: Iterable[tuple[str, str]] = ()) -> list[Profile]:
    """Finds profiles in a directory and beside runs, and reads each.

    Args:
        source: A local directory.
        runs: Name and directory of each run.
    """
    owners: dict[str, str] = {}
    runs = list(runs)
    for name, directory in runs:
        for path in _list_below(directory, _INSIDE):
            owners.setdefault(os.path.abspath(path), name)
    for directory in [source, *(os.path.dirname(directory) for _, directory in runs)]:
        for path in _list_below(directory, _INSIDE if directory == source else _BESIDE):
            owners.setdefault(os.path.abspath(path), "")
    return [read_profile(path, run=run) for path, run in sorted(owners.items())[:_MOST_PROFILES]]


def list_profiles(directory: str, *, is_parent_own: bool) -> list[str]:
    """Returns the directories of profiles of one run, by name.

    Args:
        directory: The run's.
        is_parent_own: Whether what lies in the directory above can be of no other run.
    """
    found = {*_list_below(directory, _INSIDE)}
    if is_parent_own:
        found.update(_list_below(os.path.dirname(directory), _BESIDE))
    return sorted(path for path in found if os.path.isdir(path))[:_MOST_PROFILES]


def _list_below(directory: str, patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        yield from glob.iglob(os.path.join(glob.escape(directory), pattern))


def read_profile(directory: str, *, run: str = "") -> Profile:
    """Reads a profile: means of its steps, and the operators that took the most time."""
    profile = Profile(directory, run=run)
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        profile.problems.append(f"{directory}: cannot be read: {error.strerror}")
        return profile
    ranks = [int(match[1]) for name in names if (match := _INFO.fullmatch(name))]
    profile.rank = ranks[0] if len(ranks) == 1 else None
    _read_steps(os.path.join(directory, _OUTPUT, "step_trace_time.csv"), profile)
    for pattern, columns, scale in (
        (f"{_OUTPUT}/op_statistic*.csv", ("OP Type", "Core Type", "Count", "Total Time(us)"), 1.0),
        (f"{_OUTPUT}/kernel_details*.csv", ("Type", "Accelerator Core", "", "Duration(us)"), 1.0),
        ("FRAMEWORK/cpu_op_type_info_*.csv", ("op_type", "", "type_occurrences", "total_compute_time"), 1000.0),
    ):
        for path in sorted(glob.iglob(os.path.join(glob.escape(directory), pattern))):
            _read_operators(path, columns, scale, profile)
        if profile.operators:
            break
    return profile


def _rows(path: str, needed: Iterable[str], profile: Profile) -> Iterator[dict[str, str]]:
    """Yields rows by the names of their columns; what is damaged is left out and counted."""
    torn = 0
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="", opener=open_regular) as file:
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                profile.problems.append(f"{path}: is larger than {_MOST_BYTES >> 20} MiB and not read")
                return
            lines = iter(lambda: file.readline(_MOST_LINE), "")
            reader = csv.DictReader((line.replace("\0", "") for line in lines), skipinitialspace=True)
            if missing := [name for name in needed if name not in (reader.fieldnames or ())]:
                profile.problems.append(f"{path}: has no column {', '.join(map(repr, missing))}")
                return
            for number, row in enumerate(reader):
                if number >= _MOST_ROWS:
                    profile.problems.append(f"{path}: only the first {_MOST_ROWS} rows are read")
                    break
                if None in row or None in row.values():
                    torn += 1
                    continue
                yield row
    except FileNotFoundError:
        return
    except (OSError, csv.Error) as error:
        profile.problems.append(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")
    if torn:
        profile.problems.append(f"{path}: {counted(torn, 'row is', 'rows are')} damaged and left out")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) and number >= 0 else math.nan


def _read_steps(path: str, profile: Profile) -> None:
    sums: dict[str, float] = {}
    for row in _rows(path, ("Step", "Computing"), profile):
        values = {name: _number(row[name]) for name in (*_PARTS, *_ALSO) if name in row}
        if math.isnan(values["Computing"]):
            profile.problems.append(f"{path}: a row whose times are no numbers is left out")
            continue
        profile.steps += 1
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + (0.0 if math.isnan(value) else value)
    total = sum(sums.get(name, 0.0) for name in _PARTS)
    for part, value in sums.items():
        share = value / total if part in _PARTS and total > 0 else None
        profile.parts.append(StepPart(part, value / profile.steps, share))


def _read_operators(path: str, columns: tuple[str, str, str, str], scale: float, profile: Profile) -> None:
    name_column, core_column, count_column, time_column = columns
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for row in _rows(path, (name_column, time_column), profile):
        secs = _number(row[time_column]) * scale
        if math.isnan(secs):
            continue
        key = row[name_column].strip(), row.get(core_column, "").strip()
        calls = _number(row.get(count_column, "1")) if count_column else 1.0
        count, total = found.get(key, (0, 0.0))
        found[key] = count + (0 if math.isnan(calls) else int(calls)), total + secs
    whole = sum(total for _, total in found.values())
    every = [
        OperatorTime(name, core, count, total, total / whole if whole > 0 else 0.0)
        for (name, core), (count, total) in found.items()
    ]
    if every:
        profile.source = path
        profile.operators = sorted(every, key=lambda one: (-one.total_us, one.type))[:_OPERATORS]
