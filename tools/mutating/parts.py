"""The parts of the package that are tried as a whole, and the tests that must notice faults in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKAGE = "ms_summary_bridge"


@dataclass(frozen=True)
class Part:
    """Some modules, and their tests."""

    modules: tuple[str, ...]
    """Patterns of paths, from the package."""
    tests: tuple[str, ...]
    """Paths, from `tests`."""


PARTS = {
    "records": Part(
        ("files/record*.py",),
        (
            "files/test_record_edges.py", "files/test_record_writer.py", "files/test_records.py",
            "files/test_event_file.py",
        ),
    ),
    "lane": Part(
        ("batches/*.py", "convert/batches.py", "convert/lane.py"),
        (
            "batches", "convert/test_batches_judged.py", "convert/test_lane.py", "convert/test_series_steps.py",
            "convert/test_verify_batches.py", "convert/test_restarts.py",
        ),
    ),
    "histograms": Part(
        ("formats/_histogram.py", "formats/_bucket_table.py"),
        (
            "formats/test_histogram_exactly.py", "formats/test_histogram_at_once.py",
            "formats/test_format_mindspore.py", "formats/test_format_tensorboard.py",
        ),
    ),
    "series": Part(
        ("convert/series.py", "convert/restarts.py"),
        (
            "convert/test_series_steps.py", "convert/test_series_model.py", "convert/test_series_table.py",
            "convert/test_restarts.py", "convert/test_restarts_exactly.py",
        ),
    ),
    "verify": Part(
        ("convert/verify/*.py",),
        (
            "convert/test_verify.py", "convert/test_verify_batches.py", "convert/test_verify_conversions.py",
            "convert/test_verify_mutations.py",
        ),
    ),
    "rules": Part(
        ("monitor/alarms/rules/*.py",),
        (
            "monitor/test_rules_exactly.py", "monitor/test_rules_over_time.py", "monitor/test_rules.py",
            "monitor/test_divergence.py",
        ),
    ),
}  # fmt: skip


def find_modules(root: Path, part: Part) -> list[str]:
    """Returns the paths of a part's modules, from the root of the project."""
    found = (path for pattern in part.modules for path in sorted((root / PACKAGE).glob(pattern)))
    return [path.relative_to(root).as_posix() for path in found if path.name != "__init__.py"]


def part_of(root: Path, path: str) -> str | None:
    """Returns the part that a module belongs to."""
    return next((name for name, part in PARTS.items() if path in find_modules(root, part)), None)
