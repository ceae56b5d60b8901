"""The elements of a tensor's typed field, as the wire has them: many packed together, or each by itself."""

from __future__ import annotations

from array import array as _Numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from ms_summary_bridge.formats import wire

if TYPE_CHECKING:
    import numpy.typing as npt  # the writer process loads numpy only for what needs it

__all__ = ["Elements"]


class Elements:
    """Elements of one field in the order in which they come; there may be millions of fields with one each.

    Varints are kept as uint64, 8 bytes each, whatever they stand for.
    """

    def __init__(self) -> None:
        self._arrays: list[npt.NDArray[Any]] = []
        self._numbers = _Numbers("Q")  # those that came last

    def add_number(self, number: int) -> None:
        """Takes a varint that came by itself."""
        self._numbers.append(number)

    def add_packed(self, data: bytes, start: int, end: int) -> None:
        """Takes the varints in a part of the data.

        Raises:
            EventDecodeError: One does not end, or has more than ten bytes.
        """
        while start < end:
            number, start = wire.read_varint(data, start, end)
            self._numbers.append(number)

    def add(self, elements: npt.NDArray[Any]) -> None:
        """Takes elements of a fixed width, shape [k]."""
        self._end_numbers()
        self._arrays.append(elements)

    def join(self) -> npt.NDArray[Any] | None:
        """Returns all of them, shape [n]: uint64 of varints, else as they were added; None where there was no field."""
        self._end_numbers()
        if len(self._arrays) > 1:
            joined: npt.NDArray[Any] = np.concatenate(self._arrays)
            return joined
        return self._arrays[0] if self._arrays else None

    def _end_numbers(self) -> None:
        if self._numbers:
            self._arrays.append(np.array(self._numbers, np.uint64))
            self._numbers = _Numbers("Q")
