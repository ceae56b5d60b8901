"""The writer process's first lines: nothing is loaded before it is needed.

Most of what the process costs is its start, and most of that would be modules that a run of scalars alone never uses:
numpy, OpenSSL behind hashlib, and what `starting.light_imports` leaves out for every program.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, Final

from ms_summary_bridge.starting import light_imports

__all__ = ["load", "start"]

_DEFERRED: Final = ("hashlib", "numpy")
_PACKAGES: Final = ("PIL", "crc32c", "google", "msgspec", "numpy")


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


def load() -> ModuleType:
    """Returns the module `live_writer.worker`, imported without what it does not need yet."""
    return light_imports.load("ms_summary_bridge.live_writer.worker", deferred=_DEFERRED)


def start(arguments: list[str]) -> None:
    """Runs the writer process, and ends it; see `live_writer.worker.main`."""
    if sys.flags.no_site:
        sys.meta_path.append(_SiteFinder)
    load().main(arguments)
    os._exit(0)  # all files are closed: nothing is left to be taken down
