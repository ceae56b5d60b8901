"""The writer process's first lines: nothing is loaded before it is needed.

Most of what the process costs is its start, and most of that would be modules that a run of scalars alone never uses:
numpy, OpenSSL behind hashlib, and what crc32c and msgspec load for a command line and for older Pythons.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any, Final

__all__ = ["load", "start"]

_DEFERRED: Final = ("hashlib", "numpy")
_PACKAGES: Final = ("PIL", "crc32c", "google", "msgspec", "numpy")


class _Deferred(ModuleType):
    """Stands for a module in the modules that are imported meanwhile, and becomes it when one of them uses it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)  # from now on it is as fast
        return getattr(module, name)


class _SiteFinder:
    """Is asked last for a package that is not on the module search path: an import hook of `site` may find it.

    The process starts without `site`, which takes as long as all of ours. The training hands its search path over, but
    not the hooks that packages have which are installed as a link to their source.
    """

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _PACKAGES or cls not in sys.meta_path:
            return None
        import importlib.util
        import site

        sys.meta_path.remove(cls)
        site.main()
        return importlib.util.find_spec(name)


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


def load() -> ModuleType:
    """Returns the module `live_writer.worker`, imported without what it does not need yet.

    Only the modules imported by this call get the stand-ins. Others, and pickle, find the modules themselves.
    """
    stand_ins: dict[str, Any] = {name: _Deferred(name) for name in _DEFERRED}
    stand_ins["typing_extensions"] = None  # as if not installed: msgspec then takes what it needs from typing
    stand_ins["platform"] = _Deferred("platform")
    stand_ins["platform"].system = lambda: os.uname().sysname  # all that uuid, which msgspec loads, asks of it
    stand_ins = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    if "crc32c" not in sys.modules and (crc32c := _bare_crc32c()) is not None:
        stand_ins["crc32c"] = crc32c
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module("ms_summary_bridge.live_writer.worker")
    finally:
        for name, module in stand_ins.items():
            if name in sys.modules and sys.modules[name] is module:
                del sys.modules[name]


def start(arguments: list[str]) -> None:
    """Runs the writer process, and ends it; see `live_writer.worker.main`."""
    if sys.flags.no_site:
        sys.meta_path.append(_SiteFinder)
    gc.disable()  # what is loaded stays
    main = load().main
    gc.freeze()
    gc.enable()
    main(arguments)
    os._exit(0)  # all files are closed: nothing is left to be taken down
