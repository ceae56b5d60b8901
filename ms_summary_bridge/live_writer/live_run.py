"""The files of one live run: MindSpore's summary and lineage file, and TensorBoard's event file, from the same values.

Runs in the writer process.

Each set of collected arrays is packed once. The MindSpore record is what MindSpore's own writer would have written; the
TensorBoard record is what `convert` would make of it. No session is marked as one that begins again: only values that
are still to come replace what a mark hides, and `convert` knows them (`convert.restarts`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.formats import mindspore, tensorboard, wire
from ms_summary_bridge.formats.plugin_data import WRITER_LIVE, WRITER_USER, encode_writer
from ms_summary_bridge.live_writer.live_file import LiveFile
from ms_summary_bridge.live_writer.live_session import LINEAGE_KEYS, LiveSession
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.values import Opaque, Scalar, Value

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["LiveRun"]

_ARRAYS: Final = ("scalar", "histogram", "image", "tensor", "pixels")
_OPEN_MODE: Final = 0o600  # as MindSpore's own writer: readable by others' tools as "still being written"
_CLOSED_MODE: Final = 0o400


class LiveRun:
    """Writes one run; no call raises for what the disk does, which `warn` is told as (kind, message)."""

    def __init__(self, config: LiveRunConfig, warn: Callable[[str, str], None]) -> None:
        self._config = config
        self._warn = warn
        self.unpackable: Counter[str] = Counter()
        """Values that MindSpore's format cannot hold, by kind."""
        self._mindspore = mindspore.MindSporeEncoder()
        self._tensorboard = tensorboard.TensorBoardEncoder()
        self._series = SeriesTable()
        version = _payload(mindspore.MindSporeEncoder(), Event(config.wall_time, 0, FileVersion("")))
        self.summary = self._mindspore_file("_MS", [version])
        self.lineage = self._mindspore_file("_lineage", [])
        self._event_files: dict[str, LiveFile] = {}
        self.event_file = self._event_file("")
        self._session = LiveSession(config.wall_time, self.event_file.write)

    def _mindspore_file(self, suffix: str, head: list[bytes]) -> LiveFile:
        config, modes = self._config, (_OPEN_MODE, _CLOSED_MODE)
        size, fsync = config.max_file_size, config.fsync

        def name_of(number: int) -> str:  # MindInsight orders by the seconds, so a later file gets a later second
            return f"events.out.events.summary.{config.seconds + number}.{config.device}.{config.host}{suffix}"

        return LiveFile(config.summary_dir, name_of, head, self._warn, max_file_bytes=size, modes=modes, fsync=fsync)

    def _event_file(self, child: str) -> LiveFile:
        """Returns the TensorBoard file of the run, or of a child run that tensorboardX's calls make below it."""
        if child not in self._event_files:
            config = self._config
            stem = f"{config.host}.{config.pid}.{config.device}"

            def name_of(number: int) -> str:
                return f"events.out.tfevents.{config.seconds:010d}.{stem}.{number:04d}"

            version = FileVersion(tensorboard.FILE_VERSION, WRITER_LIVE)
            head = _payload(self._tensorboard, Event(config.wall_time, 0, version, tensorboard.FORMAT))
            directory = os.path.join(config.tensorboard_dir, child) if child else config.tensorboard_dir
            size, fsync = config.max_file_size, config.fsync
            file = LiveFile(directory, name_of, [head], self._warn, max_file_bytes=size, fsync=fsync)
            self._event_files[child] = file
        return self._event_files[child]

    def write_values(self, step: int, wall_time: float, collected: dict[str, list[dict[str, Any]]]) -> None:
        """Writes the arrays of one collection, `{plugin: [{"tag": ..., "value": array}, ...]}`, to both files."""
        values: list[TaggedValue] = []
        for plugin, items in collected.items():
            for item in items:
                packed = item["value"]
                array = np.asarray(packed) if plugin in _ARRAYS and type(packed) is not Scalar else None
                try:
                    if array is not None:
                        packed = _packers()[plugin](array)
                    if plugin in _ARRAYS:
                        values.append(TaggedValue(item["tag"], packed))
                    elif plugin == "landscape":
                        values.append(TaggedValue(item["tag"], _landscape(item["tag"], item["value"])))
                    else:
                        self._drop(plugin, item["tag"], "not a kind of summary", step)
                except InvalidValueError as error:
                    self._drop(plugin, item["tag"], error.message, step)
                except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
                    self._drop(plugin, item["tag"], repr(error), step)
                if array is not None and item.get("export_option") == "npy":
                    self._export(item["tag"], step, array)
        if not values:
            return
        event = Event(wall_time, step, Summary(tuple(values)), mindspore.FORMAT)
        encoded = self._mindspore.encode(event)
        for loss in encoded.losses:  # what could be packed and yet has no place: a tag that no encoding holds
            self._drop(loss.kind, loss.tag, loss.reason, step)
        if encoded.payload is not None:
            self.summary.write(encoded.payload)
        fresh = self._series.observe(event, event.content) if isinstance(event.content, Summary) else event
        if fresh is not None:
            self._write_tensorboard(fresh)

    def _drop(self, plugin: str, tag: str, reason: str, step: int = 0) -> None:
        self.unpackable[plugin] += 1
        self._warn(
            f"pack {plugin} {tag}", f"{plugin} {tag!r} at step {step} cannot be written and is left out: {reason}"
        )

    def _write_tensorboard(self, event: Event) -> None:
        encoded = self._tensorboard.encode(event)
        if encoded.payload is not None:
            self.event_file.write(encoded.payload)
            return
        for loss in encoded.losses:  # nothing of it is shown, though MindSpore's file may have it
            what = f"{loss.kind} {loss.tag!r}" if loss.tag else loss.kind
            self._warn(f"tensorboard {loss.kind} {loss.tag}", f"{what} is not in TensorBoard's file: {loss.reason}")

    def write_whole(self, plugin: str, wall_time: float, data: bytes) -> None:
        """Writes the graph (a `ModelProto`) or one kind of lineage, as MindSpore serialised it.

        Two are of our own: `hyperparameters` is the lineage of a training as its first step tells it, and `failure`
        says that the training has ended before its end.
        """
        head = wire.fixed64(b"\x09", wall_time)
        if plugin == "graph":
            graph = next((data[a:b] for key, a, b in wire.fields(data, 0, len(data)) if key == 0x22), b"")
            payload = head + wire.length_delimited(b"\x22", graph)
            self.summary.write(payload)
            self._write_tensorboard(Event(wall_time, 0, Opaque("graph", payload), mindspore.FORMAT))
        elif plugin == "hyperparameters":  # of the training that begins: its record is written at its end
            self._session.start(wall_time, data)
        elif plugin == "failure":
            failed = self._session.fail(wall_time)
            if failed is not None:
                self.lineage.write(failed)
                self._session.note("train_lineage", failed, self._tensorboard.names.kinds)
        elif plugin in LINEAGE_KEYS:
            payload = head + wire.length_delimited(LINEAGE_KEYS[plugin], data)
            self.lineage.write(payload)
            self._session.note(plugin, payload, self._tensorboard.names.kinds)
            if plugin == "dataset_graph":
                self._write_tensorboard(Event(wall_time, 0, Opaque(plugin, payload), mindspore.FORMAT))
        else:
            self._drop(plugin, "", "not a kind of summary")

    def write_note(self, step: int, wall_time: float, tag: str, text: str) -> None:
        """Writes a text for TensorBoard; MindSpore's format has no place for one."""
        self.event_file.write(self._tensorboard.encode_note(step, wall_time, tag, text))

    def write_user_event(self, payload: bytes, child: str) -> None:
        """Writes one event that a `SummaryWriter` made, to the run or to a child run."""
        event = tensorboard.TensorBoardDecoder().decode(payload)
        if not isinstance(event.content, FileVersion):
            mark = b"" if child else encode_writer(WRITER_USER)
            self._event_file(child).write(payload + mark)

    def _export(self, tag: str, step: int, array: npt.NDArray[Any]) -> None:
        from urllib.parse import quote  # here: few runs export anything

        directory = os.path.join(self._config.summary_dir, f"export_{self._config.seconds}", "tensor")
        path = os.path.join(directory, f"{quote(tag, safe='')}_{step}.npy")
        try:
            os.makedirs(directory, exist_ok=True)
            np.save(path, array)
            os.chmod(path, _CLOSED_MODE)
        except OSError as error:
            self._warn("export", f"{path}: cannot be written: {error.strerror}")

    @property
    def files(self) -> list[LiveFile]:
        """Everything that is being written."""
        return [self.summary, self.lineage, *self._event_files.values()]

    def flush(self) -> bool:
        """Hands everything to the operating system; returns whether that was possible."""
        flushed = [file.flush() for file in self.files]  # every one, also behind one that fails
        return all(flushed)

    def close(self) -> None:
        """Closes all files; may be called again."""
        self._session.close()
        for file in self.files:
            file.close()


def _payload(encoder: mindspore.MindSporeEncoder | tensorboard.TensorBoardEncoder, event: Event) -> bytes:
    payload = encoder.encode(event).payload
    assert payload is not None
    return payload


@cache
def _packers() -> dict[str, Callable[[npt.NDArray[Any]], Value]]:
    """Returns what packs the arrays of each plugin; loaded with the first array, see `live_writer.worker_start`."""
    from ms_summary_bridge.live_writer.pack import pack_histogram, pack_image, pack_scalar, pack_tensor

    return {
        "scalar": pack_scalar,
        "histogram": pack_histogram,
        "image": pack_image,
        "tensor": pack_tensor,
        "pixels": partial(pack_image, keeps_bytes=True),  # an image of the user's own: not stretched
    }


def _landscape(tag: str, data: bytes) -> Opaque:
    message = wire.length_delimited(b"\x0a", tag.encode()) + wire.length_delimited(b"\x52", data)
    return Opaque("landscape", message)
