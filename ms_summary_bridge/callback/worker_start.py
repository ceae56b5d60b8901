"""The writer process's first lines: numpy is not loaded before it is needed.

Layer: callback.worker < **callback.worker_start**.

Most of what the process costs is its start, half of that is numpy, and a run that records scalars alone never needs it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__all__ = ["load", "start"]


class _DeferredNumpy(ModuleType):
    """Stands for numpy in the modules that are imported meanwhile, and becomes it when one of them uses it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get("numpy") is self:
            del sys.modules["numpy"]
        numpy = importlib.import_module("numpy")
        self.__dict__.update(numpy.__dict__)  # from now on it is as fast
        return getattr(numpy, name)


def load() -> ModuleType:
    """Returns the module `callback.worker`, imported without numpy.

    Only the modules imported by this call get the stand-in. Others, and pickle, find and import numpy itself.
    """
    if "numpy" in sys.modules:
        return importlib.import_module("ms_summary_bridge.callback.worker")
    stand_in = sys.modules["numpy"] = _DeferredNumpy("numpy")
    try:
        return importlib.import_module("ms_summary_bridge.callback.worker")
    finally:
        if sys.modules.get("numpy") is stand_in:
            del sys.modules["numpy"]


def start(arguments: list[str]) -> int:
    """Runs the writer process; see `callback.worker.main`."""
    return int(load().main(arguments))
