"""A loss landscape is drawn in TensorBoard as a surface and as a contour image, and comes back from the archive."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.landscapes import contour as _contour
from ms_summary_bridge.formats.landscapes.contour import SIZE
from ms_summary_bridge.formats.landscapes.drawing import decode_landscape, draw_landscape
from ms_summary_bridge.formats.landscapes.scale import ColourScale, nice_ticks
from ms_summary_bridge.formats.landscapes.surface import END_COLOUR, PATH_COLOUR, START_COLOUR
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder, TensorBoardEncoder
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.values import Opaque
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.mindspore_run import START, scalar, scalars, summary_name, write_summary
from tests.mindspore_run import event as make_event
from tools.tensorboard_api import stop_process

TESTS = Path(__file__).resolve().parents[1]
GOLDEN = TESTS / "data" / "mindspore-2.10-landscape.bin"
WITH_PATH, WITHOUT_PATH = "landscape_[1, 6]", "landscape_[6]"
PARTS = {"VERTEX": np.float32, "FACE": np.int32, "COLOR": np.uint8}


def landscapes(directory: Path, source: str = "mindspore") -> dict[str, bytes]:
    """Returns the landscapes of a run by tag: the messages of the values."""
    found = {}
    pattern = "*_MS" if source == "mindspore" else "*tfevents*"
    for path in [directory] if directory.is_file() else sorted(directory.glob(pattern)):
        for item in EventFileReader(path, make_decoder(source)):
            if isinstance(item, Event) and isinstance(item.content, Summary):
                for tagged in item.content.values:
                    if isinstance(tagged.value, Opaque) and tagged.value.kind == "landscape":
                        found[tagged.tag] = tagged.value.payload
    return found


def tensor(array: npt.ArrayLike) -> Any:
    numbers = np.asarray(array, np.float64)
    with np.errstate(over="ignore"):
        return ms_pb.TensorProto(dims=numbers.shape, data_type=12, float_data=numbers.astype(np.float32).ravel())


def message(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    z: npt.ArrayLike,
    *,
    path: Any = None,
    end: Any = None,
    intervals: Any = (),
) -> bytes:
    """Returns the message of a summary value with this landscape; `path` and `end` are (x, y, z)."""

    def point(arrays: Any) -> dict[str, Any]:
        return dict(zip("xyz", map(tensor, arrays), strict=True))

    value = ms_pb.Summary.Value(tag="l")
    landscape = value.loss_landscape
    landscape.landscape.MergeFrom(ms_pb.LossLandscape.Point(**point((x, y, z))))
    if path is not None:
        landscape.loss_path.points.MergeFrom(ms_pb.LossLandscape.Point(**point(path)))
        landscape.loss_path.intervals.extend(intervals)
    if end is not None:
        landscape.convergence_point.MergeFrom(ms_pb.LossLandscape.Point(**point(end)))
    landscape.metadata.unit = "epoch"
    return value.SerializeToString()


def bowl(columns: int = 9, rows: int = 7) -> tuple[Any, Any, Any]:
    x, y = np.linspace(-2, 2, columns), np.linspace(0, 3, rows)
    return x, y, x[None] ** 2 + (y[:, None] - 1) ** 2


def pixels(png: bytes) -> npt.NDArray[np.uint8]:
    with Pillow.open(io.BytesIO(png)) as picture:
        assert (picture.format, picture.size, picture.mode) == ("PNG", SIZE, "RGB")
        return np.array(picture)


def has_colour(picture: npt.NDArray[np.uint8], colour: tuple[int, int, int], *, least: int = 5) -> bool:
    return int((picture == np.array(colour)).all(axis=-1).sum()) >= least


def test_the_surface_of_a_real_training() -> None:
    values = landscapes(GOLDEN)
    assert set(values) == {WITH_PATH, WITHOUT_PATH}
    grid = decode_landscape(values[WITH_PATH])
    assert (grid.x.size, grid.y.size, grid.z.shape) == (25, 25, (25, 25))
    assert grid.intervals == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(grid.path[0], [-0.5714, -0.0108, 0.5199], atol=1e-4)
    np.testing.assert_allclose(grid.path[-1], [0, 0, 0.2092], atol=1e-4)
    assert grid.end is not None
    np.testing.assert_array_equal(grid.end, grid.path[-1])
    assert (grid.decomposition, grid.unit) == ("PCA", "step")

    mesh, _ = draw_landscape(values[WITH_PATH], WITH_PATH)
    surface = mesh.vertices[: 25 * 25].reshape(25, 25, 3)
    np.testing.assert_allclose([surface[0, 0, 0], surface[0, -1, 0]], [-1, 1])  # x to the right
    np.testing.assert_allclose([surface[0, 0, 2], surface[-1, 0, 2]], [1, -1])  # y to the back
    scaled = (grid.z - grid.z.min()) / (grid.z.max() - grid.z.min())
    np.testing.assert_allclose(surface[..., 1], 1.2 * (scaled - 0.5), atol=1e-6)  # loss upwards
    brightness = mesh.colours[: 25 * 25].astype(int).sum(axis=1)
    assert np.corrcoef(brightness, scaled.ravel())[0, 1] > 0.95, "the higher, the lighter"
    assert np.abs(mesh.vertices).max() < 1.05
    assert (mesh.faces.min(), mesh.faces.max()) == (0, len(mesh.vertices) - 1)
    surface_faces = mesh.faces[(mesh.faces < 25 * 25).all(axis=1)]
    assert len(surface_faces) == 2 * 24 * 24
    corners = mesh.vertices[surface_faces]
    assert (np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])[:, 1] > 0).all(), "they face upwards"
    for colour in (START_COLOUR, PATH_COLOUR, END_COLOUR):
        assert (mesh.colours == colour).all(axis=1).any()
    path = mesh.vertices[(mesh.colours == PATH_COLOUR).all(axis=1)]
    floor = grid.interpolate(1.2 * (scaled - 0.5), *_coordinates(grid, path))
    assert (path[:, 1] > floor - 0.05).all(), "the path is not below the surface"

    without, _ = draw_landscape(values[WITHOUT_PATH], WITHOUT_PATH)
    assert not (without.colours == PATH_COLOUR).all(axis=1).any()
    assert (without.colours == END_COLOUR).all(axis=1).any()


def _coordinates(grid: Any, vertices: npt.NDArray[np.float32]) -> tuple[Any, Any]:
    across, back = np.clip(vertices[:, 0], -1, 1), np.clip(vertices[:, 2], -1, 1)
    x = grid.x[0] + (across + 1) / 2 * (grid.x[-1] - grid.x[0])
    return x, grid.y[0] + (1 - back) / 2 * (grid.y[-1] - grid.y[0])


def test_the_image_of_a_real_training() -> None:
    values = landscapes(GOLDEN)
    picture = pixels(draw_landscape(values[WITH_PATH], WITH_PATH)[1])
    for colour in (PATH_COLOUR, END_COLOUR, START_COLOUR):
        assert has_colour(picture, colour)
    plot, bar = picture[64:420, 84:500], picture[64:420, 526:540]
    # The loss falls from left to right, and on the bar from top to bottom.
    left, right, top, bottom = plot[:, :20], plot[:, -20:], bar[:20], bar[-20:]
    assert left.mean() > right.mean() + 50
    assert top.mean() > bottom.mean() + 50
    bands = {tuple(colour) for colour in bar.reshape(-1, 3)}
    assert 8 <= len(bands - {(40, 40, 40)}) <= 14
    assert sum(has_colour(plot, colour) for colour in bands) >= 9, "the bar shows the colours of the plot"
    without = pixels(draw_landscape(values[WITHOUT_PATH], WITHOUT_PATH)[1])
    assert not has_colour(without, PATH_COLOUR)
    assert has_colour(without, END_COLOUR)


NAN, INF = float("nan"), float("inf")
X, Y, Z = bowl()
HOLE = Z.copy()
HOLE[2, 3], HOLE[4, 4], HOLE[0, 0] = NAN, INF, -INF
ODD = {
    "hole": message(X, Y, HOLE),
    "constant": message(X, Y, np.full(Z.shape, 3.5)),
    "zero": message(X, Y, np.zeros(Z.shape)),
    "one row": message(X, Y[:1], Z[:1]),
    "one column": message(X[:1], Y, Z[:, :1]),
    "one point": message([2], [3], [[4]]),
    "two by two": message([0, 1], [0, 1], [[1, 2], [3, 4]]),
    "one finite": message(X, Y, np.where(np.arange(63).reshape(7, 9) == 30, 1.0, NAN)),
    "huge": message(X, Y, 10.0 ** np.linspace(0, 38, 63).reshape(7, 9)),
    "largest": message(X, Y, np.where(Z > 2, 3.4e38, -3.4e38)),
    "tiny": message(X, Y, Z * 1e-38),
    "barely": message(X, Y, 1 + np.where(Z > 2, 1.2e-7, 0)),
    "outlier": message(X, Y, np.where(Z.max() == Z, 1e9, Z)),
    "negative outlier": message(X, Y, np.where(Z.max() == Z, -1e9, Z)),
    "flat axes": message(np.zeros(9), np.zeros(7), Z, path=([0, 0], [0, 0], [1, 1]), end=([0], [0], [1])),
    "axis of NaN": message(np.full(9, NAN), Y, Z),
    "axis of infinities": message([*X[:-1], INF], Y, Z),
    "long axis": message([*np.linspace(-3.4e38, -3.3e38, 8), 3.4e38], Y, Z),
    "downwards": message(X[::-1], Y[::-1], Z[::-1, ::-1]),
    "shuffled": message(X[[3, 1, 0, 2, 4, 8, 7, 6, 5]], Y, Z[:, [3, 1, 0, 2, 4, 8, 7, 6, 5]]),
    "path outside": message(
        X, Y, Z, path=([-9, 0, 9], [1, 1, 1], [1, 1, 1]), end=([77], [0], [1]), intervals=[1, 2, 3]
    ),
    "path of NaN": message(X, Y, Z, path=([NAN, 0, 1], [1, 1, 1], [NAN, INF, NAN]), end=([0], [1], [NAN])),
    "path of one": message(X, Y, Z, path=([0], [1], [1]), intervals=[7]),
    "path that stays": message(X, Y, Z, path=([1] * 4, [1] * 4, [2] * 4), intervals=[1, 2, 3, 4]),
    "path upright": message(X, Y, Z, path=([1] * 3, [1] * 3, [2, 3, 4]), intervals=[1, 2, 3]),
    "path of other lengths": message(X, Y, Z, path=([1, 2], [1], [2, 3, 4]), intervals=[1]),
    "path of a thousand": message(
        X, Y, Z, path=(np.linspace(-2, 2, 1000), np.linspace(0, 3, 1000), np.ones(1000)), intervals=range(1000)
    ),
    "fine": message(np.arange(400), np.arange(300), np.add.outer(np.arange(300), np.arange(400))),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_landscapes_are_drawn(name: str) -> None:
    mesh, png = draw_landscape(ODD[name], "tag \u4e2d\u6587 " * 20)
    pixels(png)
    assert np.isfinite(mesh.vertices).all()
    assert np.abs(mesh.vertices).max() < 1.2
    assert len(mesh.vertices) == len(mesh.colours) < 65_536, "TensorBoard numbers vertices with 16 bits"
    assert mesh.faces.min() >= 0
    assert mesh.faces.max() < len(mesh.vertices)


def test_an_endless_path_is_drawn_by_some_of_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[tuple[float, float]] = []
    pixel = _contour._Plot._pixel

    def count(plot: Any, x: float, y: float) -> tuple[float, float]:
        placed.append((x, y))
        return pixel(plot, x, y)

    monkeypatch.setattr(_contour._Plot, "_pixel", count)
    points = np.linspace(-2, 2, 100_000)
    path = (points, np.abs(points), np.ones(points.size))
    picture = pixels(draw_landscape(message(X, Y, Z, path=path), "long")[1])
    assert has_colour(picture, PATH_COLOUR)
    assert {(-2.0, 2.0), (2.0, 2.0)} < set(placed)
    assert len(placed) < 1100


def test_losses_that_are_not_finite_are_a_hole_in_the_surface_and_grey_in_the_image() -> None:
    mesh, png = draw_landscape(ODD["hole"], "l")
    in_surface = mesh.faces[(mesh.faces < 63).all(axis=1)]
    assert not np.isin(in_surface, [2 * 9 + 3, 4 * 9 + 4, 0]).any()
    assert len(in_surface) == 2 * 8 * 6 - 6 - 6 - 1
    assert has_colour(pixels(png), (222, 222, 222), least=1000)
    assert not has_colour(pixels(draw_landscape(message(X, Y, Z), "l")[1]), (222, 222, 222), least=1000)


def test_axes_in_any_order_are_the_same_landscape() -> None:
    one = draw_landscape(message(X, Y, Z), "l")
    for name in ("downwards", "shuffled"):
        mesh, png = draw_landscape(ODD[name], "l")
        np.testing.assert_array_equal(mesh.vertices, one[0].vertices)
        assert png == one[1]


def test_parts_of_a_path_that_cannot_be_placed_are_left_out() -> None:
    assert decode_landscape(ODD["path outside"]).intervals == [2]
    assert decode_landscape(ODD["path outside"]).end is None
    assert decode_landscape(ODD["path of NaN"]).path[:, 0].tolist() == [0, 1]
    assert decode_landscape(ODD["path of other lengths"]).intervals == []
    assert decode_landscape(ODD["flat axes"]).is_numbered
    assert not len(decode_landscape(ODD["flat axes"]).path)


@pytest.mark.parametrize(
    ("losses", "kind", "ticks"),
    [
        ([1, 2, 3], "linear", [1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0]),
        ([1, 10, 1000], "logarithmic", [1, 3, 10, 30, 100, 300, 1000]),
        ([1, 1e30], "logarithmic", [10.0**power for power in range(0, 31, 3)]),
        ([0, 1, 1, 2000], "signed logarithmic", [0, 1, 3, 10, 30, 100, 300, 1000]),
        ([-2000, 1, 1, 2], "signed logarithmic", [-1000, -300, -100, -30, -10, -3, -1, 0, 1]),
        ([5, 5], "linear", [5]),
    ],
)
def test_the_scale_is_logarithmic_where_losses_span_a_thousand(
    losses: list[float], kind: str, ticks: list[float]
) -> None:
    scale = ColourScale(np.array(losses, np.float64))
    assert scale.kind == kind
    np.testing.assert_allclose(scale.ticks(), ticks)
    places = scale.fractions(np.sort(np.array(losses, np.float64)))
    assert (np.diff(places) >= 0).all()
    assert places[0] == (0.5 if min(losses) == max(losses) else 0)
    assert places[-1] == (0.5 if min(losses) == max(losses) else 1)


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_ticks_are_few_and_inside(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    ticks = nice_ticks(low, high, 8)
    assert 1 <= len(ticks) <= 10 or (len(ticks) == 0 and high - low < np.spacing(max(abs(low), abs(high))))
    slack = 1e-9 * max(abs(low), abs(high))
    assert all(low - slack <= tick <= high + slack for tick in ticks)


BAD = {
    "no landscape": ms_pb.Summary.Value(tag="l", loss_landscape={}).SerializeToString(),
    "nothing finite": message(X, Y, np.full(Z.shape, NAN)),
    "no points": message([], [], np.empty((0, 0))),
    "other axes": message(X[:-1], Y, Z),
    "a vector of losses": message(X, Y, Z.ravel()),
    "cut": b"\x52\x05\x0a\x09",
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_drawn_is_a_counted_loss_and_in_the_archive(name: str) -> None:
    with pytest.raises(InvalidValueError):
        decode_landscape(BAD[name])
    broken = make_event(4, ("l", Opaque("landscape", BAD[name])), ("loss", scalar(1)))
    result = TensorBoardEncoder().encode(broken)
    assert [loss.kind for loss in result.losses] == ["landscape"]
    assert "drawn as" not in result.losses[0].reason
    assert result.archive == broken
    assert result.payload is not None
    assert [value.tag for value in tb_pb.Event.FromString(result.payload).summary.value] == ["loss"]


@settings(max_examples=30)  # each may draw a picture
@given(st.data())
def test_damage_is_a_counted_loss_or_drawn(data: st.DataObject) -> None:
    damaged = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    result = TensorBoardEncoder().encode(make_event(1, ("l", Opaque("landscape", bytes(damaged)))))
    assert result.archive is not None, "the original is kept, drawn or not"
    assert len(result.losses) == 1
    assert (result.payload is not None) == result.losses[0].reason.startswith("drawn as")


SMALL = message([0, 1], [0, 1], [[1, 2], [3, 4]], path=([0, 1], [0, 1], [4, 1]), end=([1], [1], [1]), intervals=[1, 2])


@given(st.binary(max_size=40))
def test_any_bytes_are_a_counted_loss(damage: bytes) -> None:
    result = TensorBoardEncoder().encode(make_event(1, ("l", Opaque("landscape", b"\x52" + damage))))
    assert len(result.losses) == 1


def test_the_values_are_those_of_the_mesh_plugin() -> None:
    encoder = TensorBoardEncoder()
    # Another series has the name of a part already.
    taken = make_event(0, ("l_FACE", scalar(1)))
    assert encoder.encode(taken).payload is not None
    payload = encoder.encode(make_event(3, ("l", Opaque("landscape", SMALL)))).payload
    assert payload is not None
    *parts, image = tb_pb.Event.FromString(payload).summary.value
    assert [part.tag for part in parts] == ["l_VERTEX", "l_FACE/mesh", "l_COLOR"]
    for part, content_type, data_type in zip(parts, (1, 2, 3), (1, 3, 4), strict=True):
        content = tb_pb.mesh.MeshPluginData.FromString(part.metadata.plugin_data.content)
        assert part.metadata.plugin_data.plugin_name == "mesh"
        assert (content.name, content.content_type, content.components) == ("l", content_type, 14)
        assert list(content.shape) == [dim.size for dim in part.tensor.tensor_shape.dim]
        assert content.shape[0] == 1
        assert content.shape[2] == 3
        assert part.tensor.dtype == data_type
        origin = tb_pb.PluginContent.FromString(part.metadata.plugin_data.content).origin
        assert (origin.tag, origin.derived, origin.kind) == ("l", True, "landscape")
    assert (image.tag, image.image.width, image.image.height, image.image.colorspace) == ("l/contour", *SIZE, 3)
    decoded = TensorBoardDecoder().decode(payload)
    assert isinstance(decoded.content, Summary)
    assert all(tagged.derived and tagged.tag == "l" for tagged in decoded.content.values)


def write_run(directory: Path) -> Path:
    """Writes a run of scalars with the file of a real SummaryLandscape behind it."""
    write_summary(directory, scalars("loss", range(3)))
    (directory / summary_name(seconds=START + 100)).write_bytes(GOLDEN.read_bytes())
    return directory


@pytest.mark.tensorboard
@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_tensorboard_shows_surface_and_image(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    values = landscapes(write_run(tmp_path / "ms" / "run"))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    client = tensorboard_server(tmp_path / "tb", load_fast)
    tags = client.wait_json("data/plugin/mesh/tags", lambda runs: len(runs.get("run", {})) == 2)
    assert tags == {"run": {WITH_PATH: {"samples": 1}, WITHOUT_PATH: {"samples": 1}}}
    images = client.wait_json("data/plugin/images/tags", lambda runs: len(runs.get("run", {})) == 2)
    assert set(images["run"]) == {f"{WITH_PATH}/contour", f"{WITHOUT_PATH}/contour"}
    for tag, value in values.items():
        mesh, png = draw_landscape(value, tag)
        metadata = client.get_json("data/plugin/mesh/meshes", run="run", tag=tag)
        shapes = {entry["content_type"]: entry["data_shape"] for entry in metadata}
        count = len(mesh.vertices)
        assert shapes == {1: [1, count, 3], 2: [1, len(mesh.faces), 3], 3: [1, count, 3]}
        expected = {"VERTEX": mesh.vertices, "FACE": mesh.faces, "COLOR": mesh.colours}
        for part, dtype in PARTS.items():
            query = f"run=run&tag={tag}&content_type={part}&sample=0&step=0".replace(" ", "%20")
            data = client.get(f"data/plugin/mesh/data?{query}")
            np.testing.assert_array_equal(np.frombuffer(data, dtype).reshape(-1, 3), expected[part])
        (shown,) = client.wait_json("data/plugin/images/images", run="run", tag=f"{tag}/contour", sample=0)
        assert client.get(f"data/plugin/images/individualImage?{shown['query']}") == png


def test_they_come_back_from_the_archive_exactly(tmp_path: Path) -> None:
    source = write_run(tmp_path / "ms")
    there, back = tmp_path / "tb", tmp_path / "back"
    (run,) = convert_logdir(str(source), str(there)).runs
    assert [(loss.kind, loss.tag) for loss in run.losses] == [("landscape", WITH_PATH), ("landscape", WITHOUT_PATH)]
    assert run.values == {"scalar": 3, "landscape": 2}
    convert_logdir(str(there), str(back))
    assert landscapes(back) == landscapes(source)
    for other in (there, back):
        report = verify_logdirs(str(source), str(other))
        assert report.is_equal, report
        assert report.runs[0].points == 5


def test_without_an_archive_they_are_told_to_be_lost(tmp_path: Path) -> None:
    source = write_run(tmp_path / "ms")
    there, back = tmp_path / "tb", tmp_path / "back"
    convert_logdir(str(source), str(there), options=ConvertOptions(keep_archive=False))
    (run,) = convert_logdir(str(there), str(back)).runs
    (problem,) = run.problems
    assert problem.startswith("8 values were computed from others")  # three of a mesh and an image, twice
    assert "loss landscapes" in problem
    assert landscapes(back) == {}
    report = verify_logdirs(str(source), str(back))
    assert {difference.tag for run in report.runs for difference in run.differences} == {WITH_PATH, WITHOUT_PATH}


def test_mindinsight_shows_them_after_a_round_trip(tmp_path: Path, mindinsight_server: MindInsightServer) -> None:
    values = landscapes(write_run(tmp_path / "ms" / "run"))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "back"))
    client = mindinsight_server(tmp_path / "back")
    client.wait_job("./run")
    (interval,) = client.wait_json(
        "datavisual/landscape/intervals", lambda answer: answer.get("intervals"), train_id="./run"
    )["intervals"]
    assert interval["value"] == [1, 6]
    (shown,) = client.get_json(
        "datavisual/landscape/landscapes", train_id="./run", type="interval", interval_id=interval["id"]
    )["landscapes"]
    grid = decode_landscape(values[WITH_PATH])
    np.testing.assert_array_equal(shown["points"]["z"], grid.z)
    np.testing.assert_array_equal(shown["points"]["x"], grid.x)
    np.testing.assert_array_equal(shown["path"]["z"], grid.path[:, 2])
    assert shown["path"]["intervals"] == grid.intervals
    assert grid.end is not None
    np.testing.assert_array_equal(shown["convergence_point"], grid.end)
    (final,) = client.get_json("datavisual/landscape/landscapes", train_id="./run", type="final")["landscapes"]
    np.testing.assert_array_equal(final["points"]["z"], decode_landscape(values[WITHOUT_PATH]).z)


def test_the_callback_draws_what_convert_draws(tmp_path: Path) -> None:
    value = landscapes(GOLDEN)[WITH_PATH]
    data = ms_pb.Summary.Value.FromString(value).loss_landscape.SerializeToString()
    directory = str(tmp_path / "run")
    config = LiveRunConfig(
        summary_dir=directory,
        tensorboard_dir=directory,
        seconds=START,
        wall_time=float(START),
        device=0,
        host="host",
        pid=1,
    )
    said: list[str] = []
    live = LiveRun(config, lambda kind, text: said.append(text))
    live.write_values(2, START + 2.0, {"landscape": [{"tag": WITH_PATH, "value": data}]})
    assert said == []
    live.write_values(3, START + 3.0, {"landscape": [{"tag": "broken", "value": b"\x0a\x05"}]})
    live.write_values(4, START + 4.0, {"scalar": [{"tag": "loss", "value": np.float32(1)}]})
    live.close()
    (what,) = said
    assert what.startswith("landscape 'broken' is not in TensorBoard's file: the landscape cannot be read: ")
    assert landscapes(tmp_path / "run")[WITH_PATH] == value
    convert_logdir(directory, str(tmp_path / "tb"), to="tensorboard")
    shown = drawn(tmp_path / "run")
    assert [tagged.tag for tagged in shown] == [WITH_PATH] * 4
    assert shown == drawn(tmp_path / "tb")
    assert verify_logdirs(directory, str(tmp_path / "tb")).is_equal
    assert verify_logdirs(directory, directory).is_equal


def drawn(directory: Path) -> list[TaggedValue]:
    """Returns the values of a TensorBoard log that were computed from others."""
    found: list[TaggedValue] = []
    for path in sorted(directory.glob("*tfevents*")):
        for item in EventFileReader(path, TensorBoardDecoder()):
            assert isinstance(item, Event)
            if isinstance(item.content, Summary):
                found += [tagged for tagged in item.content.values if tagged.derived]
    return found


@pytest.mark.slow
@pytest.mark.mindspore
def test_a_training_with_summary_landscape_is_converted(tmp_path: Path) -> None:
    with (tmp_path / "output.txt").open("w+b") as output:
        process = subprocess.Popen(
            [sys.executable, str(TESTS / "train_landscape.py"), str(tmp_path / "ms"), "--size", "3"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=240)
        finally:
            stop_process(process)
        output.seek(0)
        assert code == 0, output.read().decode(errors="replace")[-4000:]
    values = landscapes(tmp_path / "ms")
    assert set(values) == {WITH_PATH, WITHOUT_PATH}
    assert decode_landscape(values[WITH_PATH]).z.shape == (3, 3)
    (run,) = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb")).runs
    assert run.values["landscape"] == 2
    assert len(drawn(tmp_path / "tb")) >= 8
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal


@pytest.mark.parametrize("tag", ["two\nlines", "\n", "a\r\nb\n", "\u2028"])
def test_a_tag_of_several_lines_is_written_in_one(tag: str) -> None:
    _, picture = draw_landscape(message([0.0, 1.0], [0.0, 1.0], [[0.0, 1.0], [2.0, 3.0]]), tag)
    assert Pillow.open(io.BytesIO(picture)).size == (SIZE[0], SIZE[1])
