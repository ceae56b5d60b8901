"""The command `diagnose`."""

from __future__ import annotations

from typing import Annotated

import typer

from ms_summary_bridge.cli.output import print_json, print_text

__all__ = ["diagnose"]


def diagnose(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory of one training, with what the monitor of each rank left.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Name the ranks that a training hangs, died or went wrong for, with the lines that say so.

    Reads the journals and the watchdogs' files of all ranks, running or not; the exit code is 5 where a rank is to
    blame. The rules are in docs/diagnose.md.

    Example: ms-summary-bridge diagnose ./output/monitor/default/run
    """
    from ms_summary_bridge.diagnose.diagnosis import diagnose_ranks, render_diagnosis

    diagnosis = diagnose_ranks(directory)
    if json:
        print_json(diagnosis)
    else:
        print_text("\n".join(render_diagnosis(diagnosis)))
    if diagnosis.findings:
        return 5
    return 3 if diagnosis.problems else 0
