"""What MindInsight can draw: values of a TensorBoard log, fitted to its rules.

Layer: values, formats.wire, formats._tensor < **formats.mindinsight**.

Source: the rules were measured on MindInsight 2.3.1. It drops a histogram of more than 90 buckets without a word, draws
a bucket without width as empty, and shows nothing where min is above max; it serves every image as PNG; of a tensor it
reads `float_data` alone.
"""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError, UnsupportedValueError
from ms_summary_bridge.events import TaggedValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats._tensor import decode_tensorboard_tensor
from ms_summary_bridge.values import Histogram, Image, Opaque, Tensor

__all__ = ["MAX_BUCKETS", "MAX_TENSOR_ELEMENTS", "fit_histogram", "fit_value"]

MAX_BUCKETS: Final = 90
MAX_TENSOR_ELEMENTS: Final = 10_000_000
_CHANNELS: Final = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_AS_TENSORS: Final = ("pr_curves", "mesh")
_PNG: Final = b"\x89PNG\r\n\x1a\n"


def fit_value(tagged: TaggedValue) -> tuple[list[TaggedValue], str]:
    """Returns the values to write for one value of a TensorBoard log, and what they do not hold of it.

    Raises:
        UnsupportedValueError: MindInsight has no place for this kind, or cannot draw this value.
    """
    value = tagged.value
    if isinstance(value, Histogram):
        return [TaggedValue(tagged.tag, fit_histogram(value))], "min, max and sum are computed from the buckets"
    if isinstance(value, Image):
        return _fit_image(tagged.tag, value)
    if isinstance(value, Tensor):
        return [TaggedValue(tagged.tag, _fit_tensor(value))], ""
    if isinstance(value, Opaque):
        return [TaggedValue(tagged.tag, _tensor_of(value))], f"a {value.kind} shown as a tensor"
    return [TaggedValue(tagged.tag, value)], _description_of(tagged)


def _description_of(tagged: TaggedValue) -> str:
    """What a value's metadata says beside its kind: MindSpore has no place for a name or a description."""
    message = tagged.original
    if message is None:
        return ""
    for key, a, b in wire.fields(message, 0, len(message)):
        if key == 0x4A:
            for inner, c, d in wire.fields(message, a, b):
                if inner in (0x12, 0x1A) and d > c:
                    return "the display name or description is left out"
    return ""


# ---------------------------------------------------------------- histograms


def fit_histogram(histogram: Histogram) -> Histogram:
    """Returns the histogram with at most 90 buckets, each of a positive, finite width, and with its range set.

    Neighbours are merged: no count is moved to a bucket that does not cover it. A bucket without width is widened into
    the gap beside it, or by half to each side when it stands alone; an infinite edge is drawn at the finite one.
    """
    count = np.asarray(histogram.count, np.float64)
    keep = count != 0
    if not keep.any():
        low = _finite(histogram.min)
        return _make(np.array([low - 0.5]), np.array([low + 0.5]), np.zeros(1), low, low, histogram)
    first, last = int(np.argmax(keep)), len(keep) - int(np.argmax(keep[::-1]))
    left, right, count = histogram.left[first:last].copy(), histogram.right[first:last].copy(), count[first:last]
    finite = np.concatenate([left[np.isfinite(left)], right[np.isfinite(right)]])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    left = np.clip(np.nan_to_num(left, nan=low, posinf=high, neginf=low), low, high)
    right = np.clip(np.nan_to_num(right, nan=high, posinf=high, neginf=low), low, high)
    minimum = _finite(histogram.min, low) if histogram.min is not None else low
    maximum = _finite(histogram.max, high) if histogram.max is not None else high
    minimum, maximum = min(minimum, maximum), max(minimum, maximum)
    if len(count) > MAX_BUCKETS:
        group = -(-len(count) // MAX_BUCKETS)
        starts = np.arange(0, len(count), group)
        ends = np.minimum(starts + group, len(count)) - 1
        left, right, count = left[starts], right[ends], np.add.reduceat(count, starts)
    return _make(*_widen(left, right), count, minimum, maximum, histogram)


def _finite(number: float | None, default: float = 0.0) -> float:
    return float(number) if number is not None and np.isfinite(number) else default


def _widen(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    narrow = ~(right - left > 0)
    if narrow.all() and (left == left[0]).all():
        half = max(0.5, abs(float(left[0])) * 2.0**-50)
        return left - half, right + half
    for index in np.flatnonzero(narrow):
        neighbour = right[index - 1] if index else -np.inf
        after = left[index + 1] if index + 1 < len(left) else np.inf
        step = max(abs(left[index]) * 2.0**-50, 2.0**-1000)
        left[index] = max(neighbour, left[index] - step) if neighbour < left[index] else left[index]
        right[index] = max(left[index] + step, min(after, right[index] + step) if after > right[index] else 0.0)
    return left, right


def _make(
    left: npt.NDArray[np.float64],
    right: npt.NDArray[np.float64],
    count: npt.NDArray[np.float64],
    minimum: float,
    maximum: float,
    source: Histogram,
) -> Histogram:
    total = source.total
    return Histogram(
        left=left,
        right=right,
        count=count,
        min=minimum,
        max=maximum,
        sum=source.sum,
        total=int(count.sum()) if total is None or not np.isfinite(total) else total,
        nan_count=source.nan_count,
        pos_inf_count=source.pos_inf_count,
        neg_inf_count=source.neg_inf_count,
    )


# ---------------------------------------------------------------- images


def _fit_image(tag: str, image: Image) -> tuple[list[TaggedValue], str]:
    """A batch becomes one series for each image, `<tag>/0`, `<tag>/1`, ...; sizes are those of the encoded bytes."""
    fitted: list[TaggedValue] = []
    losses: list[str] = []
    for index, encoded in enumerate(image.encoded):
        try:
            part, loss = _as_png(encoded)
        except InvalidValueError as error:
            losses.append(f"image {index} of {len(image.encoded)} left out: {error.message}")
            continue
        if loss:
            losses.append(loss)
        elif (image.height, image.width, image.colorspace) != (part.height, part.width, part.colorspace):
            losses.append("size and colours were wrong and are those of the image itself")
        fitted.append(TaggedValue(tag if len(image.encoded) == 1 else f"{tag}/{index}", part))
    if not fitted:
        raise UnsupportedValueError(losses[0] if losses else "there is no image")
    if len(image.encoded) > 1:
        losses.insert(0, f"a batch of {len(image.encoded)} images under tags of their own")
    return fitted, "; ".join(dict.fromkeys(losses))


def _as_png(encoded: bytes) -> tuple[Image, str]:
    try:
        with PillowImage.open(io.BytesIO(encoded)) as picture:
            frames = getattr(picture, "n_frames", 1)
            if encoded.startswith(_PNG) and picture.mode in _CHANNELS:
                return Image(picture.height, picture.width, _CHANNELS[picture.mode], (encoded,)), ""
            kind = picture.format or "unknown"
            mode = picture.mode if picture.mode in _CHANNELS else "RGBA" if "transparency" in picture.info else "RGB"
            output = io.BytesIO()
            picture.convert(mode).save(output, format="PNG")
            loss = f"{kind} encoded again as PNG" + (f", {frames - 1} frames left out" if frames > 1 else "")
            return Image(picture.height, picture.width, _CHANNELS[mode], (output.getvalue(),)), loss
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, PillowImage.DecompressionBombError) as error:
        raise InvalidValueError(f"not an image ({len(encoded)} bytes): {error}") from error


# ---------------------------------------------------------------- tensors


def _fit_tensor(tensor: Tensor) -> Tensor:
    if tensor.array.size > MAX_TENSOR_ELEMENTS:
        raise UnsupportedValueError(f"{tensor.array.size:,} elements, and MindInsight shows 10,000,000 at most")
    return tensor


def _tensor_of(value: Opaque) -> Tensor:
    """Reads the array inside a value of a plugin that stores one (precision-recall curves, meshes)."""
    if value.kind == "hparams":
        raise UnsupportedValueError("hyperparameters are shown as lineage")
    if value.kind not in _AS_TENSORS:
        raise UnsupportedValueError(value.reason or f"MindInsight has no place for a {value.kind}")
    array: npt.NDArray[Any] | list[bytes] | None = None
    try:
        for key, a, b in wire.fields(value.payload, 0, len(value.payload)):
            if key == 0x42:
                array = decode_tensorboard_tensor(value.payload, a, b)
    except (EventDecodeError, InvalidValueError) as error:
        raise UnsupportedValueError(f"a {value.kind} that cannot be read: {error.message}") from error
    if array is None or isinstance(array, list):
        raise UnsupportedValueError(f"a {value.kind} without numbers")
    return _fit_tensor(Tensor(array.copy(), array.dtype.name))
