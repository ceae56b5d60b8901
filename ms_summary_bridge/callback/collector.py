"""The seam to MindSpore: its SummaryCollector, with the writer behind it replaced by ours.

Imports mindspore when used.

SummaryCollector knows how to find graph, data set, input, lineage and the summary operators' tensors. What it collects
goes to a SummaryRecord, which hands one dict for each step to a `WriterPool`, a forked process that polls without
pause. Here the record gets a stand-in that only notes what it was handed. The names that this needs have been the same
in MindSpore 2.0 to 2.10; `has_seam` says whether they are there.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable
from importlib import metadata
from typing import Any, Final

__all__ = ["Collected", "WriterlessCollector", "has_seam", "quiet_learning_rate", "without_training"]

_METHODS: Final = (
    "_collect_graphs",
    "_collect_dataset_graph",
    "_collect_input_data",
    "_collect_train_lineage",
    "_collect_eval_lineage",
    "_get_tensor_collect_range",
    "_package_custom_lineage_data",
    "_save_model_params_for_landscape",
    "_save_metadata",
)
_NETWORK: Final = "_ms_summary_bridge_network"  # on a collector: the network of its last training
_PATCH_LOCK: Final = threading.Lock()

Collected = dict[str, list[dict[str, Any]]]


def has_seam() -> bool:
    """Whether this MindSpore has the internals that `WriterlessCollector` needs."""
    try:
        from mindspore.train.callback import SummaryCollector
        from mindspore.train.summary import summary_record
    except ImportError:
        return False
    record = getattr(summary_record, "SummaryRecord", None)
    return (
        hasattr(summary_record, "WriterPool")
        and all(hasattr(SummaryCollector, name) for name in _METHODS)
        and all(hasattr(record, name) for name in ("add_value", "record", "set_mode", "close", "count"))
    )


def without_training(collector: Any) -> Any:
    """Returns a copy of a SummaryCollector that has seen no training, and so can go to another process."""
    clean = copy.copy(collector)
    clean._record = clean._temp_optimizer = None
    clean._has_saved_graph = clean._has_saved_custom_data = False
    vars(clean).pop(_NETWORK, None)
    return clean


def quiet_learning_rate(collector: Any) -> None:
    """Keeps a SummaryCollector from saying that a learning rate which changes is not recorded, where the bridge does.

    The lineage, which has room for one rate, lacks it as before.
    """
    collector._get_learning_rate = _fixed_rate


def _fixed_rate(optimizer: Any) -> Any:
    from mindspore import Parameter

    rate = optimizer.learning_rate
    return rate.data if isinstance(rate, Parameter) else None


class _StandIn:
    """Takes the place of MindSpore's WriterPool in one record."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.collected: Collected = {}

    def write(self, data: Collected) -> None:
        for plugin, items in data.items():
            self.collected.setdefault(plugin, []).extend(items)

    def flush(self) -> None:
        pass

    close = join = flush


class _Catcher:
    """Takes the place of a record while one value is collected."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        self.values.append(value)


class WriterlessCollector:
    """One SummaryCollector without its writer process. What it cannot collect is told once for each part."""

    def __init__(self, collector: Any, warn: Callable[[str, str], None]) -> None:
        self.collector = collector
        self._warn = warn
        self._landscape = collector._collect_specified_data.get("collect_landscape")
        self._stand_in: _StandIn | None = None
        self._failed: set[str] = set()

    def open(self, mode: str, *, is_sink: bool) -> None:
        """Begins a session in mode `train` or `eval`; raises RuntimeError where another SummaryRecord is open."""
        from mindspore.train.summary import summary_record

        with _PATCH_LOCK:
            pool = summary_record.WriterPool
            summary_record.WriterPool = _StandIn
            try:
                self.collector.__enter__()
            finally:
                summary_record.WriterPool = pool
        record = self.collector._record
        self._stand_in = record._event_writer
        record.set_mode(mode)
        self.collector._dataset_sink_mode = is_sink

    def close(self) -> None:
        """Ends the session: gives MindSpore's count of open records back, and lets go of the optimizer."""
        if self._stand_in is not None:
            self._stand_in = None
            self.collector._record.close()
            self.collector._temp_optimizer = None  # with all parameters of the network; it is found again

    def take(self) -> Collected:
        """Returns what was collected since the last call, by plugin."""
        if self._stand_in is None:
            return {}
        collected, self._stand_in.collected = self._stand_in.collected, {}
        return collected

    def begin_train(self, parameters: Any) -> None:
        """Collects what is collected once, at the first step: graph, data set, the user's own lineage.

        The hyperparameters, too: they are in the lineage of a training, which MindSpore collects at its end.
        """
        collector = self.collector
        last: weakref.ref[Any] | None = getattr(collector, _NETWORK, None)
        network = parameters.train_network
        if last is not None and last() is not network:  # another model: what was found of the first one is void
            collector._has_saved_graph, collector._temp_optimizer = False, None
        setattr(collector, _NETWORK, weakref.ref(network))
        if not collector._has_saved_graph:
            self._try("graph", lambda: collector._collect_graphs(parameters))
            self._try("dataset_graph", lambda: collector._collect_dataset_graph(parameters))
            collector._has_saved_graph = True
        data = collector._custom_lineage_data
        if data and not collector._has_saved_custom_data:
            name = "custom_lineage_data"
            package = collector._package_custom_lineage_data
            self._try(name, lambda: collector._record.add_value(name, name, package(data)))
            collector._has_saved_custom_data = True

        self._try("hyperparameters", lambda: self._collect_hyperparameters(parameters))

    def _collect_hyperparameters(self, parameters: Any) -> None:
        """Collects the training's lineage as its first step tells it, apart from what goes into the lineage file."""
        collector = self.collector
        record, catcher = collector._record, _Catcher()
        collector._record = catcher
        try:
            collector._collect_train_lineage(parameters)
        finally:
            collector._record = record
        if self._stand_in is not None and catcher.values:
            self._stand_in.write({"hyperparameters": [{"value": catcher.values[-1].SerializeToString()}]})

    def tensor_steps(self, parameters: Any) -> range:
        """Returns the steps at which tensors are collected: `collect_tensor_freq`, or about 20 over the training."""
        steps: range = self.collector._get_tensor_collect_range(parameters, False)
        return steps

    def collect_step(self, parameters: Any, keeps: Callable[[str], bool] | None) -> None:
        """Collects the input and what the summary operators left; `keeps` chooses plugins, None means all."""
        self._try("input data", lambda: self.collector._collect_input_data(parameters))
        self._try(
            "summary operators",
            lambda: self.collector._record.record(int(parameters.cur_step_num), plugin_filter=keeps),
        )

    def save_landscape_checkpoint(self, parameters: Any, unit: str) -> None:
        """Saves a checkpoint for the loss landscape if one was asked for at this step or epoch."""
        landscape = self._landscape
        if not landscape or landscape.get("unit", "step") != unit:
            return
        number = parameters.cur_step_num if unit == "step" else parameters.cur_epoch_num
        if any(number in interval for interval in landscape.get("intervals") or ()):
            self._try("landscape", lambda: self.collector._save_model_params_for_landscape(parameters))

    def end(self, parameters: Any, mode: str) -> None:
        """Collects the lineage of a training or an evaluation."""
        collector = self.collector
        collect = collector._collect_train_lineage if mode == "train" else collector._collect_eval_lineage
        self._try(f"{mode}_lineage", lambda: collect(parameters))
        collector._record.set_mode("eval")  # the summary operators' tensors belong to no step any more
        self._try("lineage", lambda: collector._record.record(step=0))
        landscape = self._landscape
        if mode == "train" and landscape:
            size, samples = landscape.get("landscape_size", 40), landscape.get("num_samples", 2048)
            create = landscape.get("create_landscape", {"train": True, "result": True})
            unit = landscape.get("unit", "step")
            self._try("landscape", lambda: collector._save_metadata(parameters.batch_num, unit, samples, size, create))

    def _try(self, part: str, collect: Callable[[], Any]) -> None:
        """Collects one part; a part that fails is left out from then on, with one warning."""
        if part in self._failed:
            return
        try:
            collect()
        except Exception as error:  # whatever MindSpore raises here must not end the training
            self._failed.add(part)
            self._warn(f"collect {part}", f"{part} cannot be collected and is left out: {error!r}{_cure_of(error)}")


def _cure_of(error: Exception) -> str:
    """Says what to install where MindSpore up to 2.9 meets a protobuf it was not made for.

    It assigns to an item of what it takes for a map, and gets a TypeError: at the data set's graph, and at the user's
    own lineage (measured on 2.7, 2.8 and 2.9 with protobuf 7.36, the one that pip takes for them).
    """
    import mindspore

    with contextlib.suppress(ValueError, metadata.PackageNotFoundError):  # a version that is not one
        version = metadata.version("protobuf")
        is_old = tuple(map(int, mindspore.__version__.split(".")[:2])) < (2, 10)
        if is_old and isinstance(error, TypeError) and int(version.split(".")[0]) > 3:
            return f"; this MindSpore needs protobuf 3.20.3, and {version} is installed: pip install 'protobuf==3.20.3'"
    return ""
