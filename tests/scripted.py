"""Builds event files byte by byte, of either format, free of the code that is tested but for the wire basics."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from ms_summary_bridge.formats.wire import FLOAT32, fixed64, length_delimited, varint

START = 1_700_000_000
FORMATS = ("mindspore", "tensorboard")


def masked(data: bytes) -> int:
    """Returns the masked crc32c of some bytes."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def build_record(payload: bytes, *, length: int | None = None, length_crc: int | None = None) -> bytes:
    """Frames a payload; `length` lies about it, with a right checksum, and `length_crc` puts a wrong one."""
    head = struct.pack("<Q", len(payload) if length is None else length)
    head += struct.pack("<I", masked(head) if length_crc is None else length_crc)
    return head + payload + struct.pack("<I", masked(payload))


def flip_bit(data: bytes, position: int, bit: int = 0) -> bytes:
    """Returns the bytes with one bit changed; a negative position counts from the end."""
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def version_payload(file_format: str, *, writer: str = "", wall_time: float = START) -> bytes:
    """Builds the first event of a file."""
    text = b"MindSpore.Event:1" if file_format == "mindspore" else b"brain.Event:2"
    payload = fixed64(b"\x09", wall_time) + length_delimited(b"\x1a", text)
    if writer:
        payload += length_delimited(b"\x52", length_delimited(b"\x0a", writer.encode()))
    return payload


def scalar_payload(file_format: str, step: int, value: float | None = None, *, wall_time: float | None = None) -> bytes:
    """Builds an event with the scalar `loss`; its value is the step and its time a second for each step."""
    key = b"\x1d" if file_format == "mindspore" else b"\x15"  # float field 3, or 2
    number = length_delimited(b"\x0a", b"loss") + key + FLOAT32.pack(step if value is None else value)
    head = fixed64(b"\x09", START + step if wall_time is None else wall_time) + b"\x10" + varint(step)
    return head + length_delimited(b"\x2a", length_delimited(b"\x0a", number))


def build_file(file_format: str, steps: Sequence[int], *, writer: str = "", start: float = START) -> bytes:
    """Builds a version event and one scalar event for each step; times count from `start`."""
    payloads = [version_payload(file_format, writer=writer, wall_time=start)]
    payloads += [scalar_payload(file_format, step, wall_time=start + step) for step in steps]
    return b"".join(map(build_record, payloads))


def put(path: Path, data: bytes) -> Path:
    """Writes a file, with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def mindspore_name(seconds: int = START, rank: int | None = 0, host: str = "host", suffix: str = "_MS") -> str:
    """Returns a file name as MindSpore makes it; without a rank, as old versions did."""
    return f"events.out.events.summary.{seconds}.{'' if rank is None else f'{rank}.'}{host}{suffix}"


def tensorboard_name(seconds: int = START, tail: str = "host.4000.0") -> str:
    """Returns a file name as TensorBoard's writers make it."""
    return f"events.out.tfevents.{seconds}.{tail}"
