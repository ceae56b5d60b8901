"""A fault of ours is one warning: it never reaches the training."""

from __future__ import annotations

import functools
import logging
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

__all__ = ["Faults", "HasFaults", "Once", "guarded"]

_LOG: Final = logging.getLogger("ms_summary_bridge")


class Once:
    """Says each thing once, and after `most` things nothing more."""

    def __init__(self, say: Callable[[str], object], most: int = 1000) -> None:
        self._say = say
        self._most = most
        self._said: set[str] = set()

    def __call__(self, kind: str, message: str = "") -> None:
        """Passes on a message, itself its kind if none is given, unless one of its kind was passed on before."""
        if kind not in self._said and len(self._said) < self._most:
            self._said.add(kind)
            self._say(message or kind)


class Faults:
    """Says once for each kind what went wrong, in the name of who speaks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.warn = Once(lambda message: _LOG.warning("%s: %s", name, message))
        """Logs (kind, message), unless one of this kind was logged before."""
        self.is_forked = False
        """Whether this is a copy in a forked child, a data worker perhaps, which is to record nothing."""
        _ALL.add(self)

    def __reduce__(self) -> tuple[type[Faults], tuple[str]]:
        """A copy says everything anew."""
        return Faults, (self._name,)

    def say(self, message: str) -> None:
        """Logs a message that is its own kind."""
        self.warn(message, message)

    def fail(self, hook: str, error: Exception) -> None:
        """Says that a hook failed."""
        self.warn(f"{hook} {type(error).__name__}", f"{hook} failed, training goes on: {error!r}")


_ALL: Final[weakref.WeakSet[Faults]] = weakref.WeakSet()


def _mark_forked() -> None:
    for faults in _ALL:
        faults.is_forked = True


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_mark_forked)


class HasFaults(Protocol):
    """What `guarded` needs of an object."""

    faults: Faults


_Hook = TypeVar("_Hook", bound=Callable[..., None])


def guarded(hook: _Hook) -> _Hook:
    """Turns an exception in a hook into one warning. In a forked child of the training the hook does nothing."""

    @functools.wraps(hook)
    def call(self: HasFaults, *arguments: Any, **options: Any) -> None:
        if self.faults.is_forked:
            return
        try:
            hook(self, *arguments, **options)
        except Exception as error:
            self.faults.fail(hook.__name__, error)

    return call  # type: ignore[return-value]
