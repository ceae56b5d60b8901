"""Makes the callbacks that one `monitor_config` section asks for.

Loads mindspore when it makes a callback.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

from ms_summary_bridge.errors import UsageError, load_name
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.sinks.backends import require_backends, summary_directory
from ms_summary_bridge.monitor.sinks.run_record import choose_run_directory
from ms_summary_bridge.training.distributed import find_process_rank

__all__ = ["build_monitor_callbacks", "register_callback"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
_BUILT_IN: Final = "MindSporeTransformersMonitor"

_REGISTERED: dict[str, type[Any]] = {}

if hasattr(sys.modules.get("mindspore"), "train"):  # its CheckpointConfig comes before our callbacks
    import_module("ms_summary_bridge.training.checkpoint_config").hear_checkpoint_configs()

_Class = TypeVar("_Class", bound=type[Any])


def register_callback(name: str) -> Callable[[_Class], _Class]:
    """Makes a class known under a name that `callback.type` may hold.

    Raises:
        UsageError: The name is taken.

    Example:
        `@register_callback("MyMonitor")` above a callback class that takes the section as a dict.
    """

    def register(callback: _Class) -> _Class:
        if name == _BUILT_IN or _REGISTERED.get(name, callback) is not callback:
            raise UsageError(f"a callback {name!r} exists already")
        _REGISTERED[name] = callback
        return callback

    return register


def build_monitor_callbacks(
    config: str | os.PathLike[str] | Mapping[str, Any] | bool | MonitorConfig, *, overrides: Sequence[str] = ()
) -> list[Any]:
    """Returns the callbacks for `Model.train`.

    The bridge where a viewer is among the backends, one that saves checkpoints where they are asked for, the monitor.

    Args:
        config: Path of a YAML file, or a dict: a whole file with `monitor_config` among its keys, or the section alone.
            True for all defaults.
        overrides: `a.b=value`, paths relative to the section, values as YAML.

    Raises:
        ConfigError: Names every problem.
        UsageError: `callback.type` names no class.
        MissingDependencyError: MindSpore, or what a backend needs, is not installed.

    Example:
        `model.train(10, dataset, callbacks=build_monitor_callbacks("train.yaml"))`
    """
    if not isinstance(config, MonitorConfig):
        config = load_config(config, overrides=overrides)
    if not config.enable:
        _LOG.warning("the monitor is switched off by `enable: false` in %s", config.source)
        return []
    require_backends(config)
    if config.callback.type != _BUILT_IN:
        return [_find_class(config.callback.type)(dict(config.raw))]

    monitor = load_name("ms_summary_bridge.monitor.callback", _BUILT_IN, needs_mindspore=True)(config)
    has_viewer = bool({"tensorboard", "mindinsight"} & set(config.backends))
    saves = config.save_best_ckpt or config.save_checkpoint_steps is not None or config.save_epochs is not None
    callbacks: list[Any] = [monitor]
    if not has_viewer and not saves:
        return callbacks
    directory = choose_run_directory(config, find_process_rank())
    monitor.run_directory = directory
    if saves:
        from ms_summary_bridge.monitor.checkpoints.best_checkpoint import SaveBestCheckpoint

        # Before the monitor, whose journal ends with the training, and so with the last checkpoint in it.
        checkpoints = SaveBestCheckpoint(
            directory=os.path.join(directory, "checkpoints"),
            save_checkpoint_steps=config.save_checkpoint_steps,
            save_epochs=config.save_epochs,
            keep_checkpoint_max=config.keep_checkpoint_max,
            save_best_ckpt=config.save_best_ckpt,
        )
        callbacks.insert(0, checkpoints)
    if has_viewer:
        from ms_summary_bridge.callback.bridge import SummaryBridge

        arguments = {"summary_dir": summary_directory(directory), **config.bridge}
        callbacks.insert(0, SummaryBridge(**arguments))
    return callbacks


def _find_class(name: str) -> Any:
    if name in _REGISTERED:
        return _REGISTERED[name]
    module, colon, class_name = name.partition(":")
    if not colon:
        names = ", ".join(sorted({_BUILT_IN, *_REGISTERED}))
        raise UsageError(
            f"callback.type: no class {name!r} is registered (registered: {names}); "
            "register_callback makes one known, or write package.module:Class"
        )
    try:
        return getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"callback.type: {name!r} cannot be loaded: {error}") from error
