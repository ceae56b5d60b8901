"""What a bridge collects by itself, from a MindSpore whose internals are known.

Imports mindspore.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ms_summary_bridge.callback.collector import Collected, WriterlessCollector
from ms_summary_bridge.callback.dashboard_loss import DASHBOARD_LOSS, DashboardLoss
from ms_summary_bridge.callback.recording import Recording
from ms_summary_bridge.callback.step_count import StepCount
from ms_summary_bridge.callback.step_values import StepValues, eval_metrics, metric_items

__all__ = ["LiveCollection"]


class LiveCollection:
    """Hands what SummaryCollector finds, and what it does not look for, to the files of a run.

    `Fallback` has the same methods. What a subclass of the bridge has added to `self._record` is recorded by
    `put_added`, before anything else of a step.
    """

    def __init__(
        self,
        collector: Any,
        recording: Recording,
        steps: StepCount,
        put_added: Callable[[], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self._collector = collector
        self._recording = recording
        self._steps = steps
        self._put_added = put_added
        self._warn = warn
        self._opened: WriterlessCollector | None = None
        self._tensor_steps = range(0)
        self._dashboard_loss = DashboardLoss()

    def begin(self, mode: str, run_context: Any) -> None:
        """A training or an evaluation begins: the files are opened."""
        self._recording.open()
        if self._opened is not None:
            return
        collector = WriterlessCollector(self._collector, self._warn)
        try:
            collector.open(mode, is_sink=bool(run_context.original_args().get("dataset_sink_mode")))
        except (RuntimeError, OSError) as error:
            self._warn("record", f"graph, input, lineage and summary operators are left out: {error}")
        else:
            self._opened = collector

    def end_step(self, run_context: Any, last: int | None, number: int, values: StepValues) -> None:
        """A step has ended, the first one or the next behind `last`; it is collected if it is due."""
        parameters = run_context.original_args()
        collector = self._opened
        if parameters.get("dataset_sink_mode"):
            self._warn("sink", "in data sink mode MindSpore calls back once for each sink: there is one point for each")
        if collector is not None:
            if last is None:
                collector.begin_train(parameters)
                self._tensor_steps = collector.tensor_steps(parameters)
            collector.save_landscape_checkpoint(parameters, "step")
        is_due = self._steps.is_due(last, number)
        takes_tensors = last is None or _reaches(self._tensor_steps, last, number)
        if not (is_due or takes_tensors):
            return
        self._put_added()
        if collector is not None:
            keeps = None if is_due and takes_tensors else (lambda plugin: (plugin == "tensor") == takes_tensors)
            collector.collect_step(parameters, keeps)
        collected: Collected = {}
        if is_due:
            collected["scalar"] = values.scalars(parameters, number, self._steps.step, self._dashboard_loss)
            collected["histogram"] = values.histograms()
        self._send(self._steps.step, collected)

    def end_epoch(self, run_context: Any) -> None:
        """An epoch has ended."""
        if self._opened is not None:
            self._opened.save_landscape_checkpoint(run_context.original_args(), "epoch")

    def end_training(self, run_context: Any) -> None:
        """A training has ended: its lineage is collected."""
        self._put_added()
        self._end("train", run_context)

    def end_evaluation(self, run_context: Any, *, is_alone: bool) -> None:
        """An evaluation has ended, inside a training or alone: its metrics are collected, and alone its lineage."""
        collected: Collected = {}
        for name, value in eval_metrics(run_context.original_args()).items():
            for plugin, items in metric_items(name, value, self._warn).items():
                collected.setdefault(plugin, []).extend(items)
        tags = [item["tag"] for item in collected.get("scalar", ())]
        self._put_added()
        self._send(self._steps.step, collected)
        for step, wall_time, loss in self._dashboard_loss.note_metrics(tags):
            self._recording.put_value("scalar", DASHBOARD_LOSS, loss, step, wall_time)
        if is_alone:
            self._end("eval", run_context)

    def _end(self, mode: str, run_context: Any) -> None:
        if self._opened is not None:
            self._opened.end(run_context.original_args(), mode)
            self._send(0, {})

    def _send(self, step: int, collected: Collected) -> None:
        """Sends what was collected, by SummaryCollector and by us, as one event."""
        merged = self._opened.take() if self._opened is not None else {}
        for plugin, items in collected.items():
            merged.setdefault(plugin, []).extend(items)
        self._recording.put_collected(step, merged)

    def put_milestone(self, kind: str, text: str) -> None:
        """Records a milestone as text."""
        self._recording.put_milestone(self._steps.step, kind, text)

    def put_failure(self) -> None:
        """Says that the training ends with an exception."""
        self._recording.put_failure()

    def close(self, *error: Any) -> None:
        """Ends the session; what is collected afterwards goes on without SummaryCollector's part."""
        collector, self._opened = self._opened, None
        self._tensor_steps = range(0)
        if collector is not None:
            with contextlib.suppress(Exception):
                collector.close()


def _reaches(steps: range, last: int, step: int) -> bool:
    """Whether one of `steps` lies above `last` and not above `step`."""
    if not steps or step < steps[0] or last >= steps[-1]:
        return False
    return (min(step, steps[-1]) - steps[0]) // steps.step > (last - steps[0]) // steps.step
