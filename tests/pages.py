"""Pages of the viewers in a headless Chromium, which Playwright drives; their pictures are kept in test-artifacts/.

The fixture `page` of conftest.py gives a test its page. Playwright drives the Chromium of the system: it has none of
its own here, and downloads none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image as Pillow

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["count_coloured", "count_colours", "main_colour", "open_page", "photograph", "photograph_once"]

ARTIFACTS = Path(__file__).resolve().parents[1] / "test-artifacts"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # WebGL by the processor: surfaces are drawn with it.
    "--disable-gpu",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)
WAIT_SECS = 60.0
"""How long a page is waited for: viewers load, lay out and draw, on a machine that may be busy."""


@contextlib.contextmanager
def open_page(*, width: int = 1400, height: int = 1000) -> Iterator[Page]:
    """Opens an empty page, and ends its browser with the block; skips the test where there is no browser.

    Args:
        width: Of the page, in pixels.
        height: Of the page, in pixels.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("NO PAGE IS LOOKED AT: Chromium is not installed (apt-get install chromium, as root)")
    playwright = pytest.importorskip("playwright.sync_api", reason="NO PAGE IS LOOKED AT: pip install playwright")
    with playwright.sync_playwright() as driver:
        # Chromium puts a socket into the temporary directory, and a test's may be too long for its name.
        environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
        browser = driver.chromium.launch(executable_path=chromium, args=list(ARGUMENTS), env=environment)
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(WAIT_SECS * 1000)
            yield page
        finally:
            browser.close()


def photograph_once(page: Page, name: str) -> Path:
    """Takes a picture of what is to be seen now."""
    ARTIFACTS.mkdir(exist_ok=True)
    path = ARTIFACTS / f"{name}.png"
    page.screenshot(path=path)
    return path


def photograph(
    page: Page, name: str, measure: Callable[[Path], int], least: int, *, timeout_secs: float = WAIT_SECS
) -> Path:
    """Takes pictures until two in a row show enough, and so the page has been drawn.

    Args:
        page: What is looked at.
        name: Of the picture in test-artifacts/.
        measure: Says how much a picture shows: `count_colours` or `count_coloured`.
        least: What it must be.
        timeout_secs: How long it is waited for.

    Raises:
        AssertionError: It was not, in time.
    """
    deadline = time.monotonic() + timeout_secs
    enough = 0
    while True:
        path = photograph_once(page, name)
        found = measure(path)
        enough = enough + 1 if found >= least else 0
        if enough == 2:
            return path
        assert time.monotonic() < deadline, f"{path}: {measure.__name__} is {found}, and should be {least}"
        page.wait_for_timeout(500)


def colours(path: Path) -> Counter[tuple[int, int, int]]:
    with Pillow.open(path) as picture:
        found = picture.convert("RGB").getcolors(1 << 23)
    assert found is not None
    return Counter({colour: number for number, colour in found})


def count_colours(path: Path) -> int:
    """Returns how many colours a picture has: a page that is not drawn has few; none if almost all of it is one."""
    found = colours(path)
    return len(found) if found.most_common(1)[0][1] < 0.97 * found.total() else 0


def main_colour(path: Path) -> tuple[int, int, int]:
    """Returns the colour that most of a picture has."""
    return colours(path).most_common(1)[0][0]


def count_coloured(path: Path) -> int:
    """Returns how many pixels below the head of a page are neither grey nor nearly so."""
    with Pillow.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"), np.int16)[100:]
    return int((np.ptp(pixels, axis=2) > 60).sum())
