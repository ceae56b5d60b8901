"""The command `watch`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["watch"]


def watch(
    dir_: Annotated[str, typer.Argument(metavar="DIR", help="A directory with runs of either format, at any depth.")],
    stall_after: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="SECS", help="Silence that counts as a stall; by each run's pace if not given."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, print it, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each look.")] = False,
    on_alert: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="Run this in a shell once for each new alert, with ALERT_RULE, ALERT_RUN, ALERT_RANK, ALERT_STEP, "
            "ALERT_MESSAGE, ALERT_TEXT and ALERT_JSON in its environment.",
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Leave out what is older: 90s, 30m, 12h, 7d, or a time such as 2026-11-30T18:00."
        ),
    ] = "",
) -> int:
    """Show how the trainings below DIR are, from what lies on the disk: running, ended, stalled, failed, non-finite.

    Nothing is asked of the trainings. An alert is a run that stalls, fails or has a loss that is not finite, or an
    alarm of its monitor; with one, the exit code is 5. In a pipe the table is printed again and again.

    Example: ms-summary-bridge watch ./runs --once --json --since 12h
    """
    from ms_summary_bridge.cli.watch_session import run_session  # here, so that `--help` need not wait for it

    return run_session(dir_, stall_after=stall_after, is_once=once, is_json=json, command=on_alert, since=since)
