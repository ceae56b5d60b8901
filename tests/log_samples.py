"""Small logs of every kind and both formats, from real writers and built by hand, for tests that try all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from ms_summary_bridge.formats.wire import fixed64, length_delimited, varint
from tests.graph_samples import tensorflow_graph
from tests.mindspore_run import START, event, histogram, image, scalar, scalars, tensor, write_summary
from tests.scripted import build_file, build_record, mindspore_name, put, tensorboard_name, version_payload

__all__ = ["MINDSPORE_LOGS", "TENSORBOARD_LOGS", "LogMaker", "copy_golden"]

LogMaker = Callable[[Path], None]

_DATA: Final = Path(__file__).resolve().parent / "data"


def copy_golden(directory: Path, case: str, name: str) -> Path:
    """Puts a golden file under a name that its writer gives."""
    return put(directory / name, (_DATA / f"{case}.bin").read_bytes())


# --- MindSpore


def _real_training(directory: Path) -> None:
    """Graph, scalars, histograms, images, tensors; data set graph and lineage."""
    copy_golden(directory, "mindspore-2.10-summary", mindspore_name())
    copy_golden(directory, "mindspore-2.10-lineage", mindspore_name(suffix="_lineage"))


def _real_landscape(directory: Path) -> None:
    copy_golden(directory, "mindspore-2.10-landscape", mindspore_name())


def _every_kind_under_one_tag(directory: Path) -> None:
    kinds = [scalar(0.5), histogram([1, 0, 7], nan=3), image(), tensor([1, 2.5, -3])]
    write_summary(directory, [event(step, *[("tag", value) for value in kinds]) for step in range(3)])


def _restart(directory: Path) -> None:
    """The first value of the second session is the last one of the first."""
    write_summary(directory, [*scalars("loss", range(6)), event(6, ("lr", scalar(0.1)))])
    again = [event(s, ("loss", scalar(5)), ("lr", scalar(0.1)), wall_time=START + 1000.0 + s) for s in range(5, 9)]
    write_summary(directory, again, seconds=START + 1000)


def _two_writers_at_once(directory: Path) -> None:
    write_summary(directory, [event(s, ("train/loss", scalar(s)), ("lr", scalar(0.1))) for s in range(8)])
    later = [
        event(s, ("val/loss", scalar(s)), ("lr", scalar(0.1)), ("t", tensor([s])), wall_time=START + 1.0 + s)
        for s in range(0, 8, 2)
    ]
    write_summary(directory, later, seconds=START + 1)


def _small_file_after_a_training(directory: Path) -> None:
    write_summary(directory, [event(s, ("loss/auto", scalar(s)), ("accuracy", scalar(s))) for s in range(1, 30)])
    write_summary(directory, [event(0, ("accuracy", scalar(0.5)), wall_time=START + 500.0)], seconds=START + 500)


def _repeats(directory: Path) -> None:
    """SummaryCollector writes the last step of an epoch twice."""
    write_summary(directory, scalars("loss", [0, 1, 1, 2, 3, 3]))


def _ranks_and_other_files(directory: Path) -> None:
    """Two ranks, a nested run, and files that are none of MindSpore's."""
    for rank in range(2):
        write_summary(directory / "job", scalars("loss", range(4), offset=rank), rank=rank)
    write_summary(directory / "job" / "a+b" / "c~d", scalars("loss", range(3)))
    put(directory / "job" / "frozen.pb", length_delimited(b"\x0a", length_delimited(b"\x0a", b"w")) * 3)
    put(directory / "job" / "host.xplane.pb", length_delimited(b"\x0a", b"\x08\x01"))
    put(directory / "job" / "empty.pb", b"")


# --- TensorBoard


def _value(message: bytes, step: int, wall_time: float | None = None) -> bytes:
    head = fixed64(b"\x09", START + step if wall_time is None else wall_time) + b"\x10" + varint(step)
    return build_record(head + length_delimited(b"\x2a", length_delimited(b"\x0a", message)))


def _tag(name: str) -> bytes:
    return length_delimited(b"\x0a", name.encode())


def _plugin(name: str, content: bytes = b"") -> bytes:
    data = length_delimited(b"\x0a", name.encode()) + (length_delimited(b"\x12", content) if content else b"")
    return length_delimited(b"\x4a", length_delimited(b"\x0a", data))


def _mark(step: int, wall_time: float) -> bytes:
    return build_record(fixed64(b"\x09", wall_time) + b"\x10" + varint(step) + length_delimited(b"\x3a", b"\x08\x01"))


def _real_tensorboardx(directory: Path) -> None:
    """Scalars with and without metadata, a legacy histogram, an image, a text."""
    copy_golden(directory, "tensorboardx-2.6.5", tensorboard_name())


def _every_plugin(directory: Path) -> None:
    """A graph before its START, as TF1 writes it; doubles, tensors, text, hyperparameters, and what nobody knows."""
    graph = tensorflow_graph().SerializeToString(deterministic=True)
    hparams = b"\x12\x17" + b"\x0a\x0d\x0a\x02lr\x12\x07" + b"\x11" + bytes(6)  # malformed: carried as it is
    numbers = length_delimited(b"\x22", np.arange(3, dtype="<f4").tobytes())
    vector = length_delimited(b"\x42", b"\x08\x01" + length_delimited(b"\x12", b"\x12\x02\x08\x03") + numbers)
    double = length_delimited(b"\x42", b"\x08\x02\x12\x00" + fixed64(b"\x31", 0.1))
    text = length_delimited(b"\x42", b"\x08\x07\x12\x00" + length_delimited(b"\x42", b"words \xff"))
    records = [
        build_record(version_payload("tensorboard")),
        build_record(fixed64(b"\x09", START) + length_delimited(b"\x22", graph)),
        _mark(0, START),
        _value(_tag("_hparams_/session_start_info") + _plugin("hparams", hparams), 0),
    ]
    for step in range(3):
        records += [
            _value(_tag("loss") + b"\x15" + bytes([0, 0, step, 63]), step),
            _value(_tag("double") + _plugin("scalars") + double, step),
            _value(_tag("vector") + vector, step),
            _value(_tag("note") + _plugin("text") + text, step),
            _value(_tag("odd") + _plugin("plugin_from_2031") + vector, step),
        ]
    records.append(build_record(fixed64(b"\x09", START + 9.0) + length_delimited(b"\x32", b"\x12\x05hello")))
    put(directory / tensorboard_name(), b"".join(records))


def _resumed_twice(directory: Path) -> None:
    """Three files whose later ones begin with START, as TensorFlow resumes."""
    for number, steps in enumerate((range(8), range(5, 10), range(8, 12))):
        start = START + 1000.0 * number
        head = build_record(version_payload("tensorboard", wall_time=start))
        mark = _mark(steps[0], start) if number else b""
        values = b"".join(_value(_tag("loss") + b"\x15" + bytes([0, 0, number, 63]), s, start + s) for s in steps)
        put(directory / "run" / tensorboard_name(int(start)), head + mark + values)


def _tree(directory: Path) -> None:
    """Nested runs, with profiler output and an exported model beside them."""
    for name in ("run/train", "run/validation", "a+b"):
        put(directory / name / tensorboard_name(), build_file("tensorboard", range(3)))
    profile = directory / "run" / "train" / "plugins" / "profile" / "2026_01_02"
    put(profile / "host.xplane.pb", length_delimited(b"\x0a", b"\x08\x01"))
    put(directory / "run" / "export" / "saved_model.pb", b"\x08\x01" + length_delimited(b"\x12", b"\x0a\x00"))


def _two_torch_writers(directory: Path) -> None:
    """Equal values of one tag at the same steps, at other times."""
    for number in range(2):
        name = tensorboard_name(START + number)
        put(directory / name, build_file("tensorboard", range(8), start=START + 0.5 * number))


MINDSPORE_LOGS: Final[dict[str, LogMaker]] = {
    "a real training": _real_training,
    "a real landscape": _real_landscape,
    "every kind under one tag": _every_kind_under_one_tag,
    "a restart": _restart,
    "two writers at once": _two_writers_at_once,
    "a small file after a training": _small_file_after_a_training,
    "repeats": _repeats,
    "ranks and other files": _ranks_and_other_files,
}
TENSORBOARD_LOGS: Final[dict[str, LogMaker]] = {
    "real files of tensorboardX": _real_tensorboardx,
    "every plugin": _every_plugin,
    "resumed twice": _resumed_twice,
    "a tree with other files": _tree,
    "two torch writers": _two_torch_writers,
}
