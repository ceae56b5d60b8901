"""An optimizer in Python that stops when it is told to, as one that writes to a host's memory or disk can."""

from __future__ import annotations

import time
from typing import Any

from mindspore import nn

__all__ = ["SlowOptimizer"]


class SlowOptimizer(nn.Optimizer):
    """Gradient descent."""

    stops = False

    def __init__(self, parameters: Any) -> None:
        super().__init__(0.05, parameters)

    def construct(self, gradients: Any) -> bool:
        if SlowOptimizer.stops:
            time.sleep(10_000)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.set_data(parameter - 0.05 * gradient)
        return True
