"""The names that the hooks of a callback had before MindSpore 2: `step_end` for `on_train_step_end`, and so on.

Loops that drive a callback by hand still call these, and published sub-classes of SummaryCollector still override them.
MindSpore itself calls `on_train_step_end`, which of its own callbacks calls `step_end`. Its `Model.fit` refuses a class
that has the old names itself, as measured on 2.10, and so they are in a base class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

__all__ = ["HookNames"]

_OLD: Final = ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end")


def _old_name(old: str) -> Callable[[HookNames, Any], None]:
    def hook(self: HookNames, run_context: Any) -> None:
        self._by_old_name(old, run_context)

    hook.__doc__ = f"As `on_train_{old}`, or `on_eval_{old}` in an evaluation."
    return hook


def _override_in_evaluation(old: str) -> Callable[[HookNames, Any], None]:
    def hook(self: HookNames, run_context: Any) -> None:
        self._is_done_by_old_name("eval", old, run_context)

    hook.__doc__ = "Does nothing, but for a subclass that has the old name."
    return hook


class HookNames:
    """The old names, for a callback with the new ones: it comes before MindSpore's `Callback` among the bases.

    Called by a loop, each is the hook of a training, or of an evaluation where MindSpore's parameters say that mode.
    Where a subclass has an override, the hook calls it, and its call of `super()` does what the hook does.
    """

    _overridden: ClassVar[frozenset[str]] = frozenset()
    _recording: ClassVar[type]
    _mode_of_hook = ""
    """While a hook runs through its old name: `train` or `eval`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if HookNames in cls.__bases__:
            cls._recording = cls
        cls._overridden = frozenset(old for old in _OLD if getattr(cls, old) is not getattr(HookNames, old))

    def _is_done_by_old_name(self, mode: str, old: str, run_context: Any) -> bool:
        """Calls the override of an old name; returns whether there is one, and this is not its call of `super()`."""
        if old not in self._overridden or self._mode_of_hook:
            return False
        self._mode_of_hook = mode
        try:
            getattr(self, old)(run_context)
        finally:
            self._mode_of_hook = ""
        return True

    def _by_old_name(self, old: str, run_context: Any) -> None:
        if self._mode_of_hook:  # an override calls `super()`, and the hook has called the override
            getattr(self._recording, f"on_{self._mode_of_hook}_{old}")(self, run_context)
            return
        self._mode_of_hook = "eval" if run_context.original_args().get("mode") == "eval" else "train"
        try:
            getattr(self, f"on_{self._mode_of_hook}_{old}")(run_context)
        finally:
            self._mode_of_hook = ""

    begin = _old_name("begin")
    epoch_begin = _old_name("epoch_begin")
    step_begin = _old_name("step_begin")
    step_end = _old_name("step_end")
    epoch_end = _old_name("epoch_end")
    end = _old_name("end")

    # Of an evaluation only the beginning and the end are recorded. MindSpore's own would call the old names.
    on_eval_epoch_begin = _override_in_evaluation("epoch_begin")
    on_eval_step_begin = _override_in_evaluation("step_begin")
    on_eval_step_end = _override_in_evaluation("step_end")
    on_eval_epoch_end = _override_in_evaluation("epoch_end")
