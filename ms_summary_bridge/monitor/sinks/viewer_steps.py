"""Which step a viewer is given for a step of the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ms_summary_bridge.live_writer.link import WriterLink
from ms_summary_bridge.monitor.model.sample import Sample

__all__ = ["NearBridge", "ViewerSteps"]


class NearBridge(NamedTuple):
    """A SummaryBridge beside the monitor, in whose files its values go.

    Attributes:
        link: The way to the process that writes them.
        directory: Where the TensorBoard file is.
        behind: Returns the step behind which the bridge records this training.
    """

    link: WriterLink
    directory: str
    behind: Callable[[], int]


class ViewerSteps:
    """Lets a training that counts from the beginning again go on behind the one before, as the bridge does.

    Both viewers hide the points of a tag that lower steps follow. A training that goes on by itself, from a checkpoint,
    is left as it is, and so is the journal, which has a header for each training.

    Args:
        reached: The last step of the trainings so far, as the viewers have it.
    """

    def __init__(self, reached: int = 0) -> None:
        self._reached = reached
        self._behind = 0
        self._bridge: NearBridge | None = None

    def __reduce__(self) -> tuple[type[ViewerSteps], tuple[int]]:
        """A copy goes on behind what was reached."""
        return ViewerSteps, (self._reached,)

    def begin(self, initial_step: int, bridge: NearBridge | None) -> None:
        """A training begins.

        Args:
            initial_step: Step from which it counts.
            bridge: One beside the monitor, which decides for both.
        """
        self._bridge = bridge
        self._behind = max(0, self._reached - initial_step)

    def begin_again(self, first: Sample) -> str:
        """Takes a training's first sample; returns what is to be said of its steps, empty for nothing."""
        if self._bridge is not None:
            self._behind = self._bridge.behind()
        elif first.step > self._reached:
            self._behind = 0
        if not self._behind or self._bridge is not None:
            return ""
        return (
            f"this training counts its steps from {first.step} again: for the viewers they are behind step "
            f"{self._reached} of the one before, which would be hidden otherwise. The journal has them as they are"
        )

    def place(self, step: int) -> int:
        """Returns the step that the viewers are given."""
        placed = step + self._behind
        self._reached = max(self._reached, placed)
        return placed
