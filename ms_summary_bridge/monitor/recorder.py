"""The engine: is told of every step, and makes samples, warnings and notes of what it hears.

Layer: monitor.step_reader, monitor.measurement, monitor.alarm_sink < **monitor.recorder**. Imports no mindspore.

A step's outputs are kept as they are and read when the next step begins, so that reading them costs no synchronisation
of its own. What comes after the numbers is done for many steps at once, or by the writing thread.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from ms_summary_bridge.callback.link import WriterLink
from ms_summary_bridge.callback.measures import StepOutputs
from ms_summary_bridge.monitor.actions import Origin
from ms_summary_bridge.monitor.alarm_sink import AlarmSink
from ms_summary_bridge.monitor.alarms import Alarms
from ms_summary_bridge.monitor.backends import make_sinks, require_backends, summary_directory
from ms_summary_bridge.monitor.breakdown import Breakdown
from ms_summary_bridge.monitor.config import Bounds, MonitorConfig
from ms_summary_bridge.monitor.distributed import Place, find_place
from ms_summary_bridge.monitor.end_summary import EndSummary
from ms_summary_bridge.monitor.facts import TrainingFacts, Window
from ms_summary_bridge.monitor.faults import Faults
from ms_summary_bridge.monitor.measurement import Measurement
from ms_summary_bridge.monitor.run_record import choose_run_directory, describe_run, rank_directory
from ms_summary_bridge.monitor.sample import Note, Sample
from ms_summary_bridge.monitor.step_reader import PendingStep, StepReader, secs_left, step_in_epoch
from ms_summary_bridge.monitor.stop import StopAgreement
from ms_summary_bridge.monitor.warn_on_value import WarnOnValue
from ms_summary_bridge.monitor.writer import Sink, Writer

__all__ = ["Recorder", "interval_secs"]

_CLOSE_SECS: Final = 30.0
_BATCH: Final = 64
_SETTLE_SECS: Final = 0.25


def interval_secs(config: MonitorConfig, ranks: int) -> float:
    """Returns the seconds between two samples; `auto` is longer where many ranks write to one disk."""
    if config.interval == "auto":
        return 30.0 if ranks <= 1 else 60.0 if ranks < 64 else 120.0
    return config.interval


class Recorder:
    """Records one process of a training.

    Args:
        config: The configuration.
        faults: Is told what fails.
        run_directory: Where the run's files go; None to choose it when the training begins.
        place: Where this process stands; None to find out when the training begins.
        clock: Monotonic seconds.
        wall_clock: Seconds since epoch.

    Raises:
        MissingDependencyError: A backend needs a package that is not installed.
    """

    def __init__(
        self,
        config: MonitorConfig,
        faults: Faults,
        *,
        run_directory: str | None = None,
        place: Place | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        require_backends(config)
        self.config = config
        self.faults = faults
        self.run_directory = run_directory
        self._given_place = place
        self._clock = clock
        self._wall_clock = wall_clock
        self.is_open = False

    # ------------------------------------------------------------------ a training begins and ends

    def begin(
        self,
        training: TrainingFacts,
        *,
        learning_rates: Callable[[], Mapping[str, float]] | None = None,
        link: WriterLink | None = None,
        link_directory: str = "",
        tells_beginnings: bool = True,
        tell_directory: Callable[[str], None] | None = None,
    ) -> None:
        """A training begins.

        Args:
            training: What is known of it; rank, device and host are filled in here.
            learning_rates: Reads those of the last step.
            link: Of a SummaryBridge beside the monitor.
            link_directory: Where that one writes.
            tells_beginnings: Whether `begin_step` will be called.
            tell_directory: Is called by the writing thread with the directory of this rank.
        """
        self._place = place = self._given_place or find_place()
        self.training = msgspec.structs.replace(
            training,
            rank=place.rank,
            ranks=place.ranks,
            rank_source=place.source,
            device=f"{place.device} {place.device_id}",
            device_id=place.device_id,
            host=place.host,
        )
        self._learning_rates = learning_rates
        self._link = link
        self._link_directory = link_directory
        self._tell_directory = tell_directory
        self._interval = interval_secs(self.config, place.ranks)
        names = {metric.name for metric in self.config.metrics}
        self._reader = StepReader(self.training, names, self.faults)
        self.stop = StopAgreement(
            place.rank, place.ranks, self.config.stop_patience, clock=self._clock, wall_clock=self._wall_clock
        )
        self.alarms = Alarms(self.config, self.training, self._put, self.faults, self.stop)
        self.alarm_sink: AlarmSink | None = None
        self._warnings = WarnOnValue(self.config.callback, unsaid=self.alarms.says_nonfinite())
        self._measurement = Measurement(self.config.metrics, self.training, self.faults, self._check)
        self._batch_limit = 1 if self._measurement.is_at_once(self.config.callback.warn_on_value) else _BATCH
        bounds = self.config.callback.warn_on_value.get("loss", Bounds())
        divisor = training.loss_divisor  # of the loss as the network returns it
        self._high = math.inf if bounds.above is None else bounds.above * divisor
        self._low = -math.inf if bounds.below is None else bounds.below * divisor
        self.breakdown: Breakdown[PendingStep] = Breakdown(self._clock, tells_beginnings=tells_beginnings)
        self._summary = EndSummary(began=self._clock())
        self._writer = Writer(self._make_sinks, self.faults, clock=self._clock)
        self._pending: PendingStep | None = None
        self._window: Window | None = None
        self._due_at = self._settle_at = -math.inf
        self._reads_rates = "lr" in names
        self._printed_step = self.step = training.initial_step
        self._aside = 0  # steps that were read and put aside
        self._settled: PendingStep | None = None  # the last step dealt with
        self._settled_steps = 0
        self._shares = (0.0, 0.0)
        self.is_open = True
        where = f"{self.training.device} of {place.host}"
        text = f"global rank {place.rank} of {place.ranks} (from {place.source}), {where}"
        self.note("start", text, level=logging.INFO)
        valid = self.training.loss_ranks
        if place.rank == 0 and place.rank not in valid and "loss" in names:
            text = f"in this pipeline only ranks {valid[0]} to {valid[-1]}, its last stage, have the training's loss; "
            self.note("start", text + "that of rank 0 is another number", level=logging.INFO)

    def _make_sinks(self) -> list[Sink]:
        """Is called by the writing thread, because it may have to wait for rank 0."""
        if self.run_directory is None:
            self.run_directory = choose_run_directory(self.config, self._place)
        if self._tell_directory is not None:
            self._tell_directory(rank_directory(self.run_directory, self._place.rank))
        record = describe_run(self.config, self._place, self.run_directory)
        origin = Origin(
            project=self.config.project,
            run=record["run"],
            run_directory=self.run_directory,
            host=self._place.host,
            ranks=self._place.ranks,
        )
        directory = rank_directory(self.run_directory, self._place.rank)
        self.alarm_sink = AlarmSink(
            self.alarms, origin, directory, exit_code=self.config.exit_code, warn=self.faults.warn
        )
        return [
            *make_sinks(
                self.config,
                self.training,
                self.run_directory,
                record,
                self.faults,
                link=self._link,
                clock=self._clock,
                wall_clock=self._wall_clock,
            ),
            self.alarm_sink,  # behind all files, because what it does may take some time; so it is closed before them
        ]

    def _put(self, note: Note) -> None:
        self._writer.put(note)

    def end(self, reason: str = "") -> None:
        """The training ends: the last step is read, all is written, and what was recorded is summed up.

        Args:
            reason: Why it ended before its time; empty when it did not.
        """
        if not self.is_open:
            return
        self.is_open = False
        try:
            self.finish_step()
            self._settle()
            if self._window is not None:
                self._window.learning_rates = self._learning_rates_now(self._window.last.learning_rate)
                self._take_sample()
            self.breakdown.pause(self._clock())
            self.breakdown.settle()
            self._measurement.close()
        finally:
            self._writer.flush(_CLOSE_SECS)  # the run's directory is known then
            self._writer.put(self._end_note(reason))
            self._writer.close(_CLOSE_SECS)

    def _end_note(self, reason: str) -> Note:
        directory = self.run_directory
        viewed = self._link_directory or (summary_directory(directory) if directory is not None else "")
        text, fields = self._summary.describe(
            self.config,
            reason,
            step=self.step,
            now=self._clock(),
            warnings=self._warnings.counts,
            alarms=self.alarms.counts,
            dropped=self._writer.dropped,
            breakdown=self.breakdown.secs,
            rank=self.training.rank,
            run_directory=directory,
            viewed=viewed,
        )
        level = logging.INFO if self.training.rank == 0 else None
        return Note(kind="end", step=self.step, wall_time=self._wall_clock(), text=text, fields=fields, level=level)

    # ------------------------------------------------------------------ steps

    def begin_step(self) -> None:
        """A step begins: the one before it is read."""
        self.breakdown.begin_step(self._clock())
        self.finish_step()

    def end_step(
        self,
        step: int,
        *,
        steps: int = 1,
        epoch: int | None = None,
        outputs: Any = None,
        given: Mapping[str, Any] | None = None,
        samples: int | None = None,
        tokens: int | None = None,
    ) -> None:
        """A step has ended, or a call of several. Nothing of it is read yet.

        Args:
            step: Its number over all epochs and sessions.
            steps: How many steps the call stands for.
            epoch: From 1.
            outputs: What the network returned, in any form that MindSpore's training cells give it.
            given: Numbers by name, which go before those of `outputs`.
            samples: Samples of the call over all cards, when they differ from the training's own.
            tokens: Tokens of the call over all cards.
        """
        if self._pending is not None:
            self.finish_step()  # where nobody says when a step begins
        self.step = step
        now = self._clock()
        self._pending = pending = PendingStep(step, steps, epoch, outputs, now, given, samples, tokens)
        self.breakdown.end_step(now, pending)

    def finish_step(self) -> None:
        """Reads the step that has ended last, checks its loss, and takes a sample when one is due.

        Steps with nothing to say are put aside and dealt with together: between two steps of a network everything has
        left the processor's caches, and what runs for many steps in a row takes a fraction of the time.
        """
        pending = self._pending
        if pending is None:
            return
        self._pending = None
        numbers = self._reader.read(pending)
        self._aside += 1
        is_quiet = self._low < numbers < self._high if type(numbers) is float else self._is_quiet(numbers)
        if pending.monotonic >= self._due_at or self._is_printed(pending):
            said = numbers.learning_rate if isinstance(numbers, StepOutputs) else None
            pending.learning_rates = self._learning_rates_now(said)
            # Where every step is sampled, samples too are made for many steps at once.
            is_time = self._interval > 0 or pending.monotonic >= self._settle_at
        else:
            is_time = False
        if is_time or not is_quiet or self._aside >= self._batch_limit:
            self._settle()
            self._settle_at = pending.monotonic + _SETTLE_SECS

    def _learning_rates_now(self, said: float | None) -> Callable[[], Mapping[str, float]]:
        """Returns what gives the learning rates of the step that has ended last: they are read at once.

        Args:
            said: The rate that the step's outputs hold. Nobody else is asked then.
        """
        rates: Mapping[str, float] = {}
        if said is None and self._learning_rates is not None and self._reads_rates:
            try:
                rates = self._learning_rates()
            except Exception as error:  # a schedule is the user's own code
                self.faults.warn("lr", f"the learning rate cannot be read and is left out: {error!r}")
                self._reads_rates = False
        return lambda: rates

    def _is_printed(self, pending: PendingStep) -> bool:
        every = self.config.per_print_step
        if every is None or pending.step // every == self._printed_step // every:
            return False
        self._printed_step = pending.step
        return True

    def _is_quiet(self, numbers: float | StepOutputs | None) -> bool:
        """Whether there is nothing to warn of in what a step returned."""
        if not isinstance(numbers, StepOutputs):
            return numbers is None
        loss, norm = numbers.loss, numbers.grad_norm
        return (loss is None or self._low < loss < self._high) and (norm is None or norm < math.inf)

    def _settle(self) -> None:
        """Deals with the steps that were put aside."""
        self._aside = 0
        for pending in self.breakdown.settle():
            facts = self._reader.facts(pending, is_first=self._settled_steps == 0)
            self._settled = pending
            self._settled_steps += pending.steps
            if self._window is None:
                self._window = Window(last=facts)
            self._window.add(facts)
            self._summary.add(facts)
            self._measurement.observe(facts, pending.given or {})
            self.alarms.observe_step(facts, pending.given or {}, pending.monotonic, self._wall_time(pending.monotonic))
            if pending.learning_rates is not None:
                self._window.learning_rates = pending.learning_rates
                self._take_sample()

    def _wall_time(self, monotonic: float) -> float:
        """Returns the time of day of a moment that is not long ago."""
        return self._wall_clock() - (self._clock() - monotonic)

    def _take_sample(self) -> None:
        window, self._window = self._window, None
        assert window is not None
        facts, training = window.last, self.training
        assert self._settled is not None
        monotonic = self._settled.monotonic
        is_first = self._due_at == -math.inf
        self._due_at = monotonic + self._interval
        sample = Sample(
            step=facts.step,
            epoch=facts.epoch,
            step_in_epoch=step_in_epoch(facts, training),
            wall_time=self._wall_time(monotonic),
            monotonic=monotonic,
            interval_steps=window.steps,
            is_first=is_first,
            secs_left=secs_left(facts, training, window),
            data_share=self._data_share(),
        )
        self._measurement.take(sample, window)
        self._writer.put(sample)

    def _check(self, metric: str, name: str, value: float) -> None:
        pending = self._settled
        if pending is None or not self._warnings.watches(metric):
            return
        note = self._warnings.check(
            metric,
            name,
            value,
            step=pending.step,
            session_steps=self._settled_steps,
            now=pending.monotonic,
            wall_time=self._wall_time(pending.monotonic),
        )
        if note is not None:
            self._writer.put(note)

    def _data_share(self) -> float | None:
        """Returns which part of the time since the last sample was spent waiting for data."""
        data, total = self.breakdown.secs["data"], sum(self.breakdown.secs.values())
        last_data, last_total = self._shares
        self._shares = (data, total)
        return (data - last_data) / (total - last_total) if total > last_total else None

    # ------------------------------------------------------------------ what is no step

    def pause(self) -> None:
        """An epoch ends: its last step is read, and what follows belongs to no step."""
        self.breakdown.pause(self._clock())
        self.finish_step()

    def resume(self) -> None:
        """An epoch begins."""
        self.breakdown.resume(self._clock())

    def spending(self, kind: str) -> AbstractContextManager[None]:
        """Counts what runs inside as one part of the breakdown; evaluation and saving are left out of all rates."""
        return self.breakdown.spending(kind)

    def milestone(self, text: str, **fields: Any) -> None:
        """Notes something that happened."""
        self.note("milestone", text, fields=fields)

    def note(self, kind: str, text: str, *, fields: dict[str, Any] | None = None, level: int | None = None) -> None:
        """Notes something, for people as a text and for programs as fields."""
        moment = self._wall_clock()
        self._writer.put(Note(kind=kind, step=self.step, wall_time=moment, text=text, fields=fields or {}, level=level))

    def flush(self, timeout_secs: float = 30.0) -> bool:
        """Waits until all that was recorded is written; returns False if that takes too long."""
        return not self.is_open or self._writer.flush(timeout_secs)
