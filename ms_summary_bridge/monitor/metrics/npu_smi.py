"""What `npu-smi` says of one Ascend chip: utilization, memory, power, temperature.

The tool speaks two dialects. `npu-smi info` draws a table of all chips, which holds everything at once. `npu-smi info
-t common` and `-t usages` print one field a line for one card. The table is asked first; where none can be made out of
it the fields are, and what worked is kept.

Source: outputs of npu-smi 22.0 to 26.0 on Atlas 300I (310P3), 800 (910B) and A3 (two chips on a card), as users show
them in public. They agree on this:

* a chip is two rows of the table, and the headings say what the columns hold; `-` and `NA` stand for no value;
* memory is `used / total` in MiB; chips without HBM have the column Memory-Usage alone;
* the second chip of a card has no power of its own;
* MindSpore's device id is the logic id of `npu-smi info -m`, which counts the chips in the order of the table. The
  number of the card (`NPU`) is another one: 0, 32, 96 on some hosts. The controller (`Mcu`) is listed without one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Final

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.metrics.device_sampler import DeviceError, DeviceReading

__all__ = ["NpuSmi", "parse_fields", "parse_mapping", "parse_table"]

_SECS: Final = 10.0  # a whole table of 16 chips takes one to three seconds
_KILL_SECS: Final = 1.0
_OUTPUT_BYTES: Final = 1 << 20

# A column's value: nothing, a number, or used / total.
_CELL: Final = re.compile(r"N/A|NA|-|(?P<number>\d+(?:\.\d+)?)(?:\s*/\s*(?P<total>\d+(?:\.\d+)?))?")

# Names of the fields in lower case without blanks; the first that is there counts.
_UTILIZATION: Final = ("aicoreusagerate(%)",)
_MEMORY: Final = ("hbm", "memory", "ddr")  # of each kind there are a size and a rate
_POWER: Final = ("npureal-timepower(w)", "powerdissipation(w)", "power(w)")
_TEMPERATURE: Final = ("temperature(c)", "nputemperature(c)")


class NpuSmi:
    """Asks `npu-smi` about one chip, by MindSpore's device id; it is killed after `timeout_secs`."""

    def __init__(self, device_id: int, program: str = "npu-smi", timeout_secs: float = _SECS) -> None:
        self._index = _visible_index(device_id)
        self._program = program
        self._timeout_secs = timeout_secs
        self._place: tuple[int, int] | None = None  # card and chip, once the fields are what is read
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def read(self) -> DeviceReading:
        """Returns what the chip says now. It blocks for as long as npu-smi takes, so it is for a thread of its own.

        Raises:
            DeviceError: npu-smi is missing, hangs, fails, or says nothing that is understood.
        """
        if self._place is None:
            chips = parse_table(self._run("info"))
            if len(chips) > self._index:
                return chips[self._index]
            mapping = parse_mapping(self._run("info", "-m"))
            if self._index not in mapping:
                listed = max(len(chips), len(mapping))
                raise DeviceError(f"npu-smi lists {counted(listed, 'chip')}, and none of them as device {self._index}")
            self._place = mapping[self._index]
        card, chip = self._place
        reading = parse_fields(self._read_fields(card, chip), chip)
        if reading == DeviceReading():
            raise DeviceError(f"npu-smi says nothing that is understood of card {card}, chip {chip}")
        return reading

    def _read_fields(self, card: int, chip: int) -> str:
        """Returns power and temperature (`-t common`, which takes no chip) and the size of the memory (`-t usages`).

        One of them is enough: not every version has both.
        """
        outputs = []
        failure: DeviceError | None = None
        for arguments in (("common", "-i", str(card)), ("usages", "-i", str(card), "-c", str(chip))):
            try:
                outputs.append(self._run("info", "-t", *arguments))
            except DeviceError as error:
                failure = error
        if failure is not None and not outputs:
            raise failure
        return "\n".join(outputs)

    def close(self) -> None:
        """Ends the npu-smi that runs now, if one does: its question then fails."""
        self._is_closed = True
        if self._process is not None:
            _kill(self._process)

    def _run(self, *arguments: str) -> str:
        command = [self._program, *arguments]
        try:
            process = subprocess.Popen(
                command,
                env={**os.environ, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(f"{self._program} cannot be run: {error.strerror or error}", is_final=True) from error
        self._process = process
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, self, "_process", None)
            if self._is_closed:
                _kill(process)
            if process.stdout is not None:
                stack.enter_context(process.stdout)
            try:
                output, _ = process.communicate(timeout=self._timeout_secs)
            except subprocess.TimeoutExpired:
                _kill(process)
                shown = " ".join(command)
                raise DeviceError(f"{shown} gave no answer in {self._timeout_secs:g} s and was killed") from None
        text = output[:_OUTPUT_BYTES].decode(errors="replace")
        if process.returncode:
            shown = " ".join(text.split())[:200]
            raise DeviceError(f"{' '.join(command)} ended with {process.returncode}: {shown}")
        return text


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and its children. One that hangs in the driver may outlive even this, and is then left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECS)


def _visible_index(device_id: int) -> int:
    """Returns the place of a device among all that npu-smi lists: a process may have been given a few of them."""
    visible = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "").replace(" ", "").split(",")
    if 0 <= device_id < len(visible) and visible[device_id].isdigit():
        return int(visible[device_id])
    return device_id


def parse_table(text: str) -> list[DeviceReading]:
    """Reads the table of `npu-smi info`: each chip in its order; none when this is no such table."""
    chips: list[DeviceReading] = []
    headings: list[list[str]] = []  # of the first and of the second row of a chip
    rows: list[dict[str, tuple[float, float | None]]] = []
    for cells in _rows(text):
        values = cells[-1]
        if re.search(r"[A-Za-z]\S*\([%\w]+\)", values) or cells[0].split()[:1] == ["NPU"]:
            if "Process" in " ".join(cells):
                break  # the table of processes comes behind that of the chips
            headings.append(re.findall(r"\S+\(\S+\)", values))
            continue
        if len(headings) != 2 or len(cells) != 3:
            continue
        rows.append(_columns(headings[len(rows)], values))
        if len(rows) == 2:
            chips.append(_chip(rows[0] | rows[1]))
            rows = []
    return chips


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("|") and line.endswith("|") and line.count("|") >= 4:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def _columns(names: list[str], values: str) -> dict[str, tuple[float, float | None]]:
    """Returns the values of one row by the names of their columns; what has no value is left out."""
    columns = {}
    for name, match in zip(names, _CELL.finditer(values), strict=False):
        if match["number"] is not None:
            columns[_fold(name)] = (float(match["number"]), None if match["total"] is None else float(match["total"]))
    return columns


def _chip(columns: dict[str, tuple[float, float | None]]) -> DeviceReading:
    def first(*names: str) -> float | None:
        return next((columns[name][0] for name in names if name in columns), None)

    used = total = None
    for name in ("hbm-usage(mb)", "memory-usage(mb)"):
        used, total = columns.get(name, (None, None))
        if total:
            break
    return DeviceReading(
        utilization=first("aicore(%)", "npu(%)"),
        memory_used=used if total else None,
        memory_total=total or None,
        power=first("power(w)"),
        temperature=first("temp(c)"),
    )


def parse_mapping(text: str) -> dict[int, tuple[int, int]]:
    """Reads `npu-smi info -m`: card and chip by the logic id, which is MindSpore's device id."""
    mapping = {}
    for line in text.splitlines():
        if match := re.match(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+\S", line):
            card, chip, logic_id = map(int, match.groups())
            mapping[logic_id] = (card, chip)
    return mapping


def parse_fields(text: str, chip: int) -> DeviceReading:
    """Reads what `npu-smi info -t common` and `-t usages` print, one after the other or alone, of one chip of a card.

    The text may speak of several chips, each in lines of its own, with `Chip ID` at their head (`-t common`) or at
    their foot (`-t usages`); the controller has a `Chip Name` instead.
    """
    fields: dict[str, float] = {}
    for block in _blocks(text):
        if block.get("chipid", str(chip)) != str(chip) or "mcu" in block.get("chipname", "").lower():
            continue
        for name, value in block.items():
            with contextlib.suppress(ValueError):
                fields.setdefault(name, float(value))

    def first(names: tuple[str, ...]) -> float | None:
        return next((fields[name] for name in names if name in fields), None)

    sizes = ((fields.get(f"{kind}capacity(mb)"), fields.get(f"{kind}usagerate(%)")) for kind in _MEMORY)
    total, rate = next(((total, rate) for total, rate in sizes if total and rate is not None), (None, None))
    return DeviceReading(
        utilization=first(_UTILIZATION),
        memory_used=None if total is None or rate is None else total * rate / 100,
        memory_total=total,
        power=first(_POWER),
        temperature=first(_TEMPERATURE),
    )


def _blocks(text: str) -> Iterator[dict[str, str]]:
    """Yields the lines `name : value` of each chip. A blank line, or a name that comes again, begins the next one.

    A `Chip Name` does so too: it stands at the head of the controller's lines, not always behind a blank one.
    """
    block: dict[str, str] = {}
    for line in [*text.splitlines(), ""]:
        name, separator, value = line.partition(":")
        folded = _fold(name)
        if not separator or folded in block or folded == "chipname":
            if block:
                yield block
            block = {}
        if separator:
            block[folded] = value.strip()


def _fold(name: str) -> str:
    return re.sub(r"\s", "", name).lower()
