"""A follower may be killed at any moment: what it leaves behind is taken up without a lost or a doubled value."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE, archive_name, format_of_name
from ms_summary_bridge.runs.archive import make_decoder

ROOT = Path(__file__).resolve().parents[2]
KILLS = 200

Series = tuple[str, str, tuple[tuple[int, float, bytes], ...]]


def series_of(directory: Path) -> list[Series]:
    """Returns every series of one run in the order of its files, derived ones too."""
    found: dict[tuple[str, str], list[tuple[int, float, bytes]]] = defaultdict(list)
    for path in sorted(directory.iterdir()):
        file_format = format_of_name(path.name)
        if not path.is_file() or not file_format:
            continue
        decoder = make_decoder(
            LINEAGE if path.name.endswith("_lineage") and file_format == "mindspore" else file_format
        )
        for item in EventFileReader(path, decoder):
            assert isinstance(item, Event), f"{path}: {item}"
            if isinstance(item.content, Summary):
                for tagged in item.content.values:
                    found[tagged.value.kind, tagged.tag].append((item.step, item.wall_time, tagged.value.fingerprint()))
    return sorted((kind, tag, tuple(rows)) for (kind, tag), rows in found.items())


def runs_of(top: Path) -> list[list[Series]]:
    """Returns the series of all runs, whatever names the runs have."""
    directories = [path for path in top.rglob("*") if path.is_dir()]
    return sorted(series for directory in directories if (series := series_of(directory)))


@pytest.mark.slow
@pytest.mark.parametrize(("source_format", "seed"), [("mindspore", 1), ("tensorboard", 2)])
def test_killed_at_200_random_moments_the_output_equals_one_conversion(
    tmp_path: Path, source_format: str, seed: int
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.killed_followers", source_format, str(tmp_path), str(KILLS), str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (result.returncode, result.stderr, result.stdout) == (0, "", f"{KILLS}\n")
    source, followed = str(tmp_path / "source"), str(tmp_path / "followed")
    again = convert_logdir(source, followed)
    assert sum(run.events_read for run in again.runs) == 0

    once = convert_logdir(source, str(tmp_path / "once"))
    assert sum(run.events_read for run in once.runs) > 200
    assert runs_of(tmp_path / "followed") == runs_of(tmp_path / "once")
    assert verify_logdirs(source, followed).is_equal
    # Of a run with one growing file not only the values are the same.
    for path in (tmp_path / "once" / "alone").iterdir():
        assert (tmp_path / "followed" / "alone" / path.name).read_bytes() == path.read_bytes()
    leftovers = [path.name for path in (tmp_path / "followed").rglob("*") if path.name.endswith(".new")]
    assert leftovers == []
    if source_format == "mindspore":
        assert (tmp_path / "followed" / "alone" / archive_name(LINEAGE)).exists()
