"""The rules of both viewers: which of the files each would show.

Measured on MindInsight 2.3.1 and TensorBoard 2.21.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from ms_summary_bridge.doctor.finding import Finding, fault, good, named
from ms_summary_bridge.doctor.look import FileFacts, LogFacts
from ms_summary_bridge.doctor.packages import PackageFacts
from ms_summary_bridge.errors import counted
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD, parse_name
from ms_summary_bridge.runs.log_files import CONVERT

__all__ = ["check_mindinsight", "check_tensorboard"]

_MOST_TAGS: Final = 300
_MOST_JOBS: Final = 999


def check_mindinsight(log: LogFacts) -> Iterator[Finding]:
    """Yields what MindInsight would not show."""
    jobs: dict[str, list[FileFacts]] = defaultdict(list)
    for file in log.data_files:
        if file.format == MINDSPORE:
            jobs[file.directory].append(file)
    if not jobs:
        if log.data_files:
            yield good("mindinsight.reads", "MindInsight reads none of it; view --with mindinsight converts it")
        return
    yield from _check_depth(log, jobs)
    links = sorted(file.name for files in jobs.values() for file in files if file.is_link)
    if links:
        text = f"MindInsight passes over symbolic links: {named(links)}"
        yield fault("mindinsight.links", "warning", text, "give it the directory that the link leads to, or copy it")
    if len(jobs) > _MOST_JOBS:
        text = f"{counted(len(jobs), 'directory', 'directories')}, and MindInsight lists {_MOST_JOBS}"
        yield fault("mindinsight.jobs", "warning", text, "give it a directory with fewer")
    many = {name: len(frozenset().union(*(file.tags for file in files))) for name, files in jobs.items()}
    many = {name: count for name, count in many.items() if count > _MOST_TAGS}
    if many:
        text = "at least " + named([f"{counted(count, 'tag')} in {name}" for name, count in many.items()])
        mend = "collect fewer (histogram_regular in collect_specified_data), or look with TensorBoard"
        yield fault("mindinsight.tags", "warning", f"{text}: MindInsight shows {_MOST_TAGS} and drops others", mend)
    for name, files in sorted(jobs.items()):
        ranks = {parse_name(os.path.basename(file.name), MINDSPORE)[1] for file in files if file.role != CONVERT}
        if len(ranks) > 1:
            text = f"{counted(len(ranks), 'rank')} write into {name}: MindInsight mixes them in one job"
            mend = (
                f'a directory for each rank: f"summary_dir/rank_{{rank}}"; ms-summary-bridge convert {log.target} DST'
            )
            yield fault("mindinsight.ranks", "warning", text, f"{mend} keeps them apart")
            break


def _check_depth(log: LogFacts, jobs: dict[str, list[FileFacts]]) -> Iterator[Finding]:
    deep = sorted(name for name in jobs if "/" in name)
    bases = sorted({os.path.normpath(os.path.join(log.target, os.path.dirname(name))) for name in deep})
    by_both = {file.directory for file in log.data_files if file.format == TENSORBOARD}
    if not deep:
        yield good("mindinsight.depth", f"MindInsight finds {counted(len(jobs), 'directory', 'directories')} of runs")
    elif by_both >= {*deep}:
        yield good("mindinsight.depth", f"MindInsight finds it with --summary-base-dir {named(bases)}")
    else:
        text = f"MindInsight looks one level deep and misses {named(deep)}"
        mend = f"--summary-base-dir {bases[0]}, or ms-summary-bridge view {log.target} --with mindinsight"
        yield fault("mindinsight.depth", "warning", text, mend)


def check_tensorboard(log: LogFacts, packages: PackageFacts) -> Iterator[Finding]:
    """Yields what TensorBoard would not show."""
    if not log.data_files:
        return
    data = [file for file in log.data_files if file.events]
    readable = {file.directory for file in data if file.format == TENSORBOARD}
    unreadable = sorted({file.directory for file in data if file.format == MINDSPORE} - readable)
    has_tensorboard = "tensorboard" in packages.versions
    if unreadable and not readable and not (has_tensorboard and packages.has_plugin):
        text = f"TensorBoard reads nothing of {named(unreadable)} (No dashboards are active for the current data set)"
        first = "" if has_tensorboard else "pip install 'tensorboard>=2.17', then "
        mend = f"{first}ms-summary-bridge view {log.target}, or convert {log.target} DST"
        yield Finding("tensorboard.reads", "wrong" if has_tensorboard else "warning", text, mend)
    elif unreadable and not readable:
        yield good("tensorboard.reads", "TensorBoard reads it by this package's plugin, which converts as it looks")
    elif readable:
        others = f"; MindSpore's files in {named(unreadable)} by the plugin" if unreadable else ""
        yield good(
            "tensorboard.reads",
            f"TensorBoard reads {counted(len(readable), 'directory', 'directories')} directly{others}",
        )
    if data and not any("scalar" in file.kinds for file in data) and not any(file.cut >= 0 for file in data):
        kinds = ", ".join(sorted(frozenset().union(*(file.kinds for file in data)))) or "nothing known"
        mend = "collect_metric=True, a loss that is one number, and collect_freq below the number of steps"
        text = f"no scalar at the heads and tails of the files (No scalar data was found), but {kinds}"
        yield fault("tensorboard.scalars", "warning", text, mend)
    blank = sorted({f"{tag} ({file.directory})" for file in data for tag in file.nonfinite})
    if blank:
        text = (
            f"every value is NaN or infinite at the heads and tails of the files, so no line is drawn: {named(blank)}"
        )
        mend = f"ms-summary-bridge watch {log.target} --once names the step where a loss begins to be so; "
        mend += "{rule: nonfinite, actions: [log, stop]} in alerts ends the next training there"
        yield fault("tensorboard.finite", "warning", text, mend)
