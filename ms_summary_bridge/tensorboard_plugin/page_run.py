"""One run of the page: its files, what they tell, and how it is.

Imports no tensorboard.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ms_summary_bridge.runs.logdir import Run
from ms_summary_bridge.states.run_state import RunState
from ms_summary_bridge.states.tree import FoundRun
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts
from ms_summary_bridge.tensorboard_plugin.run_facts import RunFacts

__all__ = ["PageRun", "ProcessFiles"]

_NOTHING: Final = JournalFacts("")


class ProcessFiles(msgspec.Struct):
    """The event files of one process of a run, as `discover` found them, and what they tell."""

    run: Run
    twins: list[Run]
    facts: RunFacts = msgspec.field(default_factory=RunFacts)


class PageRun(msgspec.Struct):
    """One run, and what belongs to it."""

    key: str
    """Unique among all runs: its directory below the logdir."""
    name: str
    directory: str
    found: FoundRun | None = None
    """Its files, as `states` has found them; None where they are no files to be watched."""
    state: RunState | None = None
    """How it is; None before it was looked at, and where it has neither a value nor a line."""
    parts: list[ProcessFiles] = msgspec.field(default_factory=list)
    """Its processes, by rank."""
    journals: list[JournalFacts] = msgspec.field(default_factory=list)
    """The run's own, or those of its ranks; written to last at the end."""
    paths: list[str] = msgspec.field(default_factory=list)
    """All its files."""
    rank_journals: dict[int, str] = msgspec.field(default_factory=dict)
    """Paths of the journals of its ranks."""
    problems: list[str] = msgspec.field(default_factory=list)
    is_seen: bool = False
    """Whether it was looked at."""
    is_read: bool = False
    """Whether all that is there has been read at least once."""
    read: RunState | None = None
    """The state after which it was read last."""
    is_left_out: bool = False
    """Whether it is not read, since there are too many newer ones."""
    fault: str = ""
    """What of ours went wrong with it."""

    @property
    def journal(self) -> JournalFacts:
        """The journal that was written to last; an empty one where there is none."""
        return self.journals[-1] if self.journals else _NOTHING

    @property
    def main(self) -> RunFacts:
        """What the process tells whose numbers are shown: that of the state, else the first one with a loss."""
        if self.state is not None and len(self.parts) > 1:
            for part in self.parts:
                if (part.run.rank or 0) == self.state.main.rank and part.facts.scalars:
                    return part.facts
        found = max(self.parts, key=lambda part: (bool(part.facts.sparklines), len(part.facts.scalars)), default=None)
        return RunFacts() if found is None else found.facts

    @property
    def changes(self) -> tuple[object, ...]:
        """Is another as soon as something of it has changed."""
        counts = [part.facts.changes for part in self.parts] + [journal.changes for journal in self.journals]
        flags = self.is_seen, self.is_read, self.is_left_out, self.fault, tuple(self.problems)
        return (self.name, id(self.state), *counts, *flags)

    @property
    def first_time(self) -> float:
        """Of what it recorded first."""
        times = [part.facts.first_time for part in self.parts] + [journal.first_time for journal in self.journals]
        return min(filter(None, times), default=0.0)

    @property
    def last_time(self) -> float:
        """Of what it recorded last."""
        times = [part.facts.last_time for part in self.parts] + [journal.last_time for journal in self.journals]
        return max([*times, self.state.last_time if self.state is not None else 0.0], default=0.0)
