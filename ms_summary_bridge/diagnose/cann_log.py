"""Reads what CANN, Ascend's software, writes of a process: error codes, lost and stuck devices, groups of ranks.

Files are `debug/plog/plog-<pid>_<time>.log` for errors and `run/plog/plog-<pid>_<time>.log` for what went on, below
`ASCEND_PROCESS_LOG_PATH`, else `ASCEND_WORK_PATH`/log, else `~/ascend/log`.

Sources: CANN's documentation, "Log Overview" (the shape of a line), "ASCEND_PROCESS_LOG_PATH" (the places), "HCCL
Errors" and "Driver Errors" (the codes); HCCL's guides to a process that is stuck or lost (`Cluster Exception Location`)
and to the beginning of a communicator (`Entry-HcclCommInitRootInfo`). Nothing of this was run on Ascend.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from ms_summary_bridge.errors import counted
from ms_summary_bridge.files.system import open_regular

__all__ = [
    "CODES",
    "CannFact",
    "CannLogs",
    "GroupRank",
    "find_log_files",
    "log_places",
    "read_logs",
    "read_process",
    "say_fact",
]

CODES: Final = {
    "EI0001": "an environment variable is wrong",
    "EI0002": "a collective waited too long for another rank",
    "EI0003": "arguments of a collective are wrong",
    "EI0004": "the rank table cannot be read",
    "EI0005": "ranks call a collective with different arguments",
    "EI0006": "no connection to another rank in time",
    "EI0007": "a resource of the communication cannot be had",
    "EI0008": "versions of CANN differ between ranks",
    "EI0009": "a link between ranks cannot be made",
    "EI0010": "devices of one host cannot reach each other",
    "EI0011": "device memory is too small for the communication",
    "EI0012": "a copy between devices failed (SDMA)",
    "EI0013": "the network gave an error (RoCE CQE)",
    "EI0014": "the rank table is wrong",
    "EI0015": "ranks were missing when the group was made",
    "EI0019": "a port is taken",
    "EI0020": "a port is taken",
    "EL0004": "memory cannot be allocated",
    "EE1002": "a stream did not end in time",
}
"""What documented error codes say, in our words."""

_LINE: Final = re.compile(
    r"\[(?P<level>[A-Z]+)\]\s*(?P<module>\w+)\((?P<pid>\d+),[^)]*\):(?P<time>\d{4}(?:-\d\d){3}(?::\d\d){2})[\d.]*"
    r"\s*(?P<text>.*)"
)
_BLOCK: Final = re.compile(
    r"\s*(?P<code>E[A-Z]\d{4}): (?:\[PID: ?\d+\] )?(?P<time>\d{4}(?:-\d\d){3}(?::\d\d){2})[\d.]*"
)
_CODE: Final = re.compile(r"\b(E[A-Z]\d{4})\b")
_EXCEPTION: Final = re.compile(
    r"Cluster Exception Location\[IP/ID\]:\[(?P<ip>[^/\]]*)/(?P<device>\d+)\].*?Arrival Time:\[(?P<time>[^\]]*)\]"
    r".*?ExceptionType:\[(?P<kind>[^\]]*)\]"
)
_REMOTE: Final = re.compile(r"remote rank:?\s*\[(?P<rank>\d+)\]")
_GROUP: Final = re.compile(r"group:\[(?P<group>[^\]]*)\].*?rankSize\[(?P<size>\d+)\], ?rankId\[(?P<rank>\d+)")
_MEMBER: Final = re.compile(
    r"Entry-HcclCommInitRootInfo\w*:ranks\[(?P<size>\d+)\], ?rank\[(?P<rank>\d+)\].*?identifier\[(?P<group>[^\]]*)\]"
)
_FILE: Final = re.compile(r"plog-(\d+)_\d+\.log")
_HEAD_BYTES: Final = 1 << 20  # groups are made at the beginning
_TAIL_BYTES: Final = 4 << 20  # of a log that may have gigabytes
_LINE_BYTES: Final = 8192
_MOST_FILES: Final = 4096
_MOST_FACTS: Final = 200  # of one process
_SHOWN: Final = 240  # characters of a line
_MOST_SHOWN: Final = 8  # facts of one process in a report


class GroupRank(msgspec.Struct, frozen=True):
    """A rank inside of a group of ranks, which is another number than the global one unless the group is the world."""

    group: str
    size: int
    rank: int


class CannFact(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a log that says that something is wrong.

    Attributes:
        pid: Of the process that wrote it.
        code: Error code; empty for none.
        kind: What happened to a device of the cluster, in CANN's words; empty where it is about none.
        device: Address of a host and number of the device there, of which `kind` is said.
        own: The rank that writes, in the group of which it writes.
        remote: The rank for which it waited, in the same group.
        wall_time: When, in seconds since the epoch.
        text: The line, shortened.
        where: File and line, or byte where a log was too long to be read from its beginning.
    """

    pid: int
    code: str = ""
    kind: str = ""
    device: tuple[str, int] | None = None
    own: GroupRank | None = None
    remote: GroupRank | None = None
    wall_time: float
    text: str
    where: str


class CannLogs(msgspec.Struct):
    """What the logs of some processes say.

    `members` has, for each process, the groups that it joined and its rank there; `problems` are files not read.
    """

    facts: list[CannFact] = []
    members: dict[int, list[GroupRank]] = {}
    problems: list[str] = []


def log_places(environment: Mapping[str, str]) -> list[str]:
    """Returns where CANN writes logs, by the variables of a process; of this user, where nothing else is said."""
    if path := environment.get("ASCEND_PROCESS_LOG_PATH"):
        return [os.path.expanduser(path)]
    if path := environment.get("ASCEND_WORK_PATH"):
        return [os.path.join(os.path.expanduser(path), "log")]
    return [os.path.expanduser("~/ascend/log")]


def find_log_files(
    places: Iterable[str], problems: list[str], *, pids: frozenset[int] | None = None, since: float = 0.0
) -> list[tuple[int, str]]:
    """Returns the logs below some directories with the pid of each, newest first.

    Args:
        places: Directories; one that is missing is no problem.
        problems: Gets a line for a directory that cannot be read.
        pids: Of these processes only.
        since: Seconds since the epoch; logs that were not written since are left out.
    """
    found: dict[str, tuple[float, int]] = {}

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            problems.append(f"{error.filename}: cannot be read: {error.strerror}")

    for place in places:
        for directory, names, files in os.walk(place, onerror=refuse):
            names.sort()
            for name in files:
                match = _FILE.fullmatch(name)
                if match is None or (pids is not None and int(match[1]) not in pids):
                    continue
                path = os.path.join(directory, name)
                with contextlib.suppress(OSError):
                    if (changed := os.stat(path).st_mtime) >= since:
                        found[os.path.abspath(path)] = changed, int(match[1])
    newest = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    if len(newest) > _MOST_FILES:
        problems.append(
            f"{counted(len(newest) - _MOST_FILES, 'older log')} of CANN are left out: name one directory of logs"
        )
    return [(pid, path) for path, (_, pid) in newest[:_MOST_FILES]]


def read_logs(files: Iterable[tuple[int, str]], problems: list[str], *, since: float = 0.0) -> CannLogs:
    """Reads logs, of each no more than some megabytes of beginning and end.

    Args:
        files: Pid and path, as `find_log_files` gives them.
        problems: Gets a line for each that cannot be read.
        since: Seconds since the epoch; older lines are left out.
    """
    logs = CannLogs(problems=problems)
    counts: dict[int, int] = {}
    for pid, path in files:
        try:
            for where, line in _lines(path):
                if "Entry-HcclCommInit" in line and (match := _MEMBER.search(line)):
                    logs.members.setdefault(pid, []).append(_group_rank(match))
                fact = _read_line(pid, where, line)
                if fact is not None and fact.wall_time >= since and counts.get(pid, 0) < _MOST_FACTS:
                    counts[pid] = counts.get(pid, 0) + 1
                    logs.facts.append(fact)
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error.strerror}")
    logs.facts.sort(key=lambda fact: fact.wall_time)
    return logs


def read_process(pid: int, since: float, environment: Mapping[str, str]) -> list[CannFact]:
    """Returns what CANN says that is wrong in one process of this host, of each code the first; empty for nothing."""
    problems: list[str] = []
    files = find_log_files(log_places(environment), problems, pids=frozenset([pid]), since=since)
    facts = read_logs(files, problems, since=since).facts
    first = {(fact.code, fact.kind, fact.device): fact for fact in reversed(facts)}
    return sorted(first.values(), key=lambda fact: fact.wall_time)[:_MOST_SHOWN]


def say_fact(fact: CannFact) -> str:
    """Returns a fact in words: its code with what that means, and the line."""
    meaning = f" ({CODES[fact.code]})" if fact.code in CODES else ""
    return f"{fact.code}{meaning}: {fact.text}" if fact.code else fact.text


def _lines(path: str) -> Iterator[tuple[str, str]]:
    """Yields lines with their place; of damaged text what can be read."""
    name = "/".join(path.replace("\\", "/").split("/")[-3:])
    with open(path, "rb", opener=open_regular) as file:
        size = os.fstat(file.fileno()).st_size
        is_cut = size > _HEAD_BYTES + _TAIL_BYTES
        number, offset = 0, 0
        while raw := file.readline(_LINE_BYTES):
            number += 1
            yield f"{name}:{number}", raw.decode("utf-8", "replace").rstrip("\r\n\0")
            while not raw.endswith(b"\n") and (raw := file.readline(_LINE_BYTES)):
                pass  # the rest of a line that is too long
            if is_cut and file.tell() > _HEAD_BYTES:
                break
        if is_cut:
            file.seek(size - _TAIL_BYTES)
            file.readline(_LINE_BYTES)
            while raw := file.readline(_LINE_BYTES):
                offset = file.tell() - len(raw)
                yield f"{name}, byte {offset}", raw.decode("utf-8", "replace").rstrip("\r\n\0")


def _read_line(pid: int, where: str, line: str) -> CannFact | None:
    head, block = _LINE.match(line), _BLOCK.match(line)
    exception = _EXCEPTION.search(line) if "Cluster Exception" in line else None
    if exception is None and block is None and (head is None or head["level"] != "ERROR"):
        return None
    match = head or block
    moment = _seconds(match["time"], "%Y-%m-%d-%H:%M:%S") if match is not None else 0.0
    group = _GROUP.search(line)
    own = None if group is None else _group_rank(group)
    remote = _REMOTE.search(line)
    code = block["code"] if block is not None else next(iter(_CODE.findall(head["text"] if head else line)), "")
    text = " ".join((head["text"] if head is not None else line).split())[:_SHOWN]
    if exception is not None:
        moment = _seconds(exception["time"], "%a %b %d %H:%M:%S %Y") or moment
        text = exception[0]
    elif not code and (own is None or remote is None):
        return None
    return CannFact(
        pid=pid,
        code=code,
        kind=exception["kind"] if exception is not None else "",
        device=(exception["ip"], int(exception["device"])) if exception is not None else None,
        own=own,
        remote=msgspec.structs.replace(own, rank=int(remote["rank"])) if own is not None and remote else None,
        wall_time=moment,
        text=text,
        where=where,
    )


def _group_rank(match: re.Match[str]) -> GroupRank:
    return GroupRank(match["group"], int(match["size"]), int(match["rank"]))


def _seconds(text: str, shape: str) -> float:
    with contextlib.suppress(ValueError, OverflowError):
        return time.mktime(time.strptime(text, shape))
    return 0.0
