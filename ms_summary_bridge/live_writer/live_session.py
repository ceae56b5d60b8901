"""The HParams session of a live run, from the lineage that MindSpore collects.

Runs in the writer process.

TensorBoard counts the first start of a run's session and its first end, so the start waits until the first step has
told the hyperparameters, and the end for the end of the training. What is not known at the first step (the checkpoint,
the data set of an evaluation) is in the lineage file, and `convert` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ms_summary_bridge.formats import wire

__all__ = ["LINEAGE_KEYS", "LiveSession"]

LINEAGE_KEYS: Final = {
    "train_lineage": b"\x32",
    "eval_lineage": b"\x3a",
    "dataset_graph": b"\x4a",
    "custom_lineage_data": b"\x52",
}
"""What MindSpore's writer calls the records of a lineage file, and the keys of their fields."""
_KINDS: Final = {
    "train_lineage": "train_lineage",
    "eval_lineage": "evaluation_lineage",
    "custom_lineage_data": "user_defined_info",
}


class LiveSession:
    """One session of a run that began at `begin`; `write` takes the payload of a TensorBoard event."""

    def __init__(self, begin: float, write: Callable[[bytes], None]) -> None:
        self._begin = begin
        self._write = write
        self._records: dict[str, bytes] = {}
        self._train_lineage: bytes | None = None
        self._has_start = False

    def start(self, wall_time: float, train_lineage: bytes) -> None:
        """Starts the session with the lineage of a training as its first step tells it."""
        self._train_lineage = train_lineage
        self._write_start(self._records | {"train_lineage": _payload("train_lineage", wall_time, train_lineage)})

    def note(self, plugin: str, payload: bytes, taken: Mapping[str, str]) -> None:
        """Takes note of a record of the lineage file; that of a training or an evaluation ends the session.

        `plugin` is one of `LINEAGE_KEYS`; `taken` has the names of the run's series, with their kinds.
        """
        if plugin not in _KINDS:
            return
        self._records[_KINDS[plugin]] = payload
        if plugin == "custom_lineage_data":
            return
        from ms_summary_bridge.formats.sessions import hparams, lineage

        self._write_start(self._records)
        end = hparams.encode_session_end(lineage.read_lineage(self._records, [self._begin]), taken)
        if end is not None:
            self._write(end)

    def fail(self, wall_time: float) -> bytes | None:
        """Returns the lineage record of a training that ends before its end; None if it had no first step."""
        if self._train_lineage is None:
            return None
        from ms_summary_bridge.formats.sessions import lineage

        return _payload("train_lineage", wall_time, lineage.failed_training(self._train_lineage))

    def close(self) -> None:
        """Starts a session of which only the user's own values are known: the rest is not collected."""
        if self._records:
            self._write_start(self._records)

    def _write_start(self, records: dict[str, bytes]) -> None:
        if self._has_start:
            return
        from ms_summary_bridge.formats.sessions import hparams, lineage

        session = lineage.read_lineage(records, [self._begin])
        if not session.is_empty:
            self._has_start = True
            self._write(hparams.encode_session_start(session))


def _payload(plugin: str, wall_time: float, data: bytes) -> bytes:
    return wire.fixed64(b"\x09", wall_time) + wire.length_delimited(LINEAGE_KEYS[plugin], data)
