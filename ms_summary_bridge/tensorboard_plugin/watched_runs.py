"""The runs of the page as `states` finds and judges them: by the names and the ends of their files.

Imports no tensorboard.
"""

from __future__ import annotations

import os
import time

from ms_summary_bridge.errors import LogdirError, NoEventsError
from ms_summary_bridge.files.file_names import TENSORBOARD
from ms_summary_bridge.states.run_state import RunState
from ms_summary_bridge.states.tree import FoundRun
from ms_summary_bridge.states.watcher import RunWatcher
from ms_summary_bridge.tensorboard_plugin.found_files import file_size, modified_time
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts, is_journal
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun

__all__ = ["WatchedRuns"]


class WatchedRuns:
    """The runs below a logdir.

    Args:
        source: The logdir; need not exist yet.

    Attributes:
        runs: By key, in the order of their names.
        problems: What could not be listed.
        has_ours: Whether some files are MindSpore's, or a monitor's.
    """

    def __init__(self, source: str) -> None:
        self.runs: dict[str, PageRun] = {}
        self.problems: list[str] = []
        self.has_ours = False
        self._source = source
        self._watcher = RunWatcher(source)
        self._found: list[tuple[FoundRun, bool, RunState | None]] = []
        self._journals: dict[str, JournalFacts] = {}
        self._strangers: dict[str, int] = {}  # files with a journal's name that are none, by their size

    @property
    def unread(self) -> int:
        """How many have not been looked at yet."""
        return self._watcher.unread

    def look(self, budget_secs: float) -> None:
        """Looks at them for about so long; `arrange` takes what was found."""
        try:
            self._watcher.look(time.time(), budget_secs=budget_secs)
            self._found, self.problems = self._watcher.found, self._watcher.problems
        except NoEventsError:  # it is not there yet, or not now
            self._found, self.problems = [], []
        except LogdirError as error:
            self._found, self.problems = [], [str(error)]

    def arrange(self) -> None:
        """Brings the runs up to date; whoever looks at them must wait meanwhile."""
        runs: dict[str, PageRun] = {}
        for one, is_seen, state in self._found:
            if self._is_shown(one):
                key = os.path.relpath(one.directory, self._source).replace(os.sep, "/")
                run = runs[key] = self.runs.get(key) or PageRun(key, one.name, one.directory)
                run.name, run.state, run.is_seen = one.name, state, is_seen
                self._take_files(run, one)
        self.runs = runs
        kinds = {file.kind for run in runs.values() if run.found is not None for file in run.found.files}
        self.has_ours = bool(kinds - {TENSORBOARD})

    def _is_shown(self, one: FoundRun) -> bool:
        """Whether it is a run: what has a journal's name and nothing beside it may be somebody else's."""
        return any(file.kind != "journal" or self._is_journal(file.path) for file in one.files)

    def _is_journal(self, path: str) -> bool:
        if path not in self._journals:
            size = file_size(path)
            if self._strangers.get(path) == size:
                return False
            if not is_journal(path):
                self._strangers[path] = size
                return False
            self._journals[path] = JournalFacts(os.path.dirname(path))
        return True

    def _take_files(self, run: PageRun, one: FoundRun) -> None:
        if run.found is one:
            return
        run.found = one
        run.paths = [file.path for file in one.files]
        journals = [file for file in one.files if file.kind == "journal" and self._is_journal(file.path)]
        run.rank_journals = {file.rank: file.path for file in journals if file.rank >= 0}
        own = [file.path for file in journals if file.rank < 0] or [file.path for file in journals[:1]]
        run.journals = [self._journals[path] for path in sorted(own, key=modified_time)]
