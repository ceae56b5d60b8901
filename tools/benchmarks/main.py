"""The command line of tools/bench."""

from __future__ import annotations

import argparse
import compileall
from collections.abc import Sequence
from pathlib import Path

from benchmarks import binning, callback, convert, follow, llama, memory, monitor, plugin, ranks, scale

_PACKAGE = Path(__file__).resolve().parent.parent.parent / "ms_summary_bridge"

SUBCOMMANDS = (convert, memory, scale, plugin, follow, callback, monitor, ranks, llama, binning)
"""Each module has `NAME`, a docstring, `add_arguments(parser)` and `run(arguments) -> int`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one benchmark; returns the exit code: 0 measured and within its targets, 1 a target is missed."""
    parser = argparse.ArgumentParser(prog="bench", description="Measures the converter, the callback and the monitor.")
    subparsers = parser.add_subparsers(required=True, metavar="BENCHMARK")
    for module in SUBCOMMANDS:
        text = (module.__doc__ or "").strip()
        subparser = subparsers.add_parser(
            module.NAME,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        subparser.add_argument("--json", action="store_true", help="print the results as JSON and nothing else")
        subparser.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)
    # As an installation does it: else each process that is measured would compile what was edited last.
    compileall.compile_dir(_PACKAGE, quiet=1)
    code: int = arguments.run(arguments)
    return code
