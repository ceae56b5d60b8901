"""The command `diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from ms_summary_bridge.cli.output import print_json, print_text

__all__ = ["diff"]


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="Directory of one training, of one rank or of many.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Directory of another one.")],
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Tell what changed between two trainings, and from which step their losses part.

    Compares configuration, tags, versions, commit, command line, ranks, hyperparameters, the series that were recorded,
    the data pipeline, and the losses step by step. The exit code is 0 if all is the same, else 1.

    Example: ms-summary-bridge diff ./runs/monday ./runs/tuesday
    """
    from ms_summary_bridge.states.compare.diff import diff_runs, render_diff

    found = diff_runs(a, b)
    if json:
        print_json(found.plain())
    else:
        print_text("\n".join(render_diff(found)))
    return 0 if found.is_same else 1
