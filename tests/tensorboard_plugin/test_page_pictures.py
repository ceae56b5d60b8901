"""Ten states of the page look as they did when a person last looked at them.

The pictures are in `pictures/`. After a change that is meant to be seen, MSB_KEEP_PICTURES=1 writes them anew; look at
each before it is committed. They are compared coarsely: another machine draws letters in another way, and times and
paths differ from run to run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from tests.pages import photograph_once
from tests.tensorboard_plugin.page_logs import Dashboard, running_dashboard
from tests.tensorboard_plugin.test_page import state

pytestmark = pytest.mark.tensorboard
KEPT = Path(__file__).with_name("pictures")
BLOCK = 8  # pixels that are taken together
LEVELS = 24  # of 255: a block that differs by more is another one
MOST = 0.05  # of all blocks may be others

STATES: dict[str, dict[str, Any]] = {
    "table-light": {},
    "table-dark": {"dark": True},
    "groups": {"state": state(group="folder")},
    "baseline": {"state": state(base="lenet/slow", check=["lenet/fast", "lenet/slow"], pin=["lenet/seeded"], log="1")},
    "search": {"state": state(q="^lenet/[fs]", re="1", sort="-best")},
    "run-light": {"state": state(run="lenet/fast")},
    "run-dark": {"state": state(run="llm/run"), "dark": True},
    "ranks": {"state": state(run="gpt/four_ranks")},
    "phone": {"width": 390, "height": 844},
    "thousand": {"width": 1024, "height": 768},
}


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with running_dashboard(tmp_path_factory.mktemp("page")) as dashboard:
        yield dashboard


def difference(one: Path, other: Path) -> float:
    """Returns which share of the blocks of two pictures is not alike; 1 where they have not the same size."""
    blocks = []
    for path in (one, other):
        with Pillow.open(path) as picture:
            grey = picture.convert("L")
            size = (grey.width // BLOCK, grey.height // BLOCK)
            blocks.append(np.asarray(grey.resize(size, Pillow.Resampling.BOX), np.int16))
    if blocks[0].shape != blocks[1].shape:
        return 1.0
    return float((np.abs(blocks[0] - blocks[1]) > LEVELS).mean())


@pytest.mark.parametrize("name", STATES)
def test_it_looks_as_it_did(dashboard: Dashboard, name: str) -> None:
    options = {"width": 1280, "height": 860, **STATES[name]}
    with dashboard.of_many_runs(1000) if name == "thousand" else contextlib.nullcontext():
        frame = dashboard.open(**options)
        frame.locator(".plot .u-over").first.wait_for()
        frame.locator(".run .happening:visible, .overlay .legend tbody tr").first.wait_for()  # when points have come
        frame.wait_for_timeout(500)
        path = photograph_once(dashboard.page, f"page-{name}")
    kept = KEPT / f"{name}.png"
    if os.environ.get("MSB_KEEP_PICTURES"):
        KEPT.mkdir(exist_ok=True)
        with Pillow.open(path) as picture:
            picture.convert("RGB").quantize(128).save(kept, optimize=True)
    found = difference(path, kept)
    assert found <= MOST, f"{path} is not {kept}: {found:.1%} of it differ"
    dashboard.assert_faultless()


def test_states_are_told_apart() -> None:
    pictures = sorted(KEPT.glob("*.png"))
    assert [path.stem for path in pictures] == sorted(STATES)
    apart = {
        (one.stem, other.stem): difference(one, other)
        for one in pictures
        for other in pictures
        if one.stem < other.stem
    }
    assert {pair: share for pair, share in apart.items() if share <= MOST} == {}
