"""Packed values are MindSpore's own, byte for byte."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image as PillowImage

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.live_writer.pack import bucket_counts, pack_histogram, pack_image, pack_scalar, pack_tensor
from tests.conftest import ROOT, TESTS


@pytest.mark.mindspore
def test_payloads_equal_those_of_mindspore(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    with (tmp_path / "output.txt").open("w") as output:  # MindSpore logs an error for each value it refuses
        subprocess.run(
            [sys.executable, str(TESTS / "bridge_scripts" / "pack_compare.py"), "4000", "0", str(result)],
            check=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=200,
        )
    answer = json.loads(result.read_text())
    assert answer["different"] == []
    assert len(answer["seen"]) == 8, "each kind was packed, and each was refused"


_floats = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.integers(2, 5000),
    elements=st.floats(-(2.0**100), 2.0**100, width=32),
    fill=st.floats(-1, 1, width=32),
)


@given(_floats, st.integers(1, 90))
def test_counts_equal_those_of_numpy(values: np.ndarray, buckets: int) -> None:
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, buckets + 1, dtype=values.dtype)
    if (np.diff(edges) < 0).any():
        return
    np.testing.assert_array_equal(bucket_counts(values, edges), np.histogram(values, bins=edges)[0])


@given(st.integers(0, 2**32), st.sampled_from([np.float32, np.float64]), st.floats(-30, 30), st.floats(-7, 7))
def test_counts_of_many_elements_equal_those_of_numpy(
    seed: int, dtype: type[np.floating], magnitude: float, offset: float
) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(3000) + 10.0**offset) * 10.0**magnitude
    if seed % 2:
        values = np.round(values, 1)  # many values lie on an edge
    values = values.astype(dtype)
    edges = np.linspace(values.min(), values.max(), 91, dtype=dtype)
    if edges[0] == edges[-1]:
        return
    np.testing.assert_array_equal(bucket_counts(values, edges), np.histogram(values, bins=edges)[0])


# B12: none of these may raise out of a step.
@pytest.mark.parametrize(
    ("array", "finite", "nan"),
    [
        (np.full(4, np.nan), 0, 4),
        (np.zeros(0), 0, 0),
        (np.ones(7), 7, 0),
        (np.array([-2.88e28, 9.9e27, 4.6e27, -6.6e27], np.float32), 4, 0),
        (np.array([np.nan, np.inf, 1.0]), 1, 1),
        (np.array([65504, -65504, 1], np.float16), 3, 0),
    ],
    ids=["all NaN", "empty", "constant", "huge", "mixed", "float16 max"],
)
def test_every_element_is_counted_somewhere(array: np.ndarray, finite: int, nan: int) -> None:
    histogram = pack_histogram(array)
    assert sum(histogram.count) == finite
    assert histogram.nan_count == nan
    assert histogram.total == array.size
    assert finite + nan + histogram.pos_inf_count + histogram.neg_inf_count == array.size


@pytest.mark.parametrize("kind", [pack_scalar, pack_tensor, pack_image, pack_histogram])
@pytest.mark.parametrize("array", [np.array(["a"]), np.array([object()])], ids=["text", "object"])
def test_what_is_no_number_is_refused(kind: object, array: np.ndarray) -> None:
    with pytest.raises(InvalidValueError):
        kind(array)  # type: ignore[operator]


def test_bytes_of_a_user_image_stay_what_they_are() -> None:
    pixels = np.random.default_rng(0).integers(3, 200, (1, 3, 5, 4), np.uint8)
    (png,) = pack_image(pixels, keeps_bytes=True).encoded
    shown = np.asarray(PillowImage.open(io.BytesIO(png)))
    np.testing.assert_array_equal(shown, pixels[0].transpose(1, 2, 0))
    (stretched,) = pack_image(pixels).encoded
    assert np.asarray(PillowImage.open(io.BytesIO(stretched))).max() > 200
