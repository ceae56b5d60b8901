"""A bar for work that takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["ProgressBar"]

_PROGRESS_AFTER_SECS: Final = 2.0


class ProgressBar:
    """How far the work is, on stderr, if that is a terminal and it takes longer than two seconds.

    Args:
        is_quiet: Show nothing.
        doing: What is done.
        is_bytes: Whether what is counted are bytes.
        clock: Seconds of a clock that never goes back.

    Attributes:
        is_shown: Whether it is on the terminal.
    """

    def __init__(
        self,
        is_quiet: bool,
        doing: str = "converting",
        *,
        is_bytes: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_wanted = not is_quiet and sys.stderr.isatty()
        self._clock = clock
        self._begun = clock()
        self._doing = doing
        self._is_bytes = is_bytes
        self._bar: Progress | None = None
        self.is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """Takes note of the bytes that are read."""
        if not self._is_wanted or self._clock() - self._begun < _PROGRESS_AFTER_SECS:
            return
        if self._bar is None:
            self._bar = self._begin(total)
            self.is_shown = True
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def _begin(self, total: int) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        count = DownloadColumn() if self._is_bytes else MofNCompleteColumn()
        columns = (TextColumn(self._doing), BarColumn(), count, TimeRemainingColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        bar.start()
        bar.add_task(self._doing, total=total)
        return bar

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
