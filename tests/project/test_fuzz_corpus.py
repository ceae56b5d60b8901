"""Inputs that fuzzing kept, and changed ones: a value, a loss that is told or a BridgeError, at a bounded cost.

`tools/torture fuzz` hunts for new ones.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ms_summary_bridge.errors import BridgeError
from tools.fuzzing.corpus import CORPUS, read_corpus
from tools.fuzzing.growth import grown_inputs
from tools.fuzzing.measure import CostError, Counts, proof, try_input
from tools.fuzzing.mutations import cross, mutate
from tools.fuzzing.target import Drawer, Target
from tools.fuzzing.targets import TARGETS

sys.path.append(str(CORPUS.parents[2] / "tools"))

from torturing import fuzz

SECS = float(os.environ.get("MSB_FUZZ_SECS", "0.4"))
"""Of processor time, for each target; `tools/test` gives ten, in a step of its own."""
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


def test_what_a_proof_takes_is_not_counted_and_what_comes_before_and_behind_it_is() -> None:
    def take(data: bytes, before: int, inside: int, behind: int, made: int = 0) -> None:
        for size, is_proof in ((before, False), (inside, True), (behind, False)):
            with proof(made) if is_proof else contextlib.nullcontext():
                bytearray(b"x") * size

    for sizes, is_fault in (((1, 150 << 20, 1), False), ((150 << 20, 1, 1), True), ((1, 1, 150 << 20), True)):
        target = Target("proves", "", functools.partial(take, before=sizes[0], inside=sizes[1], behind=sizes[2]), list)
        with pytest.raises(CostError, match="more memory") if is_fault else contextlib.nullcontext():
            try_input(target, bytes(64 << 10), Counts())
    made = functools.partial(take, before=150 << 20, inside=1, behind=1, made=100 << 20)
    try_input(Target("makes", "", made, list), bytes(64 << 10), Counts())


def test_the_whole_run_of_the_tests_gives_each_target_ten_seconds() -> None:
    text = (CORPUS.parents[2] / "tools" / "test").read_text(encoding="utf-8")
    assert "MSB_FUZZ_SECS=10 " in text
    assert "test_fuzz_corpus.py" in text


def test_large_inputs_are_of_a_mebibyte_and_hunts_of_a_target_add_up(tmp_path: Path) -> None:
    hunt = [sys.executable, "-m", "tools.fuzzing.hunt", "names", "--seconds", "1", "--out"]
    root = str(CORPUS.parents[2])
    for directory, option in (("one", "--large"), ("two", "--blind")):
        subprocess.run(
            [*hunt, tmp_path / directory, option], check=True, cwd=root, env={**os.environ, "PYTHONPATH": root}
        )
    tried = [json.loads((tmp_path / name / "result.json").read_text())["tried"] for name in ("one", "two")]
    secs, (row,) = fuzz.add_up(tmp_path)
    assert secs >= 1.0
    assert (row.tried, row.faults) == (sum(tried), 0)
    assert min(tried) > 0
    assert row.what == "inputs to names of files and runs: 0.0 minutes of processor time"
    sizes = [len(data) for data in grown_inputs(TARGETS["names"], TARGETS["names"].seeds())]
    assert 0.9 * 2**20 < min(sizes) <= max(sizes) < 1.1 * 2**20


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
