"""A value in TensorBoard's event: what its message holds, and the messages that this package writes.

Source: `proto/tensorboard/summary.proto`, `tensor.proto`. Which encodings each of TensorBoard's two loaders shows was
measured on 2.21: a scalar is written as `simple_value`, a histogram as a float64 `[k, 3]` tensor and an image as
`Summary.Image`, because both loaders show those and they hold float32 bits, exact edges and untouched bytes. A float64
scalar tensor is invisible in the fast loader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats._histogram import decode_legacy_histogram, decode_tensorboard_histogram
from ms_summary_bridge.formats._image import decode_image, encode_image
from ms_summary_bridge.formats.kind_names import with_article
from ms_summary_bridge.formats.plugin_data import DATA_CLASS_SCALAR, DATA_CLASS_TENSOR, Origin, encode_metadata
from ms_summary_bridge.formats.tensor import DT_DOUBLE, decode_tensorboard_tensor, encode_tensorboard_tensor
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor, Value

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["decode_kind", "image_value", "loss_of", "rows_value", "scalar_value", "text_value"]

_VALUE_OPAQUE: Final = {0x1A: "obsolete_histogram", 0x32: "audio"}
_MAX_EXACT_COUNT: Final = 1 << 53  # above it float64 does not hold every integer


def decode_kind(payload: bytes, what: tuple[int, int, int] | None, plugin: str, origin: Origin | None) -> Value | None:
    """Returns the value in the field `what` (key, begin, end) of an event, or None for a kind that is carried as it is.

    Raises:
        InvalidValueError: The value breaks a rule of its kind.
    """
    if what is None:
        return None
    key, a, b = what
    if key == 0x15:
        return Scalar(payload[a:b])
    if key == 0x22:
        return decode_image(payload, a, b)[0]
    if key == 0x2A:
        return decode_legacy_histogram(payload, a, b)
    if key != 0x42:
        return Opaque(_VALUE_OPAQUE[key], b"")
    if plugin not in ("", "scalars", "histograms", "images"):
        return None
    tensor = decode_tensorboard_tensor(payload, a, b)
    if plugin == "histograms":
        return decode_tensorboard_histogram(tensor, origin.histogram if origin else None)
    if plugin == "images":
        return _decode_blob_sequence(tensor)
    if isinstance(tensor, list):
        return Opaque(plugin or "tensor of strings", b"")
    if tensor.size == 1:
        return _scalar_of(tensor)
    if plugin == "scalars":
        raise InvalidValueError(f"a tensor of shape {list(tensor.shape)} is not a scalar")
    return Tensor(tensor, tensor.dtype.name)


def _scalar_of(array: npt.NDArray[Any]) -> Scalar:
    if array.dtype.kind == "c":
        raise InvalidValueError("a complex number is not a scalar")
    if array.dtype == np.float32:
        return Scalar(array.astype("<f4", copy=False).tobytes())
    return Scalar(array.astype("<f8").tobytes())


def _decode_blob_sequence(tensor: npt.NDArray[Any] | list[bytes]) -> Image:
    """A string tensor: width and height in decimal digits, then the file of each image of the batch."""
    if not isinstance(tensor, list) or len(tensor) < 2:
        raise InvalidValueError("an image tensor holds width, height and the images as strings")
    try:
        width, height = int(tensor[0]), int(tensor[1])
    except ValueError:
        raise InvalidValueError(f"width and height are not numbers: {tensor[0][:20]!r}, {tensor[1][:20]!r}") from None
    return Image(height, width, 0, tuple(tensor[2:]))


def scalar_value(name: str, bits: bytes, origin: Origin) -> bytes:
    """Encodes a float32."""
    return wire.text(b"\x0a", name) + b"\x15" + bits + encode_metadata("scalars", DATA_CLASS_SCALAR, origin)


def text_value(name: str, text: str, origin: Origin) -> bytes:
    """Encodes a text."""
    string = wire.length_delimited(b"\x42", text.encode("utf-8", "replace"))
    tensor = wire.length_delimited(b"\x42", b"\x08\x07\x12\x00" + string)  # DT_STRING, shape []
    return wire.text(b"\x0a", name) + tensor + encode_metadata("text", DATA_CLASS_TENSOR, origin)


def image_value(name: str, image: Image, encoded: bytes, origin: Origin | None) -> bytes:
    """Encodes one image of a batch."""
    message = encode_image(image, encoded, wire.text(b"\x0a", name))
    return message if origin is None else message + encode_metadata("images", 0, origin)


def rows_value(name: str, rows: npt.NDArray[np.float64], origin: Origin) -> bytes:
    """Encodes a histogram, `[k, 3]` rows of left, right and count."""
    tensor = wire.length_delimited(b"\x42", encode_tensorboard_tensor(rows, DT_DOUBLE))
    return wire.text(b"\x0a", name) + tensor + encode_metadata("histograms", DATA_CLASS_TENSOR, origin)


def loss_of(value: Value) -> str:
    """What TensorBoard's form of a value does not hold; empty when it holds everything."""
    if isinstance(value, Scalar):
        return "" if value.to_float32()[1] else "float64 rounded to float32"
    if isinstance(value, Histogram):
        counts = value.count
        if counts.dtype.kind == "i" and counts.size and int(counts.max()) > _MAX_EXACT_COUNT:
            return "counts above 2**53 rounded to float64"
        return ""
    if isinstance(value, Image):
        return "" if len(value.encoded) == 1 else "a batch of images written one by one"
    if isinstance(value, Tensor):
        return "shown as a table of statistics and a histogram of its elements"
    if value.kind == "landscape" and not value.reason:
        return "drawn as a surface and as a contour image"
    return value.reason or f"TensorBoard has no place for {with_article(value.kind)}"
