"""The command `aggregate`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ms_summary_bridge.cli.output import print_json, print_wide
from ms_summary_bridge.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_summary_bridge.aggregate.aggregate import AggregateReport

__all__ = ["Source", "aggregate"]

_NAMED: Final = 20
_SLOW: Final = 0.5  # a rank that is the last at more steps is named, where there are more than two


class Source(str, Enum):
    """What `aggregate --from` takes."""

    auto = "auto"
    files = "files"
    journals = "journals"


def aggregate(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory of one training, with what each rank left.")
    ],
    dst: Annotated[str, typer.Argument(help="Directory for the statistics; made if missing.")],
    fill: Annotated[
        bool, typer.Option("--fill", help="Where a rank has no value, take its last one; else the step is left out.")
    ] = False,
    tags: Annotated[str, typer.Option(metavar="REGEX", help="Only tags in which this is found.")] = "",
    source: Annotated[
        Source, typer.Option("--from", help="Read the monitor's journals, or summary and event files.")
    ] = Source.auto,
    force: Annotated[bool, typer.Option("--force", help="Replace what an earlier call wrote there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Compute mean, min, max, std and median over the ranks of a training, and name the odd ones.

    Each statistic becomes a TensorBoard run below DST, so that `tensorboard --logdir DST` lays them over each other;
    DST/aggregate.json has all numbers in float64. No rank has to be running.

    Example: ms-summary-bridge aggregate ./output/monitor ./over_ranks
    """
    from ms_summary_bridge.aggregate.aggregate import aggregate_ranks

    report = aggregate_ranks(directory, dst, fill=fill, tags=tags, what=source.value, force=force)
    if json:
        print_json(report)
    else:
        print_wide(_render(report))
    return 3 if report.problems else 0


def _render(report: AggregateReport) -> Iterator[str]:
    values = sum(rank.values for rank in report.ranks)
    numbers = [counted(len(report.ranks), "rank"), counted(len(report.tags), "tag"), counted(values, "value")]
    yield f"{', '.join(numbers)}: {counted(report.steps, 'step')} aggregated"
    if report.missing:
        yield f"missing     ranks {_list(report.missing)} left nothing"
    for bad in report.first_bad[:_NAMED]:
        yield f"not finite  rank {bad.rank}: {bad.tag!r} is {bad.value} at step {bad.step}, the first of this rank"
    last = max((rank.last_step or 0 for rank in report.ranks), default=0)
    for rank in report.ranks[:1000]:
        if rank.last_step is None:
            yield f"empty       rank {rank.rank} has no scalars ({rank.source})"
        elif rank.last_step < last:
            yield f"short       rank {rank.rank} ends at step {rank.last_step}, others at {last}"
    lacking = sorted((rank for rank in report.ranks if rank.gaps), key=lambda rank: -rank.gaps)
    for rank in lacking[:_NAMED]:
        named = [(tag, steps[:3]) for tag, steps in sorted(rank.gap_steps.items())[:3]]
        where = ", ".join(f"{tag} at {_list(steps)}" for tag, steps in named)
        where += ", ..." if rank.gaps > sum(len(steps) for _, steps in named) else ""
        yield f"gaps        rank {rank.rank} lacks {counted(rank.gaps, 'value')} that others have ({where})"
    if report.left_out:
        yield f"left out    {counted(report.left_out, 'step')} of a tag that not all ranks have; --fill keeps them"
    if len(report.ranks) > 2:
        for rank in report.ranks:
            if rank.last_share > _SLOW:
                yield f"slow        rank {rank.rank} was the last at {rank.last_share:.0%} of the steps, by its clock"
    for rank in report.ranks:
        if rank.went_back:
            back = counted(rank.went_back, "value is", "values are")
            yield f"went back   rank {rank.rank}: {back} left out, at steps that it had passed"
    for problem in report.problems[:_NAMED]:
        yield f"not read    {problem}"
    yield f"written     {report.destination}: tensorboard --logdir {report.destination}"


def _list(numbers: list[int]) -> str:
    text = ", ".join(map(str, numbers[:_NAMED]))
    return text + (f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else "")
