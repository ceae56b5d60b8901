"""There and back: MindSpore -> TensorBoard -> MindSpore and TensorBoard -> MindSpore -> TensorBoard lose nothing."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.archive import LINEAGE, make_decoder, make_encoder
from ms_summary_bridge.convert import convert_logdir
from ms_summary_bridge.event_file import EventFileReader
from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.wire import fixed64, length_delimited, varint
from ms_summary_bridge.logdir import discover
from ms_summary_bridge.report import RunReport
from ms_summary_bridge.run_conversion import ConvertOptions
from ms_summary_bridge.verify import verify_logdirs
from tests import strategies
from tests.mindspore_run import START
from tests.scripted import build_record, mindspore_name, put, tensorboard_name, version_payload

BOTH = ("mindspore", "tensorboard")


def convert(source: Path, destination: Path, to: str, **options: object) -> RunReport:
    """Converts a source of one run; returns its report."""
    report = convert_logdir(str(source), str(destination), to=to, options=ConvertOptions(**options))  # type: ignore[arg-type]
    (run,) = report.runs
    assert run.failed == ""
    return run


def there_and_back(source: Path, top: Path, file_format: str) -> Path:
    """Converts a run to the other format and back; returns where it is then."""
    there, back = ("tensorboard", "mindinsight") if file_format == "mindspore" else ("mindinsight", "tensorboard")
    convert(source, top / "there", there)
    convert(top / "there", top / "back", back)
    return top / "back"


def read(directory: Path, file_format: str) -> list[Event]:
    """Reads the files of a run in their order; nothing may be wrong in them."""
    events = []
    decoder = make_decoder(file_format)
    for path in sorted(directory.glob("*_MS" if file_format == "mindspore" else "*tfevents*")):
        events += list(EventFileReader(path, decoder))
    assert all(isinstance(item, Event) for item in events)
    return events  # type: ignore[return-value]


def read_lineage(directory: Path) -> list[Event]:
    found = [file for run in discover(directory).runs for file in run.lineage_files]
    return [item for file in found for item in EventFileReader(file.path, make_decoder(LINEAGE))]  # type: ignore[misc]


def without_repeats(events: Sequence[Event]) -> Iterator[Event]:
    """Leaves out values with the step and bits of their series' previous one, where they can be taken out."""
    last: dict[tuple[str, str], tuple[int, bytes]] = {}
    for event in events:
        if not isinstance(event.content, Summary):
            yield event
            continue
        kept: list[TaggedValue] = []
        for tagged in event.content.values:
            key, now = (tagged.value.kind, tagged.tag), (event.step, tagged.value.fingerprint())
            if last.get(key) != now or event.original is not None:
                kept.append(tagged)
            last[key] = now
        if len(kept) == len(event.content.values):
            yield event
        elif kept:
            yield Event(event.wall_time, event.step, Summary(tuple(kept)), event.format)


def messages(events: Sequence[Event], file_format: str, *, is_lineage: bool = False) -> list[bytes]:
    """Returns each event's message in one canonical form, repeats left out."""
    encoder = make_encoder(file_format)
    pb = (ms_pb.LineageEvent if is_lineage else ms_pb.Event) if file_format == "mindspore" else tb_pb.Event
    canonical = []
    for event in without_repeats(events):
        payload = encoder.encode(event).payload
        assert payload is not None
        canonical.append(payload if is_lineage else pb.FromString(payload).SerializePartialToString(deterministic=True))
    return canonical


# --- MindSpore -> TensorBoard -> MindSpore

FEW_TIMES = st.sampled_from([START + 0.0, START + 0.5, START - 7.0, 0.0])
"""Few of them, and not in order, so that events are alike in time and step."""
FEW_STEPS = st.one_of(st.integers(0, 3), st.sampled_from([-1, 2**63 - 1, -(2**63)]))
ODD_TAGS = st.one_of(strategies.FEW_TAGS, strategies.FEW_TAGS, strategies.TAGS)


@st.composite
def event_payloads(draw: st.DrawFn, file_format: str) -> bytes:
    """An event of any kind, in any way of writing it, with a time and step that others have as well."""
    messages_of = strategies.mindspore_messages if file_format == "mindspore" else strategies.tensorboard_messages
    message = draw(messages_of())
    if draw(st.booleans()):
        message.wall_time = draw(FEW_TIMES)
        message.step = draw(FEW_STEPS)
    for value in message.summary.value if message.HasField("summary") else ():
        if draw(st.booleans()):
            value.tag = draw(strategies.FEW_TAGS)
    data: bytes = message.SerializePartialToString(deterministic=True)
    if draw(st.integers(0, 3)) == 0:
        data = draw(strategies.scrambled(data, message.DESCRIPTOR))
    return data


@st.composite
def scalar_payloads(draw: st.DrawFn, file_format: str) -> bytes:
    key = b"\x1d" if file_format == "mindspore" else b"\x15"
    value = length_delimited(b"\x0a", draw(strategies.FEW_TAGS).encode()) + key + draw(strategies.BITS32)
    head = fixed64(b"\x09", draw(FEW_TIMES)) + b"\x10" + varint(draw(FEW_STEPS))
    return head + length_delimited(b"\x2a", length_delimited(b"\x0a", value))


def has_finite_time(payload: bytes, file_format: str) -> bool:
    with contextlib.suppress(Exception):
        make_decoder(file_format).decode(payload)
        return True
    return False


def files_of(file_format: str) -> st.SearchStrategy[list[list[bytes]]]:
    """Payloads of one to three files, without the version each begins with."""
    payload = st.one_of(scalar_payloads(file_format), event_payloads(file_format))
    payload = payload.filter(lambda data: has_finite_time(data, file_format))
    return st.lists(st.lists(payload, min_size=1, max_size=6), min_size=1, max_size=3)


def write_run(directory: Path, file_format: str, files: Sequence[Sequence[bytes]], *, step: int = 1000) -> None:
    """Writes files that follow each other; `step` seconds lie between their names."""
    for index, payloads in enumerate(files):
        seconds = START + step * index
        if file_format == "mindspore":
            name = mindspore_name(seconds) if step else f"{index}.{mindspore_name(seconds)}"
        else:
            name = tensorboard_name(seconds, f"host.1.{index}")
        head = version_payload(file_format, wall_time=float(START + index))
        put(directory / name, b"".join(map(build_record, [head, *payloads])))


@given(files_of("mindspore"), st.sampled_from([1000, 0]))
def test_a_mindspore_run_comes_back_message_for_message(files: list[list[bytes]], step: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        write_run(top / "ms", "mindspore", files, step=step)
        back = there_and_back(top / "ms", top, "mindspore")
        assert messages(read(back, "mindspore"), "mindspore") == messages(read(top / "ms", "mindspore"), "mindspore")
        assert verify_logdirs(str(top / "ms"), str(top / "there")).is_equal
        if discover(back).runs:  # none where versions are all there was
            assert verify_logdirs(str(top / "ms"), str(back)).is_equal
