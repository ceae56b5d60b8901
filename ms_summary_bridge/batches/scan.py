"""A chunk of a file as arrays: its records, and of those whose shape is known what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from ms_summary_bridge.batches.chain import find_chain, unaligned
from ms_summary_bridge.batches.checksums import add_columns, mask
from ms_summary_bridge.batches.shapes import Form, Shapes
from ms_summary_bridge.files.records import FOOTER_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Group", "Scan", "scan"]

_HEAD: Final = 10


class Group(msgspec.Struct, eq=False):
    """The records of one form in a chunk.

    Attributes:
        form: Their form.
        rows: int64, their numbers in the chunk, ascending.
        floats: uint32 of shape [rows, scalars]: the bits of their values.
        checksums: uint32, CRC-32C of their payloads, verified.
    """

    form: Form
    rows: npt.NDArray[np.int64]
    floats: npt.NDArray[np.uint32]
    checksums: npt.NDArray[np.uint32]


class Scan(msgspec.Struct, eq=False):
    """The whole records that a chunk begins with.

    Attributes:
        data: The chunk.
        starts: int64, where each record begins.
        lengths: int64, bytes of each payload.
        wall_times: float64, of the records that are in a group.
        steps: int64, of the same.
        shapes: int32, number of each record's shape; -1 for one that goes the general way.
        groups: The groups, in no order.
    """

    data: bytes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    wall_times: npt.NDArray[np.float64]
    steps: npt.NDArray[np.int64]
    shapes: npt.NDArray[np.int32]
    groups: list[Group]

    def end(self, row: int) -> int:
        """Returns the position behind a record."""
        return int(self.starts[row] + self.lengths[row]) + HEADER_BYTES + FOOTER_BYTES

    def payload(self, row: int) -> bytes:
        """Returns the bytes of a record's payload, which are not verified."""
        start = int(self.starts[row]) + HEADER_BYTES
        return self.data[start : start + int(self.lengths[row])]


def scan(data: bytes, shapes: Shapes) -> Scan:
    """Looks at all whole records that a chunk begins with.

    A record is in a group if its bytes have a known shape, its checksum holds, its wall time is finite and its step is
    above 0 and written as short as can be.
    """
    starts, lengths = find_chain(data)
    count = len(starts)
    out = Scan(
        data,
        starts,
        lengths,
        np.zeros(count),
        np.zeros(count, np.int64),
        np.full(count, -1, np.int32),
        [],
    )
    if not count or not shapes.shapes:
        return out
    present = np.flatnonzero(np.bincount(lengths))
    for length in present.tolist():
        forms = shapes.forms(length)
        if not forms:
            continue
        rows = np.flatnonzero(lengths == length) if len(present) > 1 else np.arange(count)
        _scan_length(out, rows, length, forms)
    return out


def _scan_length(out: Scan, rows: npt.NDArray[np.int64], length: int, forms: list[Form]) -> None:
    """Fills in the records with payloads of one length."""
    width = -(-length // 8) * 8
    at = out.starts[rows] + HEADER_BYTES
    if at[-1] + width > len(out.data):  # the last words would reach behind the chunk
        beyond = int(np.searchsorted(at, len(out.data) - width, "right"))
        rows, at = rows[:beyond], at[:beyond]
        if not len(rows):
            return
    # One void for each row, and not a row of bytes: numpy then copies them twice as fast.
    table = unaligned(out.data, f"V{width}")[at].view(np.uint8).reshape(-1, width)
    words = table.view("<u8")
    footers = unaligned(out.data, "<u4")
    for form in forms:
        matches = _matches(words, form)
        if not matches.any():
            continue
        if matches.all():
            _add_group(out, form, rows, table, footers[at + length])
            return
        chosen = np.flatnonzero(matches)
        _add_group(out, form, rows[chosen], table[chosen], footers[at[chosen] + length])
        rest = np.flatnonzero(~matches)
        if not len(rest):
            return
        rows, at, table = rows[rest], at[rest], table[rest]
        words = table.view("<u8")


def _matches(words: npt.NDArray[np.uint64], form: Form) -> npt.NDArray[np.bool_]:
    """Returns which rows have the bits that a form has fixed; word by word, since `all` over a short axis is slow."""
    matches = np.ones(len(words), bool)
    for column, (fixed, word) in enumerate(zip(form.fixed, form.words, strict=True)):
        if fixed:
            matches &= (words[:, column] & fixed) == word
    return matches


def _add_group(
    out: Scan, form: Form, rows: npt.NDArray[np.int64], table: npt.NDArray[np.uint8], footers: npt.NDArray[Any]
) -> None:
    checksums = add_columns(form.checksum, table, form.varying, form.length)
    wall_times = np.ascontiguousarray(table[:, 1:9]).view("<f8")[:, 0]
    steps, is_short = _read_steps(table, form.step_bytes)
    good = (mask(checksums) == footers) & np.isfinite(wall_times) & is_short
    start = _HEAD + form.step_bytes
    columns = [np.ascontiguousarray(table[:, start + at : start + at + 4]).view("<u4") for at in form.shape.floats]
    floats = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    if not good.all():
        rows, checksums, wall_times = rows[good], checksums[good], wall_times[good]
        steps, floats = steps[good], floats[good]
        if not len(rows):
            return
    out.wall_times[rows] = wall_times
    out.steps[rows] = steps
    out.shapes[rows] = form.shape.number
    out.groups.append(Group(form, rows, floats, checksums))


def _read_steps(table: npt.NDArray[np.uint8], size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Returns the steps, and whether each is above 0 and written in no more bytes than it needs."""
    last = table[:, _HEAD + size - 1]
    steps = (last & np.uint8(0x7F)).astype(np.int64)
    for column in range(_HEAD + size - 2, _HEAD - 1, -1):
        steps <<= 7
        steps |= table[:, column] & np.uint8(0x7F)
    return steps, last != 0
