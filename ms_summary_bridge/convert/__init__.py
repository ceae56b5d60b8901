"""From one format to the other: a run, a tree, a growing tree; and the proof that both hold the same.

What is named here is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ms_summary_bridge.convert.follow import follow_logdir
    from ms_summary_bridge.convert.logdir import convert_logdir
    from ms_summary_bridge.convert.task import ConvertOptions
    from ms_summary_bridge.convert.verify import verify_logdirs

__all__ = ["ConvertOptions", "convert_logdir", "follow_logdir", "verify_logdirs"]

_HOMES = {
    "ConvertOptions": "task",
    "convert_logdir": "logdir",
    "follow_logdir": "follow",
    "verify_logdirs": "verify",
}
"""Which module each name comes from."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
