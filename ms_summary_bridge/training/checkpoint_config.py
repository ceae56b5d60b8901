"""Says what MindSpore's CheckpointConfig is given and drops: it takes any keyword, and no word comes of it.

Imports mindspore. Nothing of a dropped keyword is left on the object, so it must be heard where the object is made.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import logging
import sys
from typing import Any, Final

from mindspore.train.callback import CheckpointConfig

from ms_summary_bridge.training.faults import Once

__all__ = ["hear_checkpoint_configs"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
_BEST: Final = (
    'no best checkpoint is kept. Write SaveBestCheckpoint("loss", directory="./checkpoint_dir"), of ms_summary_bridge, '
    'or with "eval/<metric>" for a metric, into callbacks; or save_best_ckpt: true into monitor_config'
)


@functools.cache
def hear_checkpoint_configs() -> None:
    """From now on each CheckpointConfig that is given a keyword which it never reads says so, once for each keyword."""
    original = CheckpointConfig.__init__
    code = getattr(inspect.unwrap(original), "__code__", None)
    if code is None:  # a MindSpore whose code cannot be looked at
        return
    named = [*inspect.signature(original).parameters][1:]
    # A keyword that is read out of **kwargs stands as a text in the code, whatever the version of MindSpore.
    known = {*named, *(text for text in code.co_consts if isinstance(text, str))}
    say = Once(_LOG.warning)

    @functools.wraps(original)
    def hear(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        for name in options.keys() - known:
            with contextlib.suppress(Exception):  # a word too few costs no training
                caller = sys._getframe(1)
                place = f"{caller.f_code.co_filename}, line {caller.f_lineno}"
                _say(say, name, options[name], named, place)

    CheckpointConfig.__init__ = hear


def _say(say: Once, name: str, value: Any, named: list[str], place: str) -> None:
    if "best" not in name:
        close = difflib.get_close_matches(name, named, n=1)
        text = f"write {close[0]}" if close else "see its own documentation for those that it has"
    elif value:
        text = _BEST
    else:
        return  # what is not wanted is not missed
    say(name, f"CheckpointConfig({name}={value!r}) in {place}: MindSpore has no such argument and drops it: {text}")
