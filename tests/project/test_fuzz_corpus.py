"""Inputs that fuzzing kept, and changed ones: a value, a loss that is told or a BridgeError, at a bounded cost.

`tools/torture fuzz` hunts for new ones.
"""

from __future__ import annotations

import random
import time
import warnings
from dataclasses import replace
from itertools import pairwise

import pytest

from ms_summary_bridge.errors import BridgeError
from tools.fuzzing.corpus import CORPUS, read_corpus
from tools.fuzzing.measure import CostError, Counts, try_input
from tools.fuzzing.mutations import cross, mutate
from tools.fuzzing.target import Drawer, Target
from tools.fuzzing.targets import TARGETS

SECS = 0.4
"""Of processor time, for each target."""
MOST_BYTES = 8 << 10
STRUCTURED = (
    "mindspore",
    "tensorboard",
    "wire",
    "tensor",
    "lineage",
    "graph_ms",
    "graph_tb",
    "landscape",
    "state",
    "config",
)


@pytest.mark.tensorboard
@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_and_changed_ones(name: str) -> None:
    target = TARGETS[name]
    inputs = [*target.seeds(), *read_corpus(name)]
    counts = Counts()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for data in inputs:
            try_input(target, data, counts)
        assert counts.refused < counts.tried, "no input is taken: the target tries nothing"
        rng = random.Random(name)
        until = time.process_time() + SECS
        while time.process_time() < until:
            try_input(target, mutate(rng.choice(inputs), target, rng, MOST_BYTES), counts)


def test_what_is_kept_is_small_and_of_a_target() -> None:
    files = list(CORPUS.iterdir())
    assert {path.stem for path in files} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in files) < 200 << 10


def slow(data: bytes) -> None:
    until = time.process_time() + 1.1
    while time.process_time() < until:
        pass


def refuse(data: bytes) -> None:
    raise BridgeError("refused")


def test_what_costs_too_much_is_a_fault_and_what_is_refused_is_none() -> None:
    hoard: list[bytes] = []
    hungry = Target("hungry", "", lambda data: hoard.append(b"x" * (192 << 20)), list)
    with pytest.raises(CostError, match="more memory"):
        try_input(hungry, bytes(64 << 10), Counts())  # large enough for a peak of its own
    hoard.clear()
    with pytest.raises(CostError, match="of processor time"):
        try_input(Target("slow", "", slow, list), b"x", Counts())
    counts = Counts()
    try_input(Target("refuse", "", refuse, list), b"x", counts)
    assert (counts.tried, counts.refused) == (1, 1)


@pytest.mark.parametrize("form", ["bytes", "wire", "records", "lines", "json", "json_lines", "yaml"])
def test_changes_are_bounded_and_come_again(form: str) -> None:
    found = [target for target in TARGETS.values() if target.form == form or form == "bytes"][-1]
    data, most = max(found.seeds(), key=len)[:4000], 5000
    target = replace(found, form=form)
    first, second = ([mutate(data, target, random.Random(n), most) for n in range(300)] for _ in range(2))
    assert first == second
    assert all(len(changed) <= most for changed in first)
    assert len({*first}) > 150
    joined = [cross(one, other, target, random.Random(1), most) for one, other in pairwise(first)]
    assert all(len(changed) <= most for changed in joined)


@pytest.mark.tensorboard
@pytest.mark.parametrize("name", STRUCTURED)
def test_most_changes_get_past_the_outer_layer(name: str) -> None:
    """Behind a refusal nothing is tried."""
    target = TARGETS[name]
    counts = Counts()
    taken = [data for data in target.seeds() if len(data) < MOST_BYTES and try_input(target, data, Counts())]
    rng = random.Random(name)
    while counts.tried < 60:
        try_input(target, mutate(rng.choice(taken), target, rng, MOST_BYTES), counts)
    assert counts.refused < 0.6 * counts.tried


def test_a_drawer_that_is_empty_gives_zeros() -> None:
    drawer = Drawer(b"\x05\x07")
    assert (drawer.below(4), drawer.take(4), drawer.below(9), drawer.double()) == (1, b"\7\0\0\0", 0, 0.0)
