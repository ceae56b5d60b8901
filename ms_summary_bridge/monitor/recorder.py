"""The engine: is told of every step, and makes samples, warnings and notes of what it hears.

Imports no mindspore.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.alarms.actions.message import AlertSource
from ms_summary_bridge.monitor.alarms.alarm_sink import AlarmSink
from ms_summary_bridge.monitor.alarms.alarms import Alarms
from ms_summary_bridge.monitor.alarms.device_rules import metrics_of_rules
from ms_summary_bridge.monitor.alarms.incidents.board import Board
from ms_summary_bridge.monitor.alarms.incidents.report import stack_now
from ms_summary_bridge.monitor.alarms.stop import StopAgreement
from ms_summary_bridge.monitor.model.config import Bounds, MonitorConfig
from ms_summary_bridge.monitor.model.sample import Note, Sample, strict_numbers
from ms_summary_bridge.monitor.sinks.backends import make_sinks, require_backends, summary_directory
from ms_summary_bridge.monitor.sinks.launch import RankCheck
from ms_summary_bridge.monitor.sinks.run_record import choose_run_directory, describe_run
from ms_summary_bridge.monitor.sinks.viewer_steps import NearBridge, ViewerSteps
from ms_summary_bridge.monitor.sinks.writer import Sink, Writer
from ms_summary_bridge.monitor.steps.beside import Beside
from ms_summary_bridge.monitor.steps.call_queue import CallQueue, Patience
from ms_summary_bridge.monitor.steps.own_numbers import OwnNumbers
from ms_summary_bridge.monitor.steps.sampling import Sampling
from ms_summary_bridge.monitor.steps.step_reader import StepReader
from ms_summary_bridge.monitor.steps.step_tap import StepTap
from ms_summary_bridge.monitor.steps.unfed import Unfed
from ms_summary_bridge.monitor.watchdog.watchdog_link import WatchdogLink
from ms_summary_bridge.training.distributed import ProcessRank, find_process_rank, rank_directory
from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.measuring import Measuring

__all__ = ["Recorder", "interval_secs"]

_MOST_NOTES: Final = 1024  # that wait for a writing thread which is held up by a disk


def interval_secs(config: MonitorConfig, ranks: int) -> float:
    """Returns the seconds between two samples; `auto` is longer where many ranks write to one disk."""
    if config.interval == "auto":
        return 30.0 if ranks <= 1 else 60.0 if ranks < 64 else 120.0
    return config.interval


class Recorder:
    """Records one process of a training.

    Its files go to `run_directory`, or to one that is chosen when a training begins, as `place` is then found out.
    `clock` has monotonic seconds, `wall_clock` those since epoch; `patience` is that with what does not return.

    Raises:
        MissingDependencyError: A backend needs a package that is not installed.
    """

    def __init__(
        self,
        config: MonitorConfig,
        faults: Faults,
        *,
        run_directory: str | None = None,
        place: ProcessRank | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        patience: Patience | None = None,
    ) -> None:
        require_backends(config)
        self.config = config
        self.faults = faults
        self.run_directory = run_directory
        self._given_place = place
        self._clock = clock
        self._wall_clock = wall_clock
        self._patience = patience or Patience()
        self.measuring = Measuring(TrainingFacts(), faults.warn, clock)  # until a training begins
        self.is_open = False
        self._viewer_steps = ViewerSteps()

    def __reduce__(self) -> tuple[Callable[..., Recorder], tuple[MonitorConfig, Faults], dict[str, Any]]:
        """A copy records nothing before its training begins, and then goes on in the same directory."""
        made = partial(
            Recorder,
            run_directory=self.run_directory,
            place=self._given_place,
            clock=self._clock,
            wall_clock=self._wall_clock,
            patience=self._patience,
        )
        return made, (self.config, self.faults), {"_viewer_steps": self._viewer_steps}

    # ------------------------------------------------------------------ a training begins and ends

    def begin(
        self,
        training: TrainingFacts,
        *,
        measuring: Measuring | None = None,
        tells: bool = True,
        learning_rates: Callable[[], Mapping[str, float]] | None = None,
        bridge: NearBridge | None = None,
        tells_beginnings: bool = True,
        watchdog: WatchdogLink | None = None,
    ) -> None:
        """A training begins; rank, device and host are filled in here.

        `measuring` measures it, for others too: `tells` says whether nobody else tells it when steps begin and end, and
        `tells_beginnings` whether `StepTap.begin_step` will be called. The `watchdog` is told of every step, of where
        files go and of checkpoints; its alarms are recorded like others.
        """
        self._began, self._thread = time.time(), threading.get_ident()
        self._place = place = self._given_place or find_process_rank()
        self.training = msgspec.structs.replace(
            training,
            rank=place.rank,
            ranks=place.ranks,
            rank_source=place.source,
            device=f"{place.device} {place.device_id}",
            device_id=place.device_id,
            host=place.host,
        )
        self._bridge = bridge
        self._viewer_steps.begin(training.initial_step, bridge)
        self._watchdog = watchdog or WatchdogLink(self.config, self.faults)  # which does nothing
        self._writer = Writer(self._make_sinks, self.faults, gather=self._gather, clock=self._clock)
        names = {metric.name for metric in self.config.metrics}
        self.measuring = measuring = measuring or Measuring(self.training, self.faults.warn, self._clock)
        measuring.facts = self.training
        if learning_rates is not None and "lr" in names:
            measuring.rates.read_from(learning_rates)
        self.stop = StopAgreement(
            place.rank, place.ranks, self.config.stop_patience, clock=self._clock, wall_clock=self._wall_clock
        )
        self.alarms = Alarms(self.config, self.training, self._writer.put, self.faults, self.stop)
        self.alarm_sink: AlarmSink | None = None
        config = msgspec.structs.replace(
            self.config, metrics=(*self.config.metrics, *metrics_of_rules(self.config, self.training))
        )
        several = place.ranks > 1 and self.config.aggregate
        self._own = OwnNumbers(several, self.training, self.faults) if several else None
        self._sampling = Sampling(
            config, measuring, self.alarms, self._writer.put, self.faults, wall_clock=self._wall_clock, own=self._own
        )
        measurement = self._sampling.measurement
        self.queue = CallQueue(
            measuring.step_clock,
            self._sampling.take,
            self.faults,
            self._patience,
            is_at_once=measurement.is_at_once(()),
            is_bound=measurement.is_bound,
        )
        self._reader = StepReader(
            self.faults,
            measuring.rates if "lr" in names else None,
            interval=interval_secs(self.config, place.ranks),
            every=self.config.per_print_step,
            initial_step=training.initial_step,
        )
        self._beside: Beside | None = None
        limits = self.config.callback.warn_on_value
        bounds = limits.get("loss", Bounds())
        divisor = training.loss_divisor  # of the loss as the network returns it
        self.tap = StepTap(
            measuring.step_clock,
            self._watchdog.heartbeat,
            self._reader,
            self.queue.settle,
            tells=tells,
            limits=(
                -math.inf if bounds.below is None else bounds.below * divisor,
                math.inf if bounds.above is None else bounds.above * divisor,
            ),
            most_notes=1 if measurement.is_at_once(limits) else _MOST_NOTES,
            settles_samples=measurement.is_bound,
            initial_step=training.initial_step,
            between="data" if tells_beginnings else "compute",
        )
        self.alarms.ask = self.tap.ask
        self.alarms.tell_checkpoint = self._watchdog.tell_checkpoint
        self.is_open = True
        where = f"{self.training.device} of {place.host}"
        text = f"global rank {place.rank} of {place.ranks} (from {place.source}), {where}"
        self.note("start", text, level=logging.INFO)
        valid = self.training.loss_ranks
        if place.rank == 0 and place.rank not in valid and "loss" in names:
            text = f"in this pipeline only ranks {valid[0]} to {valid[-1]}, its last stage, have the training's loss; "
            self.note("start", text + "that of rank 0 is another number", level=logging.INFO)

    def listen(self, beside: Beside) -> None:
        """What is told beside the outputs of steps is recorded with them, from now on."""
        self._beside = self._reader.beside = beside

    def _make_sinks(self) -> list[Sink]:
        """Is called by the writing thread, because a disk may be slow."""
        if self.run_directory is None:
            made = self._watchdog.run_directory  # for what happened before
            self.run_directory = choose_run_directory(self.config, self._place, made)
        directory = rank_directory(self.run_directory, self._place.rank)
        has_viewer = bool({"tensorboard", "mindinsight"} & set(self.config.backends))
        self._watchdog.tell_directory(directory, self._viewed(self._place.ranks) if has_viewer else "")
        record = describe_run(self.config, self._place, self.run_directory)
        origin = AlertSource(
            project=self.config.project,
            run=record["run"],
            run_directory=self.run_directory,
            host=self._place.host,
            ranks=self._place.ranks,
        )
        self.alarm_sink = AlarmSink(
            self.alarms,
            origin,
            directory,
            exit_code=self.config.exit_code,
            warn=self.faults.warn,
            put=lambda note: self._writer.put(note, is_late=True),
            board=Board(
                self.run_directory,
                rank=self._place.rank,
                host=self._place.host,
                pid=os.getpid(),
                window_secs=self.config.callback.cool_down,
                began=self._began,
            ),
            rank=self._place.rank,
            look=partial(stack_now, self._thread),
        )
        tell = self._tell if self._place.rank == 0 else None
        several: list[Sink] = []
        if self.config.run_id is None and self._place.ranks > 1:
            several.append(RankCheck(self.run_directory, self._place, self.faults.warn, self._tell, self._clock))
        return [
            *make_sinks(
                self.config,
                self.training,
                self.run_directory,
                record,
                self.faults,
                bridge=self._bridge,
                steps=self._viewer_steps,
                clock=self._clock,
                wall_clock=self._wall_clock,
            ),
            self.alarm_sink,  # behind all files, because what it does may take some time; so it is closed before them
            Unfed(self._sampling.measurement, self.alarms, self.faults.warn, tell, self.training),
            *several,  # whose last words are for all of them
        ]

    def _tell(self, text: str) -> None:
        note = Note(kind="start", step=self.step, wall_time=self._wall_clock(), text=text, level=logging.INFO)
        self._writer.put(note, is_late=True)

    def _gather(self) -> None:
        """Deals with what was noted, on the writing thread."""
        self._hear_watchdog()
        self.queue.gather()
        if self._own is not None:
            self._own.refresh()

    def _hear_watchdog(self) -> None:
        for message in self._watchdog.hear():
            if isinstance(message, Note):
                self._writer.put(message)
            else:
                self.alarms.take(*message)

    def _viewed(self, ranks: int = 1) -> str:
        """Returns where the viewers' files are, with several ranks those of this one; empty while nobody knows."""
        if self._bridge is not None:
            return self._bridge.directory
        return "" if self.run_directory is None else summary_directory(self.run_directory, self._place.rank, ranks)

    @property
    def step(self) -> int:
        """The last step that has ended."""
        return self.tap.step

    def end(self, reason: str = "") -> None:
        """The training ends: the last step is read, all is written, and what was recorded is summed up.

        The `reason` says why it ended before its time; it is empty when it did not.
        """
        if not self.is_open:
            return
        self.is_open = False
        try:
            self.finish_step()
            if self.queue.settle_last():  # else the thread that does not return is inside all of this
                self._sampling.end(self._reader.read_rates)
                self.measuring.step_clock.pause(self._clock())
                self.measuring.step_clock.settle()
                self._sampling.measurement.close()
                if self._own is not None:
                    self._own.close()
        finally:
            if self._beside is not None:
                self._beside.end()
            self._writer.flush(self._patience.close_secs)  # the run's directory is known then
            self._hear_watchdog()
            self._writer.put(self._end_note(reason))
            self._writer.close(self._patience.close_secs)

    def _end_note(self, reason: str) -> Note:
        text, fields = self._sampling.summary.describe(
            self.config,
            reason,
            step=self.step,
            now=self._clock(),
            warnings=self._sampling.warnings.counts,
            alarms=self.alarms.counts,
            dropped=self._writer.dropped + self.queue.dropped,
            breakdown=self.measuring.step_clock.secs,
            rank=self.training.rank,
            run_directory=self.run_directory,
            viewed=self._viewed(),
        )
        level = logging.INFO if self.training.rank == 0 else None
        return Note(kind="end", step=self.step, wall_time=self._wall_clock(), text=text, fields=fields, level=level)

    def read_own(self) -> tuple[int, dict[str, float]]:
        """Returns the last step, which is read and dealt with now, and what it says of this rank, for the others."""
        self.finish_step()
        step, values = self._own.take() if self.queue.settle() and self._own is not None else (0, {})
        return self.step, values if step == self.step else {}

    def take_all(self, step: int, values: dict[str, float], text: str) -> None:
        """Takes the values of a step over all ranks, by names below `all/`, and the same in words."""
        said = f"all {counted(self.training.ranks, 'rank')} at step {step}: {text}"
        steps = self.config.aggregate_steps
        sample = Sample(step=step, interval_steps=steps, values=values, of_all=said)
        sample.wall_time, sample.monotonic = self._wall_clock(), self._clock()
        self._writer.put(sample)

    def finish_step(self) -> None:
        """Reads the step that has ended last, though no other begins."""
        self.tap.finish_step(self._clock())

    # ------------------------------------------------------------------ what is no step

    def pause(self) -> None:
        """An epoch ends: its last step is read, and what follows belongs to no step."""
        now = self._clock()
        self.measuring.step_clock.pause(now)
        self.tap.finish_step(now)
        self.queue.settle()  # an alarm may ask for the end: in data sink mode the next chance comes an epoch later

    def resume(self) -> None:
        """An epoch begins."""
        self.measuring.step_clock.resume(self._clock())

    def spending(self, kind: str) -> AbstractContextManager[None]:
        """Counts what runs inside as one part of the breakdown; evaluation and saving are left out of all rates."""
        return self.measuring.step_clock.spending(kind)

    def milestone(self, text: str, **fields: Any) -> None:
        """Notes something that happened."""
        self.note("milestone", text, fields=fields)

    def evaluated(self, metrics: Mapping[str, float], epoch: int | None) -> None:
        """Notes the metrics of an evaluation inside the training: after which epoch, where that is known."""
        if not metrics:
            return
        self.queue.settle()  # the samples of the steps before stand before it
        numbers, nonfinite = strict_numbers(metrics)
        total = f"/{self.training.epochs}" if self.training.epochs else ""
        place = f"epoch {epoch}{total}" if epoch else f"step {self.step}"
        text = f"evaluation after {place}: " + ", ".join(f"{name}: {value:.5g}" for name, value in metrics.items())
        fields = {"epoch": epoch, "metrics": numbers, **({"nonfinite": nonfinite} if nonfinite else {})}
        level = logging.INFO if self.training.rank == 0 else None
        self.note("evaluation", text, fields=fields, level=level)

    def note(self, kind: str, text: str, *, fields: dict[str, Any] | None = None, level: int | None = None) -> None:
        """Notes something, for people as a text and for programs as fields."""
        moment = self._wall_clock()
        self._writer.put(Note(kind=kind, step=self.step, wall_time=moment, text=text, fields=fields or {}, level=level))

    def flush(self, timeout_secs: float = 30.0) -> bool:
        """Waits until all that was recorded is in the files; returns False if that takes too long.

        Nobody waits for Weights & Biases.
        """
        if not self.is_open or self.faults.is_forked:  # the threads, and the locks that they held, stayed behind
            return True
        deadline = time.monotonic() + timeout_secs
        is_settled = self.queue.settle(timeout_secs)
        return self._writer.flush(max(0.0, deadline - time.monotonic())) and is_settled
