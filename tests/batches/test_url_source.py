"""A source behind an fsspec URL: read in ranges with the next one ahead, in batches, with the result of a local one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from ms_summary_bridge.batches.limits import LIMITS
from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.convert.batches import JudgedBatch, judge
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.files.event_file import open_source
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.wire import length_delimited
from ms_summary_bridge.runs.report import Report
from tests.batches.test_batch_lane import LogFormat, write_odd_run
from tests.convert.test_convert import contents

_MIB = 1 << 20
Put: TypeAlias = Callable[[str, bytes], str]
"""Puts bytes under a name; returns the URL of the directory."""


class RangedFile(AbstractBufferedFile):  # type: ignore[misc]
    fetched: list[tuple[int, int, int]] = []  # noqa: RUF012 (cleared by the fixture)

    def _fetch_range(self, start: int, end: int) -> bytes:
        self.fetched.append((start, end, threading.get_ident()))
        return bytes(self.fs.cat_file(self.path)[start:end])


class RangedFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory that are read as those of an object store are."""

    protocol = "ranged"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.removeprefix("ranged://")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return bytes(self.store[self._strip_protocol(path)].getvalue()[start:end])

    def open(self, path: str, mode: str = "rb", block_size: int = 0, cache_options: Any = None, **options: Any) -> Any:
        if mode != "rb":
            return super().open(path, mode, **options)
        size = self.info(path)["size"]
        return RangedFile(self, path, mode, block_size, cache_options=cache_options, size=size, **options)


@pytest.fixture(params=["file", "memory", "ranged", "s3"])
def put(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    protocol = request.param
    top = f"{protocol}://{tmp_path}/url" if protocol == "file" else f"{protocol}://{tmp_path.name.replace('_', '-')}"
    server: Any = None
    if protocol == "s3":
        pytest.importorskip("s3fs")
        pytest.importorskip("flask_cors")
        moto = pytest.importorskip("moto.server")
        server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        address = "http://{}:{}".format(*server.get_host_and_port())
        monkeypatch.setitem(fsspec.config.conf, "s3", {"client_kwargs": {"endpoint_url": address}})
    fsspec.register_implementation("ranged", RangedFileSystem, clobber=True)
    filesystem = fsspec.filesystem(protocol)
    RangedFile.fetched.clear()
    filesystem.makedirs(top, exist_ok=True)

    def put_file(name: str, data: bytes) -> str:
        filesystem.makedirs(f"{top}/{name}".rpartition("/")[0], exist_ok=True)
        filesystem.pipe_file(f"{top}/{name}", data)
        return top

    yield put_file
    if protocol == "s3":
        filesystem.clear_instance_cache()
        server.stop()
    elif protocol != "file":
        filesystem.rm(top, recursive=True)


def _damage(report: Report) -> list[tuple[str, int, int, str]]:
    return [(Path(row.file).name, row.start, row.end, row.reason) for run in report.runs for row in run.damaged]


def test_a_url_gives_the_bytes_of_a_local_source(put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "fewest", 1)
    monkeypatch.setattr(LIMITS, "patience", 1)
    judged: list[Batch] = []

    def counted(batch: Batch, series: SeriesTable) -> JudgedBatch | None:
        judged.append(batch)
        return judge(batch, series)

    monkeypatch.setattr("ms_summary_bridge.convert.lane.judge", counted)
    url = ""
    form = LogFormat("tensorboard")
    for seed in range(12):
        for path, rest in write_odd_run(random.Random(seed), form, tmp_path / "local" / f"run{seed}"):
            path.write_bytes(path.read_bytes() + rest)
            url = put(f"run{seed}/{path.name}", path.read_bytes())
    local = convert_logdir(tmp_path / "local", tmp_path / "one", to="tensorboard")
    in_batches = len(judged)
    far = convert_logdir(url, tmp_path / "two", to="tensorboard")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert [run.values for run in local.runs] == [run.values for run in far.runs]
    assert _damage(local) == _damage(far)
    assert len(judged) - in_batches >= in_batches > 10


@pytest.mark.parametrize("put", ["ranged"], indirect=True)
def test_a_large_file_is_read_once_in_ranges_with_the_next_one_ahead(put: Put, tmp_path: Path) -> None:
    form = LogFormat("tensorboard")
    rng = random.Random(1)
    picture = length_delimited(b"\x22", b"\x08\x01\x10\x01\x18\x03" + length_delimited(b"\x22", rng.randbytes(700_000)))
    payloads = [form.version()]
    for step in range(1, 40):
        values = [length_delimited(b"\x0a", b"img") + picture, form.value(b"loss", rng.randbytes(4))]
        payloads += [form.event(1e9 + step, b"\x10" + bytes([step]), [value]) for value in values]
    data = b"".join(map(encode_record, payloads))
    url = put(form.name(0), data)
    with open_source(f"{url}/{form.name(0)}") as source:
        got = b"".join(iter(lambda: source.read(_MIB), b""))
        blocks = source.cache._fetch_block_cached.cache_info()  # type: ignore[attr-defined]
    assert got == data
    ranges = RangedFile.fetched
    assert max(end - start for start, end, _ in ranges) <= 4 * _MIB
    assert sorted(start for start, *_ in ranges) == [*range(0, len(data), 4 * _MIB)]
    assert {ident for *_, ident in ranges} > {threading.get_ident()}
    assert blocks.maxsize * 4 * _MIB <= 16 * _MIB
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / form.name(0)).write_bytes(data)
    RangedFile.fetched.clear()
    convert_logdir(url, tmp_path / "two", to="tensorboard")
    assert sum(end - start for start, end, _ in RangedFile.fetched) < 2 * len(
        data
    )  # its ends are looked at by themselves
    convert_logdir(tmp_path / "local", tmp_path / "one", to="tensorboard")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
