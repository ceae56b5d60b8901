"""What sub-classes of SummaryCollector use as `self._record`, on a bridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["Record"]

_PLUGINS: Final = ("scalar", "histogram", "image", "tensor")


class Record:
    """Takes values as MindSpore's SummaryRecord does: those added are written with the step that is recorded next.

    The bridge hands in how (plugin, tag, value, step) is put, how the files are flushed, and who is told once of each
    (kind, message).
    """

    def __init__(
        self,
        put: Callable[[str, str, Any, int], None],
        flush: Callable[[], bool],
        warn: Callable[[str, str], None],
        log_dir: str,
    ) -> None:
        self._put = put
        self._flush = flush
        self._warn = warn
        self.log_dir = log_dir
        self._waiting: list[tuple[str, str, Any]] = []

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        """Adds a scalar, histogram, image or tensor to what is recorded next."""
        if plugin in _PLUGINS:
            self._waiting.append((plugin, name, value))
        else:
            self._warn(f"add_value {plugin}", f"_record.add_value: {plugin!r} is collected by SummaryBridge itself")

    def record(self, step: int, train_network: Any = None, plugin_filter: Any = None) -> bool:
        """Writes what was added, under this step; a value that cannot be written is told of, and no other is lost."""
        waiting, self._waiting = self._waiting, []
        for plugin, name, value in waiting:
            try:
                self._put(plugin, name, value, step)
            except ValueError as error:
                self._warn(f"add_value {plugin} {name}", f"_record.add_value: {error}")
        return True

    def flush(self) -> None:
        """Waits until all that was recorded is in the files."""
        self._flush()

    def set_mode(self, mode: str) -> None:
        """Does nothing: the mode is MindSpore's own."""

    def close(self) -> None:
        """Does nothing: the bridge closes its files."""
