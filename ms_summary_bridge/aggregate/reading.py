"""What `aggregate` wrote, read again: its statistics of each tag by step, and what it found of the ranks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from ms_summary_bridge.aggregate.aggregate import NonFinite, RankReport
from ms_summary_bridge.aggregate.outputs import AGGREGATE_FILE
from ms_summary_bridge.aggregate.statistics import STATISTICS
from ms_summary_bridge.errors import NOT_JSON, ReadError
from ms_summary_bridge.files.system import open_regular

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Aggregate", "find_aggregate", "read_aggregate"]

_MOST_BYTES: Final = 64 << 20  # some 600,000 rows, which take four times as much while they are read


class _File(msgspec.Struct):
    columns: list[str]
    rows: list[list[Any]]
    source: str
    ranks: list[RankReport]
    missing: list[int] = []
    first_bad: list[NonFinite] = []


class Aggregate(msgspec.Struct):
    """One call of `aggregate`.

    Attributes:
        path: The file that it is from.
        source: Directory of the training.
        ranks: What was found of each.
        missing: Ranks that left nothing.
        first_bad: The first value of each rank that is not finite.
        statistics: By tag, steps and the `STATISTICS` of each, shapes [steps] and [steps, 5].
    """

    path: str
    source: str
    ranks: list[RankReport]
    missing: list[int]
    first_bad: list[NonFinite]
    statistics: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]


def find_aggregate(directory: str) -> str:
    """Returns the path of what `aggregate` wrote into a directory; empty for nothing."""
    path = os.path.join(directory, AGGREGATE_FILE)
    return path if os.path.isfile(path) else ""


def read_aggregate(path: str) -> Aggregate:
    """Reads it.

    Raises:
        ReadError: It cannot be read, or is none of `aggregate`'s.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                raise ReadError(f"{path}: is larger than {_MOST_BYTES >> 20} MiB and not read")
            found = msgspec.json.decode(file.read(), type=_File)
        places = [found.columns.index(name) for name in ("step", "tag", *STATISTICS)]
        points: dict[str, tuple[list[int], list[list[float]]]] = {}
        for row in found.rows:
            step, tag, *numbers = [row[place] for place in places]
            steps, values = points.setdefault(str(tag), ([], []))
            steps.append(int(step))
            values.append([float(number) for number in numbers])  # `NaN` and the infinities are texts there
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (*NOT_JSON, TypeError, IndexError, OverflowError) as error:
        raise ReadError(f"{path}: is not as `aggregate` writes it: {error}") from error
    statistics = {
        tag: (np.array(steps, np.int64), np.array(values, np.float64)) for tag, (steps, values) in points.items()
    }
    return Aggregate(path, found.source, found.ranks, found.missing, found.first_bad, statistics)
