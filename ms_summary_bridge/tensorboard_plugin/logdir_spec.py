"""`--logdir_spec one:DIR,two:DIR`: a directory of links that TensorBoard shows the same of as a logdir.

With `--logdir_spec` TensorBoard resolves every link when it starts, so that a mirror cannot take the place of a
directory later, and it uses its slow loader alone (2.21). A directory with a link for each name has neither fault. Its
run is `one` where TensorBoard says `one/.`; runs below have the same names.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Final

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.files.links import replace_link
from ms_summary_bridge.mirror.home import cache_directory, is_below, make_private

__all__ = ["link_directories", "parse_spec"]

_NAMED: Final = re.compile(r"(?![a-zA-Z][0-9a-zA-Z.]*://)([^/:][^:]*):(.*)", re.DOTALL)


def parse_spec(spec: str) -> dict[str, str]:
    """Returns the directories by their names, as TensorBoard reads the flag.

    Raises:
        UsageError: A directory has no name, or one that no directory can have, or two have the same; or it is a URL.
    """
    found: dict[str, str] = {}
    for part in spec.split(","):
        match = _NAMED.fullmatch(part)
        if match is None:
            raise UsageError(f"{part!r} has no name: write NAME:{part}")
        name, path = match[1], match[2]
        parts = name.split("/")
        if "://" in path or {"", ".", ".."} & {*parts}:
            raise UsageError(f"{part!r} is a URL, or has a name that a directory cannot have")
        if any(f"{name}/".startswith(f"{other}/") or f"{other}/".startswith(f"{name}/") for other in found):
            raise UsageError(f"the name {name!r} is there twice, or below another")
        found[name] = os.path.realpath(os.path.expanduser(path))
    return found


def link_directories(spec: str, cache: str = "") -> str:
    """Makes the directory of links in the cache, or finds it there.

    Args:
        spec: What `--logdir_spec` says.
        cache: Directory for it; the user's cache when empty.

    Raises:
        UsageError: See `parse_spec`; or the cache lies below a directory of the spec, so that it would be shown too.
        OSError: It cannot be written (`WriteError` is one too).
    """
    found = parse_spec(spec)
    root = os.path.expanduser(cache) or cache_directory()
    for name, path in found.items():
        if is_below(root, path):
            raise UsageError(f"{root}, where converted files are kept, is below {path} ({name!r})")
    key = hashlib.blake2b(os.fsencode(repr(sorted(found.items()))), digest_size=8).hexdigest()
    top = os.path.join(os.path.abspath(root), "logdir_specs", key)
    make_private(top)
    for name, path in found.items():
        link = os.path.join(top, name)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        replace_link(link, path, os.path.dirname(top))
    return top
