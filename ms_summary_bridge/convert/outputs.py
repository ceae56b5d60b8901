"""Outputs: the files of one run of a destination, written; or, in a dry run, looked at whether they could be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from ms_summary_bridge.convert.names import NAME_FILE
from ms_summary_bridge.errors import FileTakenError, WriteError
from ms_summary_bridge.files.atomic import check_place, make_directory, replace_file, sync_names
from ms_summary_bridge.files.event_file import read_errors
from ms_summary_bridge.files.file_names import archive_name
from ms_summary_bridge.files.record_writer import RecordWriter
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT
from ms_summary_bridge.runs.archive import ArchiveWriter

__all__ = ["DryOutputs", "DryWriter", "Outputs"]


class DryWriter:
    """Takes what a `RecordWriter` or an `ArchiveWriter` takes, and writes nothing behind an earlier session's end."""

    def __init__(self, offset: int, checksum: int | None) -> None:
        self.offset = offset
        self.checksum = checksum
        self.file = self
        """As `ArchiveWriter.file`."""

    def write(self, *_: object) -> None:
        """Takes a payload and its checksum, or an event and its place."""

    def write_records(self, block: bytes) -> None:
        """Takes records."""

    def close(self, *, sync: bool = False) -> None:
        """May be called again."""


class Outputs:
    """Opens and replaces the files of one run in their directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, name: str, offset: int = 0, checksum: int | None = 0) -> RecordWriter | DryWriter:
        """Opens a file where an earlier session ended; one that is there already must go on as it is written now.

        Raises:
            LogdirError: It cannot be made or opened, or is shorter than `offset`.
        """
        path = os.path.join(self.directory, name)
        return RecordWriter(path, offset=offset if offset or os.path.exists(path) else None, checksum=checksum)

    def open_archive(self, source: str, offset: int, checksum: int | None) -> ArchiveWriter | DryWriter:
        """The same for the archive of a source format."""
        file = self.open(archive_name(source), offset, checksum)
        return file if isinstance(file, DryWriter) else ArchiveWriter(file, source)

    def replace(self, name: str, payloads: Sequence[bytes], former: str) -> None:
        """Writes a small file anew, in the place of one that may have another name.

        Raises:
            LogdirError: It cannot be written, or is somebody else's.
        """
        path = os.path.join(self.directory, name)
        records = b"".join(map(encode_record, payloads))
        present: bytes | None = None
        with read_errors(path), contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            present = file.read()
        is_ours = former == name or present is None or records.startswith(present)
        if not is_ours and WRITER_CONVERT.encode() not in (present or b"")[:200]:
            raise FileTakenError(f"{path}: exists and would be overwritten")
        try:
            if records != present:
                made = make_directory(self.directory)
                replace_file(path, records)
                sync_names(*made)
            if former and former != name:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, former))
        except OSError as error:
            raise WriteError.of_system(path, "written", error) from error

    def keep_name(self, name: str) -> None:
        """Writes down what the directory would be called if that were not too long; nothing for an empty name.

        Raises:
            WriteError: It cannot be written.
        """
        if name and os.path.isdir(self.directory):
            replace_file(os.path.join(self.directory, NAME_FILE), os.fsencode(name.rpartition("/")[2]))


class DryOutputs(Outputs):
    """Writes nothing; finds out whether each file could be written."""

    def open(self, name: str, offset: int = 0, checksum: int | None = 0) -> DryWriter:
        """Checks the place of a file.

        Raises:
            WriteError: It could not be written.
        """
        check_place(os.path.join(self.directory, name))
        return DryWriter(offset, checksum)

    def replace(self, name: str, payloads: Sequence[bytes], former: str) -> None:
        """The same for a file that would be written anew."""
        self.open(name)

    def keep_name(self, name: str) -> None:
        """Writes nothing."""
