"""What is found below a path: files, when they were written, how they end, and what is damaged."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from ms_summary_bridge.doctor.finding import Finding, Verdict, fault, good, named
from ms_summary_bridge.doctor.look import FileFacts, LogFacts
from ms_summary_bridge.errors import counted
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD, parse_name
from ms_summary_bridge.runs.log_files import SOURCE

__all__ = ["WAIT_SECS", "check_damage", "check_found", "check_times", "say_age"]

_VIEWERS: Final = {MINDSPORE: "MindSpore", TENSORBOARD: "TensorBoard"}
WAIT_SECS: Final = 600.0
"""How long MindInsight waits for the rest of a record."""
_TOGETHER_SECS: Final = 60.0
_AHEAD_SECS: Final = 86_400.0


def say_age(secs: float) -> str:
    """Returns a length of time as people say it."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if secs >= 2 * length:
            return f"{secs / length:.0f} {unit}"
    return f"{max(secs, 0):.0f} s"


def check_found(log: LogFacts, now: float) -> Iterator[Finding]:
    """Yields whether there is anything to see, and when it was written."""
    if not log.exists:
        parent = os.path.abspath(log.target)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        text = f"{log.target} does not exist; {parent} does"
        yield fault("files.found", "wrong", text, "give the directory that the training names in its last lines")
        return
    if log.unlisted:
        text = f"cannot be listed: {named(log.unlisted)}"
        yield fault("files.listed", "wrong", text, "chmod u+rx those directories, or look as the user who trained")
    if log.misnamed:
        text = f"event files under names that no viewer reads: {named(log.misnamed)}"
        mend = "rename them back: events.out.tfevents.<seconds>.<host>, ....summary.<seconds>.<rank>.<host>_MS"
        yield fault("files.names", "wrong", text, mend)
    if not log.data_files:
        yield from _nothing(log)
        return
    numbers = {form: sum(file.format == form for file in log.data_files) for form in _VIEWERS}
    shown = " and ".join(f"{count} of {_VIEWERS[form]}" for form, count in numbers.items() if count)
    newest = max(log.data_files, key=lambda file: file.mtime)
    directories = len({file.directory for file in log.data_files})
    more = (
        f"; {counted(log.passed_over, 'older one was', 'older ones were')} not looked into" if log.passed_over else ""
    )
    more += "; there is more that was not listed" if log.is_cut_short else ""
    age = say_age(now - newest.mtime)
    where = counted(directories, "directory", "directories")
    yield good("files.found", f"event files: {shown} in {where}, the newest written {age} ago{more}")
    unread = [f"{file.name}: {file.problem}" for file in log.files if file.problem]
    if unread:
        text = f"cannot be read: {named(unread)}"
        yield fault(
            "files.readable",
            "wrong",
            text,
            "chmod u+r them, or look as the user who trained; delete a link that leads nowhere",
        )
    yield from _check_empty(log)


def _nothing(log: LogFacts) -> Iterator[Finding]:
    alone = [file.name for file in log.files] + log.graphs
    if alone:
        text = f"no curves: lineage, graphs or originals alone: {named(alone)}"
        yield fault("files.found", "warning", text, "look at the lineage and graph pages; values are in other files")
    elif log.packed:
        text = f"no event file, but packed ones, in which no viewer looks: {named(log.packed)}"
        yield fault("files.found", "wrong", text, "unpack them first")
    elif log.journals:
        text = (
            "the monitor's journal is there and nothing for a viewer: backend has neither tensorboard nor mindinsight"
        )
        yield fault("files.found", "wrong", text, "backend: [local, tensorboard, mindinsight] in monitor_config")
    else:
        text = f"{log.target}: no event file ('summary.<seconds>' or 'tfevents.<seconds>' in its name)"
        mend = "check that the training got the callback, and the directory it was given"
        yield fault("files.found", "wrong", text, mend)


def _check_empty(log: LogFacts) -> Iterator[Finding]:
    whole = [file for file in log.data_files if not file.problem]
    empty = [file for file in whole if not file.events and not file.damage]
    names = named([f"{file.name} ({counted(file.size, 'byte')})" for file in empty])
    if empty and any(file.pids for file in empty):
        text = f"open and without a value yet: {names}"
        mend = "wait for the end of the epoch (MindSpore writes in blocks), or use SummaryBridge(flush_secs=5)"
        yield fault("files.empty", "warning", text, mend)
    elif empty:
        verdict: Verdict = "wrong" if len(empty) == len(whole) else "warning"
        mend = "pass the callback to train(), and set collect_freq below the number of steps"
        yield Finding("files.empty", verdict, f"no value in {names}", mend)


def check_damage(log: LogFacts, now: float) -> Iterator[Finding]:
    """Yields what is damaged, cut or padded at the ends of the files, archives too."""
    damaged = [f"{file.name} {file.damage}" for file in log.data_files if file.damage]
    if damaged:
        text = f"damaged: {named(damaged)}; TensorBoard's slow loader stops there"
        mend = f"ms-summary-bridge convert {log.target} DST keeps every whole record; inspect names the bytes"
        yield fault("files.damage", "wrong", text, mend)
    swapped = [file for file in log.data_files if file.content and file.content != file.format]
    if swapped:
        text = f"the name says one format and the content another: {named([file.name for file in swapped])}"
        yield fault("files.format", "wrong", text, f"ms-summary-bridge convert {log.target} DST reads by content")
    cut = [file for file in log.data_files if file.cut >= 0 and not file.pids and now - file.mtime > WAIT_SECS]
    if cut:
        text = f"ends inside a record: {named([f'{file.name} at byte {file.cut:,}' for file in cut])}"
        mend = "all before it can be seen; copy it again if it was copied while it grew"
        yield fault("files.tail", "warning", text, mend)
    padded = [f"{file.name} ({counted(file.padding, 'byte')})" for file in log.data_files if file.padding]
    if padded:
        text = f"zeros at the end: {named(padded)}; MindInsight reads them again and again"
        mend = f"ms-summary-bridge convert {log.target} DST leaves them out"
        yield fault("files.padding", "warning", text, mend)
    archives = [f"{file.name} {file.damage}" for file in log.files if file.is_archive and file.damage]
    if archives:
        text = f"an archive is damaged, so converting back is not exact: {named(archives)}"
        yield fault("ours.archive", "wrong", text, "convert again from the source with --force")
    if log.data_files and not (damaged or swapped or cut or padded or archives):
        yield good("files.damage", "no damage at the heads and tails of the files")


def check_times(log: LogFacts, now: float) -> Iterator[Finding]:
    """Yields what is wrong with the times in names, and with files that grow at the same time."""
    created = {file.name: parse_name(os.path.basename(file.name), file.format)[0] for file in log.data_files}
    absurd = [name for name, seconds in created.items() if seconds is not None and seconds >= 10**11]
    if absurd:
        text = f"no time of day in the name: {named(absurd)}; MindInsight then lists nothing new below its directory"
        yield fault("files.name-time", "wrong", text, "rename them: seconds since 1970 have 10 digits")
    ahead = [
        name
        for name, seconds in created.items()
        if seconds is not None and now + _AHEAD_SECS < seconds and name not in absurd
    ]
    if ahead:
        text = f"named by a time to come: {named(ahead)}; viewers read it last and no file after it"
        yield fault("files.future", "warning", text, "set the clock of the machine that trains, and rename them")
    groups: dict[tuple[str, str, str], list[FileFacts]] = defaultdict(list)
    for file in log.data_files:
        rank = str(parse_name(os.path.basename(file.name), file.format)[1])
        groups[file.directory, file.format, rank if file.format == MINDSPORE else ""].append(file)
    passed: list[str] = []
    for files in groups.values():
        files.sort(key=lambda file: created[file.name] or 0)
        last = created[files[-1].name] or 0
        passed += [file.name for file in files[:-1] if file.last_time > last + _TOGETHER_SECS and file.role == SOURCE]
    if passed:
        text = f"grew after a newer file was begun beside it: {named(passed)}; viewers follow the newest alone"
        mend = "a directory for each training; tensorboard --reload_multifile=true shows what is there"
        yield fault("files.order", "warning", text, mend)
