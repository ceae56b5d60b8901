"""The command `diagnose`."""

from __future__ import annotations

from typing import Annotated

import typer

from ms_summary_bridge.cli.output import print_json, print_text

__all__ = ["diagnose"]


def diagnose(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="Directory of a training, with what the monitor of each rank left; of several the newest is taken.",
        ),
    ],
    cann_log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR",
            help="Directory of CANN's logs, as copied from a host; can be given several times. By default those below "
            "DIR, and where ASCEND_PROCESS_LOG_PATH, ASCEND_WORK_PATH or ~/ascend/log have them.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Name the ranks that a training hangs, died or went wrong for, with the lines that say so.

    Reads the journals and the watchdogs' files of all ranks, running or not, and CANN's logs; the exit code is 5 where
    a rank is to blame. The rules are in docs/diagnose.md.

    Example: ms-summary-bridge diagnose ./output/monitor/default/run
    """
    from ms_summary_bridge.diagnose.diagnosis import diagnose_ranks, render_diagnosis

    diagnosis = diagnose_ranks(directory, cann_logs=cann_log)
    if json:
        print_json(diagnosis)
    else:
        print_text("\n".join(render_diagnosis(diagnosis)))
    if diagnosis.findings:
        return 5
    return 3 if diagnosis.problems else 0
