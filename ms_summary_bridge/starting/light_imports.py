"""Light imports: modules of ours are loaded without what other packages load beside themselves.

Most of what a short program costs is its start, and much of that is the command line and the version of crc32c, what
msgspec loads for older Pythons, and a quarter of numpy. Only a program's first lines do this: other threads would meet
the stand-ins.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any, Final

__all__ = ["load"]

_UNUSED: Final = ("numpy.ctypeslib", "numpy.fft", "numpy.ma", "numpy.polynomial", "numpy.random")


class _Deferred(ModuleType):
    """Stands for a module in the modules that are imported meanwhile, and becomes it when one of them uses it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)  # from now on it is as fast
        return getattr(module, name)


def _bare_crc32c() -> ModuleType | None:
    """Returns the package crc32c with nothing but its function; None if it is built in another way than expected."""
    spec = PathFinder.find_spec("crc32c")
    if spec is None or spec.submodule_search_locations is None:
        return None
    package = ModuleType("crc32c")
    package.__path__ = spec.submodule_search_locations
    sys.modules["crc32c"] = package
    try:
        vars(package)["crc32c"] = importlib.import_module("crc32c._crc32c").crc32c
    except (ImportError, AttributeError):
        return None
    finally:
        del sys.modules["crc32c"]
    return package


def load(module: str, *, deferred: Iterable[str] = ()) -> ModuleType:
    """Returns a module of ours, imported without what it does not need yet.

    Only the modules imported by this call get the stand-ins. Others, and pickle, find the modules themselves.

    Args:
        module: Its full name.
        deferred: Modules that are loaded when they are used first.
    """
    names = {*deferred}
    if "numpy" not in names and "numpy" not in sys.modules:
        names.update(_UNUSED)
    stand_ins: dict[str, Any] = {name: _Deferred(name) for name in names}
    stand_ins["typing_extensions"] = None  # as if not installed: msgspec then takes what it needs from typing
    if hasattr(os, "uname"):
        stand_ins["platform"] = _Deferred("platform")
        stand_ins["platform"].system = lambda: os.uname().sysname  # all that uuid, which msgspec loads, asks of it
    stand_ins = {name: stand_in for name, stand_in in stand_ins.items() if name not in sys.modules}
    if "crc32c" not in sys.modules and (crc32c := _bare_crc32c()) is not None:
        stand_ins["crc32c"] = crc32c
    sys.modules.update(stand_ins)
    is_said = "OPENBLAS_NUM_THREADS" in os.environ
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads for matrices: nobody multiplies any
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if not is_said:
            del os.environ["OPENBLAS_NUM_THREADS"]
        gc.freeze()  # what is loaded stays
        gc.enable()
        for name, stand_in in stand_ins.items():
            if name in sys.modules and sys.modules[name] is stand_in:
                del sys.modules[name]
