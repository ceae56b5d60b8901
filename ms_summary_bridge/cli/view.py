"""The command `view`."""

from __future__ import annotations

import signal
import sys
from enum import Enum
from typing import Annotated

import typer

from ms_summary_bridge.cli.output import ended_by, printable, say
from ms_summary_bridge.errors import BridgeError

__all__ = ["Viewer", "view"]


class Viewer(str, Enum):
    """A viewer, by which the format that is written for it is named too."""

    tensorboard = "tensorboard"
    mindinsight = "mindinsight"


def view(
    dir_: Annotated[str, typer.Argument(metavar="DIR", help="A directory with runs of either format, at any depth.")],
    with_: Annotated[
        Viewer | None, typer.Option("--with", help="The viewer; TensorBoard if it is installed, else MindInsight.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="N", help="The port, or the next free one; 6006 or 8080 by default, 0 for any."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="H", help="The address to listen at; 0.0.0.0 lets everybody in the network look.")
    ] = "127.0.0.1",
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before MindInsight's environment is downloaded and made.")
    ] = False,
) -> int:
    """Open a directory in TensorBoard or MindInsight, whatever wrote it, and follow it until Ctrl-C.

    What the viewer cannot read is converted into your cache directory, and DIR is left as it is. It may be empty, or
    not there yet: runs are shown as they come. MindInsight gets an environment of its own, made the first time.

    Example: ms-summary-bridge view ./summary_dir
    """
    from ms_summary_bridge.viewers.view import view_logdir  # here, so that `--help` need not wait for it

    def end() -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGINT, signal.SIGTERM]
    # Windows has no such signal; and where it is ignored, that is `nohup`, and the viewer goes on without the terminal.
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
        numbers.append(hangup)
    try:
        with ended_by(numbers, end):  # a second one ends it at once; its children end all the same
            view_logdir(
                dir_,
                viewer=with_.value if with_ is not None else None,
                port=port,
                host=host,
                is_yes=yes,
                ask=_ask if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty() else None,
                say=say,
                show=lambda url: typer.echo(url),
            )
    except KeyboardInterrupt:
        raise BridgeError("ended before the viewer was there") from None
    return 0


def _ask(question: str) -> bool:
    try:
        return typer.confirm(printable(question), err=True)
    except typer.Abort:  # Ctrl-C or Ctrl-D is an answer too
        return False
