"""What `import ms_summary_bridge` gives, with MindSpore and without it, and to a type checker."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ms_summary_bridge
from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.monitor.build import build_monitor_callbacks
from ms_summary_bridge.monitor.loop import Monitor
from ms_summary_bridge.viewers.view import view_logdir
from tests.mindspore_run import scalars, write_summary

ROOT = Path(__file__).resolve().parents[2]
CALLBACKS = {"GradientSummary", "SaveBestCheckpoint", "SummaryBridge"}

# In a process of its own, since a module that was looked for stays found. MindSpore is hidden where it is installed.
WITHOUT_MINDSPORE = "import sys; sys.modules['mindspore'] = None\n"


def run_python(text: str, *, hide: bool) -> str:
    """Runs a program in a fresh process, without MindSpore if it is to be hidden, and returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", (WITHOUT_MINDSPORE if hide else "") + text],
        capture_output=True, text=True, timeout=240, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_names_people_expect_are_at_the_top() -> None:
    assert ms_summary_bridge.Monitor is Monitor
    assert ms_summary_bridge.build_monitor_callbacks is build_monitor_callbacks
    assert ms_summary_bridge.follow_logdir is follow_logdir
    assert ms_summary_bridge.view is view_logdir


def test_follow_needs_two_directories_alone(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", scalars("loss", range(1, 4)))
    waits: list[float] = []

    def wait(secs: float) -> None:
        waits.append(secs)
        if len(waits) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow_logdir(str(tmp_path / "run"), str(tmp_path / "converted"), wait=wait)
    assert waits == [0.5, 1.0]
    assert list((tmp_path / "converted").glob("*tfevents*"))


@pytest.mark.tensorboard
def test_view_needs_a_directory_alone_and_the_log_tells_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ended:
        """A viewer that answers, and has ended then."""

        def __init__(self, *_: Any, **__: Any) -> None: ...
        def wait_until_it_answers(self, *_: Any) -> None: ...
        def stop(self) -> None: ...
        def finish(self) -> int:
            return 0

        def last_lines(self) -> str:
            return "goodbye"

    monkeypatch.setattr("ms_summary_bridge.viewers.view.Program", Ended)
    with pytest.raises(BridgeError, match="goodbye"):
        ms_summary_bridge.view(str(tmp_path))
    (record,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert re.fullmatch(rf"TensorBoard shows {tmp_path} at http://127\.0\.0\.1:\d+/ until Ctrl-C", record.getMessage())


LISTS = """
import {0} as package
before = package.__all__
from {0} import *
print(*sorted(name for name in before if name not in globals()))
print(*before)
print(*dir(package))
"""


def test_star_import_gives_all_but_the_callbacks_without_mindspore() -> None:
    missing, shown, listed = run_python(LISTS.format("ms_summary_bridge"), hide=True).splitlines()
    assert missing == ""
    assert sorted(shown.split()) == listed.split()  # dir() sorts
    assert set(shown.split()) == set(ms_summary_bridge.__all__) - CALLBACKS
    assert len(shown.split()) == 43


@pytest.mark.mindspore
def test_star_import_gives_all_with_mindspore() -> None:
    missing, shown, _ = run_python(LISTS.format("ms_summary_bridge"), hide=False).splitlines()
    assert missing == ""
    assert set(shown.split()) >= CALLBACKS
    assert len(shown.split()) == 46


@pytest.mark.parametrize("hide", [True, pytest.param(False, marks=pytest.mark.mindspore)])
def test_star_import_of_the_monitor(hide: bool) -> None:
    missing, shown, listed = run_python(LISTS.format("ms_summary_bridge.monitor"), hide=hide).splitlines()
    assert missing == ""
    assert sorted(shown.split()) == listed.split()
    assert ("MindSporeTransformersMonitor" in shown.split()) != hide
    assert {"Monitor", "build_monitor_callbacks", "load_config", "register_metric"} < set(shown.split())


@pytest.mark.parametrize("hide", [True, pytest.param(False, marks=pytest.mark.mindspore)])
def test_help_describes_every_class(hide: bool) -> None:
    text = run_python("import pydoc, ms_summary_bridge as m; print(pydoc.plain(pydoc.render_doc(m)))", hide=hide)
    for name in ("Histogram", "Tensor", "Report", "Monitor", *([] if hide else CALLBACKS)):
        assert f"class {name}(" in text, name
    assert "convert_logdir(" in text
    for name in CALLBACKS if hide else ():
        assert f"class {name}(" not in text


def test_every_struct_has_a_signature() -> None:
    shown = [getattr(ms_summary_bridge, name) for name in set(ms_summary_bridge.__all__) - CALLBACKS]
    structs = [each for each in shown if inspect.isclass(each) and issubclass(each, msgspec.Struct)]
    signatures = {each.__name__: str(inspect.signature(each)) for each in structs}
    assert len(signatures) >= 10
    assert "left: numpy.ndarray" in signatures["Histogram"]
    assert "width: numpy.ndarray[typing.Any, numpy.dtype[numpy.float64]] | None = None" in signatures["Histogram"]


# Each way to ask for a callback; all of them must say what to install, and none may hide it.
ASK = """
import ms_summary_bridge
import {0} as package
from ms_summary_bridge import BridgeError, MissingDependencyError

def from_import(name): exec(f"from {0} import {{name}}")
def plain(name): return getattr(package, name)
def with_default(name): return getattr(package, name, None)
def asked(name): return hasattr(package, name)

for ask in (from_import, plain, with_default, asked):
    for name in {1!r}:
        try:
            answer = ask(name)
        except ImportError as error:
            assert isinstance(error, MissingDependencyError) and not isinstance(error, AttributeError), repr(error)
            assert str(error).startswith(f"{{name}} needs MindSpore"), error
            assert "pip install 'ms_summary_bridge[mindspore]'" in str(error), error
            assert isinstance(error.__cause__, ModuleNotFoundError)
        else:
            raise SystemExit(f"{{ask.__name__}}({{name}}) gave {{answer!r}}")
assert not hasattr(package, "no_such_name")
assert getattr(package, "no_such_name", 5) == 5
try:
    from {0} import no_such_name
except ImportError as error:
    assert not isinstance(error, BridgeError)
else:
    raise SystemExit("a name that there is not was imported")
"""


@pytest.mark.parametrize(
    ("package", "names"),
    [("ms_summary_bridge", sorted(CALLBACKS)), ("ms_summary_bridge.monitor", ["MindSporeTransformersMonitor"])],
)
def test_asking_for_a_callback_without_mindspore_says_what_to_install(package: str, names: list[str]) -> None:
    run_python(ASK.format(package, names), hide=True)


def test_to_build_the_monitor_without_mindspore_says_what_to_install() -> None:
    program = """
from ms_summary_bridge import MissingDependencyError, build_monitor_callbacks
try:
    build_monitor_callbacks({"backend": "local"})
except MissingDependencyError as error:
    print(error)
"""
    assert "pip install 'ms_summary_bridge[mindspore]'" in run_python(program, hide=True)


def test_a_mindspore_that_is_broken_says_its_own_reason(tmp_path: Path) -> None:
    (tmp_path / "mindspore").mkdir()
    (tmp_path / "mindspore" / "__init__.py").write_text("import a_library_that_is_not_there\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    program += "import ms_summary_bridge as m; print('SummaryBridge' in m.__all__); m.SummaryBridge"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout.strip() == "True"
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'a_library_that_is_not_there'"
