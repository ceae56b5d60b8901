"""The command line: the only room that prints or exits."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; see `cli.app.main`, which this may call."""
    from ms_summary_bridge.cli.plain import plain_arguments

    arguments = plain_arguments(sys.argv[1:] if argv is None else argv)
    if arguments is None:
        from ms_summary_bridge.cli.app import main as parse_and_run

        return parse_and_run(argv)
    from ms_summary_bridge.cli.ending import exit_code_of, leave

    def run() -> int:
        if argv is None:  # the first lines of a program, which has no other thread yet
            from ms_summary_bridge.starting.light_imports import load

            load("ms_summary_bridge.convert.logdir")
        from ms_summary_bridge.cli.conversion import run_conversion

        return run_conversion(**arguments)

    code = exit_code_of(run)
    if argv is None:
        leave(code)
    return code
