"""`convert` in its plain form: taken apart as typer does it, and started without what plain scalars never use."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer

from ms_summary_bridge.cli import app as app_module
from ms_summary_bridge.cli import conversion, main, plain
from ms_summary_bridge.cli.plain import plain_arguments
from tests.mindspore_run import scalars, write_summary
from tests.scripted import build_file, put, tensorboard_name

ROOT = Path(__file__).resolve().parents[2]
WORDS = (
    *plain._FLAGS,
    *("--to", "tensorboard", "mindinsight", "wandb", "--on-restart", "mark", "latest", "--workers", "1", "12", "0"),
    *("--tags", "loss|acc", "", "--report", "r.json", "--dask", "tcp://x:1", "a", "b", "--", "-", "--quiet=1", "-q"),
    *("--to=tensorboard", "--help", "٣", "+1", "1_0", "\udcff", "ä", "--wor"),
)


def _typed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    """Returns what typer calls `run_conversion` with; None for wrong usage and help."""
    found: list[dict[str, Any]] = []

    def take(src: str, dst: str, **options: Any) -> int:
        found.append({"src": src, "dst": dst, **options})
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(conversion, "run_conversion", take)
        app_module.main(words)
    return found[0] if found else None


def test_what_is_taken_without_typer_is_what_typer_makes_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(5)
    defaults = conversion.run_conversion.__kwdefaults__
    assert defaults is not None
    taken = 0
    for number in range(160):
        options = rng.sample(WORDS, rng.randrange(5))
        if number % 2:  # most mixtures are wrong usage
            pairs = [["--to", "mindinsight"], ["--workers", "3"], ["--tags", "x y"], ["--on-restart", "latest"]]
            options = [*chain(*rng.sample(pairs, rng.randrange(4))), *rng.sample(plain._FLAGS, rng.randrange(3))]
        words = ["convert", *options]
        for place in ("some/src", "dst"):
            words.insert(rng.randint(1, len(words)), place)
        arguments = plain_arguments(words)
        if arguments is not None:
            taken += 1
            assert {**defaults, **arguments} == _typed(words, monkeypatch), words
    capsys.readouterr()
    assert taken > 40


def test_every_option_of_the_command_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    group: Any = typer.main.get_command(app_module.app)
    options = {name for option in group.commands["convert"].params for name in option.opts if name.startswith("--")}
    assert options == {*plain._FLAGS, *plain._TEXTS, *plain._CHOICES, "--workers"}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["convert"],
        ["convert", "a"],
        ["convert", "a", "b", "c"],
        ["convert", "a", "b", "--help"],
        ["convert", "a", "b", "--to"],
        ["convert", "a", "b", "--to", "wandb"],
        ["convert", "a", "b", "--to=tensorboard"],
        ["convert", "a", "b", "--quiet", "--quiet"],
        ["convert", "a", "b", "--workers", "0"],
        ["convert", "a", "b", "--workers", "x"],
        ["convert", "a", "b", "--tags", "-x"],
        ["convert", "a", "--", "b"],
        ["convert", "a", "\udcff"],
        ["inspect", "a", "b"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_the_rest_is_left_to_typer(words: list[str]) -> None:
    assert plain_arguments(words) is None


HEAVY = (
    *("typer", "click", "pydantic", "rich", "argparse", "inspect", "json", "logging", "email", "importlib.metadata"),
    *("google.protobuf.descriptor_pb2", "google.protobuf.internal", "concurrent.futures", "multiprocessing"),
    *("subprocess", "tempfile", "PIL", "yaml", "fsspec", "psutil", "typing_extensions", "tensorboardX", "mindspore"),
    *("numpy.ma", "numpy.random", "numpy.polynomial", "numpy.fft"),
    *("ms_summary_bridge.cli.app", "ms_summary_bridge.cli.render", "ms_summary_bridge.convert.processes"),
    *("ms_summary_bridge.formats.sessions.lineage", "ms_summary_bridge.formats.graphs.ms_to_tb"),
    *("ms_summary_bridge.formats.graphs.tb_to_ms", "ms_summary_bridge.formats.landscapes"),
    *("ms_summary_bridge.convert.verify", "ms_summary_bridge.convert.follow"),
)
"""What plain scalars never use; to load it all would take longer than to convert 300,000 of them."""

PROGRAM = """
import sys
from ms_summary_bridge.cli import ending, main
ending.leave = lambda code: None
code = main()
print(code, [name for name in {heavy!r} if name in sys.modules])
import numpy, crc32c, platform
assert numpy.random.default_rng(1).integers(9) < 9 and numpy.ma.masked_array([1], [False]).sum() == 1
assert crc32c.crc32c(b"x") and platform.machine()  # the whole modules
"""


@pytest.mark.skipif(os.name == "nt", reason="there every command goes by typer")
@pytest.mark.parametrize("to", ["tensorboard", "mindinsight"])
def test_plain_scalars_are_converted_without_what_they_never_use(tmp_path: Path, to: str) -> None:
    if to == "tensorboard":
        write_summary(tmp_path / "source", scalars("loss", range(500)))
    else:
        put(tmp_path / "source" / tensorboard_name(), build_file("tensorboard", range(500)))
    words = ["convert", str(tmp_path / "source"), str(tmp_path / "out"), "--to", to, "--quiet", "--workers", "1"]
    ran = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM.format(heavy=HEAVY), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *(path for path in sys.path if path)))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.stdout, ran.stderr) == ("0 []\n", "")
    assert main(["verify", str(tmp_path / "source"), str(tmp_path / "out")]) == 0
