"""The command `doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ms_summary_bridge.cli.output import print_json, print_wide, printable

if TYPE_CHECKING:
    from rich.text import Text

    from ms_summary_bridge.doctor.finding import Examination

__all__ = ["doctor"]

_STYLES: Final = {"wrong": "bold red", "warning": "yellow", "not known": "dim", "ok": "green"}


def doctor(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH|CONFIG]",
            help="A directory or file of a run, a YAML file of the monitor or MindFormers, or the number of a process "
            "that trains; without it the environment alone.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of --json, and look at nothing.")
    ] = False,
) -> int:
    """Tell why there is nothing to see: each check a line, with what mends it.

    Looks at the environment, ports, disk, the ends of the files, the rules of both viewers, and whether the callback
    was enabled, passed and called. Reads heads and tails only, and writes nothing. 1 when something is wrong.

    Example: ms-summary-bridge doctor ./summary_dir
    """
    from ms_summary_bridge.doctor.examine import examine
    from ms_summary_bridge.doctor.finding import build_schema

    if schema:
        print_json(build_schema())
        return 0
    examination = examine(path)
    if json:
        print_json(examination)
    else:
        print_wide(_render(examination))
    return 1 if examination.is_wrong else 0


def _render(examination: Examination) -> Iterator[Text]:
    from rich.text import Text

    for finding in examination.findings:
        style = _STYLES[finding.verdict]
        yield Text.assemble((f"{finding.verdict:<9}  ", style), printable(finding.text))
        if finding.mend:
            for number, line in enumerate(finding.mend.splitlines()):
                yield Text(f"{'':<9}  {'mend: ' if number == 0 else '      '}{printable(line)}", style="bold")
