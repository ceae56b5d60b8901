"""Names of which none is given twice."""

from __future__ import annotations

from collections.abc import Container, Iterable

__all__ = ["UniqueNames"]


class UniqueNames:
    """Gives each name once, and none that is taken: the same wishes in the same order get the same names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, wish: str, besides: Container[str] = ()) -> str:
        """Returns the wish, with `_2`, `_3`, ... behind it where it is taken or one of `besides`."""
        name = wish
        if name in self._taken or name in besides:
            number = self._next.get(wish, 2)
            while (name := f"{wish}_{number}") in self._taken or name in besides:
                number += 1
            self._next[wish] = number + 1
        self._taken.add(name)
        return name
