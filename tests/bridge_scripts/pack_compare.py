"""Compares this package's packing with MindSpore's own `_pack_data` on random arrays.

Usage: python tests/bridge_scripts/pack_compare.py CASES SEED RESULT.json
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from mindspore.train.summary._writer_pool import _pack_data
from mindspore.train.summary_pb2 import Event as EventPb

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.formats.mindspore import FORMAT, MindSporeEncoder
from ms_summary_bridge.live_writer.pack import pack_histogram, pack_image, pack_scalar, pack_tensor

PACKERS = {"scalar": pack_scalar, "tensor": pack_tensor, "image": pack_image, "histogram": pack_histogram}
DTYPES = (
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64),
)


def make_array(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Returns an array of some dtype, shape and range, now and then with what is not finite."""
    dtype = DTYPES[rng.integers(len(DTYPES))]
    shape = tuple(rng.integers(0 if rng.random() < 0.1 else 1, 6, size=rng.integers(0, 5)))
    if kind == "image" and rng.random() < 0.9:
        shape = (rng.integers(1, 12), (1, 3, 2)[rng.integers(3)], rng.integers(1, 9), rng.integers(1, 9))
    if kind == "histogram" and rng.random() < 0.5:
        shape = (rng.integers(1, 5000),)
    array = rng.standard_normal(shape) * 10.0 ** (rng.integers(-45, 39) if rng.random() < 0.3 else rng.integers(-2, 4))
    if rng.random() < 0.3:
        array = rng.random(shape)
    if rng.random() < 0.2:
        array = np.round(array)
    if rng.random() < 0.1:
        array = np.full(shape, 3.25)
    if rng.random() < 0.1:
        array = 1e7 + rng.integers(0, 9, shape)  # neighbours in float32
    if rng.random() < 0.05:
        array = rng.standard_normal(shape) * 1e-40  # denormal in float32
    array = np.asarray(array).astype(dtype)
    if array.dtype.kind == "f" and array.ndim and rng.random() < 0.4:
        chance = rng.random(shape)
        array[chance < 0.1] = np.nan
        array[(chance > 0.1) & (chance < 0.15)] = np.inf
        array[(chance > 0.15) & (chance < 0.2)] = -np.inf
        if rng.random() < 0.1:
            array = np.full(shape, np.nan, dtype)
        if rng.random() < 0.3:
            array = -array  # NaN with a sign
    return array


def pack_theirs(kind: str, array: np.ndarray) -> bytes | None:
    """Returns MindSpore's payload; None where it raises or leaves the value out."""
    try:
        ((_, payload),) = _pack_data({kind: [{"tag": "t", "value": array, "step": 5}]}, 1.5)
    except Exception:  # whatever it raises
        return None
    return payload if EventPb.FromString(payload).summary.value else None


def pack_ours(encoder: MindSporeEncoder, kind: str, array: np.ndarray) -> bytes | None:
    try:
        value = PACKERS[kind](array)
    except InvalidValueError:
        return None
    return encoder.encode(Event(1.5, 5, Summary((TaggedValue("t", value),)), FORMAT)).payload


def main() -> None:
    count, seed, result = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    rng = np.random.default_rng(seed)
    encoder = MindSporeEncoder()
    different: list[Any] = []
    seen: dict[str, int] = {}
    for number in range(count):
        kind = tuple(PACKERS)[number % len(PACKERS)]
        array = make_array(rng, kind)
        theirs, ours = pack_theirs(kind, array), pack_ours(encoder, kind, array)
        seen[f"{kind} {'packed' if theirs else 'refused'}"] = (
            seen.get(f"{kind} {'packed' if theirs else 'refused'}", 0) + 1
        )
        if theirs != ours:
            how = "ours refuses" if ours is None else "theirs refuses" if theirs is None else "bytes differ"
            different.append([how, kind, str(array.dtype), array.shape, array.reshape(-1)[:4].tolist()])
    result.write_text(json.dumps({"different": different, "seen": seen}, default=str))


if __name__ == "__main__":
    main()
