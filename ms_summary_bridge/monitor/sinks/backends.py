"""Where a monitor's values go: journal, text log, both viewers' files, Prometheus, programs that record experiments.

Imports no mindspore.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ms_summary_bridge.errors import MissingDependencyError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.sessions import hparams, lineage
from ms_summary_bridge.formats.sessions.session import Session
from ms_summary_bridge.live_writer.link import WriterLink
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.packages import find_missing
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.console import ConsoleSink, TextLogSink
from ms_summary_bridge.monitor.sinks.csv_file import CsvFile
from ms_summary_bridge.monitor.sinks.journal import Journal
from ms_summary_bridge.monitor.sinks.prometheus_file import PrometheusFile
from ms_summary_bridge.monitor.sinks.run_journal import RunJournal
from ms_summary_bridge.monitor.sinks.tracker_sink import MlflowSink, SwanlabSink, TrackioSink
from ms_summary_bridge.monitor.sinks.viewer_steps import NearBridge, ViewerSteps
from ms_summary_bridge.monitor.sinks.wandb_sink import WandbSink
from ms_summary_bridge.monitor.sinks.writer import DetachedSink, Sink
from ms_summary_bridge.training.distributed import rank_directory
from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.faults import Faults

__all__ = [
    "TAG_PREFIX",
    "TEXT_LOG",
    "SummarySink",
    "Warn",
    "alarm_marker",
    "live_config",
    "make_sinks",
    "note_text",
    "prometheus_directory",
    "require_backends",
    "summary_directory",
]

TAG_PREFIX: Final = "monitor/"
"""Before each metric's name in both viewers: a bridge beside the monitor records some under their bare names."""
TEXT_LOG: Final = "monitor.log"
_QUEUE_BYTES: Final = 64 << 20
_CLOSE_SECS: Final = 30.0

Warn = Callable[[str, str], None]


def require_backends(config: MonitorConfig) -> None:
    """Checks that what the backends need is installed.

    Raises:
        MissingDependencyError: The message holds the pip command.
    """
    missing = find_missing(config)
    if missing:
        named, packages = " and ".join(map(repr, missing)), " ".join(missing)
        what = f"backend {named} needs a package" if len(missing) == 1 else f"backends {named} need packages"
        raise MissingDependencyError(f"the {what} that is not installed: pip install {packages}")


def summary_directory(run_directory: str, rank: int = 0, ranks: int = 1) -> str:
    """Returns where both viewers' files of a run are, or those of one of several ranks."""
    directory = os.path.join(run_directory, "summary")
    return rank_directory(directory, rank) if ranks > 1 else directory


def make_sinks(
    config: MonitorConfig,
    training: TrainingFacts,
    run_directory: str,
    record: dict[str, Any],
    faults: Faults,
    *,
    bridge: NearBridge | None,
    steps: ViewerSteps,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
) -> list[Sink]:
    """Returns the sinks that a configuration asks for.

    Args:
        config: The configuration.
        training: The training.
        run_directory: Where the run's files go.
        record: What is stored with the run.
        faults: Is told what fails.
        bridge: In whose files the values go; None for files of the monitor's own.
        steps: Of the viewers.
        clock: Monotonic seconds.
        wall_clock: Seconds since epoch.
    """
    directory = rank_directory(run_directory, training.rank)
    size, warn = config.max_journal_bytes, faults.warn
    sinks: list[Sink] = []
    if config.auto_print:
        sinks.append(ConsoleSink(training, config.callback.log_level, prints_samples=training.rank == 0))
    journal = Journal(directory, training.rank, record, warn, max_bytes=size)
    sinks.append(journal)
    if config.csv:
        sinks.append(CsvFile(directory, training.rank, warn, journal.flush))
    if training.rank == 0:
        ranks, loss_ranks, clocks = training.ranks, training.loss_ranks, {"clock": clock, "wall_clock": wall_clock}
        sinks.append(RunJournal(run_directory, ranks, loss_ranks, record, warn, max_bytes=size, **clocks))
    if "local" in config.backends:
        sinks.append(TextLogSink(os.path.join(directory, TEXT_LOG), training, warn))
    if {"tensorboard", "mindinsight"} & set(config.backends):
        link = _own_link(run_directory, training) if bridge is None else bridge.link
        sinks.append(SummarySink(link, config.tags, steps, warn, owns_link=bridge is None))
    # What may wait without limit, for a network or a disk of its own, holds up nothing else.
    if "prometheus" in config.backends:
        place = prometheus_directory(config)
        textfile = PrometheusFile(place, config.project, run_directory, training.rank, wall_clock=wall_clock)
        sinks.append(DetachedSink(textfile, "prometheus", faults))
    if "wandb" in config.backends:
        sinks.append(DetachedSink(WandbSink(config, training, run_directory, record), "wandb", faults))
    for tracker in (SwanlabSink, MlflowSink, TrackioSink):
        if tracker.package in config.backends:
            sink = tracker(config, training, run_directory, record, warn)
            sinks.append(DetachedSink(sink, tracker.package, faults))
    return sinks


def prometheus_directory(config: MonitorConfig) -> str:
    """Returns where the textfiles of all runs go."""
    given = config.prometheus_dir
    return os.path.abspath(os.path.expanduser(given or os.path.join(config.save_dir, "prometheus")))


def live_config(directory: str, rank: int, host: str) -> LiveRunConfig:
    """Returns how the files for both viewers that begin now are named."""
    now = time.time()
    return LiveRunConfig(
        summary_dir=directory,
        tensorboard_dir=directory,
        seconds=int(now),
        wall_time=now,
        device=rank,
        host=host.replace("/", "_") or "host",
        pid=os.getpid(),
    )


def _own_link(run_directory: str, training: TrainingFacts) -> WriterLink:
    directory = summary_directory(run_directory, training.rank, training.ranks)
    return WriterLink(live_config(directory, training.rank, training.host), queue_bytes=_QUEUE_BYTES)


class SummarySink(Sink):
    """Both viewers' files: scalars in both, texts and an HParams session in TensorBoard's, lineage in MindSpore's.

    Args:
        link: The way to the process that writes them.
        tags: What the run is about.
        steps: The steps that the viewers are given.
        warn: Called with (kind, message).
        owns_link: Whether the monitor began it, and ends it.
    """

    def __init__(
        self,
        link: WriterLink,
        tags: Mapping[str, str | int | float | bool],
        steps: ViewerSteps,
        warn: Warn,
        *,
        owns_link: bool,
    ) -> None:
        self._link = link
        self._tags = tags
        self._steps = steps
        self._warn = warn
        self._owns_link = owns_link

    def open(self) -> None:
        """Writes what the run is about."""
        now = time.time()
        if not self._tags:
            return
        plain = {
            name: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
            for name, value in self._tags.items()
        }
        session = Session(hparams=plain, start_time=now)
        self._link.put("event", hparams.encode_session_start(session), "")
        for payload in lineage.write_lineage(now, session, is_lineage=False):
            for key, begin, end in wire.fields(payload, 0, len(payload)):
                if key == 0x52:
                    self._link.put("whole", "custom_lineage_data", now, payload[begin:end])
                elif key == 0x3A and self._owns_link:  # MindInsight lists no lineage without one of a training or this
                    self._link.put("whole", "eval_lineage", now, payload[begin:end])
        rows = "".join(f"\n| {_cell(name)} | {_cell(value)} |" for name, value in self._tags.items())
        self._link.put("note", self._steps.place(0), now, f"{TAG_PREFIX}tags", f"| tag | value |\n|---|---|{rows}")

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""
        moved = self._steps.begin_again(sample) if sample.is_first else ""
        if moved:
            self._warn("steps", moved)
        items = [{"tag": TAG_PREFIX + name, "value": np.asarray(value)} for name, value in sample.values.items()]
        if items:
            self._link.put_values(self._steps.place(sample.step), sample.wall_time, {"scalar": items})

    def write_note(self, note: Note) -> None:
        """Takes a note. Each kind has its tag: TensorBoard's fast loader shows one text for each tag and step."""
        marker, step = alarm_marker(note), self._steps.place(note.step)
        if marker:
            self._link.put_values(step, note.wall_time, marker)
        self._link.put("note", step, note.wall_time, f"{TAG_PREFIX}{note.kind}", note_text(note))

    def close(self) -> None:
        """Waits for the writer process, if it is the monitor's own."""
        if self._owns_link:
            self._link.close(_CLOSE_SECS)


def alarm_marker(note: Note) -> dict[str, list[dict[str, Any]]]:
    """Returns what stands beside the curves for an alarm: how many of its rule there were; empty for other notes."""
    if note.kind != "alert":
        return {}
    value = np.asarray(float(note.fields["count"]))
    return {"scalar": [{"tag": f"{TAG_PREFIX}alarms/{note.fields['rule']}", "value": value}]}


def note_text(note: Note) -> str:
    """Returns a note as TensorBoard shows it: two spaces are a line break in markdown."""
    return note.text.replace("\n", "  \n")


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
