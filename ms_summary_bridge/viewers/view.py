"""View: opens a logdir in a viewer, and stays until it is told to end."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib import metadata
from typing import Final

import psutil

from ms_summary_bridge.convert.follow_scan import take_scan
from ms_summary_bridge.errors import BridgeError, MissingDependencyError, UnsupportedSystemError, UsageError, WriteError
from ms_summary_bridge.files.arguments import check_choice, check_number, check_path
from ms_summary_bridge.files.event_file import Path, is_url
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.mirror.home import Home, clear_directory, open_home
from ms_summary_bridge.mirror.process import MirrorProcess
from ms_summary_bridge.training.faults import Once
from ms_summary_bridge.viewers.address import choose_port, describe_tunnel, url_of
from ms_summary_bridge.viewers.environment import find_environment, make_environment
from ms_summary_bridge.viewers.program import Program

__all__ = ["MINDINSIGHT", "TENSORBOARD", "view_logdir"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
TENSORBOARD, MINDINSIGHT = "tensorboard", "mindinsight"
_NAMES: Final = {TENSORBOARD: "TensorBoard", MINDINSIGHT: "MindInsight"}
_INSTALL: Final = "pip install 'tensorboard>=2.17'"
_PORTS: Final = {TENSORBOARD: 6006, MINDINSIGHT: 8080}  # their own
_CACHE_BYTES: Final = 20_000_000_000
_OF_OURS: Final = "ms_summary_bridge: "  # how our plugin's lines in TensorBoard's log begin
# MindInsight has no option for the address it listens at. Its settings are read before its command line is.
_START_MINDINSIGHT: Final = (
    "import sys; from mindinsight.conf import settings; settings.HOST = sys.argv.pop(1); "
    "from mindinsight.utils.command import main; main()"
)


def view_logdir(
    source: Path,
    *,
    viewer: str | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    is_yes: bool = False,
    ask: Callable[[str], bool] | None = None,
    say: Callable[[str], None] = _LOG.info,
    show: Callable[[str], None] | None = None,
) -> None:
    """Opens a logdir in a viewer, follows it while it grows, and returns after a KeyboardInterrupt.

    Args:
        source: A local directory with runs of either format, at any depth; need not exist yet.
        viewer: `tensorboard` or `mindinsight`; when None, TensorBoard where it is installed.
        port: Where the viewer listens, or the next free port; its own usual one by default.
        host: The address it listens at.
        is_yes: Do not ask before MindInsight's environment is made.
        ask: Asks a person a question; None where nobody can answer.
        say: Told what goes on, from several threads; the log by default.
        show: Given the address once the viewer answers; by default it is a warning in the log, so that it is seen.

    Raises:
        UsageError: An argument cannot be so.
        BridgeError: The viewer cannot be started, or has ended.
        KeyboardInterrupt: It came before the viewer answered.
    """
    source = check_path("source", source)
    check_choice("viewer", viewer, (None, *_NAMES))
    if port is not None:
        check_number("port", port, 0, 65535)
    _check_source(source)
    if viewer is None:
        viewer = TENSORBOARD if _has_tensorboard() else MINDINSIGHT
        if viewer == MINDINSIGHT and not find_environment():
            say(f"TensorBoard is not installed; quicker than MindInsight is {_INSTALL}, and the same command again")
    environment = ""
    if viewer == MINDINSIGHT and sys.platform == "win32":  # it starts gunicorn, which needs fork
        raise UnsupportedSystemError("MindInsight itself does not run on Windows: try --with tensorboard")
    if viewer == MINDINSIGHT:
        environment = find_environment() or make_environment(is_yes=is_yes, ask=ask, say=say)
    wanted = _PORTS[viewer] if port is None else port
    free = choose_port(host, wanted)
    with ExitStack() as stack:
        if viewer == MINDINSIGHT:
            program = _start_mindinsight(stack, environment, source, host, free, say)
        else:
            program = _start_tensorboard(stack, source, host, free, say)
        name = _NAMES[viewer]
        if wanted and free != wanted:
            say(f"port {wanted} is taken; {name} gets {free}")
        say(f"starting {name}")
        if not take_scan(source):
            say(f"{source}: no runs yet; they are shown as they come")
        url = url_of(host, free)
        program.wait_until_it_answers(url, lambda secs: say(f"still starting {name} ({secs} s)"))
        try:
            if show is None:
                _LOG.warning("%s shows %s at %s until Ctrl-C", name, source, url)
            else:
                show(url)
            if tunnel := describe_tunnel(host, free):
                say(f"to see it on another machine, run there: {tunnel}\nand open http://localhost:{free}/")
            say("Ctrl-C ends")
            program.finish()
        except KeyboardInterrupt:
            return
        raise BridgeError(f"{name} has ended. Its last lines:\n{program.last_lines()}")


def _check_source(source: str) -> None:
    if is_url(source):
        raise UsageError(f"{source}: view takes a local directory; `convert {source} DIR --follow` makes one of a URL")
    if os.path.exists(source) and not os.path.isdir(source):
        raise UsageError(f"{source}: not a directory; name the one it is in")


def _has_tensorboard() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


def _start_tensorboard(stack: ExitStack, source: str, host: str, port: int, say: Callable[[str], None]) -> Program:
    if not _has_tensorboard():
        raise MissingDependencyError(f"TensorBoard is not installed: {_INSTALL}")
    # Without it, TensorBoard would show nothing of MindSpore's, and say nothing.
    if not any("ms_summary_bridge" in point.value for point in metadata.entry_points(group="tensorboard_plugins")):
        raise MissingDependencyError("TensorBoard cannot find our plugin: install this package with pip, not its path")
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", os.path.abspath(source)]
    command += ["--host", host, "--port", str(port)]

    def pass_on(line: str) -> None:
        _, found, text = line.partition(_OF_OURS)
        if found:
            say(text)

    program = Program(_NAMES[TENSORBOARD], command, on_line=pass_on)
    stack.callback(program.stop)
    return program


def _start_mindinsight(
    stack: ExitStack, environment: str, source: str, host: str, port: int, say: Callable[[str], None]
) -> Program:
    home = open_home(source, viewer=MINDINSIGHT)
    workspace = _make_workspace(home)
    stack.callback(clear_directory, workspace)
    programs = os.path.join(environment, "bin")
    # It starts `gunicorn` by its name, and keeps settings in the home directory.
    variables = {**os.environ, "PATH": programs + os.pathsep + os.environ.get("PATH", ""), "HOME": workspace}
    for name in [name for name in variables if name.startswith(("PYTHON", "MINDINSIGHT_"))]:
        del variables[name]  # settings for another Python, and those that we give below
    command = [os.path.join(programs, "python"), "-c", _START_MINDINSIGHT, f"[{host}]" if ":" in host else host]
    command += ["start", "--port", str(port), "--summary-base-dir", home.base, "--workspace", workspace]
    program = Program(_NAMES[MINDINSIGHT], command, variables)
    stack.callback(program.stop)
    stack.callback(MirrorProcess(home, MINDSPORE, _CACHE_BYTES, Once(say)).stop)
    return program


def _make_workspace(home: Home) -> str:
    """Makes the base, and a place for what MindInsight itself writes, for as long as it runs.

    Those of processes that were killed are removed: MindInsight's logs grow to gigabytes.

    Raises:
        WriteError: It cannot be written.
    """
    workspace = os.path.join(home.path, f"workspace.{os.getpid()}")
    try:
        for name in os.listdir(home.path):
            match = re.fullmatch(r"workspace\.(\d+)", name)
            if match is not None and not psutil.pid_exists(int(match[1])):
                clear_directory(os.path.join(home.path, name))
        os.makedirs(home.base, exist_ok=True)
        os.makedirs(workspace, exist_ok=True)
    except OSError as error:
        raise WriteError.of_system(error.filename or home.path, "written", error) from error
    return workspace
