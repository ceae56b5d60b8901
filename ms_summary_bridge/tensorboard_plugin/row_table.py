"""The rows of all runs with what has changed since a question; its shape is in `run_table`.

Imports no tensorboard.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ms_summary_bridge.runs.report import encode_json
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun
from ms_summary_bridge.tensorboard_plugin.run_table import describe_row, summarize_settings

__all__ = ["RowTable"]

_MOST_REMOVED: Final = 10_000


class _Row(msgspec.Struct):
    mark: object
    state: object
    """Held, so that no other state can have its identity."""
    settings: dict[str, Any]
    scalar_tags: tuple[str, ...]
    tags: tuple[str, ...]
    """Of scalars, then of all else."""
    encoded: msgspec.Raw = msgspec.Raw(b"")
    version: int = 0


class RowTable:
    """Rows, each with the version at which it changed last; the versions rise over all rows."""

    def __init__(self) -> None:
        self._version = 0
        self._rows: dict[str, _Row] = {}
        self._forget()

    def _forget(self) -> None:
        self._instance = secrets.token_hex(6)
        self._removed: dict[str, int] = {}
        self._sets: dict[tuple[str, ...], tuple[str, int]] = {}
        self._summaries: dict[str, tuple[Any, int]] = {}

    def row(self, run: PageRun) -> msgspec.Raw:
        """Returns the row of a run as it is now, encoded."""
        return self._update(run).encoded

    def answer(self, runs: Sequence[PageRun], cursor: str) -> dict[str, Any]:
        """Returns what has changed since the answer that gave the cursor.

        Args:
            runs: All that there are, by name.
            cursor: Of that answer; anything else for all rows.
        """
        before = self._version
        rows = [self._update(run) for run in runs]
        if len(rows) != len(self._rows):
            self._version += 1
            gone = self._rows.keys() - {run.key for run in runs}
            for key in gone:
                del self._rows[key]
            self._removed.update(dict.fromkeys(gone, self._version))
            if len(self._removed) > _MOST_REMOVED:
                self._forget()
                for row in rows:
                    self._set_of(row.tags)
        if self._version != before or not self._summaries:
            self._summarize(rows)
        since = self._read_cursor(cursor)
        return {
            "cursor": f"{self._instance}-{self._version}",
            "is_full": since < 0,
            "rows": [row.encoded for row in rows if row.version > since],
            "removed": [key for key, version in self._removed.items() if version > since >= 0],
            "tag_sets": {name: tags for tags, (name, version) in self._sets.items() if version > since},
            **{name: shown if version > since else None for name, (shown, version) in self._summaries.items()},
        }

    def _read_cursor(self, cursor: str) -> int:
        """Returns the version that a cursor stands for; -1 where it is none of this table's."""
        instance, _, version = cursor.partition("-")
        is_ours = instance == self._instance and version.isascii() and version.isdigit() and len(version) < 16
        return int(version) if is_ours and int(version) <= self._version else -1

    def _update(self, run: PageRun) -> _Row:
        old, mark = self._rows.get(run.key), run.changes
        if old is not None and old.mark == mark:
            return old
        described = describe_row(run)
        scalar_tags = tuple(described.pop("tags"))
        tags = (*scalar_tags, *described.pop("other_tags"))
        row = _Row(mark, run.state, described["settings"], scalar_tags, tags)
        row.encoded = msgspec.Raw(encode_json({**described, "tag_set": self._set_of(tags)}, indent=0).rstrip())
        if old is not None and bytes(old.encoded) == bytes(row.encoded):
            row.version = old.version
        else:
            self._version += 1
            row.version = self._version
            self._removed.pop(run.key, None)
        self._rows[run.key] = row
        return row

    def _set_of(self, tags: tuple[str, ...]) -> str:
        found = self._sets.get(tags)
        if found is None:
            found = self._sets[tags] = str(len(self._sets)), self._version + 1
            self._version += 1
        return found[0]

    def _summarize(self, rows: Sequence[_Row]) -> None:
        counts = Counter(tag for row in rows for tag in row.scalar_tags)
        tags = [{"tag": tag, "runs": runs} for tag, runs in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]
        for name, shown in (("settings", summarize_settings(row.settings for row in rows)), ("tags", tags)):
            if name not in self._summaries or self._summaries[name][0] != shown:
                self._summaries[name] = shown, self._version
