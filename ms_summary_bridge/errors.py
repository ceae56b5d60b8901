"""Every error this package raises, in one tree.

::

    BridgeError                        exit_code 1   base class; catching it is enough for a caller
    ├── RecordError                    exit_code 3   framing of a file
    │   ├── TruncatedRecordError         the file ends inside a record
    │   ├── LengthChecksumError          the length of a record cannot be trusted
    │   ├── RecordTooLargeError          the declared length is above the limit
    │   └── DataChecksumError            the payload of one record is damaged
    ├── EventDecodeError               exit_code 3   whole record, but not an event
    ├── ValueConversionError           exit_code 4   one value and one format
    │   ├── UnsupportedValueError        the format has no place for this kind of value
    │   └── InvalidValueError            the value breaks its own rules
    ├── LogdirError                    exit_code 1   files and directories
    │   ├── NoEventsError                the source is missing, or holds no event file
    │   ├── ReadError                    the system cannot open, list or read a path
    │   ├── WriteError                   the system cannot make, write, replace, lock or remove a path
    │   ├── OutputChangedError           an output is not what an earlier conversion left there
    │   │   └── FileTakenError             a new file would overwrite another one
    │   ├── DamagedStateError            the state file of a destination makes no sense
    │   └── DestinationBusyError         another process writes there
    ├── UsageError                     exit_code 2   a request that cannot be meant
    │   └── OtherConversionError         the destination holds another conversion than the one asked for
    ├── ConfigError                    exit_code 2   a configuration file
    ├── MissingDependencyError         exit_code 1   an optional package is not installed
    │   └── UnsupportedSystemError       another operating system is needed
    └── ClosedError                    exit_code 1   programmer's mistake: used after close()

What to do about an error is decided by its class, never by the words of its message: a full disk (`WriteError`) is
waited for, and what another conversion left (`OutputChangedError`, `DamagedStateError`, `OtherConversionError`) is made
anew where nobody else needs it.

The library's loops do not raise for damage in a file: they report it as data (`records.Damage`) and
read on. The record errors are raised by the calls that work on one record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final, TypeVar

__all__ = [
    "NOT_JSON",
    "BridgeError",
    "ClosedError",
    "ConfigError",
    "DamagedStateError",
    "DataChecksumError",
    "DestinationBusyError",
    "EventDecodeError",
    "FileTakenError",
    "InvalidValueError",
    "LengthChecksumError",
    "LogdirError",
    "MissingDependencyError",
    "NoEventsError",
    "OtherConversionError",
    "OutputChangedError",
    "ReadError",
    "RecordError",
    "RecordTooLargeError",
    "TruncatedRecordError",
    "UnsupportedSystemError",
    "UnsupportedValueError",
    "UsageError",
    "ValueConversionError",
    "WriteError",
    "can_record",
    "check_recording",
    "counted",
    "has_mindspore",
    "lazy_names",
    "load_name",
]

_Logdir = TypeVar("_Logdir", bound="LogdirError")

NOT_JSON: Final = (ValueError, RecursionError)
"""What `json` and `msgspec` raise at bytes that are not the JSON they should be, nested too deep included."""


def counted(count: float, one: str, many: str = "") -> str:
    """Returns a whole number with what it counts, for messages; `many` is `one` with an s unless given."""
    number = f"{count:,.0f}"
    return f"{number} {one if number == '1' else many or one + 's'}"


class BridgeError(Exception):
    """Base of all errors of this package.

    Attributes:
        exit_code: What the command line returns when this error ends a command.
    """

    exit_code: ClassVar[int] = 1


class RecordError(BridgeError):
    """The framing of a file is broken at one place.

    Attributes:
        path: File the record was read from; empty when the bytes came from memory.
        offset: Byte position of the record's first byte in that file.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, path: str = "", offset: int = 0) -> None:
        super().__init__(f"{path or 'record'} at byte {offset}: {message}")
        self.path = path
        self.offset = offset


class TruncatedRecordError(RecordError):
    """The bytes end inside a record. Reading may go on once more bytes arrive."""


class LengthChecksumError(RecordError):
    """The length field fails its checksum. Reading goes on at the next whole record, if one is found."""


class RecordTooLargeError(RecordError):
    """The declared length is above the limit. Reading goes on at the next whole record, if one is found."""


class DataChecksumError(RecordError):
    """The payload fails its checksum. The next record can be read."""


class EventDecodeError(BridgeError):
    """A whole record does not hold an event. The next record can be read.

    Attributes:
        path: File the record was read from; empty when the bytes came from memory.
        offset: Byte position of the record's first byte in that file.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, path: str = "", offset: int = 0) -> None:
        super().__init__(f"{path} at byte {offset}: {message}" if path else message)
        self.message = message
        self.path = path
        self.offset = offset


class ValueConversionError(BridgeError):
    """One value cannot be written in one format. The other values are not touched.

    Attributes:
        tag: Tag of the value.
        step: Step of its event.
    """

    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, *, tag: str = "", step: int = 0) -> None:
        super().__init__(f"tag {tag!r}, step {step}: {message}" if tag else message)
        self.message = message
        self.tag = tag
        self.step = step


class UnsupportedValueError(ValueConversionError):
    """The format has no place for this kind of value."""


class InvalidValueError(ValueConversionError, ValueError):
    """The value breaks a rule of its own kind: a shape, a dtype, a bucket order."""


class LogdirError(BridgeError, OSError):
    """A directory or file is missing, unreadable, holds no events, or would be overwritten."""

    @classmethod
    def of_system(cls: type[_Logdir], path: str, doing: str, error: OSError) -> _Logdir:
        """Makes one of what the operating system refused to do; `doing` is a participle: opened, written."""
        if isinstance(error, BridgeError):  # which has said it
            return cls(str(error))
        return cls(f"{path}: cannot be {doing}: {error.strerror or str(error) or type(error).__name__}")


class NoEventsError(LogdirError):
    """The source does not exist, or no event file is in it. Both may come: a follower waits."""


class ReadError(LogdirError):
    """The system cannot open, list or read a path, or there is less of it than before. It may later."""


class WriteError(LogdirError):
    """The system cannot make, write, replace, lock or remove a path. What is there is whole; it may go on later."""


class OutputChangedError(LogdirError):
    """An output holds something else than an earlier conversion left there, or than this one would write."""


class FileTakenError(OutputChangedError):
    """A new file would overwrite another one."""


class DamagedStateError(LogdirError):
    """The state file of a destination is there, and makes no sense."""


class DestinationBusyError(LogdirError):
    """Another process holds the lock: it writes there."""


class UsageError(BridgeError, ValueError):
    """The request contradicts itself or names something that does not exist."""

    exit_code: ClassVar[int] = 2


class OtherConversionError(UsageError):
    """The destination holds another conversion: of another source, with other options, by another version."""


class ConfigError(BridgeError, ValueError):
    """A configuration file has problems.

    Attributes:
        problems: One line for each problem, opening with its path (``$.rules[2].threshold: ...``).
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class MissingDependencyError(BridgeError, ImportError):
    """An optional package is needed for this call; the message holds the pip command."""


class UnsupportedSystemError(MissingDependencyError):
    """This operating system does not have what is needed.

    What records a training needs Linux: its writer process and its watchdog share memory as only Linux lets them.
    """


class ClosedError(BridgeError, RuntimeError):
    """A reader, writer or sink was used after `close()`."""


def can_record() -> bool:
    """Whether a training can be recorded on this system."""
    return sys.platform == "linux"


def check_recording(name: str) -> None:
    """Refuses what records a training where that cannot be.

    Raises:
        UnsupportedSystemError: This is not Linux.
    """
    if not can_record():
        raise UnsupportedSystemError(
            f"{name} records a training, which needs Linux; this is {sys.platform}. Record with MindSpore's own "
            "SummaryCollector, and then `ms-summary-bridge convert SUMMARY_DIR DIR`, or `view SUMMARY_DIR`, which "
            "follows the training"
        )


def has_mindspore() -> bool:
    """Whether MindSpore is installed. It is not loaded."""
    try:
        return find_spec("mindspore") is not None
    except ValueError:  # a stand-in without a spec is in sys.modules
        return True


def load_name(module: str, name: str, *, needs_mindspore: bool, records: bool = False) -> Any:
    """Returns what a public name stands for; its module is loaded now.

    Raises:
        MissingDependencyError: MindSpore is not installed, and the name needs it; or the name records a training, and
            this system cannot (an `UnsupportedSystemError`).
    """
    if records:
        check_recording(name)
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if not needs_mindspore or has_mindspore():
            raise
        raise MissingDependencyError(
            f"{name} needs MindSpore, which is not installed here: pip install 'ms_summary_bridge[mindspore]'"
        ) from error


def lazy_names(
    package: str,
    shown: Sequence[str],
    homes: Mapping[str, str],
    *,
    needs_mindspore: Sequence[str],
    records: Sequence[str],
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a package whose names are loaded when they are asked for.

    The first gives `__all__` as well: those of the names that can be had here. Asked for one that cannot be, it raises
    MissingDependencyError, an ImportError and no AttributeError, so that `from ms_summary_bridge import SummaryBridge`
    shows it, and `hasattr` and a default of `getattr` do not hide it.

    Args:
        package: Its `__name__`.
        shown: What it shows.
        homes: Of each module below the package the names that come from it; `a=b` is its b under the name a.
        needs_mindspore: Names that need MindSpore.
        records: Names that need a system which can record.
    """
    places = {word.partition("=")[0]: (home, word) for home, words in homes.items() for word in words.split()}

    def list_names() -> list[str]:
        missing = records if not can_record() else () if has_mindspore() else needs_mindspore
        return [name for name in shown if name not in missing]

    def load(name: str) -> Any:
        if name == "__all__":
            return list_names()
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, word = places[name]
        needs = name in needs_mindspore
        there = word.rpartition("=")[2]
        return load_name(f"{package}.{home}", there, needs_mindspore=needs, records=name in records)

    return load, list_names
