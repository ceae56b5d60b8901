"""A textfile for the textfile collector of Prometheus' node_exporter, one for each run and rank.

What the collector asks for (prometheus/node_exporter, collector/textfile.go): names end in `.prom`, no value has a time
of its own, and a name has one type and one help text over all files. So times are values here, and every text is fixed.

A file lives as long as its training. At the end it is written once more, with `msb_running 0` and without what was
measured, so that no alert looks at the loss of a training that is over. One that was killed leaves its last values;
their age is `time() - msb_last_sample_timestamp_seconds`. Files that nobody has written to for a day are removed when
the next training begins to write in the directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ms_summary_bridge.errors import WriteError
from ms_summary_bridge.files.atomic import replace_file
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.writer import Sink

__all__ = ["MEASURED", "PrometheusFile", "PrometheusName", "textfile_name"]

_MIB: Final = float(1 << 20)
_OFTEN_SECS: Final = 1.0
_LEFT_SECS: Final = 24 * 3600.0
_OURS: Final = re.compile(r"ms_summary_bridge_.*_[0-9a-f]{12}_rank_\d+\.prom", re.DOTALL)


class PrometheusName(NamedTuple):
    """A metric of the monitor under a name with its unit: values are multiplied by `factor`."""

    name: str
    help: str
    factor: float = 1.0


MEASURED: Final[dict[str, PrometheusName]] = {
    "loss": PrometheusName("msb_loss", "Loss of the last step."),
    "lr": PrometheusName("msb_learning_rate", "Learning rate of the last step."),
    "epoch": PrometheusName("msb_epoch", "Epoch, from 1."),
    "step_time": PrometheusName("msb_step_time_seconds", "Time of a step."),
    "data_time": PrometheusName("msb_data_time_seconds", "Time of a step that waited for data."),
    "samples_per_second": PrometheusName("msb_samples_per_second", "Samples a second over all cards."),
    "tokens_per_second": PrometheusName("msb_tokens_per_second", "Tokens a second over all cards."),
    "mfu": PrometheusName("msb_mfu_ratio", "Part of the peak floating point operations that the model uses."),
    "grad_norm": PrometheusName("msb_gradient_norm", "Norm of all gradients."),
    "local_loss": PrometheusName("msb_local_loss", "Loss of this rank's own batch."),
    "local_grad_norm": PrometheusName("msb_local_gradient_norm", "Norm of this rank's own gradients."),
    "local_grad_norms": PrometheusName("msb_local_parameter_gradient_norm", "The same of each parameter."),
    "sub_losses": PrometheusName("msb_sub_loss", "Parts of the loss."),
    "loss_scale": PrometheusName("msb_loss_scale", "Loss scale of mixed precision."),
    "overflow": PrometheusName("msb_overflow_steps", "Steps that overflowed since the sample before."),
    "memory_usage": PrometheusName("msb_device_memory_bytes", "Device memory in use by the process.", _MIB),
    "host_memory": PrometheusName("msb_host_memory_bytes", "Memory of the process on the host.", _MIB),
    "npu_utilization": PrometheusName("msb_npu_utilization_ratio", "How busy the NPU is.", 0.01),
    "npu_memory": PrometheusName("msb_npu_memory_bytes", "NPU memory in use.", _MIB),
    "npu_power": PrometheusName("msb_npu_power_watts", "Power of the NPU."),
    "temperature": PrometheusName("msb_device_temperature_celsius", "Temperature of the device."),
    "gpu_utilization": PrometheusName("msb_gpu_utilization_ratio", "How busy the GPU is.", 0.01),
    "gpu_memory": PrometheusName("msb_gpu_memory_bytes", "GPU memory in use.", _MIB),
    "global_rank": PrometheusName("msb_global_rank", "Rank of the process among all."),
    "update_ratio": PrometheusName("msb_update_ratio", "Norm of the update by norm of the weights."),
}
"""Each metric in the base units of Prometheus; `step` is `msb_step`, and a user's own is `msb_metric{name=...}`."""


def textfile_name(project: str, run_directory: str, rank: int) -> str:
    """Returns the name of the file of a rank, which no other run on this host has."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{project}_{os.path.basename(run_directory)}")[:80]
    own = hashlib.blake2b(run_directory.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"ms_summary_bridge_{readable}_{own}_rank_{rank}.prom"


class PrometheusFile(Sink):
    """Holds what was measured last, and replaces its file with it once a second at most.

    Args:
        directory: Of the textfile collector; made if missing.
        project: Of the run.
        run_directory: Its base name is the label `run`.
        rank: Of this process.
        clock: Monotonic seconds.
        wall_clock: Seconds since epoch.
    """

    def __init__(
        self,
        directory: str,
        project: str,
        run_directory: str,
        rank: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = os.path.join(directory, textfile_name(project, run_directory, rank))
        self._labels = {"project": project, "run": os.path.basename(run_directory), "rank": str(rank)}
        self._clock = clock
        self._wall_clock = wall_clock
        self._values: dict[str, float] = {}
        self._step = 0
        self._sampled_at: float | None = None
        self._alarms: Counter[str] = Counter()
        self._warnings = 0
        self._is_new = False
        self._due_at = -math.inf

    def open(self) -> None:
        """Makes the directory, and removes files that nobody has written to for a day.

        Raises:
            WriteError: It cannot be made.
        """
        directory = os.path.dirname(self.path)
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise WriteError.of_system(directory, "made", error) from error
        with contextlib.suppress(OSError):
            for name in os.listdir(directory):
                path = os.path.join(directory, name)
                with contextlib.suppress(OSError):
                    if _OURS.fullmatch(name) and self._wall_clock() - os.lstat(path).st_mtime > _LEFT_SECS:
                        os.unlink(path)

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""
        self._values.update(sample.values)
        self._step, self._sampled_at = sample.step, sample.wall_time
        self._is_new = True

    def write_note(self, note: Note) -> None:
        """Takes a note; alarms are counted by their rule, and warnings."""
        self._step = max(self._step, note.step)
        if note.kind == "alert":
            self._alarms[str(note.fields.get("rule", ""))] += 1
        self._warnings += note.kind == "warning"
        self._is_new = True

    def flush(self) -> None:
        """Replaces the file, if there is anything new and a second has passed.

        Raises:
            WriteError: It cannot be written; the old one stays, and it is tried again a second later.
        """
        if self._is_new and self._clock() >= self._due_at:
            self._due_at = self._clock() + _OFTEN_SECS
            replace_file(self.path, self._text(is_running=True), is_lasting=False)
            self._is_new = False

    def close(self) -> None:
        """Marks the file as that of a training that has ended.

        Raises:
            WriteError: It cannot be written.
        """
        replace_file(self.path, self._text(is_running=False))

    def _text(self, *, is_running: bool) -> bytes:
        lines = [*self._state(is_running=is_running)]
        if is_running:
            lines += self._measured()
        return "".join(lines).encode()

    def _state(self, *, is_running: bool) -> Iterator[str]:
        yield from self._family(
            "msb_running", "Whether the training runs: 1, or 0 when it has ended.", [({}, is_running)]
        )
        yield from self._family("msb_step", "The last step over all epochs.", [({}, self._step)])
        if self._sampled_at is not None:
            help_text = "When the last sample was taken, since epoch."
            yield from self._family("msb_last_sample_timestamp_seconds", help_text, [({}, self._sampled_at)])
        if not is_running:
            help_text = "When the training ended, since epoch."
            yield from self._family("msb_end_timestamp_seconds", help_text, [({}, self._wall_clock())])
        alarms = [({"rule": rule}, count) for rule, count in sorted(self._alarms.items())]
        yield from self._family("msb_alarms_total", "Alarms of this session.", alarms, "counter")
        help_text = "Warnings of this session."
        yield from self._family("msb_warnings_total", help_text, [({}, self._warnings)], "counter")

    def _measured(self) -> Iterator[str]:
        families: dict[str, list[tuple[dict[str, str], float]]] = {}
        others: list[tuple[dict[str, str], float]] = []
        for name, value in self._values.items():
            base, _, part = name.partition("/")
            if base in MEASURED:
                own = {"part": part} if part else {}
                families.setdefault(base, []).append((own, value * MEASURED[base].factor))
            elif name != "step":
                others.append(({"name": name}, value))
        for base, samples in families.items():
            yield from self._family(MEASURED[base].name, MEASURED[base].help, samples)
        yield from self._family("msb_metric", "A metric of the user's own, by its name.", others)

    def _family(
        self, name: str, help_text: str, samples: Sequence[tuple[dict[str, str], float]], kind: str = "gauge"
    ) -> Iterator[str]:
        """Yields the lines of a metric; none where it has no value."""
        if samples:
            yield f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
        for labels, value in samples:
            yield f"{name}{{{_labels({**self._labels, **labels})}}} {_number(value)}\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    value = value.encode("utf-8", "backslashreplace").decode()  # a file name may hold what is no UTF-8
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    value = float(value)
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
