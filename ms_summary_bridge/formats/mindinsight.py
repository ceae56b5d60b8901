"""What MindInsight can draw: values of a TensorBoard log, fitted to its rules.

Source: the rules were measured on MindInsight 2.3.1. It drops a histogram of more than 90 buckets without a word, draws
a bucket without width as empty, and shows nothing where min is above max; it serves every image as PNG; of a tensor it
reads `float_data` alone.
"""

from __future__ import annotations

import io
import struct
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError, UnsupportedValueError, counted
from ms_summary_bridge.events import TaggedValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.kind_names import with_article
from ms_summary_bridge.formats.plugin_data import decode_metadata, decode_origin
from ms_summary_bridge.formats.tensor import decode_tensorboard_tensor
from ms_summary_bridge.values import Histogram, Image, Opaque, Tensor

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL import Image as PillowImage

__all__ = ["MAX_BUCKETS", "MAX_PIXELS", "MAX_TENSOR_ELEMENTS", "fit_histogram", "fit_value"]

MAX_BUCKETS: Final = 90
MAX_TENSOR_ELEMENTS: Final = 10_000_000
MAX_PIXELS: Final = 100_000_000
"""Pixels of the largest image that is encoded again as PNG, which takes pillow up to 0.8 GB (measured on 13.0)."""
_LIMIT: Final = f"an image of more than {MAX_PIXELS:,} is not encoded again as PNG"
_CHANNELS: Final = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_AS_TENSORS: Final = ("pr_curves", "mesh")
_READABLE: Final = ("JPEG", "GIF", "BMP", "WEBP", "TIFF", "ICO", "PPM")
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD: Final = struct.Struct(">16sIIBB")  # signature and name of the first chunk; width, height, depth, colour type
_PNG_COLOURS: Final = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
# What its plugins let through on files that are not what they seem. UnidentifiedImageError is an OSError.
_PILLOW_ERRORS: Final = (
    OSError, ValueError, SyntaxError, EOFError, TypeError, IndexError, KeyError, OverflowError, MemoryError,
    struct.error, AttributeError, NotImplementedError, RuntimeError,
)  # fmt: skip


def fit_value(tagged: TaggedValue) -> tuple[list[TaggedValue], str]:
    """Returns the values to write for one value of a TensorBoard log, and what they do not hold of it.

    Raises:
        UnsupportedValueError: MindInsight has no place for this kind, or cannot draw this value.
    """
    value = tagged.value
    if isinstance(value, Histogram):
        if _is_of_mindspore(tagged):
            return [tagged], ""
        fitted, loss = fit_histogram(value)
        if value.min is None:
            return [TaggedValue(tagged.tag, fitted)], loss or "min, max and sum are computed from the buckets"
        return [TaggedValue(tagged.tag, fitted)], loss or "the sum of squares is left out"
    if isinstance(value, Image):
        return _fit_image(tagged.tag, value)
    if isinstance(value, Tensor):
        return [TaggedValue(tagged.tag, _fit_tensor(value))], ""
    if isinstance(value, Opaque):
        return [TaggedValue(tagged.tag, _tensor_of(value))], f"a {value.kind} shown as a tensor"
    return [TaggedValue(tagged.tag, value)], _description_of(tagged)


def _description_of(tagged: TaggedValue) -> str:
    """What a value's metadata says beside its kind: MindSpore has no place for a name or a description."""
    for metadata in _metadata_of(tagged):
        if any(key in (0x12, 0x1A) and b > a for key, a, b in wire.fields(metadata, 0, len(metadata))):
            return "the display name or description is left out"
    return ""


def _is_of_mindspore(tagged: TaggedValue) -> bool:
    """Whether a value is one of MindSpore's that this package wrote down for TensorBoard."""
    return any(decode_origin(decode_metadata(each, 0, len(each))[1]) is not None for each in _metadata_of(tagged))


def _metadata_of(tagged: TaggedValue) -> list[bytes]:
    return wire.all_fields(tagged.original, 0x4A) if tagged.original else []


# ---------------------------------------------------------------- histograms

_LARGEST_EDGE: Final = sys.float_info.max / 4  # the difference of two such is a float64
_LEAST_WIDTH: Final = 2.0**-1000


def fit_histogram(histogram: Histogram) -> tuple[Histogram, str]:
    """Returns a histogram of at most 90 buckets, each of a positive, finite width, and what was changed for that.

    The range is set and covers every bucket that holds something. Where there are too many buckets, the empty ones are
    left out, and then neighbours that begin in the same ninetieth of the range become one: each count stays between
    edges that the source has around it.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN
        count = np.nan_to_num(np.asarray(histogram.count, np.float64), nan=0.0, neginf=0.0).clip(0.0, 2.0**62)
    notes = (
        []
        if np.array_equal(count, histogram.count)
        else ["counts that are negative or NaN were set to 0, and those above 2**62 to that"]
    )
    filled = np.flatnonzero(count)
    if not filled.size:
        middle = _limited(histogram.min, 0.0)
        half = _half_width(middle, 0.0)
        notes.append("every count is 0: drawn as one empty bucket")
        return _make(histogram, [middle - half], [middle + half], [0.0], middle, middle), "; ".join(notes)
    used = slice(filled[0], filled[-1] + 1) if filled[-1] - filled[0] < MAX_BUCKETS else filled
    left, right, count = _tidied(histogram.left[used], histogram.right[used], count[used])
    low, high = float(left[count > 0].min()), float(right[count > 0].max())
    if len(count) > MAX_BUCKETS:
        notes.append(f"buckets merged to {MAX_BUCKETS} or less")
        left, right, count = _merged(left, right, count)
    narrow = right - left < _LEAST_WIDTH
    if narrow.any():
        notes.append("buckets without width were given one")
        halves = np.array([_half_width(float(edge), high - low) for edge in left[narrow]])
        left[narrow], right[narrow] = left[narrow] - halves, right[narrow] + halves
    whole = np.diff(np.rint(np.cumsum(count)), prepend=0.0)  # rounded so that the total is as good as each bucket
    if not np.array_equal(whole, count):
        notes.append("counts that are not whole numbers were rounded")
    minimum, maximum = min(low, _limited(histogram.min, low)), max(high, _limited(histogram.max, high))
    return _make(histogram, left, right, whole, minimum, maximum), "; ".join(notes)


def _tidied(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64], count: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Orders buckets and edges, and puts edges that are NaN, infinite or too large at the outermost finite ones."""
    with np.errstate(invalid="ignore"):
        edges = np.concatenate([left, right])
        known = edges[np.abs(edges) <= _LARGEST_EDGE]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    left, right = (
        np.nan_to_num(side, nan=other, posinf=high, neginf=low).clip(low, high)
        for side, other in ((left, low), (right, high))
    )
    left, right = np.minimum(left, right), np.maximum(left, right)
    order = np.argsort(left, kind="stable")
    return left[order], right[order], count[order]


def _merged(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64], count: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    span = max(float(left[-1] - left[0]), _LEAST_WIDTH)
    part = np.minimum(np.floor((left - left[0]) / span * MAX_BUCKETS), MAX_BUCKETS - 1)
    starts = np.flatnonzero(np.diff(part, prepend=-1.0))
    return left[starts], np.maximum.reduceat(right, starts), np.add.reduceat(count, starts)


def _half_width(edge: float, span: float) -> float:
    """Returns half the width that a bucket without one is drawn with."""
    return max(span / 2048 if span else 0.5, abs(edge) * 2.0**-50, _LEAST_WIDTH)


def _limited(number: float | None, default: float) -> float:
    return float(number) if number is not None and abs(number) <= _LARGEST_EDGE else default


def _make(
    source: Histogram, left: npt.ArrayLike, right: npt.ArrayLike, count: npt.ArrayLike, minimum: float, maximum: float
) -> Histogram:
    edges = {"left": np.array(left, np.float64), "right": np.array(right, np.float64)}
    counts = np.array(count, np.float64)
    return replace(source, **edges, count=counts, width=None, min=minimum, max=maximum, sum_squares=None)


# ---------------------------------------------------------------- images


def _fit_image(tag: str, image: Image) -> tuple[list[TaggedValue], str]:
    """A batch becomes one series for each image, `<tag>/0`, `<tag>/1`, ...; sizes are those of the encoded bytes."""
    fitted: list[TaggedValue] = []
    losses: list[str] = []
    for index, encoded in enumerate(image.encoded):
        try:
            part, loss = _as_png(encoded)
        except InvalidValueError as error:
            losses.append(f"left out of a batch of images: {error.message}")
            continue
        if loss:
            losses.append(loss)
        elif (image.height, image.width, image.colorspace) != (part.height, part.width, part.colorspace):
            losses.append("the size and colour fields were wrong and were taken from the image itself")
        fitted.append(TaggedValue(tag if len(image.encoded) == 1 else f"{tag}/{index}", part))
    if not fitted:
        raise UnsupportedValueError(losses[0] if losses else "the batch of images is empty")
    if len(image.encoded) > 1:
        losses.insert(0, "a batch of images under tags of their own")
    return fitted, "; ".join(dict.fromkeys(losses))


def _as_png(encoded: bytes) -> tuple[Image, str]:
    """Returns the image as a PNG, whose bytes are not touched if it is one, and what that does not hold."""
    if encoded.startswith(_PNG) and len(encoded) >= _PNG_HEAD.size:
        _, width, height, _, colour = _PNG_HEAD.unpack_from(encoded)
        return Image(height, width, _PNG_COLOURS.get(colour, 3), (encoded,)), ""
    from PIL import Image as PillowImage  # here: a PNG needs no more than its head

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a large or an untidy file, which is drawn all the same
            with PillowImage.open(io.BytesIO(encoded), formats=_READABLE) as picture:
                return _draw_as_png(picture)
    except InvalidValueError:
        raise
    except PillowImage.DecompressionBombError as error:  # at twice this number, when it has read the head
        least = 2 * (PillowImage.MAX_IMAGE_PIXELS or 0)
        raise InvalidValueError(f"more than {counted(least, 'pixel')}, and {_LIMIT}") from error
    except _PILLOW_ERRORS as error:
        raise InvalidValueError("the image cannot be read") from error


def _draw_as_png(picture: PillowImage.Image) -> tuple[Image, str]:
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise InvalidValueError(f"{width} x {height} pixels, and {_LIMIT}")
    frames = getattr(picture, "n_frames", 1)
    mode = picture.mode if picture.mode in _CHANNELS else "RGBA" if picture.has_transparency_data else "RGB"
    output = io.BytesIO()
    (picture if mode == picture.mode else picture.convert(mode)).save(output, format="PNG")
    loss = f"{picture.format} encoded again as PNG" + (", the frames behind the first left out" if frames > 1 else "")
    return Image(height, width, _CHANNELS[mode], (output.getvalue(),)), loss


# ---------------------------------------------------------------- tensors


def _fit_tensor(tensor: Tensor) -> Tensor:
    if tensor.array.size > MAX_TENSOR_ELEMENTS:
        raise UnsupportedValueError(
            f"the tensor has {tensor.array.size:,} elements, and MindInsight shows {MAX_TENSOR_ELEMENTS:,} at most"
        )
    return tensor


def _tensor_of(value: Opaque) -> Tensor:
    """Reads the array inside a value of a plugin that stores one (precision-recall curves, meshes)."""
    if value.kind == "hparams":
        raise UnsupportedValueError("hyperparameters are shown as lineage")
    if value.kind not in _AS_TENSORS:
        raise UnsupportedValueError(value.reason or f"MindInsight has no place for {with_article(value.kind)}")
    array: npt.NDArray[Any] | list[bytes] | None = None
    try:
        for tensor in wire.all_fields(value.payload, 0x42):
            array = decode_tensorboard_tensor(tensor, 0, len(tensor))
    except (EventDecodeError, InvalidValueError) as error:
        raise UnsupportedValueError(f"the {value.kind} value cannot be read: {error.message}") from error
    if array is None or isinstance(array, list):
        raise UnsupportedValueError(f"the {value.kind} value holds no tensor of numbers")
    return _fit_tensor(Tensor(array.copy(), array.dtype.name))
