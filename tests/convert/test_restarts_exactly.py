"""How far a later file is read ahead, what counts there, and what is said of it: each bound, at its value."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.convert import restarts
from ms_summary_bridge.convert.restarts import FileWalk, ReadAhead, Restart, may_grow
from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.convert.state import Undecided
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.tensorboard import TensorBoardEncoder
from ms_summary_bridge.values import Opaque
from tests.mindspore_run import START, event, scalar, write_summary

BOUND = 1000
NO_AHEAD: Any = None


def losses(*steps: int, tag: str = "loss") -> list[Event]:
    return [event(step, (tag, scalar(step))) for step in steps]


def written(*events: Event) -> SeriesTable:
    """Returns the series of what earlier files have shown."""
    table = SeriesTable()
    for item in events:
        if isinstance(item.content, Summary):
            table.observe(item, item.content)
        else:
            table.observe_whole(item)
    table.begin_file(1)
    return table


def ahead_of(*before: Event, is_wanted: Callable[[str], bool] = lambda _: True) -> ReadAhead:
    return ReadAhead(written(*before), MindSporeDecoder, TensorBoardEncoder(), is_wanted)


def walk_of(directory: Path, events: list[Event], **given: Any) -> FileWalk:
    """Returns a walk through a later file; its version is the first event, the given ones follow."""
    path = write_summary(directory, events)
    return FileWalk(str(path), 0, path.stat().st_size, MindSporeDecoder(), undecided=Undecided(), **given)


def pieces_of(walk: FileWalk, ahead: ReadAhead) -> list[str]:
    """Returns what a walk gives out, with its series noted: a version, the steps, and where a restart stands."""
    found = []
    for piece in walk.pieces(ahead):
        if isinstance(piece, Restart):
            ahead.series.restart(piece.step)
            found.append(f"restart at {piece.step}")
        else:
            assert isinstance(piece, Event)
            if isinstance(piece.content, Summary):
                ahead.series.observe(piece, piece.content)
            found.append(str(piece.step) if isinstance(piece.content, Summary) else "version")
    return found


@pytest.mark.parametrize(("going_on", "is_restart"), [(BOUND - 2, True), (BOUND - 1, False)])
def test_what_goes_back_is_looked_for_in_as_many_events_as_the_bound(
    tmp_path: Path, going_on: int, is_restart: bool
) -> None:
    """Together with the version these are 999 and 1,000 events before the one that goes back."""
    new = losses(*range(-going_on, 0), tag="new")
    found = pieces_of(walk_of(tmp_path, [*new, *losses(5)]), ahead_of(*losses(*range(9))))
    begins = ["restart at 5"] * is_restart
    assert found == ["version", *(str(item.step) for item in new), *begins, "5"]
    look = ahead_of(*losses(*range(9))).look(walk_of(tmp_path, [*new, *losses(5)]))
    assert (look.undecided is not None) is is_restart
    if look.undecided is not None:
        assert look.undecided.waited == going_on + 1


@pytest.mark.parametrize(("unproved", "is_held"), [(BOUND - 1, True), (BOUND, False)])
def test_a_file_that_may_grow_waits_for_its_proof_up_to_the_bound(tmp_path: Path, unproved: int, is_held: bool) -> None:
    """`other`, at step 9, is replaced by nothing; the version counts."""
    walk = walk_of(tmp_path, losses(*range(5, 5 + unproved - 1)), may_grow=True)
    look = ahead_of(*losses(*range(9)), *losses(9, tag="other")).look(walk)
    assert (look.undecided is not None and look.undecided.is_held) is is_held
    assert (look.until, look.step) == (0 if is_held else walk.end, None)
    assert ("('other')" in look.reason) is not is_held


@pytest.mark.parametrize(
    ("head", "begins"),
    [
        (losses(5, tag="new"), "before"),
        (losses(5, 5, tag="new"), "before"),
        (losses(6, tag="new"), "behind"),
        (losses(5, tag="new") + losses(6, tag="newer"), "behind"),
        (losses(6, tag="new") + losses(5, tag="newer"), "behind"),
        (losses(5, tag="low"), "behind"),
    ],
)
def test_a_mark_stands_before_new_tags_of_its_first_step_alone(tmp_path: Path, head: list[Event], begins: str) -> None:
    """Before tags of another step, or one that goes on (`low` has a point at 3), what has been seen is written."""
    walk = walk_of(tmp_path, [*head, *losses(5)])
    look = ahead_of(*losses(*range(9)), *losses(3, tag="low")).look(walk)
    if begins == "before":
        assert (look.until, look.step, look.undecided) == (0, 5, None)
    else:
        assert look.until > 0
        assert look.step is None
        seen = sorted({("scalar", tagged.tag) for item in head for tagged in item.content.values})  # type: ignore[union-attr]
        assert look.undecided == Undecided(len(head) + 1, seen)


@pytest.mark.parametrize("is_growing", [True, False])
@pytest.mark.parametrize("is_head", [True, False])
def test_only_the_head_of_a_file_that_may_grow_is_held(tmp_path: Path, is_growing: bool, is_head: bool) -> None:
    walk = walk_of(tmp_path, losses(*[20, 20] if is_head else [20, 21], tag="new"), may_grow=is_growing)
    look = ahead_of(*losses(*range(9))).look(walk)
    if is_growing and is_head:
        assert look.until == 0
        assert look.undecided == Undecided(is_held=True)
    else:
        assert look.until == walk.end
        assert look.undecided == Undecided(3, [("scalar", "new")])


def test_a_file_without_events_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    walk = FileWalk(str(path), 0, 0, MindSporeDecoder(), undecided=Undecided(), may_grow=True)
    assert ahead_of(*losses(3)).look(walk).undecided == Undecided()


def test_what_is_not_wanted_neither_goes_back_nor_replaces(tmp_path: Path) -> None:
    def is_wanted(tag: str) -> bool:
        return tag != "unwanted"

    before = [*losses(*range(9)), *losses(7, tag="unwanted")]
    walk = walk_of(tmp_path, [*losses(3, tag="unwanted"), *losses(20)])
    look = ahead_of(*before, is_wanted=is_wanted).look(walk)
    assert (look.until, look.step, look.reason) == (walk.end, None, "")
    walk = walk_of(tmp_path, [*losses(3), *losses(3, tag="unwanted")])
    look = ahead_of(*before, is_wanted=is_wanted).look(walk)
    assert look.step is None
    assert "('unwanted')" in look.reason
    assert ahead_of(*before).look(walk).step == 3


@pytest.mark.parametrize(
    ("others", "named"),
    [
        (["b"], "'b'"),
        (["c", "b", "d"], "'b', 'c', 'd'"),
        (["c", "b", "d", "e"], "'b', 'c', 'd' and 1 more"),
        (["c", "b", "d", "e", "f"], "'b', 'c', 'd' and 2 more"),
    ],
)
def test_a_reason_names_three_tags_and_counts_the_others(tmp_path: Path, others: list[str], named: str) -> None:
    before = [*losses(*range(9)), *(item for tag in others for item in losses(8, tag=tag))]
    look = ahead_of(*before).look(walk_of(tmp_path, losses(5)))
    assert look.reason == (
        f"goes back to step 5, but does not replace all points from there on ({named}): no restart is marked, "
        "which would hide them"
    )


class Prepared:
    """A decoder of a file of two records: the first is its version, the second what the test says."""

    def __init__(self, *events: Event) -> None:
        self._events = iter(events)

    def decode(self, payload: bytes) -> Event:
        return next(self._events)


@pytest.mark.parametrize(("step", "is_restart"), [(0, True), (1, False)])
def test_lineage_is_replaced_by_lineage_at_step_0_alone(tmp_path: Path, step: int, is_restart: bool) -> None:
    lineage = Event(float(START), step, Opaque("lineage", b""), "mindspore")
    again = losses(0)[0]
    ahead = ahead_of(*losses(0, 1))
    ahead.make_decoder = lambda: Prepared(again, lineage)
    ahead._is_shown = lambda event, tagged: True  # type: ignore[method-assign]
    look = ahead.look(walk_of(tmp_path, losses(0), has_lineage=True))
    assert look.step == (0 if is_restart else None)
    assert ("(lineage)" in look.reason) is not is_restart


def test_a_walk_is_of_a_file_that_is_whole_and_has_no_lineage_unless_it_is_said(tmp_path: Path) -> None:
    walk = walk_of(tmp_path, losses(5))
    assert (walk.may_grow, walk.has_lineage, walk.offset) == (False, False, 0)


def test_where_nothing_is_new_a_file_is_not_opened(tmp_path: Path) -> None:
    assert [*FileWalk(str(tmp_path / "gone"), 7, 7, MindSporeDecoder()).pieces(NO_AHEAD)] == []


def test_the_latest_wall_time_is_known_where_a_walk_ends_before_its_file(tmp_path: Path) -> None:
    path = write_summary(tmp_path, losses(5, 6))
    whole = path.stat().st_size
    write_summary(tmp_path, losses(5, 6, 7))
    walk = FileWalk(str(path), 0, whole, MindSporeDecoder())
    assert [piece.step for piece in walk.pieces(NO_AHEAD) if isinstance(piece, Event)] == [0, 5, 6]
    assert walk.last_time == START + 6


def test_a_file_may_grow_until_it_was_left_alone_for_ten_minutes_or_its_owner_may_not_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch(mode=0o644)
    os.utime(path, (1000, 1000))
    for now, expected in [(1599.75, True), (1600.0, False), (1600.5, False)]:
        monkeypatch.setattr(restarts.time, "time", lambda now=now: now)  # type: ignore[attr-defined]
        assert may_grow(str(path)) is expected
    monkeypatch.setattr(restarts.time, "time", lambda: 1001.0)  # type: ignore[attr-defined]
    for mode, expected in [(0o200, True), (0o577, False), (0o400, False), (0o755, True)]:
        path.chmod(mode)
        assert may_grow(str(path)) is expected
    assert may_grow("memory://elsewhere/file"), "nothing is known of it"
