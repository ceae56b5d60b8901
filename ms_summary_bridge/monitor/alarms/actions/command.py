"""Runs a program for an alarm, for so long and no longer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from typing import Final

import msgspec

from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.monitor.alarms.actions.message import ActionError, AlertSource, message_text
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import CommandConfig

__all__ = ["command_environment", "run_command"]

_POLL_SECS: Final = 0.05
_SHOWN: Final = 300  # characters of what a program that failed said
_SCALARS: Final = ("rule", "metric", "value", "bound", "step", "epoch", "rank", "severity", "message", "advice")


def command_environment(alert: Alert, origin: AlertSource) -> dict[str, str]:
    """Returns what a program is told in its environment, beside all that the training has there."""
    plain = alert.plain()
    variables = {f"ALERT_{name.upper()}": "" if plain[name] is None else str(plain[name]) for name in _SCALARS}
    variables |= {f"ALERT_{name.upper()}": str(value) for name, value in msgspec.structs.asdict(origin).items()}
    variables |= {
        "ALERT_SINCE_STEP": str(alert.first_step),
        "ALERT_TEXT": message_text(alert, origin),
        "ALERT_JSON": msgspec.json.encode(plain).decode(),
    }
    return {name: value.replace("\0", "") for name, value in variables.items()}


def run_command(
    config: CommandConfig, alert: Alert, origin: AlertSource, *, give_up: threading.Event | None = None
) -> None:
    """Runs a program and waits for its end; at the limit it is killed, with all that it started.

    When `give_up` is set, it is killed before its limit.

    Raises:
        ActionError: It cannot be started, took too long, or ended with another code than 0.
    """
    # To a file and not to a pipe: what the program leaves behind would hold that open.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                list(config.argv),
                env={**os.environ, **command_environment(alert, origin)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise ActionError(f"cannot be started: {reason}") from None
        give_up = threading.Event() if give_up is None else give_up

        def look() -> int | None:
            if (code := process.poll()) is None and give_up.is_set():
                raise ActionError("was killed: the training has ended")
            return code

        try:
            code = wait_for(look, _POLL_SECS, config.timeout, sleep=give_up.wait)
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code is None:
            raise ActionError(f"was killed after {config.timeout:g} s")
        if code != 0:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _SHOWN))
            text = " ".join(output.read().decode(errors="replace").split())
            raise ActionError(f"ended with {code}" + (f": {text}" if text else ""))
