"""The command line: the only room that prints or exits."""

from __future__ import annotations

from ms_summary_bridge.cli.app import main

__all__ = ["main"]
