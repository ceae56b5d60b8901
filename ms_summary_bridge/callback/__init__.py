"""The callback: live summaries for MindInsight and TensorBoard while a model trains.

`SummaryBridge` is loaded when it is asked for, because it needs mindspore; the writer process needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ms_summary_bridge.callback.bridge import SummaryBridge

__all__ = ["SummaryBridge"]


def __getattr__(name: str) -> Any:
    if name == "SummaryBridge":
        from ms_summary_bridge.callback.bridge import SummaryBridge

        return SummaryBridge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
