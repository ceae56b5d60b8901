"""Tags under which values are written to TensorBoard.

TensorBoard cannot hold two kinds of value under one tag: both of its loaders then lose data. The first kind keeps the
tag, the others get `<tag>/<kind>`, with `_2`, `_3`, ... behind it where that is taken. A name once given stays.
"""

from __future__ import annotations

from typing import Final

from ms_summary_bridge.formats.unique_names import UniqueNames

__all__ = ["TagNames", "is_utf8"]

_RESERVED: Final = ("_hparams_/session_start_info", "_hparams_/session_end_info")
"""Where TensorBoard looks for a session: a value of another kind there breaks its HParams and scalar pages."""


class TagNames:
    """The names given in one run so far.

    Args:
        given: `(tag, kind, suffix, name)` rows of an earlier session, as `given` returned them.
    """

    def __init__(self, given: list[tuple[str, str, str, str]] | None = None) -> None:
        self._names: dict[tuple[str, str, str], str] = {}
        for tag, kind, suffix, name in given or ():
            self._names[tag, kind, suffix] = name
        self._unique = UniqueNames((*_RESERVED, *self._names.values()))

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
            wish = f"{tag}/{suffix}" if suffix else tag
            if not suffix and wish in self._unique:
                wish = f"{tag}/{kind}"
            name = self._names[key] = self._unique.take(wish)
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


def is_utf8(tag: str) -> bool:
    """Whether a tag can be encoded: bytes that are not UTF-8 are surrogate escapes in it."""
    try:
        tag.encode()
    except UnicodeEncodeError:
        return False
    return True
