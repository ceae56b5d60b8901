"""The first thing a newcomer runs: it works, the second time too, and it says what is wrong when it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mindspore_run import histogram, image, scalar, scalars, tensor, write_summary
from tools import quickstart, quickstart_check
from tools.tensorboard_api import stop_process

LOADERS = ("fast", "slow")
RUNS = ("live", "converted")
ROOT = Path(__file__).resolve().parents[2]
VENV = Path(os.environ.get("MSB_VENVS") or ROOT / ".venvs", "main")


def run_tool(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """Runs tools/quickstart from a directory of its own, and returns its exit code and all it said."""
    with (tmp_path / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [str(ROOT / "tools" / "quickstart"), *arguments],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=280)
        finally:
            stop_process(process)
    return code, (tmp_path / "said.txt").read_text()


@pytest.mark.mindspore
@pytest.mark.tensorboard
@pytest.mark.mindinsight
@pytest.mark.slow
def test_quickstart_check(tmp_path: Path) -> None:
    if Path(sys.prefix).resolve() != VENV.resolve():
        pytest.skip("would make the environment: the tests do not run in it")
    code, said = run_tool(tmp_path, "--check", "--directory", "out")

    assert code == 0, said
    lines = [line.split() for line in said.splitlines()]
    seen = {(words[1], words[2]) for words in lines if words[:1] == ["ok"]}
    kinds = {"scalar", "histogram", "image", "tensor"}
    assert seen == {
        *((f"{loader}/{run}", kind) for loader in LOADERS for run in RUNS for kind in kinds | {"graph"}),
        *((f"{loader}/live", "text") for loader in LOADERS),
        *(("mindinsight", kind) for kind in kinds),
        *(("mindinsight/converted", kind) for kind in kinds - {"tensor"}),  # tensorboardX writes none
    }
    assert "WRONG" not in said
    assert "--logdir out/mindspore" in said  # from where it was called
    assert "--logdir out/tensorboard" in said
    assert "--summary-base-dir out/mindspore" in said
    # The live file is compared, and then the converted one.
    assert [line for line in said.splitlines() if "   equal: 1 run" in line][:2]
    names = [path.name for path in (tmp_path / "out" / "mindspore" / "run_1").iterdir()]
    assert any("tfevents" in name for name in names)
    assert any(name.endswith("_MS") for name in names)


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.quickstart", option], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "usage: tools/quickstart" in done.stdout
    assert "--check" in done.stdout


def test_each_call_makes_a_run_and_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "mindspore" / "run_1").mkdir(parents=True)
    (tmp_path / "mindspore" / "run_1" / "mine").touch()
    assert quickstart.make_run(tmp_path) == 2
    assert quickstart.make_run(tmp_path) == 3
    (tmp_path / "tensorboard" / "run_7").mkdir(parents=True)  # of a training whose own files were removed
    assert quickstart.make_run(tmp_path) == 8
    assert (tmp_path / "mindspore" / "run_1" / "mine").exists()


def test_failed_training_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = tmp_path / "fails.py"
    example.write_text("import sys\nprint('begun')\nsys.exit('no such device')\n")
    monkeypatch.setattr(quickstart, "EXAMPLE", example)
    with pytest.raises(quickstart.QuickstartError, match=r"exit code 1(.|\n)*training\.log\nno such device"):
        quickstart.train(tmp_path / "summary", tmp_path / "work")
    assert capsys.readouterr().out == "   begun\n"


class FixedAsker(quickstart_check.Asker):
    """Answers with what TensorBoard would, without one."""

    def __init__(self, rows: list[object]) -> None:
        self._rows = rows

    def rows(self, plugin: str, tag: str, count: int, **query: int) -> list[object]:
        return self._rows

    def image(self, query: str) -> bytes:
        return query.encode()


def test_checks_see_one_wrong_value() -> None:
    for check, value, right, wrong in (
        (quickstart_check.scalars, scalar(0.1), [0.0, 7, 0.10000000149011612], [0.0, 7, 0.1000001]),
        (quickstart_check.histograms, histogram([2]), [0.0, 7, [[0.0, 0.5, 2.0]]], [0.0, 7, [[0.0, 0.5, 3.0]]]),
        (quickstart_check.images, image(), None, {"step": 7, "query": "other"}),
        (
            quickstart_check.tables,
            tensor([1, 2]),
            {"step": 7, "text": "<td>2</td><td>1</td>"},
            {"step": 7, "text": "<td>2</td>"},
        ),
    ):
        if right is not None:
            found, wanted = check(FixedAsker([right]), "tag", {7: value})
            assert found == wanted
        for rows in ([wrong], []):
            found, wanted = check(FixedAsker(list(rows)), "tag", {7: value})
            assert found != wanted, check.__name__


def test_mindinsight_sample_is_compared_whole_and_never_smaller_than_it_must_be() -> None:
    class Client:
        def __init__(self, rows: list[tuple[int, object]]) -> None:
            self._rows = rows

        def images(self, job: str, tag: str) -> list[tuple[int, object]]:
            return self._rows

        def scalars(self, job: str, tag: str) -> list[tuple[int, object]]:
            return self._rows

        def histograms(self, job: str, tag: str) -> list[dict[str, object]]:
            return [{"step": step, "buckets": [[0.0, 1.0, count]]} for step, count in self._rows]

    def is_equal(check: object, rows: list[tuple[int, object]], values: dict[int, object]) -> bool:
        found, wanted = check(Client(rows), "./run", "tag", values)  # type: ignore[operator]
        return bool(found == wanted)

    picture = image()
    values: dict[int, object] = dict.fromkeys(range(20), picture)
    ten: list[tuple[int, object]] = [(step, picture.encoded[0]) for step in range(0, 20, 2)]
    assert is_equal(quickstart_check.mindinsight_images, ten, values)
    assert not is_equal(quickstart_check.mindinsight_images, ten[1:], values)
    assert not is_equal(quickstart_check.mindinsight_images, [*ten[1:], (19, b"other")], values)

    assert is_equal(quickstart_check.mindinsight_scalars, [(1, 0.10000000149011612)], {1: scalar(0.1)})
    assert is_equal(quickstart_check.mindinsight_scalars, [(1, None)], {1: scalar(float("nan"))})
    assert not is_equal(quickstart_check.mindinsight_scalars, [(1, 0.1)], {1: scalar(0.1)})

    assert is_equal(quickstart_check.mindinsight_histograms, [(1, 99)], {1: histogram([100])})  # it rounds
    assert not is_equal(quickstart_check.mindinsight_histograms, [(1, 98)], {1: histogram([100])})


def test_ms2tb_converts(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary", scalars("loss", range(3)))
    done = subprocess.run(
        [str(ROOT / "tools" / "ms2tb"), "summary", "out", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert list((tmp_path / "out").glob("*tfevents*"))
