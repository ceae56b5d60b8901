"""The plugin's loader: gives TensorBoard the mirror of its logdir, before it reads anything, and our dashboard.

TensorBoard calls its loaders without a net, so each call here ends in a warning at worst. The calls come in this order
(TensorBoard 2.17 to 2.21): `define_flags`, `fix_flags` before a reader starts, `load` after it has started and before
the server answers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from tensorboard.data import provider
from tensorboard.plugins import base_plugin
from tensorboard.util import tb_logging

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.training.faults import Once

if TYPE_CHECKING:
    import argparse

    from ms_summary_bridge.mirror.home import Home

__all__ = ["MindSporeLoader"]

_CACHE_GB: Final = 20.0
_MOST_WARNINGS: Final = 100
_NOT_FOR_US: Final = ("inspect", "version_tb", "db", "grpc_data_provider")
"""Flags with which TensorBoard reads no logdir, or is gone at once."""


class MindSporeLoader(base_plugin.TBLoader):
    """Shows MindSpore's runs below the logdir in TensorBoard's dashboards, and in one of our own."""

    def __init__(self) -> None:
        self._home: Home | None = None
        self._logdir = ""

    def define_flags(self, parser: argparse.ArgumentParser) -> None:
        """Adds our flags to `tensorboard --help`."""
        try:
            group = parser.add_argument_group("MindSpore")
            group.add_argument(
                "--mindspore",
                choices=["auto", "off"],
                default="auto",
                help="auto: show MindSpore summary directories below --logdir, those that appear later too. off: do "
                "nothing. (default: %(default)s)",
            )
            group.add_argument(
                "--mindspore_cache_dir",
                metavar="PATH",
                default="",
                help="where what they are converted to is kept (default: the user's cache directory)",
            )
            group.add_argument(
                "--mindspore_cache_gb",
                metavar="GB",
                type=float,
                default=_CACHE_GB,
                help="how much of it is kept, the newest runs first (default: %(default)s)",
            )
        except Exception as error:
            _warn(f"MindSpore's runs are not shown: {error}")

    def fix_flags(self, flags: argparse.Namespace) -> None:
        """Puts the mirror in the place of the logdir, or of what `--logdir_spec` names, where it can be made."""
        try:
            from ms_summary_bridge.mirror.home import open_home

            cache = flags.mindspore_cache_dir
            if _is_for_us(flags):
                self._logdir = os.fspath(flags.logdir)
                self._home = open_home(self._logdir, cache)
            elif _is_for_us(flags, "logdir_spec"):
                from ms_summary_bridge.tensorboard_plugin.logdir_spec import link_directories

                self._logdir = flags.logdir_spec
                self._home = open_home(link_directories(self._logdir, cache), cache)
                flags.logdir_spec = ""
            if self._home is not None:
                flags.logdir = self._home.logdir
        except UsageError as error:
            _warn(
                f"MindSpore's runs are not shown: --logdir_spec: {error}. Or make a directory with links to all of "
                "them, and give it as --logdir"
            )
        except Exception as error:
            _warn(f"MindSpore's runs are not shown: {error}")

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        """Starts what keeps the mirror up to date, and returns the dashboard."""
        if self._home is None:
            return None
        try:
            from ms_summary_bridge.files.file_names import TENSORBOARD
            from ms_summary_bridge.mirror.process import MirrorProcess

            limit = int(max(0.0, min(context.flags.mindspore_cache_gb, 1e9)) * 1e9)  # no number is none
            MirrorProcess(self._home, TENSORBOARD, limit, _warn)
            _name_logdir(context, self._logdir)
        except Exception as error:
            _warn(f"MindSpore's runs are not followed: {error}")
        try:
            from ms_summary_bridge.tensorboard_plugin.plugin import MindSporePlugin

            return MindSporePlugin(self._home.source, Once(_warn, _MOST_WARNINGS))  # a page asks again and again
        except Exception as error:
            _warn(f"the MindSpore page is not shown: {error}")
            return None


def _is_for_us(flags: argparse.Namespace, flag: str = "logdir") -> bool:
    """Whether TensorBoard will read local directories that this flag names; they may not exist yet."""
    if getattr(flags, "mindspore", "off") != "auto":
        return False
    if not getattr(flags, flag, "") or any(getattr(flags, name, None) for name in _NOT_FOR_US):
        return False
    if flag == "logdir_spec":
        return not flags.logdir
    logdir = os.path.expanduser(os.fspath(flags.logdir))
    return "://" not in logdir and not os.path.isfile(logdir)


def _name_logdir(context: base_plugin.TBContext, logdir: str) -> None:
    """Lets TensorBoard speak of the logdir by its own name: on its pages, and in the list of running instances."""
    context.flags.logdir = logdir
    data = context.data_provider
    describe = data.experiment_metadata

    def describe_logdir(*arguments: Any, **options: Any) -> Any:
        metadata = describe(*arguments, **options)
        return provider.ExperimentMetadata(
            data_location=logdir,
            experiment_name=metadata.experiment_name,
            experiment_description=metadata.experiment_description,
            creation_time=metadata.creation_time,
        )

    data.experiment_metadata = describe_logdir


def _warn(text: str) -> None:
    tb_logging.get_logger().warning("ms_summary_bridge: %s", text)
