"""docs/formats.md against proto/ and the code: field numbers, bytes, keys of JSON files and names of files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor

from ms_summary_bridge.convert import state
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.files.atomic import replacing
from ms_summary_bridge.files.file_names import LINEAGE, archive_name, parse_name
from ms_summary_bridge.files.records import decode_record, encode_record
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.formats.graphs import marks
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT, WRITER_LIVE, WRITER_USER
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.wire import LENGTH_DELIMITED, varint
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.monitor.checkpoints.checkpoint_place import LOCK_NAME
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import STATE_NAME as CHECKPOINTS
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.monitor.sinks.backends import TEXT_LOG
from ms_summary_bridge.monitor.sinks.csv_file import CSV
from ms_summary_bridge.monitor.sinks.journal import JOURNAL, Journal, sample_line
from ms_summary_bridge.monitor.sinks.run_record import describe_run
from ms_summary_bridge.monitor.watchdog import peers
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang
from ms_summary_bridge.monitor.watchdog.hang_report import HANG_LOG, HangFiles, describe_hang
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat
from ms_summary_bridge.monitor.watchdog.peers import CALL
from ms_summary_bridge.runs.archive import START, ArchivePosition
from ms_summary_bridge.training.distributed import find_process_rank
from ms_summary_bridge.values import Scalar
from tests.formats.test_lineage import write_run as write_lineage_run
from tests.mindspore_run import scalars, write_summary

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Returns what stands under a heading, up to the next one."""
    match = re.search(rf"^(#+) {re.escape(title)}$(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None, title
    return match[2]


def rows(text: str, *head: str) -> list[list[str]]:
    """Returns the rows of the first table with these columns, without backticks."""
    match = re.search(rf"^\| {re.escape(' | '.join(head))} \|\n\|[-|]+\|\n((?:\|.*\n?)+)", text, re.MULTILINE)
    assert match is not None, head
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in match[1].splitlines()]


# ---------------------------------------------------------------- fields

MESSAGES = re.findall(r"^### `((?:mindspore|tensorboard)\.[\w.]+)`$", PAGE, re.MULTILINE)
VARINTS = {"int32", "int64", "uint32", "uint64", "bool"}
FIXED = {"double": 1, "float": 5}


def descriptor_of(name: str) -> Any:
    found: Any = {"mindspore": ms_pb, "tensorboard": tb_pb}[name.partition(".")[0]]
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found.DESCRIPTOR


def type_of(field: Any) -> tuple[str, int]:
    """Returns the type of a field as the page has it, without `repeated`, and its wire type."""
    scalar = {getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name for name in (*VARINTS, *FIXED, "string", "bytes")}
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            key, value = (type_of(field.message_type.fields_by_name[part])[0] for part in ("key", "value"))
            return f"map<{key}, {value}>", LENGTH_DELIMITED
        return field.message_type.name, LENGTH_DELIMITED
    if field.enum_type is not None:
        return field.enum_type.name, 0
    name = scalar[field.type]
    return name, 0 if name in VARINTS else FIXED.get(name, LENGTH_DELIMITED)


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_those_of_the_messages(name: str) -> None:
    told = {int(number): (key, field, kind) for key, number, field, kind, _ in rows(
        section(f"`{name}`"), "key", "number", "field", "type", "meaning")}  # fmt: skip
    wanted = {}
    for field in descriptor_of(name).fields:
        kind, wire_type = type_of(field)
        is_list = kind[:4] != "map<" and is_repeated(field)
        if is_list and is_packed(name, field, wire_type):
            wire_type = LENGTH_DELIMITED
        key = varint(field.number << 3 | wire_type).hex(" ")
        wanted[field.number] = (key, field.name, f"repeated {kind}" if is_list else kind)
    assert told == wanted


def is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)  # protobuf 6 and newer
    return bool(repeated if repeated is not None else field.label == FieldDescriptor.LABEL_REPEATED)


def is_packed(name: str, field: Any, wire_type: int) -> bool:
    return wire_type != LENGTH_DELIMITED and (field.GetOptions().packed or name.startswith("tensorboard."))


def test_the_messages_that_matter_are_there() -> None:
    assert {f"{side}.{message}" for side in ("mindspore", "tensorboard") for message in ("Event", "Summary.Value")} <= {
        *MESSAGES
    }
    assert len(MESSAGES) >= 20


def test_marks_are_those_of_the_code() -> None:
    told = {(name, int(number)) for number, name, _, _ in rows(section("Graph marks"), "number", "name", "on", "holds")}
    names = [name for name in marks.__all__ if name.isupper()]
    assert told == {(name, getattr(marks, name) >> 3) for name in names} | {("origin", 1000)}


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("name", ["mindspore", "tensorboard"])
def test_the_example_is_a_record(name: str) -> None:
    (block,) = re.findall(rf"^```hex {name}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    data = bytes.fromhex("".join(re.match(r"(?:[0-9a-f]{2} {0,2})+", line)[0] for line in block.splitlines()))  # type: ignore[index]
    value = TaggedValue("loss", Scalar.from_float32(0.25))
    event = Event(1700000000.5, 3, Summary((value,)), name)
    decoder = {"mindspore": mindspore.MindSporeDecoder, "tensorboard": tensorboard.TensorBoardDecoder}[name]()
    encoder = {"mindspore": mindspore.MindSporeEncoder, "tensorboard": tensorboard.TensorBoardEncoder}[name]()
    assert decoder.decode(decode_record(data).payload) == event
    payload = encoder.encode(event).payload
    assert payload is not None
    assert encode_record(payload) == data


def test_places_in_the_archive_are_written_so() -> None:
    (block,) = re.findall(r"^```text\n(.*?)^```", section("The archive"), re.MULTILINE | re.DOTALL)
    assert block.splitlines() == [ArchivePosition(True, 12, 0x0A1B2C3D).encode(), START.encode()]
    assert all(ArchivePosition.decode(line) for line in block.splitlines())


def test_writers_are_those_of_the_code() -> None:
    told = {row[0] for row in rows(section("Who wrote a file"), "writer", "who")}
    assert told == {WRITER_LIVE, WRITER_CONVERT, WRITER_USER}
    assert f"`{mindspore.FILE_VERSION} {WRITER_CONVERT}`" in section("MindSpore's lineage") + section(
        "`mindspore.UserDefinedInfo`"
    )
    assert f"`{mindspore.FILE_VERSION}`" in PAGE
    assert f"`{tensorboard.FILE_VERSION}`" in PAGE


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize("name", ["State", "RunState", "FileState", "OutputState", "Plan", "Undecided"])
def test_keys_of_the_state_file_are_all_told(name: str) -> None:
    fields = [field.encode_name for field in msgspec.structs.fields(getattr(state, name))]
    assert [row[0] for row in rows(section(f"`{name}`"), "key", "meaning")] == fields


def journal_tables() -> list[list[str]]:
    text = section("The journal")
    return [
        re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
        for table in re.findall(r"^\| key \| meaning \|\n((?:\|.*\n)+)", text, re.MULTILINE)
    ]


def test_keys_of_the_journal_are_all_told(tmp_path: Path) -> None:
    sample_keys, header_keys = journal_tables()
    sample = Sample(step=1, values={"loss": float("nan")}, nonfinite_steps={"loss": 1})
    assert sample_keys == list(sample_line(sample, 0))
    header = describe_run(load_config({"save_dir": str(tmp_path)}), find_process_rank(), str(tmp_path / "run"))
    journal = Journal(str(tmp_path), 0, header, lambda kind, message: None)
    journal.open()
    journal.close()
    (line,) = (tmp_path / JOURNAL).read_bytes().splitlines()
    assert header_keys == list(msgspec.json.decode(line))


# ---------------------------------------------------------------- names


def patterns_of(writer: str) -> dict[str, re.Pattern[str]]:
    """Returns the names that a writer gives, as the page has them, with patterns of them."""
    digits = {"<seconds>", "<number>", "<pid>", "<rank>"}
    found = {}
    for who, name, _ in rows(section("File names"), "written by", "name", "holds"):
        if who == writer:
            parts = re.split(r"(<\w+>)", name)
            text = "".join(
                r"\d+" if part in digits else r"[\w.-]+" if part[:1] == "<" else re.escape(part) for part in parts
            )
            found[name] = re.compile(text)
    return found


def test_names_of_the_converter_are_these(tmp_path: Path) -> None:
    write_lineage_run(tmp_path / "source" / "run", 0)
    write_summary(tmp_path / "source" / "other", scalars("loss", range(1, 4)))
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "tb"))
    for path in (tmp_path / "tb").rglob("*.archive"):  # without them, all of it is made anew
        path.unlink()
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    made = {path.name for top in ("tb", "ms") for path in (tmp_path / top).rglob("*") if path.is_file()}
    made |= {archive_name(source) for source in (mindspore.FORMAT, LINEAGE, tensorboard.FORMAT)}
    patterns = patterns_of("convert")
    assert sorted(name for name in made if not any(p.fullmatch(name) for p in patterns.values())) == [
        f"{state.STATE_NAME}.lock"
    ]
    unused = [text for text, p in patterns.items() if not any(p.fullmatch(name) for name in made)]
    assert unused == []
    assert f"`{state.STATE_NAME}.lock`" in PAGE
    with replacing(str(tmp_path / state.STATE_NAME)) as temporary:
        name = Path(temporary).name
    assert re.fullmatch(r"\.ms_summary_bridge\.[0-9a-f]+\.new", name)
    assert "`.ms_summary_bridge.<hash of the name>.new`" in PAGE


def test_names_of_the_callback_are_these(tmp_path: Path) -> None:
    config = LiveRunConfig(str(tmp_path), str(tmp_path), 1700000000, 1700000000.0, device=2, host="node", pid=42)
    run = LiveRun(config, lambda kind, message: None)
    run.write_values(1, 1700000000.0, {"scalar": [{"tag": "loss", "value": Scalar.from_float32(1.0)}]})
    run.lineage.write(b"")
    run.close()
    made = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    patterns = patterns_of("callback")
    assert len(made) == len(patterns) == 3
    for text, pattern in patterns.items():
        assert [name for name in made if pattern.fullmatch(name)], text
    parsed = {name: parse_name(name, "tensorboard" if "tfevents" in name else "mindspore") for name in made}
    assert {created for created, *_ in parsed.values()} == {config.seconds}


def test_names_of_the_monitor_are_these() -> None:
    patterns = patterns_of("monitor")
    assert patterns.pop("checkpoints.earlier-<number>.json").pattern == r"checkpoints\.earlier\-\d+\.json"
    assert {*patterns} == {JOURNAL, CSV, TEXT_LOG, CHECKPOINTS, LOCK_NAME}
    patterns = patterns_of("watchdog")
    alert = describe_hang(Hang(Beat(7, 7, 1, "data", 0.0), 9.0, 5.0), 0, 1)
    (report,) = (name for name in patterns if name.endswith(".txt"))
    assert patterns.pop(report).fullmatch(Path(HangFiles("/run").report_path(alert)).name)
    assert {*patterns} == {HANG_LOG, CALL}


def test_kinds_of_the_watchdogs_lines_are_all_told() -> None:
    told = {kind for kind, _ in rows(section("The watchdog's file"), "kind", "when")}
    directory = Path(peers.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in directory.glob("*.py"))
    written = set(re.findall(r'(?:write\(\{"kind": |hang_line\()"(\w+)"', source))
    assert told == written


def test_a_run_name_for_mindinsight_is_made_so(tmp_path: Path) -> None:
    events = [
        tensorboard.TensorBoardEncoder().encode(Event(1.0, 0, FileVersion("brain.Event:2"), "tensorboard")).payload,
        tensorboard.TensorBoardEncoder()
        .encode(Event(1.0, 1, Summary((TaggedValue("a", Scalar.from_float32(1)),))))
        .payload,
    ]
    path = tmp_path / "tb" / "a" / "b+~c" / "events.out.tfevents.1700000000.host"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(encode_record(payload) for payload in events if payload is not None))
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    assert [path.name for path in (tmp_path / "ms").iterdir() if path.is_dir()] == ["a+b~1~0c"]
    assert "`~` is written `~0`, `+` is written `~1`" in PAGE
