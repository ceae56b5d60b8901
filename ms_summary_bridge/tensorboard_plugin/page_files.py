"""The files of the page: its modules, its style, and the parts of others that ship with it.

Imports no tensorboard.

TensorBoard allows scripts and styles of its own address alone (TensorBoard 2.21, `plugin_entry.html`), so all of them
are served below `data/plugin/mindspore/`, under the names they have in `static/`.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["content_type_of", "page_files"]

_DIRECTORY: Final = os.path.join(os.path.dirname(__file__), "static")
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".LICENSE": "text/plain"}


def page_files() -> dict[str, str]:
    """Returns the file that answers each path below the plugin: `/index.js`, `/vendor/uplot.js`, ..."""
    found = {}
    for directory, _, names in os.walk(_DIRECTORY):
        for name in names:
            if os.path.splitext(name)[1] in _TYPES:
                path = os.path.join(directory, name)
                found["/" + os.path.relpath(path, _DIRECTORY).replace(os.sep, "/")] = path
    return found


def content_type_of(path: str) -> str:
    """Returns the content type of one of them."""
    return _TYPES[os.path.splitext(path)[1]]
