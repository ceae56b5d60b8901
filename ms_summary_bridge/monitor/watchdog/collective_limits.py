"""How long HCCL, Ascend's communication library, lets a rank wait for the others before it ends the job.

Source: the documentation of CANN 8 on the environment variables HCCL_EXEC_TIMEOUT (1836 s unless set; 0 waits for ever)
and HCCL_CONNECT_TIMEOUT (120 s unless set). Nothing of this was run on Ascend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ms_summary_bridge.monitor.model.config import WatchdogConfig

__all__ = ["LIMITS", "exec_timeout", "find_collective_advice", "has_own_limit"]

_EXEC: Final = "HCCL_EXEC_TIMEOUT"
_CONNECT: Final = "HCCL_CONNECT_TIMEOUT"
_EXEC_SECS: Final = 1836.0
_CONNECT_SECS: Final = 120.0
_DEFAULTS: Final = WatchdogConfig()
LIMITS: Final = ("floor", "compile_limit", "evaluation_limit", "checkpoint_limit", "callback_limit")
"""The keys of a watchdog that are seconds of one phase."""


def exec_timeout(environment: Mapping[str, str]) -> float:
    """Returns the seconds after which HCCL ends a rank that waits in a collective; infinite where it never does."""
    secs = _read(environment.get(_EXEC))
    return _EXEC_SECS if secs is None else secs or math.inf


def has_own_limit(config: WatchdogConfig, name: str) -> bool:
    """Whether a configuration says another limit than the default."""
    return bool(getattr(config, name) != getattr(_DEFAULTS, name))


def find_collective_advice(config: WatchdogConfig, environment: Mapping[str, str]) -> list[str]:
    """Returns a line for each limit that does not go with the time that HCCL gives, where several ranks train."""
    advice = []
    for name in (_EXEC, _CONNECT):
        text = environment.get(name)
        if text is not None and _read(text) is None:
            advice.append(f"{name}={text!r} is not a number of seconds")
    secs = exec_timeout(environment)
    source = f"{_EXEC}, {secs:g} s{'' if environment.get(_EXEC) else ' as it is not set'}"
    if secs == math.inf:
        advice.append(f"{_EXEC}=0: on Ascend a rank waits for ever; only the watchdog tells of it")
    for name in LIMITS:
        limit = getattr(config, name)
        if has_own_limit(config, name) and limit >= secs:
            advice.append(
                f"watchdog.{name}: {limit:g} s is not below {source}: on Ascend the ranks that wait for this one end "
                "before; make it shorter, or raise the variable"
            )
    connect = _read(environment.get(_CONNECT))
    if (connect or _CONNECT_SECS) > config.compile_limit:
        advice.append(
            f"watchdog.compile_limit: {config.compile_limit:g} s is below {_CONNECT}, {connect or _CONNECT_SECS:g} s: "
            "on Ascend a rank that waits for the others at the start is called a hang before HCCL gives up"
        )
    return advice


def _read(text: str | None) -> float | None:
    """Returns the seconds that a variable says; None where it says none."""
    try:
        secs = float(text or "")
    except ValueError:
        return None
    return secs if 0 <= secs < math.inf else None
