"""What each viewer's reader sees of what lies there: TensorBoard's loader, our readers, the journal's."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE, MINDSPORE, TENSORBOARD, format_of_name
from ms_summary_bridge.runs.archive import make_decoder

__all__ = ["files_below", "our_values", "tensorboard_values", "visible"]


def files_below(root: str, file_format: str) -> Iterator[tuple[str, str]]:
    """Yields the run and the path of each event file of a format, in the order of their names; of links too."""
    for directory, folders, names in sorted(os.walk(root, followlinks=True)):
        folders.sort()
        for name in sorted(names):
            if format_of_name(name) == file_format and not name.endswith((".archive", ".pb")):
                yield os.path.relpath(directory, root), os.path.join(directory, name)


def tensorboard_values(root: str) -> Counter[tuple[Any, ...]]:
    """Returns what TensorBoard's loader gives: `(run, tag, step, the value's bytes)`; it ends at what is torn."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: Counter[tuple[Any, ...]] = Counter()
    for run, path in files_below(root, TENSORBOARD):
        for event in EventFileLoader(path).Load():
            for value in event.summary.value:
                found[run, value.tag, event.step, value.SerializeToString(deterministic=True)] += 1
    return found


def our_values(root: str, file_format: str) -> Counter[tuple[Any, ...]]:
    """Returns what our reader gives: `(run, tag, step, the value as text)`; it goes on behind what is torn."""
    found: Counter[tuple[Any, ...]] = Counter()
    for run, path in files_below(root, file_format):
        source = LINEAGE if path.endswith("_lineage") else file_format
        with EventFileReader(path, make_decoder(source)) as reader:
            for event in reader:
                if not isinstance(event, Event):
                    continue
                if isinstance(event.content, Summary):
                    for value in event.content.values:
                        found[run, value.tag, event.step, repr(value.value)] += 1
                elif source == LINEAGE:
                    found[run, "lineage", event.step, repr(event.content)] += 1
    return found


def visible(root: str, file_format: str) -> Counter[tuple[Any, ...]]:
    """Returns what the viewer of a format sees, by the reader that is nearest to it; both readers read all."""
    ours = our_values(root, file_format)
    if file_format == MINDSPORE:
        return ours
    theirs = tensorboard_values(root)
    steps = Counter((run, step) for run, tag, step, _ in theirs if tag != "__run_graph__")
    missing = {*steps} - {(run, step) for run, _, step, _ in ours}  # tags are others where a kind is drawn as another
    if missing:  # ours reads all that theirs does, and what lies behind damage
        raise AssertionError(f"TensorBoard's loader reads what ours does not: {[*missing][:3]}")
    return theirs
