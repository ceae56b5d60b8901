"""Verify finds the same whether events come in batches or one by one."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from ms_summary_bridge.batches.limits import LIMITS
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.convert.verify.series import SeriesHashes
from ms_summary_bridge.errors import BridgeError
from tests.batches.test_batch_lane import LogFormat, write_odd_run
from tests.mindspore_run import scalars, write_summary


def _change(rng: random.Random, directory: Path) -> None:
    """Changes one file in one place, or leaves all as it is."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.stat().st_size > 40)
    if not files or rng.random() < 0.3:
        return
    path = rng.choice(files)
    data = path.read_bytes()
    low, high = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    bit = bytes([data[low % len(data)] ^ 1 << rng.randrange(8)])
    path.write_bytes(
        rng.choice((data[:low], data[:low] + bit + data[low + 1 :], data[:low] + data[high:], data[:high] + data[low:]))
    )


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_batches_change_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    taken: list[int] = []
    take_rows = SeriesHashes.take_rows

    def counted(hashes: SeriesHashes, key: tuple[str, str, str], rows: object) -> None:
        taken.append(len(rows))  # type: ignore[arg-type]
        take_rows(hashes, key, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(SeriesHashes, "take_rows", counted)
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        form = LogFormat(rng.choice(("tensorboard", "mindinsight")))
        source, out = tmp_path / f"source{seed}", tmp_path / f"out{seed}"
        write_odd_run(rng, form, source)
        options = ConvertOptions(
            on_restart=rng.choice(("mark", "latest")),
            tags=rng.choice(("", "", "a|loss")),
            keep_archive=rng.random() < 0.8,
        )
        with suppress(BridgeError):
            convert_logdir(source, out, to=form.target, options=options)
        _change(rng, rng.choice((source, out)))
        pair = rng.choice(((source, out), (out, source), (source, source), (out, out)))
        found = []
        for fewest in (1 << 30, rng.choice((1, 4, 32))):
            monkeypatch.setattr(LIMITS, "fewest", fewest)
            monkeypatch.setattr(LIMITS, "patience", 3)
            try:
                found.append(msgspec.to_builtins(verify_logdirs(*pair)))
            except BridgeError as error:
                found.append(str(error))
        assert found[0] == found[1], f"seed {seed}"
    assert sum(taken) > 20  # they were used


@pytest.mark.parametrize("place", [0.3, 0.9])
def test_a_difference_among_many_is_named(tmp_path: Path, place: float) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(1, 2001)))
    convert_logdir(tmp_path / "ms", tmp_path / "tb")
    assert verify_logdirs(tmp_path / "ms", tmp_path / "tb").runs[0].points == 2000
    (path,) = (tmp_path / "ms").glob("*_MS")
    data = path.read_bytes()
    record = len(data) // 2000
    at = int(len(data) * place)
    path.write_bytes(data[:at] + bytes(record) + data[at + record :])
    report = verify_logdirs(tmp_path / "ms", tmp_path / "tb")
    assert report.damaged
    (difference,) = report.runs[0].differences
    assert difference.tag == "loss"
    assert "step" in difference.detail
