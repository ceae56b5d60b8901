"""Runs commands one after the other, each in a fork of a process that has loaded what most of them load.

Usage: python tests/other_system/commands.py DIRECTORY < COMMANDS

COMMANDS is JSON: arguments by title. What each says goes to DIRECTORY/<title>.out and .err, and the exit codes, by
title, to stdout.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

import numpy  # noqa: F401

import ms_summary_bridge.convert.conversion
import ms_summary_bridge.export.logdir
import ms_summary_bridge.formats.protos  # noqa: F401
from ms_summary_bridge.cli.app import main


def fork(arguments: list[str], path: str) -> int:
    """Runs one command in a fork; returns its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 99
    try:
        for number, suffix in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{path}.{suffix}", os.O_WRONLY | os.O_CREAT), number)
        sys.argv = ["ms-summary-bridge", *arguments]
        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    print(
        json.dumps(
            {title: fork(arguments, f"{sys.argv[1]}/{title}") for title, arguments in json.load(sys.stdin).items()}
        )
    )
