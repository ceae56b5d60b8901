"""Follow: convert again and again while the source grows.

Layer: convert < **follow**.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from ms_summary_bridge.convert import convert_logdir
from ms_summary_bridge.errors import NoEventsError
from ms_summary_bridge.report import Report, RunReport
from ms_summary_bridge.run_conversion import ConvertOptions

__all__ = ["follow_logdir"]

_FIRST_WAIT_SECS: Final = 0.5
_LONGEST_WAIT_SECS: Final = 5.0


def follow_logdir(
    source: str,
    destination: str,
    *,
    to: str | None = None,
    options: ConvertOptions | None = None,
    workers: int = 1,
    force: bool = False,
    stop: threading.Event,
    on_round: Callable[[Report], None],
    wait: Callable[[float], object] | None = None,
) -> None:
    """Converts what is there, then what is added, until `stop` is set.

    The pause between two rounds doubles from half a second to five while nothing new comes. A source that does not
    exist yet, or holds no event yet, is waited for.

    Args:
        source: As for `convert_logdir`.
        destination: As for `convert_logdir`.
        to: As for `convert_logdir`.
        options: As for `convert_logdir`.
        workers: As for `convert_logdir`.
        force: Start over in the first round.
        stop: Ends the loop after the round that is under way.
        on_round: Is given the report of each round that found something new, trouble included.
        wait: Waits the given number of seconds; `stop.wait` by default.

    Raises:
        BridgeError: As `convert_logdir`, but for a source that is not there yet.
    """
    options = msgspec.structs.replace(options or ConvertOptions(), grows=True)
    pause = _FIRST_WAIT_SECS
    shown: object = None
    while not stop.is_set():
        try:
            report = convert_logdir(source, destination, to=to, options=options, workers=workers, force=force)
        except NoEventsError:
            pass
        else:
            force = False
            trouble = [*report.unreadable, *((run.run, run.failed, run.damaged) for run in report.runs if _ails(run))]
            if any(run.events_read for run in report.runs) or (trouble and trouble != shown):
                on_round(report)
                shown = trouble
                pause = _FIRST_WAIT_SECS
        (wait or stop.wait)(pause)
        pause = min(2 * pause, _LONGEST_WAIT_SECS)


def _ails(run: RunReport) -> bool:
    return bool(run.failed or run.damaged)
