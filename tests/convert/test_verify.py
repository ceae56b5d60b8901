"""verify: equal means equal to the last bit, and every single change is found and named."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME, load_state, save_state
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import Difference, verify_logdirs
from ms_summary_bridge.errors import NoEventsError
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.file_names import archive_name
from ms_summary_bridge.values import Image, Scalar, Value
from tests.mindspore_run import PNG, START, event, histogram, image, scalar, scalars, tensor, write_summary
from tests.scripted import build_file, put, tensorboard_name

KINDS: dict[str, Value] = {
    "scalar": scalar(0.1),
    "nan": Scalar(b"\x01\x00\xa0\x7f"),
    "histogram": histogram([1, 0, 7], nan=3),
    "image": image(),
    "tensor": tensor([1, 2.5, -3]),
}


def compare(a: Path, b: Path) -> list[Difference]:
    report = verify_logdirs(str(a), str(b))
    return [difference for run in report.runs for difference in run.differences]


def sides(tmp_path: Path, one: list[Event], other: list[Event]) -> list[Difference]:
    """Compares a MindSpore log with the conversion of another one."""
    write_summary(tmp_path / "one", one)
    write_summary(tmp_path / "other", other)
    convert_logdir(str(tmp_path / "other"), str(tmp_path / "tb"))
    differences = compare(tmp_path / "one", tmp_path / "tb")
    assert differences == compare(tmp_path / "one", tmp_path / "other")
    return differences


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_equal_after_conversion(tmp_path: Path, kind: str) -> None:
    assert sides(tmp_path, *[[event(step, ("tag", KINDS[kind])) for step in range(3)]] * 2) == []


def test_all_kinds_under_one_tag_are_equal_after_conversion(tmp_path: Path) -> None:
    same = [event(step, *[("tag", value) for value in KINDS.values()]) for step in range(3)]
    assert sides(tmp_path, same, same) == []


NAN = struct.pack("<I", 0x7FC00000)
CHANGES: dict[str, tuple[Value, Value, str]] = {
    "one bit of a scalar": (scalar(1.0), Scalar(b"\x01\x00\x80\x3f"), "0000803f"[::-1] and "3f800001"),
    "the payload of a NaN": (Scalar(NAN), Scalar(struct.pack("<I", 0x7FC00001)), "7fc00001"),
    "a quiet and a signalling NaN": (Scalar(struct.pack("<I", 0x7FC00001)), Scalar(struct.pack("<I", 0x7F800001)), ""),
    "the sign of a NaN": (Scalar(NAN), Scalar(struct.pack("<I", 0xFFC00000)), "ffc00000"),
    "the sign of zero": (scalar(0.0), scalar(-0.0), "80000000"),
    "one count": (histogram([1, 2, 3]), histogram([1, 3, 3]), "values differ"),
    "one edge": (histogram([1, 2]), histogram([1, 2], left=1e-9), "values differ"),
    "the number of NaN": (histogram([1], nan=1), histogram([1], nan=2), "values differ"),
    "one byte of an image": (image(), Image(1, 1, 3, (PNG[:-1] + b"\x83",)), "values differ"),
    "the height of an image": (image(), Image(2, 1, 3, (PNG,)), "values differ"),
    "one element of a tensor": (tensor([1, 2]), tensor([1, 2.0000002]), "values differ"),
    "the shape of a tensor": (tensor([1, 2]), tensor([1, 2, 0]), "values differ"),
}


@pytest.mark.parametrize(("one", "other", "word"), CHANGES.values(), ids=CHANGES)
def test_a_changed_value_is_found_and_named(tmp_path: Path, one: Value, other: Value, word: str) -> None:
    before, after = event(1, ("tag", one)), event(3, ("tag", one))
    differences = sides(tmp_path, [before, event(2, ("tag", one)), after], [before, event(2, ("tag", other)), after])
    assert [(d.kind, d.tag, d.points_a, d.points_b) for d in differences] == [(one.kind, "tag", 3, 3)]
    assert "step 2" in differences[0].detail
    assert word in differences[0].detail


def test_one_wall_time_is_found(tmp_path: Path) -> None:
    late = [*scalars("loss", range(2)), event(2, ("loss", scalar(2)), wall_time=START + 2.000001)]
    (difference,) = sides(tmp_path, scalars("loss", range(3)), late)
    assert "step 2: wall_time 1700000002.0 in A, 1700000002.000001 in B" in difference.detail


@pytest.mark.parametrize("missing", [0, 2, 4])
def test_one_missing_point_is_found(tmp_path: Path, missing: int) -> None:
    (difference,) = sides(tmp_path, scalars("loss", range(5)), scalars("loss", {*range(5)} - {missing}))
    assert (difference.points_a, difference.points_b) == (5, 4)
    assert f"step {missing}" in difference.detail


def test_order_matters(tmp_path: Path) -> None:
    (difference,) = sides(tmp_path, scalars("loss", [1, 2, 3]), scalars("loss", [1, 3, 2]))
    assert "point 1: step 2 in A, 3 in B" in difference.detail


def test_repeats_do_not_matter(tmp_path: Path) -> None:
    assert sides(tmp_path, scalars("loss", [1, 2, 2, 3]), scalars("loss", [1, 2, 3])) == []


def test_one_extra_tag_is_found(tmp_path: Path) -> None:
    extra = [*scalars("loss", range(3)), *scalars("lr", [7])]
    (difference,) = sides(tmp_path, scalars("loss", range(3)), extra)
    assert (difference.tag, difference.detail, difference.points_b) == ("lr", "only in B", 1)


def test_missing_runs_are_named(tmp_path: Path) -> None:
    for side, names in (("one", "ab"), ("other", "bc")):
        for name in names:
            write_summary(tmp_path / side / name, scalars("loss", range(3)))
    convert_logdir(str(tmp_path / "other"), str(tmp_path / "tb"))
    report = verify_logdirs(str(tmp_path / "one"), str(tmp_path / "tb"))
    assert (report.only_a, report.only_b, report.is_equal) == (["a"], ["c"], False)


def test_more_differences_than_are_explained(tmp_path: Path) -> None:
    differences = sides(
        tmp_path,
        [event(1, *[(f"tag{n:02}", scalar(n)) for n in range(50)])],
        [event(1, *[(f"tag{n:02}", scalar(n + 1)) for n in range(50)])],
    )
    assert len(differences) == 50
    assert all(difference.detail for difference in differences)


@pytest.mark.parametrize("file_format", ["mindspore", "tensorboard"])
def test_the_same_format_on_both_sides(tmp_path: Path, file_format: str) -> None:
    name = tensorboard_name() if file_format == "tensorboard" else f"x.out.events.summary.{START}.0.host_MS"
    put(tmp_path / "a" / name, build_file(file_format, range(5)))
    put(tmp_path / "b" / name, build_file(file_format, range(5)))
    put(tmp_path / "c" / name, build_file(file_format, range(6)))
    assert compare(tmp_path / "a", tmp_path / "b") == []
    assert len(compare(tmp_path / "a", tmp_path / "c")) == 1


def test_without_archives_what_they_held_is_one_sided(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [event(1, ("t", tensor([1])), ("loss", scalar(1)))])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert compare(tmp_path / "ms", tmp_path / "tb") == []
    (tmp_path / "tb" / archive_name("mindspore")).unlink()
    rows = [(row.kind, row.tag, row.detail) for row in compare(tmp_path / "ms", tmp_path / "tb")]
    assert rows == [("file_version", "mindspore", "only in A"), ("tensor", "t", "only in A")]


def remove_last_record(path: Path) -> None:
    from ms_summary_bridge.files.event_file import read_pieces

    pieces = list(read_pieces(path))
    path.write_bytes(path.read_bytes()[: pieces[-1].offset])  # type: ignore[union-attr]


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [remove_last_record, flip_a_bit])
def test_harm_to_an_archive_is_found(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    write_summary(tmp_path / "ms", [event(step, ("t", tensor([step]))) for step in range(3)])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    harm(tmp_path / "tb" / archive_name("mindspore"))
    (difference,) = compare(tmp_path / "ms", tmp_path / "tb")
    assert (difference.points_a, difference.points_b) == (3, 2)


OPTIONS = {
    "--on-restart latest": ConvertOptions(on_restart="latest"),
    "--tags '^loss'": ConvertOptions(tags="^loss"),
    "--no-archive": ConvertOptions(keep_archive=False),
}


@pytest.mark.parametrize("said", OPTIONS)
def test_what_options_leave_out_is_not_missed_but_said(tmp_path: Path, said: str) -> None:
    write_summary(tmp_path / "ms", [event(s, ("loss", scalar(s)), ("t", tensor([s]))) for s in range(5)])
    again = [event(s, ("loss", scalar(s + 1)), ("t", tensor([s])), wall_time=START + 1000.0 + s) for s in range(3, 6)]
    write_summary(tmp_path / "ms", again, seconds=START + 1000)
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"), options=OPTIONS[said])
    report = verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert (report.is_equal, report.options) == (True, said)
    assert report.runs[0].points == {"--tags '^loss'": 8, "--no-archive": 8, "--on-restart latest": 12}[said]
    (tmp_path / "tb" / STATE_NAME).unlink()
    assert compare(tmp_path / "ms", tmp_path / "tb") != []


def test_what_latest_left_out_must_have_been_replaced(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [event(s, ("loss", scalar(s)), ("lr", scalar(s))) for s in range(5)])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"), options=OPTIONS["--on-restart latest"])
    state = load_state(str(tmp_path / "tb"))
    (path,) = state.runs["."].files
    end = state.runs["."].files[path].offset
    state.runs["."].superseded = [(path, 0, end, "scalar", "lr", 3)]
    save_state(str(tmp_path / "tb"), state)
    (difference,) = compare(tmp_path / "ms", tmp_path / "tb")
    assert (difference.kind, difference.tag) == ("scalar", "lr")


def test_restarts_are_equal_after_conversion(tmp_path: Path) -> None:
    for n, first in enumerate((0, 5, 3)):
        steps = range(first, first + 6)
        write_summary(
            tmp_path / "ms", scalars("loss", steps, offset=n, start=START + 1000 * n), seconds=START + 1000 * n
        )
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert compare(tmp_path / "ms", tmp_path / "tb") == []


def test_nothing_to_compare_is_an_error(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoEventsError, match="no event files to compare"):
        verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "empty"))
