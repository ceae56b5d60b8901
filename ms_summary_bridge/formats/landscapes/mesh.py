"""A mesh as the three values that TensorBoard's mesh plugin puts together again.

Source: `proto/tensorboard/mesh.proto`; read and drawn by TensorBoard 2.21 with both of its loaders. The plugin finds
the parts of a mesh by the name in their metadata; their own tags only have to differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy.typing as npt

from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.landscapes.surface import Mesh
from ms_summary_bridge.formats.plugin_data import DATA_CLASS_TENSOR, Origin, encode_metadata
from ms_summary_bridge.formats.tensor import encode_tensorboard_tensor

__all__ = ["encode_mesh"]

# content type, its name, TensorFlow's number of the dtype
_PARTS: Final = ((1, "VERTEX", 1), (2, "FACE", 3), (3, "COLOR", 4))
_COMPONENTS: Final = sum(1 << number for number, _, _ in _PARTS)

# Seen from above and from the left of the front; lit from everywhere, so that the colours are those of the scale, and
# a little from one side, which shows the form. Both faces of a surface are drawn (side 2).
_SCENE: Final = json.dumps(
    {
        "camera": {"cls": "PerspectiveCamera", "fov": 45, "position": [-1.25, 1.8, 2.5], "lookAt": [0, -0.33, 0]},
        "lights": [
            {"cls": "AmbientLight", "color": "#ffffff", "intensity": 1.0},
            {"cls": "DirectionalLight", "color": "#ffffff", "intensity": 0.6, "position": [-1, 2, 1]},
        ],
        "material": {"cls": "MeshStandardMaterial", "side": 2, "roughness": 1, "metalness": 0},
    },
    sort_keys=True,
)


def encode_mesh(mesh: Mesh, name: str, tag_of: Callable[[str], str], origin: Origin) -> list[bytes]:
    """Encodes the parts of one mesh; `tag_of` gives their tags, from `<name>_VERTEX`, `_FACE` and `_COLOR`."""
    arrays: tuple[npt.NDArray[Any], ...] = (mesh.vertices, mesh.faces, mesh.colours)
    parts = []
    for (number, part, data_type), array in zip(_PARTS, arrays, strict=True):
        points = array.reshape(1, -1, 3)
        content = wire.text(b"\x12", name) + b"\x18" + wire.varint(number) + wire.text(b"\x2a", _SCENE)
        content += wire.length_delimited(b"\x32", b"".join(map(wire.varint, points.shape)))
        content += b"\x38" + wire.varint(_COMPONENTS)
        tensor = wire.length_delimited(b"\x42", encode_tensorboard_tensor(points, data_type))
        metadata = encode_metadata("mesh", DATA_CLASS_TENSOR, origin, content)
        parts.append(wire.text(b"\x0a", tag_of(f"{name}_{part}")) + tensor + metadata)
    return parts
