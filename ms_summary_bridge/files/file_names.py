"""The names of event files, as the programs make them, and what they say; those of the monitor's own files.

File names, as the programs make them (all are found by search, since users put prefixes and suffixes around them):

* MindSpore: `<prefix>.out.events.summary.<seconds>.<rank>.<host><suffix>`, the suffix `_MS` if nobody chose another;
  old versions write no rank. Beside it `..._lineage` (2.10 puts it in the suffix's place, older ones behind it) and
  `..._explain`. Source: get_event_file_name in mindspore/train/summary/_summary_adapter.py, MindSpore 2.10.
* TensorBoard: `events.out.tfevents.<seconds>.<host>[.<pid>.<number>][.v2]`.

The name says which files are looked at; where a file opens with a version event, that says which format it has.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "HANG_LOG",
    "JOURNAL",
    "LINEAGE",
    "LINEAGE_SUFFIX",
    "MINDSPORE",
    "TENSORBOARD",
    "archive_name",
    "archive_source",
    "format_of_name",
    "is_archive",
    "is_wanted",
    "order_of_path",
    "parse_name",
]

JOURNAL: Final = "metrics.jsonl"
"""The monitor's journal, of a rank or of all."""
HANG_LOG: Final = "hang.jsonl"
"""What the watchdog of a rank found."""
MINDSPORE: Final = "mindspore"
TENSORBOARD: Final = "tensorboard"
LINEAGE: Final = "mindspore_lineage"
"""Format of lineage files: MindSpore's framing, other event fields."""
LINEAGE_SUFFIX: Final = ".lineage"
"""Of a TensorBoard file of ours: what a run's lineage files become."""
_ARCHIVE: Final = "ms_summary_bridge.", ".archive"
_MINDSPORE_NAME: Final = re.compile(r"summary\.([0-9]+)")  # what MindInsight searches for
_MINDSPORE_FULL: Final = re.compile(r"\.out\.events\.summary\.([0-9]+)")  # the same, past a prefix that looks like it
_TENSORBOARD_NAME: Final = re.compile(r"tfevents\.([0-9]+)")
_IPV4: Final = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\.?[0-9])")
_PROCESS: Final = re.compile(r"\.[0-9]+\.([0-9]+)$")


def is_archive(name: str) -> bool:
    """Whether a file name is that of an archive of ours: `ms_summary_bridge.<format>.archive`."""
    return name.startswith(_ARCHIVE[0]) and name.endswith(_ARCHIVE[1])


def archive_name(source: str) -> str:
    """Returns the file name of the archive for records of one source format."""
    return source.join(_ARCHIVE)


def archive_source(path: str) -> str:
    """Returns the format of the records in an archive of ours, by the name in its path."""
    name = re.split(r"[/\\]", path.split("::")[0])[-1]
    return name.removeprefix(_ARCHIVE[0]).removesuffix(_ARCHIVE[1])


def is_wanted(name: str) -> bool:
    """Whether a file with this name is looked at: event files, archives, graph files; nothing hidden."""
    if name.startswith("."):
        return False
    return is_archive(name) or name.endswith(".pb") or bool(format_of_name(name))


def format_of_name(name: str) -> str:
    """Returns the format a name speaks of, or nothing."""
    if "tfevents" in name and not _MINDSPORE_FULL.search(name):
        return TENSORBOARD
    return MINDSPORE if _MINDSPORE_NAME.search(name) else ""


def parse_name(name: str, file_format: str) -> tuple[int | None, int | None, str, int]:
    """Returns `(created, rank, host, sequence)` as far as the name has them."""
    if file_format == MINDSPORE:
        match = _MINDSPORE_FULL.search(name) or _MINDSPORE_NAME.search(name)
        if match is None:
            return None, None, "", 0
        rest = name[match.end() :].removesuffix("_lineage").removesuffix("_explain").removesuffix("_MS").lstrip(".")
        # The part behind the seconds is the rank if it is all digits and another part follows. But an old name has no
        # rank, and its host may be an address: exactly four numbers are one (10.0.0.3 is not host 0.0.3 of rank 10,
        # a host that cannot be), five are a rank and one. What stays ambiguous is an old name with a host like
        # 42.example.com, which is read as rank 42 of example.com.
        first, dot, host = rest.partition(".")
        if dot and host and first.isascii() and first.isdigit() and not _IPV4.match(rest):
            return int(match[1]), int(first), host, 0
        return int(match[1]), None, rest, 0
    match = _TENSORBOARD_NAME.search(name)
    if match is None:
        return None, None, "", 0
    rest = name[match.end() :].removesuffix(".v2").removesuffix(LINEAGE_SUFFIX).lstrip(".")
    address = _IPV4.match(rest)
    process = _PROCESS.search(rest, address.end() if address else 0)
    return int(match[1]), None, rest[: process.start()] if process else rest, int(process[1]) if process else 0


def order_of_path(path: str) -> list[list[str | int]]:
    """Returns what names of runs are sorted by: a directory before its neighbours, `run_2` before `run_10`."""
    parts = [re.split(r"([0-9]+)", part) for part in path.split("/")]  # text and digits in turn, to compare like
    return [[int(text) if index % 2 else text for index, text in enumerate(part)] for part in parts]
