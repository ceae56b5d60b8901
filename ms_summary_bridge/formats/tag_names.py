"""Tags under which values are written to TensorBoard.

TensorBoard cannot hold two kinds of value under one tag: both of its loaders then lose data. The first kind keeps the
tag, the others get `<tag>/<kind>`, with `_2`, `_3`, ... behind it where that is taken. A name once given stays.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TagNames"]

_RESERVED: Final = ("_hparams_/session_start_info", "_hparams_/session_end_info")
"""Where TensorBoard looks for a session: a value of another kind there breaks its HParams and scalar pages."""


class TagNames:
    """The names given in one run so far.

    Args:
        given: `(tag, kind, suffix, name)` rows of an earlier session, as `given` returned them.
    """

    def __init__(self, given: list[tuple[str, str, str, str]] | None = None) -> None:
        self._names: dict[tuple[str, str, str], str] = {}
        self._taken: set[str] = set(_RESERVED)
        for tag, kind, suffix, name in given or ():
            self._names[tag, kind, suffix] = name
            self._taken.add(name)

    def name(self, tag: str, kind: str, suffix: str = "") -> str:
        """Returns the name for a series.

        Args:
            tag: Tag in the source.
            kind: What TensorBoard takes it for: `scalar`, `histogram`, `image`, `text`; or what it is, where that is
                shown as something else (`pipeline`, `note`).
            suffix: For a series derived from `tag`, what is appended to it (`nan_count`); empty for the tag itself.
        """
        key = (tag, kind, suffix)
        name = self._names.get(key)
        if name is None:
            name = f"{tag}/{suffix}" if suffix else tag
            if name in self._taken:
                stem = name if suffix else f"{tag}/{kind}"
                name, number = stem, 1
                while name in self._taken:
                    number += 1
                    name = f"{stem}_{number}"
            self._names[key] = name
            self._taken.add(name)
        return name

    @property
    def kinds(self) -> dict[str, str]:
        """The kind under each name given."""
        return {name: kind for (_, kind, _), name in self._names.items()}

    @property
    def given(self) -> list[tuple[str, str, str, str]]:
        """All names given, in order: `(tag, kind, suffix, name)`."""
        return [(*key, name) for key, name in self._names.items()]

    @property
    def renamed(self) -> list[tuple[str, str, str]]:
        """The tags that could not be kept, in order: `(tag, kind, name)`."""
        return [(tag, kind, name) for (tag, kind, suffix), name in self._names.items() if not suffix and name != tag]
