"""Environment: where MindInsight is installed, with the versions it still works with, and how that is made.

MindInsight cannot be installed beside MindSpore any more. What it needs is in `mindinsight.txt` beside this module.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ms_summary_bridge.errors import BridgeError, UsageError
from ms_summary_bridge.files.atomic import take_lock
from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.mirror.home import user_directory
from ms_summary_bridge.viewers.program import Program

__all__ = ["PINS", "find_environment", "make_environment"]

PINS: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mindinsight.txt")
_CHECKOUT: Final = os.path.dirname(os.path.dirname(os.path.dirname(PINS)))
# NumPy 1.26, which MindInsight needs, has packages for no others.
_IS_SUITABLE: Final = "import ensurepip, sys, venv; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 12))"
_NAMES: Final = ("python3", "python", "python3.11", "python3.12", "python3.10", "python3.9")
_SIZE: Final = "about 100 MB to download and 500 MB of disk"
_TRY_SECS: Final = 30.0
_STAMP: Final = ".stamp"


def _own_path() -> str:
    return os.path.join(user_directory("XDG_DATA_HOME", "~/.local/share"), "ms_summary_bridge", "mindinsight")


def find_environment() -> str:
    """Returns the directory of an environment with MindInsight that is whole; empty where there is none.

    Those that `tools/environment mindinsight` makes are used too: in `$MSB_VENVS`, or in the checkout.
    """
    made_by_tools = [os.environ.get("MSB_VENVS", ""), os.path.join(_CHECKOUT, ".venvs")]
    for root in filter(None, made_by_tools):
        path = os.path.join(os.path.abspath(root), "mindinsight")
        if _has_programs(path) and (Path(path) / _STAMP).exists():
            return path
    own = _own_path()
    with contextlib.suppress(OSError):  # it has no stamp
        if _has_programs(own) and (Path(own) / _STAMP).read_bytes() == _stamp_of(own):
            return own
    return ""


def _has_programs(path: str) -> bool:
    return all(os.access(os.path.join(path, "bin", name), os.X_OK) for name in ("python", "gunicorn", "mindinsight"))


def _stamp_of(path: str) -> bytes:
    """Returns what the stamp of a whole environment says: its own path, which is written into it, and what went in."""
    return f"{path} {hashlib.sha256(Path(PINS).read_bytes()).hexdigest()}\n".encode()


def make_environment(*, is_yes: bool, ask: Callable[[str], bool] | None, say: Callable[[str], None]) -> str:
    """Makes the environment in the user's data directory, after a person was asked if not `is_yes`; returns it.

    Raises:
        UsageError: Nobody can be asked.
        BridgeError: The answer was no, no Python for it was found, or it cannot be installed.
    """
    path = _own_path()
    what = f"MindInsight needs an environment of its own, {_SIZE}, in {path}."
    if not is_yes:
        if ask is None:
            raise UsageError(f"{what} Without a terminal nobody can be asked: add --yes to have it made")
        if not ask(f"{what} Make it now?"):
            raise BridgeError("MindInsight's environment was not made; --with tensorboard does without")
    python = _find_python()
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with _locked(f"{path}.lock", say):
            if not find_environment():
                _install(python, path, say)
    except OSError as error:
        raise BridgeError(f"{error.filename or path}: {error.strerror or error}") from error
    return find_environment() or path


def _find_python() -> str:
    """Returns a Python that MindInsight works with. A shim may be on PATH and yet refuse to run, so each is tried."""
    named = os.environ.get("MSB_PYTHON", "")
    if named:
        if _is_suitable(named):
            return named
        raise BridgeError(f"MSB_PYTHON={named}: not a Python 3.9 to 3.12 with the modules venv and ensurepip")
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    candidates = [sys.executable, *filter(None, map(shutil.which, _NAMES))]
    for minor in (11, 12, 10, 9):
        candidates += glob.glob(os.path.join(pyenv, "versions", f"3.{minor}.*", "bin", "python"))
    for candidate in candidates:
        if _is_suitable(candidate):
            return candidate
    raise BridgeError(
        "MindInsight needs a Python 3.9 to 3.12 with the modules venv and ensurepip, and none was found: install one "
        "(on Debian and Ubuntu together with python3-venv), or name it in the environment variable MSB_PYTHON"
    )


def _is_suitable(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", _IS_SUITABLE], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_SECS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@contextlib.contextmanager
def _locked(path: str, say: Callable[[str], None]) -> Iterator[None]:
    """Lets one process at a time make the environment."""
    handle = take_lock(path)
    if handle is None:
        say("waiting for another process that makes MindInsight's environment")
        handle = wait_for(lambda: take_lock(path), 0.5)
        assert handle is not None  # without an end to the waiting
    try:
        yield
    finally:
        os.close(handle)


def _install(python: str, path: str, say: Callable[[str], None]) -> None:
    """Installs MindInsight; what a killed attempt left behind is replaced."""
    say(f"installing MindInsight into {path} ({_SIZE})")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    own_python = os.path.join(path, "bin", "python")
    pip = [own_python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--requirement", PINS]
    began = time.monotonic()
    for command in ([python, "-m", "venv", "--clear", path], pip):
        program = Program("the installation of MindInsight", command, environment)
        try:
            code = program.finish(lambda _: say(f"still installing MindInsight ({time.monotonic() - began:.0f} s)"))
        finally:
            program.stop()
        if code:
            raise BridgeError(
                f"MindInsight could not be installed: {' '.join(command[:4])} ended with {code}. Its last lines:\n"
                f"{program.last_lines()}\nThe same command tries again; to use another Python, name it in MSB_PYTHON."
            )
    (Path(path) / _STAMP).write_bytes(_stamp_of(path))
    say("MindInsight is installed")
