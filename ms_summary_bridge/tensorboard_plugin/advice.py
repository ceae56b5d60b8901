"""What the page says where there is no run yet.

Imports no tensorboard.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["advise"]


def advise(source: str) -> dict[str, Any]:
    """Returns what to do where there is no run yet."""
    return {
        "title": "No run yet",
        "text": f"Nothing below {source} is an event file of MindSpore's or TensorBoard's, or a monitor's journal. The "
        "page looks again by itself. Record a training with one of these:",
        "examples": [
            {
                "title": "MindSpore: curves, histograms, graph and lineage, for TensorBoard and MindInsight at once",
                "code": "from ms_summary_bridge import SummaryBridge\n\n"
                f"model.train(epochs, dataset, callbacks=[SummaryBridge({_literal(source)})])",
            },
            {
                "title": "MindSpore's own callback, whose files are shown as well",
                "code": f"model.train(epochs, dataset, callbacks=[mindspore.SummaryCollector({_literal(source)})])",
            },
            {
                "title": "PyTorch",
                "code": "from torch.utils.tensorboard import SummaryWriter\n\n"
                f'SummaryWriter({_literal(source)}).add_scalar("loss", loss, step)',
            },
        ],
    }


def _literal(source: str) -> str:
    return repr(os.path.join(source, "run1"))
