"""What is known of a training, of one of its steps, and of several steps, with the formula of each number.

Samples, tokens and their rates are those of all cards together: that is what people compare. A step takes the same
time on all cards, so step time and data time are those of this process. Memory, power and temperature are those of the
card, or of the host, that this process runs on.

Plain numbers: MindSpore's objects have been read when these are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ms_summary_bridge.training.measures import StepOutputs

__all__ = ["StepFacts", "TrainingFacts", "Window", "rate"]


def rate(amount: float | None, secs: float | None) -> float | None:
    """Returns an amount per second; None where one of the two is not known, or no time has passed."""
    return amount / secs if amount is not None and secs is not None and secs > 0 else None


class TrainingFacts(msgspec.Struct, kw_only=True):
    """What holds for a whole training. None where nobody says it.

    Attributes:
        rank: Global rank of this process.
        ranks: How many processes train together.
        rank_source: Where the rank was read from, in words.
        device: Kind and number of the device, such as `Ascend 3`.
        device_id: Number of the device on this host.
        host: Name of this host.
        epochs: How many epochs are meant.
        steps_per_epoch: Steps of one epoch.
        samples_per_step: Samples of one step over all cards: batch of one card * cards with data of their own *
            accumulated batches.
        gradient_accumulation_steps: Batches of which one step is made, where the data set has them one by one.
        seq_length: Tokens of one sample.
        initial_step: Step from which a resumed training counts.
        steps_before: Steps of earlier sessions in what `epochs` counts; None until that is known.
        loss_divisor: How many micro batches the loss is a sum over.
        pipeline_stages: How many stages the network is cut into; the ranks of the last one have the loss.
        has_loss: False where the framework says that this process has none, whatever the stages.
        flops_per_token: Floating point operations of one token.
        model_flops: Floating point operations of one step over all cards.
        peak_flops: Floating point operations per second that one card can do.
        parameters: Gives the trainable parameters: objects with `name` and `asnumpy()`.
        gradient_names: Gives the names of the parameters that the optimizer has, in the order of its gradients.
        is_local: Whether what the network returns is of this rank alone, before any reduction.
    """

    rank: int = 0
    ranks: int = 1
    rank_source: str = "default"
    device: str = "CPU"
    device_id: int = 0
    host: str = ""
    epochs: int | None = None
    steps_per_epoch: int | None = None
    samples_per_step: int | None = None
    gradient_accumulation_steps: int = 1
    seq_length: int | None = None
    initial_step: int = 0
    steps_before: int | None = None
    loss_divisor: int = 1
    pipeline_stages: int = 1
    has_loss: bool = True
    flops_per_token: float | None = None
    model_flops: float | None = None
    peak_flops: float | None = None
    parameters: Callable[[], list[Any]] | None = None
    gradient_names: Callable[[], list[str]] | None = None
    is_local: bool = False

    @property
    def loss_ranks(self) -> range:
        """The ranks that have the training's loss: all, or in a pipeline those of the last stage.

        Stages are blocks of ranks in their order; the others return some number (MindSpore 2.10, MindFormers 1.9).
        """
        if self.pipeline_stages <= 1 or self.ranks < self.pipeline_stages:
            return range(self.ranks)
        return range(self.ranks - self.ranks // self.pipeline_stages, self.ranks)

    @property
    def lacks_loss(self) -> bool:
        """Whether what this process calls its loss, if anything, is not that of the training: nobody judges it."""
        return not self.has_loss or self.rank not in self.loss_ranks

    def utilization(self, measured: StepFacts | Window) -> float | None:
        """Returns operations done / (operations that all cards can do in that time); None where figures are missing."""
        done: float | None = None
        if self.model_flops is not None:
            done = self.model_flops * measured.timed_steps
        elif self.flops_per_token is not None and measured.tokens is not None:
            done = self.flops_per_token * measured.tokens
        per_second = rate(done, measured.secs)
        return None if per_second is None or not self.peak_flops else per_second / (self.peak_flops * self.ranks)

    def step_in_epoch(self, step: int) -> int | None:
        """Returns the number of a step in its epoch, from 1; None where the length of an epoch is not known."""
        if not self.steps_per_epoch or step <= self.initial_step:
            return None
        return (self._done(step) - 1) % self.steps_per_epoch + 1

    def secs_left(self, step: int, window: Window, breaks: Iterable[tuple[int, int, float]] = ()) -> float | None:
        """Returns steps that are left * seconds of a step in a window, and what evaluations and savings will take.

        None where one of the first two is not known. Breaks come as often as they did so far, and last as long.

        Args:
            step: The last one.
            window: The last steps.
            breaks: Of each kind of break the step before the last one, how many there were, and their seconds.
        """
        step_time = window.step_time
        if step_time is None or not self.epochs or not self.steps_per_epoch:
            return None
        steps = max(0, self.epochs * self.steps_per_epoch - self._done(step))
        secs = steps * step_time
        for last, count, spent in breaks:
            period = (last - self.initial_step) / count
            if period > 0:
                due = max(0, math.ceil((step - last) / period) - 1)  # that should have come since
                secs += max(0, math.floor((step + steps - last) / period) - due) * spent / count
        return secs

    def _done(self, step: int) -> int:
        """Returns how many of the steps that `epochs` counts are done."""
        return step - self.initial_step + (self.steps_before or 0)


class _Rates:
    """The formulas of a number of steps: sums over sums, never means of rates. None where a part is not known."""

    __slots__ = ()
    timed_steps: int
    secs: float | None
    data_secs: float | None
    samples: int | None
    tokens: int | None

    @property
    def step_time(self) -> float | None:
        """Seconds of one step, waiting for data included: `secs / timed_steps`."""
        return self.secs / self.timed_steps if self.secs is not None and self.timed_steps else None

    @property
    def data_time(self) -> float | None:
        """Seconds of one step in which it waited for data: `data_secs / timed_steps`."""
        return self.data_secs / self.timed_steps if self.data_secs is not None and self.timed_steps else None

    @property
    def samples_per_second(self) -> float | None:
        """Samples per second over all cards: `samples / secs`."""
        return rate(self.samples, self.secs)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second over all cards: `tokens / secs`."""
        return rate(self.tokens, self.secs)


class StepFacts(StepOutputs, _Rates, kw_only=True):
    """What one call of a training says. In data sink mode a call stands for several steps.

    The outputs are those of its last step, and the loss is that of the training: by `loss_divisor`.

    Attributes:
        step: Last step of the call, counted over all epochs and sessions.
        steps: How many steps the call stands for.
        epoch: From 1.
        samples: Samples of the call over all cards.
        tokens: Tokens of the call over all cards.
        secs: Seconds of the call, evaluation and saving left out; None for the first, which compiles, and where a
            clock went back.
        data_secs: Seconds of these in which the training waited for data.
        is_first: Whether it is the first call of the session.
    """

    step: int
    steps: int = 1
    epoch: int | None = None
    samples: int | None = None
    tokens: int | None = None
    secs: float | None = None
    data_secs: float | None = None
    is_first: bool = False

    @property
    def timed_steps(self) -> int:  # type: ignore[override]
        """The steps that `secs` is about: all of them, or none."""
        return 0 if self.secs is None else self.steps


class Window(msgspec.Struct, _Rates, kw_only=True):
    """The steps since the last sample.

    Attributes:
        last: The last call.
        steps: All steps, the compiling first one among them.
        timed_steps: The steps that `secs` is about.
        secs: Seconds of training; 0 when none could be measured.
        data_secs: Seconds of these that waited for data; None when that is not known.
        samples: Samples of the timed steps; None when not known.
        tokens: Tokens of the timed steps; None when not known.
        overflows: Steps that overflowed.
        learning_rates: Reads the learning rates of the last step: `{"lr": ...}`, or one entry for each group.
        local_squares: As StepOutputs, of the last step that has them.
    """

    last: StepFacts
    steps: int = 0
    timed_steps: int = 0
    secs: float = 0.0
    data_secs: float | None = None
    samples: int | None = None
    tokens: int | None = None
    overflows: int | None = None
    learning_rates: Callable[[], Mapping[str, float]] | None = None
    local_squares: Any = None

    def add(self, facts: StepFacts) -> None:
        """Takes one more call."""
        self.last = facts
        self.steps += facts.steps
        if facts.overflow is not None:
            self.overflows = (self.overflows or 0) + (1 if facts.overflow else 0)
        if facts.local_squares is not None:
            self.local_squares = facts.local_squares
        if facts.secs is not None:
            self.time(facts.steps, facts.secs, facts.data_secs, facts.samples, facts.tokens)

    def time(self, steps: int, secs: float, data_secs: float | None, samples: int | None, tokens: int | None) -> None:
        """Takes what was measured of one more call that was timed."""
        self.timed_steps += steps
        self.secs += secs
        if data_secs is not None:
            self.data_secs = (self.data_secs or 0.0) + data_secs
        if samples is not None:
            self.samples = (self.samples or 0) + samples
        if tokens is not None:
            self.tokens = (self.tokens or 0) + tokens
