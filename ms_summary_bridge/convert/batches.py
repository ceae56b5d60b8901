"""A batch on its way through a conversion: judged, counted and written as the general way would do it.

Repeats and steps that go back are found per series as `SeriesTable.observe` finds them one by one. What that cannot be
done for as a whole (an event that repeats in part, a series that a restart has ended) is left to the general way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from ms_summary_bridge.batches.chain import unaligned
from ms_summary_bridge.batches.checksums import mask
from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.batches.scan import Group
from ms_summary_bridge.convert.series import Series, SeriesTable
from ms_summary_bridge.files.records import HEADER_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    _Rows: TypeAlias = npt.NDArray[np.int64]
    _Chosen: TypeAlias = npt.NDArray[np.bool_]

__all__ = ["JudgedBatch", "judge", "points_of", "repeats_in"]


class JudgedBatch(msgspec.Struct, eq=False):
    """What a batch comes to.

    Attributes:
        block: The records to be written, in the target format, whole.
        events: Events in `block`.
        checksum: CRC-32C of the last one's payload.
        wall_time: The latest wall time of them.
        points: Values written of each tag.
        last: Bits of the last value written of each tag.
    """

    block: bytes
    events: int
    checksum: int
    wall_time: float
    points: dict[str, int]
    last: dict[str, bytes]


class _Points(msgspec.Struct, eq=False):
    """The values of one tag in a batch.

    Attributes:
        rows: Numbers of their events, from 0.
        steps: Their steps.
        bits: Bits of their floats.
    """

    rows: _Rows
    steps: _Rows
    bits: npt.NDArray[np.uint32]


def judge(batch: Batch, series: SeriesTable) -> JudgedBatch | None:
    """Takes note of a batch's values; None where the general way has to do it (nothing is noted then)."""
    first = batch.first
    groups = [*batch.groups()]
    points = points_of(batch)
    count = batch.last - first
    repeated = np.zeros(count, np.int64)
    past: dict[str, Series] = {}
    repeats: dict[str, _Chosen] = {}
    for tag, found in points.items():
        known = series.find_scalar(tag)
        if known is None:
            return None
        past[tag] = known
        repeats[tag] = chosen = repeats_in(found.steps, found.bits, (known.step, known.fingerprint))
        if chosen.any():
            repeated[found.rows[chosen]] += 1
    dropped: _Rows = np.empty(0, np.int64)
    if repeated.any():
        sizes = np.zeros(count, np.int64)
        for group, part in groups:
            sizes[group.rows[part] - first] = len(group.form.shape.tags)
        dropped = np.flatnonzero(repeated)
        if (repeated[dropped] != sizes[dropped]).any():
            return None
    for tag, found in points.items():
        _note(series, past[tag], tag, found, repeats[tag])
    series.repeated += int(repeated.sum())
    return _written(batch, groups, points, repeats, dropped)


def points_of(batch: Batch) -> dict[str, _Points]:
    """Returns the values of each tag in the order of the file."""
    parts: dict[str, list[tuple[_Rows, npt.NDArray[np.uint32]]]] = {}
    for group, part in batch.groups():
        rows = group.rows[part] - batch.first
        floats = group.floats[part]
        for column, tag in enumerate(group.form.shape.tags):
            parts.setdefault(tag, []).append((rows, floats[:, column]))
    steps = batch.scan.steps[batch.first : batch.last]
    out: dict[str, _Points] = {}
    for tag, pieces in parts.items():
        rows, bits = pieces[0]
        if len(pieces) > 1:
            rows = np.concatenate([piece[0] for piece in pieces])
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            bits = np.concatenate([piece[1] for piece in pieces])[order]
        out[tag] = _Points(rows, steps[rows], bits)
    return out


def repeats_in(steps: _Rows, bits: npt.NDArray[np.uint32], last: tuple[int, bytes] | None) -> _Chosen:
    """Returns which values of a series repeat the one before; `last` is step and bits of what stands before them."""
    repeats = np.zeros(len(steps), bool)
    np.logical_and(steps[1:] == steps[:-1], bits[1:] == bits[:-1], out=repeats[1:])
    repeats[0] = last is not None and last[0] == steps[0] and last[1] == bits[0].tobytes()
    return repeats


def _note(series: SeriesTable, known: Series, tag: str, points: _Points, repeats: _Chosen) -> None:
    """Takes note of the values of one series that are no repeats."""
    file = series.file
    steps, bits = points.steps, points.bits
    if repeats.any():
        steps, bits = steps[~repeats], bits[~repeats]
        if not len(steps):
            return
    ahead = np.empty(len(steps), np.int64)
    ahead[0] = steps[0] - known.step
    np.subtract(steps[1:], steps[:-1], out=ahead[1:])
    if (ahead != known.stride).any():
        back = int(np.count_nonzero(ahead[known.file != file :] < 0))
        if back:
            series.went_back[tag] = series.went_back.get(tag, 0) + back
        known.take(steps, ahead)
    known.step, known.file, known.fingerprint = int(steps[-1]), file, bits[-1].tobytes()


def _written(
    batch: Batch,
    groups: list[tuple[Group, slice]],
    points: dict[str, _Points],
    repeats: dict[str, _Chosen],
    dropped: _Rows,
) -> JudgedBatch:
    """Makes the records of the target format: the source's own, but for a few bytes and their checksums."""
    scan, first, last = batch.scan, batch.first, batch.last
    base = int(scan.starts[first])
    block = bytearray(scan.data[base : scan.end(last - 1)])
    array = np.frombuffer(block, np.uint8)
    footers = unaligned(block, "<u4")
    checksums = np.zeros(last - first, np.uint32)
    for group, part in groups:
        form = group.form
        rows = group.rows[part]
        at = scan.starts[rows] + (HEADER_BYTES - base)
        for column, bits in form.changes:
            array[at + column] ^= np.uint8(bits)
        new = group.checksums[part] ^ np.uint32(form.checksum_change)
        footers[at + form.length] = mask(new)
        checksums[rows - first] = new
    kept = last - first
    wall_times = scan.wall_times[first:last]
    del array, footers
    out = bytes(block)
    if len(dropped):
        is_kept = np.ones(kept, bool)
        is_kept[dropped] = False
        edges = np.flatnonzero(np.diff(is_kept, prepend=False, append=False)).reshape(-1, 2)
        starts = np.append(scan.starts[first:last] - base, len(out))
        out = b"".join([out[starts[a] : starts[b]] for a, b in edges.tolist()])
        wall_times, checksums = wall_times[is_kept], checksums[is_kept]
        kept = len(checksums)
    counts: dict[str, int] = {}
    latest: dict[str, bytes] = {}
    for tag, found in points.items():
        values = found.bits[~repeats[tag]] if len(dropped) else found.bits
        if len(values):
            counts[tag], latest[tag] = len(values), values[-1].tobytes()
    return JudgedBatch(
        out,
        kept,
        int(checksums[-1]) if kept else 0,
        float(wall_times.max()) if kept else float("-inf"),
        counts,
        latest,
    )
