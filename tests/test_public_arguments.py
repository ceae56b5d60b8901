"""Public functions take paths as the standard library does, and refuse what the command line refuses, by its name."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ms_summary_bridge
from ms_summary_bridge import (
    ConvertOptions,
    EventFileReader,
    RecordWriter,
    UsageError,
    convert_logdir,
    discover,
    inspect_logdir,
    verify_logdirs,
)
from ms_summary_bridge.cli.app import main
from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.viewers.view import view_logdir
from tests.mindspore_run import scalars, summary_name, write_summary


class Place:
    """A path of somebody's own."""

    def __init__(self, path: Any) -> None:
        self._path = path

    def __fspath__(self) -> Any:
        return str(self._path) if isinstance(self._path, Path) else self._path


def ended() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def read(path: Any, **options: Any) -> list[object]:
    with EventFileReader(path, make_decoder("mindspore"), **options) as reader:
        return list(reader)


def follow(source: Any, destination: Any, **options: Any) -> object:
    return follow_logdir(source, destination, stop=ended(), on_round=lambda report: None, **options)


def view(source: Any, **options: Any) -> None:
    view_logdir(source, say=lambda text: None, show=lambda url: None, **options)


def callback(name: str) -> Any:
    pytest.importorskip("mindspore")
    return getattr(ms_summary_bridge, name)


@pytest.fixture
def ms(tmp_path: Path) -> Path:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    return tmp_path / "ms"


@pytest.mark.parametrize("kind", [str, Path, Place])
def test_every_kind_of_path(ms: Path, tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    source, destination = kind(ms), kind(tmp_path / "tb")
    assert not convert_logdir(source, destination).failures
    assert verify_logdirs(source, destination).is_equal
    assert follow(source, kind(tmp_path / "tb2")) is None
    assert [run.name for run in discover(source).runs] == ["."]
    assert [run.run for run in inspect_logdir(source).runs] == ["."]
    assert len(read(kind(ms / summary_name()))) == 4
    if importlib.util.find_spec("mindspore") is not None:
        callback("SaveBestCheckpoint")(directory=kind(tmp_path / "checkpoints"))
        callback("SummaryBridge")(kind(tmp_path / "a"), tensorboard_dir=kind(tmp_path / "b"))
    with RecordWriter(kind(tmp_path / "records")) as writer:
        writer.write(b"x")
    with pytest.raises(UsageError, match="name the one it is in"):
        view(kind(ms / summary_name()))


BAD_PATHS = ["", "a\0b", None, 3, b"bytes", ["list"]]
CALLS: dict[str, Callable[[Any, Path], object]] = {
    "source: convert": lambda bad, good: convert_logdir(bad, good / "out"),
    "destination: convert": lambda bad, good: convert_logdir(good, bad),
    "source: follow": lambda bad, good: follow(bad, good / "out"),
    "destination: follow": lambda bad, good: follow(good, bad),
    "a: verify": lambda bad, good: verify_logdirs(bad, good),
    "b: verify": lambda bad, good: verify_logdirs(good, bad),
    "source: discover": lambda bad, good: discover(bad),
    "source: inspect": lambda bad, good: inspect_logdir(bad),
    "path: scalars": lambda bad, good: ms_summary_bridge.read_scalars(bad),
    "path: histograms": lambda bad, good: list(ms_summary_bridge.read_histograms(bad)),
    "path: images": lambda bad, good: list(ms_summary_bridge.read_images(bad)),
    "path: texts": lambda bad, good: list(ms_summary_bridge.read_texts(bad)),
    "source: export": lambda bad, good: ms_summary_bridge.export_logdir(bad, good / "out", format="csv"),
    "destination: export": lambda bad, good: ms_summary_bridge.export_logdir(good, bad, format="csv"),
    "source: aggregate": lambda bad, good: ms_summary_bridge.aggregate_ranks(bad, good / "out"),
    "destination: aggregate": lambda bad, good: ms_summary_bridge.aggregate_ranks(good, bad),
    "path: read": lambda bad, good: read(bad),
    "path: write": lambda bad, good: RecordWriter(bad),
    "source: view": lambda bad, good: view(bad),
    "summary_dir: bridge": lambda bad, good: callback("SummaryBridge")(bad),
    "tensorboard_dir: bridge": lambda bad, good: callback("SummaryBridge")(good / "x", tensorboard_dir=Place(bad)),
    "directory: checkpoint": lambda bad, good: callback("SaveBestCheckpoint")(directory=bad),
    "directory: best": lambda bad, good: callback("SaveBestCheckpoint").load_best(bad),
    "directory: last": lambda bad, good: callback("SaveBestCheckpoint").load_last(bad),
}


@pytest.mark.parametrize("bad", BAD_PATHS, ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_what_cannot_be_a_path_is_refused_by_name(ms: Path, call: str, bad: Any) -> None:
    with pytest.raises(UsageError, match=rf"^{call.partition(':')[0]}: "):
        CALLS[call](bad, ms)


OPTIONS: dict[str, Callable[[Path, Path], object]] = {
    "on_restart: bogus": lambda source, out: ConvertOptions(on_restart="bogus"),  # type: ignore[arg-type]
    "on_restart: none": lambda source, out: ConvertOptions(on_restart=None),  # type: ignore[arg-type]
    "tags: pattern": lambda source, out: ConvertOptions(tags="(["),
    "tags: type": lambda source, out: ConvertOptions(tags=3),  # type: ignore[arg-type]
    "tags: none": lambda source, out: ConvertOptions(tags=None),  # type: ignore[arg-type]
    "keep_archive: type": lambda source, out: ConvertOptions(keep_archive="no"),  # type: ignore[arg-type]
    "dry_run: type": lambda source, out: ConvertOptions(dry_run=2),  # type: ignore[arg-type]
    "options: type": lambda source, out: convert_logdir(source, out, options={"tags": "x"}),  # type: ignore[arg-type]
    "to: bogus": lambda source, out: convert_logdir(source, out, to="wandb"),
    "to: empty": lambda source, out: convert_logdir(source, out, to=""),
    "to: follow": lambda source, out: follow(source, out, to="wandb"),
    "workers: zero": lambda source, out: convert_logdir(source, out, workers=0),
    "workers: less": lambda source, out: convert_logdir(source, out, workers=-1),
    "workers: text": lambda source, out: convert_logdir(source, out, workers="2"),  # type: ignore[arg-type]
    "workers: bool": lambda source, out: convert_logdir(source, out, workers=True),
    "workers: follow": lambda source, out: follow(source, out, workers=-1),
    "dask: empty": lambda source, out: convert_logdir(source, out, dask=""),
    "dask: type": lambda source, out: convert_logdir(source, out, dask=8786),  # type: ignore[arg-type]
    "offset: read": lambda source, out: read(source, offset=-1),
    "chunk_bytes: read": lambda source, out: read(source, chunk_bytes=0),
    "decoder: read": lambda source, out: EventFileReader(source, None),  # type: ignore[arg-type]
    "offset: write": lambda source, out: RecordWriter(out, offset="3"),  # type: ignore[arg-type]
    "buffer_bytes: write": lambda source, out: RecordWriter(out, buffer_bytes=-1),
    "viewer: view": lambda source, out: view(source, viewer="wandb"),
    "port: view": lambda source, out: view(source, port=-1),
    "port: high": lambda source, out: view(source, port=65536),
    "port: text": lambda source, out: view(source, port="6006"),
}


@pytest.mark.parametrize("call", OPTIONS)
def test_what_an_option_cannot_be_is_refused_by_name(ms: Path, tmp_path: Path, call: str) -> None:
    with pytest.raises(UsageError, match=rf"^{call.partition(':')[0]}: "):
        OPTIONS[call](ms, tmp_path / "out")
    assert not (tmp_path / "out").exists()


URLS = ["file:///tmp/msb-nowhere", "file:nowhere", "s3://bucket/run", "memory://x", "zip://a::file:///b.zip"]


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_no_destination(
    ms: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for extra in ([], ["--dry-run"], ["--follow"], ["--force"]):
        assert main(["convert", str(ms), url, *extra]) == 2
        assert f"destination: {url} is a URL" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"^path: .* is a URL"):
        RecordWriter(url)
    assert [path.name for path in tmp_path.iterdir()] == ["ms"]


def test_nothing_public_with_a_path_was_overlooked() -> None:
    """Whoever adds a public function with a path adds it above."""
    known = {"EventFileReader", "RecordWriter", "convert_logdir", "discover", "inspect_logdir", "verify_logdirs"}
    known |= {"follow_logdir", "view", "SaveBestCheckpoint", "SummaryBridge", "aggregate_ranks", "export_logdir"}
    known |= {"read_histograms", "read_images", "read_scalars", "read_texts"}
    others = {"GradientSummary", "Monitor", "build_monitor_callbacks"}  # no path, or one of a configuration
    errors = {name for name in ms_summary_bridge.__all__ if name.endswith("Error")}
    values = {"DataPoint", "Event", "FileVersion", "Histogram", "Image", "Opaque", "Scalar", "SessionLog", "Summary"}
    plain = {"ConvertOptions", "Report", "TaggedValue", "Tensor", "__version__", "iter_points"}
    assert {*ms_summary_bridge.__all__} - known - others - errors - values - plain == set()
