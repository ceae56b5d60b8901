"""Series as running hashes, and the first difference of two lists of points."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ms_summary_bridge.convert.verify import series as of_series
from ms_summary_bridge.convert.verify.series import (
    Key,
    PointLists,
    Series,
    SeriesHashes,
    SeriesPoint,
    first_difference,
    pack_rows,
)
from ms_summary_bridge.values import Scalar

Points = list[tuple[int, float, bytes | None]]

KEY: Key = ("scalar", "loss", "")
OTHER: Key = ("scalar", "lr", "")
FEW: Points = [(1, 10.0, b"\0\0\x80\x3f"), (2, 11.0, b"\0\0\0\x40"), (2, 12.0, b"\1\0\0\x40")]


def hashed(points: Points, *, is_ordered: bool = True) -> Series:
    hashes = SeriesHashes(is_ordered=is_ordered)
    for point in points:
        hashes.take(KEY, *point)
    assert [*hashes.series] == [KEY]
    return hashes.series[KEY]


def rows_of(points: Points) -> np.ndarray:
    steps, wall_times, bits = zip(*points, strict=True)
    numbers = [int.from_bytes(each or b"", "little") for each in bits]
    return pack_rows(np.array(steps), np.array(wall_times), np.array(numbers, np.uint32))


def changed(points: Points) -> list[Points]:
    """Returns lists that differ from this one by as little as they can."""
    found: list[Points] = [points[:-1], [*points, points[-1]], [*points[1:], points[0]], points[::-1]]
    for place, (step, wall_time, bits) in enumerate(points):
        assert bits is not None
        for other in (
            (step + 1, wall_time, bits), (-step, wall_time, bits), (step, np.nextafter(wall_time, 99.0), bits),
            (step, wall_time, bits[:-1] + b"\xff"), (step, wall_time, bits + b"\0"),
        ):  # fmt: skip
            found.append([*points[:place], other, *points[place + 1 :]])
    return found


@pytest.mark.parametrize("many", [1, 200])
def test_equal_is_equal_to_the_last_bit(many: int) -> None:
    """Also where the bytes of many points have been hashed before."""
    points = [(step + 10 * number, wall_time, bits) for number in range(many) for step, wall_time, bits in FEW]
    for is_ordered in (True, False):
        assert hashed(points, is_ordered=is_ordered).equals(hashed([*points], is_ordered=is_ordered))
        assert hashed(points, is_ordered=is_ordered).points == 3 * many
    for other in changed(points):
        assert not hashed(points).equals(hashed(other))
        assert not hashed(other).equals(hashed(points))
        is_same = sorted(points) == sorted(other)  # type: ignore[type-var]
        assert hashed(points, is_ordered=False).equals(hashed(other, is_ordered=False)) == is_same


def test_a_series_is_what_was_added_and_not_what_was_compared() -> None:
    one, other = hashed(FEW), hashed(FEW)
    for _ in range(2):
        assert one.equals(other)
    one.add(3, 13.0, b"x")
    assert not one.equals(other)
    other.add(3, 13.0, b"x")
    assert one.equals(other)


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_as_their_points(seed: int) -> None:
    rng = random.Random(seed)
    points: Points = [(rng.randint(1, 99), rng.uniform(1, 9), rng.randbytes(4)) for _ in range(200)]
    for is_ordered in (True, False):
        hashes = SeriesHashes(is_ordered=is_ordered)
        begin = 0
        while begin < len(points):
            end = begin + rng.choice((1, 2, 30))
            part = points[begin:end]
            if rng.random() < 0.5:
                hashes.take_rows(KEY, rows_of(part))
            else:
                for point in part:
                    hashes.take(KEY, *point)
            begin = end
        assert hashes.series[KEY].equals(hashed(points, is_ordered=is_ordered))
        assert hashes.series[KEY].points == len(points)


def test_each_series_has_its_own_hash() -> None:
    hashes = SeriesHashes()
    for point in FEW:
        hashes.take(KEY, *point)
        hashes.take(OTHER, *point)
    hashes.take_rows(OTHER, rows_of(FEW))
    assert hashes.series[KEY].equals(hashed(FEW))
    assert hashes.series[OTHER].equals(hashed([*FEW, *FEW]))


@pytest.mark.parametrize("is_ordered", [True, False])
def test_points_of_older_rules_are_counted_and_no_more(is_ordered: bool) -> None:
    older: Points = [(step, wall_time, None) for step, wall_time, _ in FEW]
    assert hashed(older, is_ordered=is_ordered).is_counted
    assert not hashed(FEW, is_ordered=is_ordered).is_counted
    for count in (1, 2, 3):
        mixed = [*older[:count], *FEW[count:]]
        for one, other in ((mixed, FEW), (FEW, mixed), (mixed, older)):
            assert hashed(one, is_ordered=is_ordered).equals(hashed(other, is_ordered=is_ordered))
        assert not hashed(mixed[1:], is_ordered=is_ordered).equals(hashed(FEW, is_ordered=is_ordered))


def test_the_set_of_points_is_that_of_all_its_points() -> None:
    """A sum of many numbers of 128 bits stays one of 128 bits, whatever their order."""
    points: Points = [(step, float(step), bytes([step])) for step in range(100)]
    one, other = hashed(points, is_ordered=False), hashed(points[::-1], is_ordered=False)
    assert one.equals(other)
    assert one._sum is not None
    assert 0 <= one._sum < 1 << 128
    assert not hashed([*points, points[0]], is_ordered=False).equals(hashed([*points, points[1]], is_ordered=False))
    assert not Series().equals(hashed(points))
    assert Series().equals(Series())


def test_memory_does_not_grow_with_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_series, "_BUFFER_BYTES", 100)
    series = Series()
    for step in range(50):
        series.add(step, 1.0, bytes(4))
        assert len(series._buffer) <= 100
    assert hashed([(step, 1.0, bytes(4)) for step in range(50)]).equals(series)


# ---------------------------------------------------------------- the first difference


def points_of(points: Points) -> list[SeriesPoint]:
    return [SeriesPoint(*point) for point in points]


def test_the_points_of_a_few_series_are_kept() -> None:
    lists = PointLists({KEY})
    for point in FEW[::-1]:
        lists.take(KEY, *point)
        lists.take(OTHER, *point)
    lists.take_rows(KEY, rows_of(FEW))
    lists.take_rows(OTHER, rows_of(FEW))
    assert lists.of(KEY) == points_of([*FEW[::-1], *FEW])
    with pytest.raises(KeyError):
        lists.of(OTHER)


def test_the_points_have_one_order_where_theirs_is_not_known() -> None:
    tied: Points = [(2, 5.0, b"b"), (2, 5.0, b"a"), (2, 4.0, None), (1, 9.0, b"z"), (2, 4.0, b"a")]
    found = []
    for order in (tied, tied[::-1]):
        lists = PointLists({KEY}, is_ordered=False)
        for point in order:
            lists.take(KEY, *point)
        found.append(lists.of(KEY))
    assert found[0] == found[1]
    assert found[0] == points_of([tied[3], tied[2], tied[4], tied[1], tied[0]])


def number(value: float) -> bytes:
    return Scalar.from_float32(value).bits


@pytest.mark.parametrize(("one", "other", "said"), [
    ([], [(4, 1.0, b"x")], "from step 4 on only in B"),
    ([(4, 1.0, b"x")], [], "from step 4 on only in A"),
    ([(4, 1.0, b"x"), (5, 1.0, b"x")], [(4, 1.0, b"x")], "from step 5 on only in A"),
    ([(4, 1.0, b"x")], [(4, 1.0, b"x"), (6, 1.0, b"x"), (7, 1.0, b"x")], "from step 6 on only in B"),
    ([(4, 1.0, b"x")], [(5, 1.0, b"x")], "point 0: step 4 in A, 5 in B"),
    ([(4, 1.0, b"x"), (5, 1.0, b"x")], [(4, 1.0, b"x"), (5, 1.5, b"x")],
     "point 1: step 5: wall_time 1.0 in A, 1.5 in B"),
    ([(4, 1.0, number(1.5))], [(4, 1.0, number(2.0))],
     "point 0: step 4: value 1.5 (bits 3fc00000) in A, 2.0 (bits 40000000) in B"),
    ([(4, 1.0, bytes(8))], [(4, 1.0, bytes(6) + b"\xf0\x3f")],
     "point 0: step 4: value 0.0 (bits 0000000000000000) in A, 1.0 (bits 3ff0000000000000) in B"),
    ([(4, 1.0, b"")], [(4, 1.0, number(2.0))], "point 0: step 4: the values differ"),
    ([(4, 1.0, number(2.0))], [(4, 1.0, b"")], "point 0: step 4: the values differ"),
    ([(4, 1.0, b"x")], [(4, 1.0, None)], "values differ"),
    ([(4, 1.0, None)], [(4, 1.0, b"x")], "values differ"),
    ([(4, 1.0, None), (5, 1.0, b"x")], [(3, 1.0, b"x"), (6, 1.0, b"x")], "point 1: step 5 in A, 6 in B"),
    (FEW, FEW, "values differ"),
])  # fmt: skip
def test_the_first_difference_is_named(one: Points, other: Points, said: str) -> None:
    assert first_difference(KEY, points_of(one), points_of(other)) == said


@pytest.mark.parametrize("key", [("image", "loss", ""), ("scalar", "loss", "as loss/count")])
def test_values_are_named_only_of_scalars_that_are_not_made(key: Key) -> None:
    one, other = ([SeriesPoint(4, 1.0, number(value))] for value in (1.0, 2.0))
    assert first_difference(key, one, other) == "point 0: step 4: the values differ"
