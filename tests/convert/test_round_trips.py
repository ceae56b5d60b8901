"""There and back: MindSpore -> TensorBoard -> MindSpore and TensorBoard -> MindSpore -> TensorBoard lose nothing."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.files.event_file import EventFileReader, read_pieces
from ms_summary_bridge.files.records import Damage, Record
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.wire import FLOAT32, FLOAT64, fixed64, length_delimited, varint
from ms_summary_bridge.runs.archive import (
    ArchivePosition,
    PlaceCounter,
    make_decoder,
    make_encoder,
    restore,
)
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.runs.report import RunReport
from ms_summary_bridge.values import Opaque, Scalar
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


def lineage_of(directory: Path) -> list[bytes]:
    """Returns the payloads of a run's lineage files."""
    (run,) = discover(directory).runs
    pieces = [piece for file in run.lineage_files for piece in read_pieces(file.path)]
    assert all(isinstance(piece, Record) for piece in pieces)
    return [piece.payload for piece in pieces if isinstance(piece, Record)]


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


def messages(events: Sequence[Event], file_format: str) -> list[bytes]:
    """Returns each event's message in one canonical form, repeats left out."""
    encoder = make_encoder(file_format)
    pb = ms_pb.Event if file_format == "mindspore" else tb_pb.Event
    canonical = []
    for event in without_repeats(events):
        payload = encoder.encode(event).payload
        assert payload is not None
        canonical.append(pb.FromString(payload).SerializePartialToString(deterministic=True))
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


def test_lineage_comes_back_record_for_record(tmp_path: Path) -> None:
    write_run(tmp_path / "ms", "mindspore", [[scalar_of("mindspore", "loss", 1)]])
    bodies = [(b"\x32", b"\x0a\x03net"), (b"\x3a", b"\x12\x02{}"), (b"\x4a", b""), (b"\x52", b""), (b"\xba\x3e", b"?")]
    payloads = [fixed64(b"\x09", START + n) + length_delimited(key, body) for n, (key, body) in enumerate(bodies)]
    records = b"".join(map(build_record, [version_payload("mindspore"), *payloads]))
    put(tmp_path / "ms" / mindspore_name(suffix="_lineage"), records)
    back = there_and_back(tmp_path / "ms", tmp_path, "mindspore")
    assert lineage_of(back) == [version_payload("mindspore"), *payloads]
    assert verify_logdirs(str(tmp_path / "ms"), str(back)).is_equal


def scalar_of(file_format: str, tag: str, step: int, *, wall_time: float | None = None, value: float = 0.5) -> bytes:
    key = b"\x1d" if file_format == "mindspore" else b"\x15"
    message = length_delimited(b"\x0a", tag.encode()) + key + FLOAT32.pack(value)
    head = fixed64(b"\x09", START + step if wall_time is None else wall_time) + b"\x10" + varint(step)
    return head + length_delimited(b"\x2a", length_delimited(b"\x0a", message))


@pytest.mark.mindspore
def test_a_real_mindspore_run_comes_back_message_for_message(tmp_path: Path, summary_dir: Path) -> None:
    back = there_and_back(summary_dir, tmp_path, "mindspore")
    source = read(summary_dir, "mindspore")
    assert len(source) > 20
    assert messages(read(back, "mindspore"), "mindspore") == messages(source, "mindspore")
    assert lineage_of(back) == lineage_of(summary_dir) != []
    for one, other in ((summary_dir, tmp_path / "there"), (tmp_path / "there", back), (summary_dir, back)):
        assert verify_logdirs(str(one), str(other)).is_equal


# --- TensorBoard -> MindSpore -> TensorBoard


def points(events: Sequence[Event]) -> list[tuple[object, ...]]:
    """Flattens events to what two logs of one format are compared by."""
    flat: list[tuple[object, ...]] = []
    for event in without_repeats(events):
        if isinstance(event.content, Summary):
            values = [(t.tag, t.value.kind, t.value.fingerprint()) for t in event.content.values if not t.derived]
            flat.append((event.wall_time, event.step, *values))
        elif isinstance(event.content, FileVersion):  # each file begins with one of ours
            continue
        elif not event.derived:
            flat.append((event.wall_time, event.step, event.content))
    return flat


def assert_same_run(source: Path, there: Path, back: Path) -> None:
    """Checks that a TensorBoard run came back: every event as it was written."""
    before, after = (
        [event for event in read(log, "tensorboard") if not isinstance(event.content, FileVersion)]
        for log in (source, back)
    )
    assert points(after) == points(before)
    assert messages(after, "tensorboard") == messages(before, "tensorboard")
    for one, other in ((source, there), (there, back), (source, back)):
        if discover(one).runs and discover(other).runs:
            assert verify_logdirs(str(one), str(other)).is_equal


@given(files_of("tensorboard"))
def test_a_tensorboard_run_comes_back_value_for_value(files: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        write_run(top / "tb", "tensorboard", files)
        back = there_and_back(top / "tb", top, "tensorboard")
        assert_same_run(top / "tb", top / "there", back)


@given(files_of("tensorboard"))
def test_a_second_trip_is_the_first_one_again(files: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        write_run(top / "tb", "tensorboard", files)
        back = there_and_back(top / "tb", top, "tensorboard")
        if discover(back).runs:
            again = there_and_back(back, top / "again", "tensorboard")
            assert points(read(again, "tensorboard")) == points(read(back, "tensorboard"))


def values_for(file_format: str, steps: Sequence[int]) -> list[bytes]:
    """An event with each of several kinds for each step; most of them go into an archive."""
    return [payload for step in steps for payload in _kinds_at(file_format, step)]


def _kinds_at(file_format: str, step: int) -> list[bytes]:
    head = fixed64(b"\x09", START + step) + b"\x10" + varint(step)
    if file_format == "mindspore":
        tensor = length_delimited(b"\x42", b"\x08\x01\x10\x0b" + length_delimited(b"\x1a", FLOAT32.pack(step)))
        value = length_delimited(b"\x0a", b"t") + tensor
    else:
        double = b"\x08\x02\x12\x00\x31" + FLOAT64.pack(step + 0.1)
        value = length_delimited(b"\x0a", b"double") + length_delimited(b"\x42", double)
    return [
        scalar_of(file_format, "loss", step),
        head + length_delimited(b"\x2a", length_delimited(b"\x0a", value)),
        scalar_of(file_format, "lr", step),
    ]


@pytest.mark.parametrize("file_format", BOTH)
def test_converting_back_again_adds_only_what_is_new(tmp_path: Path, file_format: str) -> None:
    there, back = ("tensorboard", "mindinsight") if file_format == "mindspore" else ("mindinsight", "tensorboard")
    for count in (3, 3, 5):
        write_run(tmp_path / "source", file_format, [values_for(file_format, range(count))])
        convert(tmp_path / "source", tmp_path / "there", there)
        before = files_below(tmp_path / "back")
        run = convert(tmp_path / "there", tmp_path / "back", back)
        for path, content in before.items():
            assert path.read_bytes().startswith(content)
        if count == 3 and before:
            assert (run.events_read, files_below(tmp_path / "back")) == (0, before)
    after = read(tmp_path / "back", file_format)
    assert points(after) == points(read(tmp_path / "source", file_format))


def files_below(directory: Path) -> dict[Path, bytes]:
    visible = [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path: path.read_bytes() for path in visible}


@pytest.mark.parametrize("file_format", BOTH)
@pytest.mark.parametrize("where", [0.3, 0.5, 0.9])
def test_behind_damage_all_originals_are_restored_and_nothing_is_doubled(
    tmp_path: Path, file_format: str, where: float
) -> None:
    there, back = ("tensorboard", "mindinsight") if file_format == "mindspore" else ("mindinsight", "tensorboard")
    write_run(tmp_path / "source", file_format, [values_for(file_format, range(40))])
    convert(tmp_path / "source", tmp_path / "there", there)
    pattern = "*tfevents*" if file_format == "mindspore" else "*_MS"
    (path,) = (tmp_path / "there").glob(pattern)
    data = path.read_bytes()
    start = int(len(data) * where)
    path.write_bytes(data[:start] + bytes(byte ^ 0x5A for byte in data[start : start + 300]) + data[start + 300 :])
    run = convert(tmp_path / "there", tmp_path / "back", back)
    assert run.damaged

    source = points(read(tmp_path / "source", file_format))
    after = points(
        read(tmp_path / "back", file_format) if file_format == "mindspore" else read(tmp_path / "back", "tensorboard")
    )
    assert len(set(after)) == len(after)
    assert set(after) < set(source)
    originals = [point for point in source if point[2][0] in ("t", "double")]  # type: ignore[index]
    assert [point for point in after if point in originals] == originals


@pytest.mark.parametrize("file_format", BOTH)
def test_without_an_archive_the_rest_is_converted_and_what_is_missing_is_said(tmp_path: Path, file_format: str) -> None:
    there, back = ("tensorboard", "mindinsight") if file_format == "mindspore" else ("mindinsight", "tensorboard")
    write_run(tmp_path / "source", file_format, [values_for(file_format, range(3))])
    convert(tmp_path / "source", tmp_path / "there", there, keep_archive=False)
    run = convert(tmp_path / "there", tmp_path / "back", back)
    after = points(
        read(tmp_path / "back", "tensorboard") if back == "tensorboard" else read(tmp_path / "back", file_format)
    )
    plain = [point for point in points(read(tmp_path / "source", file_format)) if point[2][0] in ("loss", "lr")]  # type: ignore[index]
    assert [point for point in after if point[2][0] in ("loss", "lr")] == plain  # type: ignore[index]
    assert not list((tmp_path / "back").glob("*.archive"))
    assert any("missing beside" in problem for problem in run.problems)


@pytest.mark.parametrize("file_format", BOTH)
def test_force_converts_back_anew(tmp_path: Path, file_format: str) -> None:
    there, back = ("tensorboard", "mindinsight") if file_format == "mindspore" else ("mindinsight", "tensorboard")
    for steps in (range(5), range(10, 14)):
        write_run(tmp_path / "source", file_format, [values_for(file_format, steps)])
        convert_logdir(str(tmp_path / "source"), str(tmp_path / "there"), to=there, force=True)
        (run,) = convert_logdir(str(tmp_path / "there"), str(tmp_path / "back"), to=back, force=True).runs
        assert run.failed == ""
        assert verify_logdirs(str(tmp_path / "source"), str(tmp_path / "back")).is_equal


def test_the_mark_of_a_restart_comes_back(tmp_path: Path) -> None:
    mark = fixed64(b"\x09", START + 50.0) + b"\x10\x02" + length_delimited(b"\x3a", b"\x08\x01")
    before = [scalar_of("tensorboard", "loss", step) for step in range(5)]
    after = [scalar_of("tensorboard", "loss", step, wall_time=START + 60.0 + step) for step in range(2, 7)]
    write_run(tmp_path / "tb", "tensorboard", [[*before, mark, *after]])
    back = there_and_back(tmp_path / "tb", tmp_path, "tensorboard")
    assert len(list((tmp_path / "there").glob("*_MS"))) == 2
    first, second = sorted(back.glob("*tfevents*"))
    decoder = make_decoder("tensorboard")
    steps = [
        [item.step for item in EventFileReader(path, decoder) if isinstance(item, Event)] for path in (first, second)
    ]
    assert steps == [[0, *range(5)], [0, 2, *range(2, 7)]]  # version, ..., version, START, ...


# --- real files of TensorBoard's writers


def write_with_tensorboardx(directory: Path) -> None:
    """Calls every add_* of tensorboardX that needs no other package."""
    tensorboardX = pytest.importorskip("tensorboardX")
    writer = tensorboardX.SummaryWriter(str(directory), max_queue=1)
    generator = np.random.default_rng(1)
    for step in range(6):
        values = generator.normal(size=1000) * (step + 1)
        writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_scalar("loss/with name", 0.1 * step, step, display_name="a name", summary_description="words")
        writer.add_scalars("group", {"a": step, "b": step * 2.0}, step)
        writer.add_histogram("weights", values, step)
        writer.add_histogram("weights/auto", values, step, bins="auto")
        writer.add_histogram("constant", np.full(5, 2.5), step)
        writer.add_histogram_raw("raw", 0.0, 3.0, 6, 9.0, 15.0, [1.0, 2.0, 3.0], [1, 2, 3], step)
        picture = (generator.random((3, 8, 8)) * 255).astype(np.uint8)
        writer.add_image("picture", picture, step)
        writer.add_images("pictures", np.stack([picture, picture]), step)
        writer.add_image_with_boxes("boxes", picture, np.array([[1, 1, 5, 5]]), step)
        writer.add_text("note", f"**step** {step}", step)
        writer.add_pr_curve("pr", (values > 0).astype(int), 1 / (1 + np.exp(-values)), step)
        vertices = generator.random((1, 4, 3)).astype(np.float32)
        writer.add_mesh(
            "mesh", vertices, colors=(vertices * 255).astype(np.uint8), faces=np.array([[[0, 1, 2]]]), global_step=step
        )
        writer.add_scalar("same time", step, step, walltime=float(START))
    writer.add_hparams({"lr": 0.1, "name": "adam", "flag": True, "batch": 32}, {"accuracy": 0.9}, name="trial")
    writer.add_custom_scalars({"x": {"y": ["Multiline", ["loss"]]}})
    writer.close()


@pytest.mark.tensorboard
def test_real_files_of_tensorboardx_come_back(tmp_path: Path) -> None:
    write_with_tensorboardx(tmp_path / "tb")
    there = convert_logdir(str(tmp_path / "tb"), str(tmp_path / "there"), to="mindinsight")
    back = convert_logdir(str(tmp_path / "there"), str(tmp_path / "back"), to="tensorboard")
    assert [run.failed for run in (*there.runs, *back.runs)] == [""] * 8
    for run in discover(tmp_path / "tb").runs:
        source, middle = Path(run.directory), next(Path(r.destination) for r in there.runs if r.source == run.directory)
        assert_same_run(source, middle, tmp_path / "back" / run.name)
    for one, other in (("tb", "there"), ("there", "back"), ("tb", "back")):
        report = verify_logdirs(str(tmp_path / one), str(tmp_path / other))
        assert report.is_equal
        assert len(report.runs) == 4


@pytest.mark.tensorboard
def test_real_files_of_tensorboards_own_writer_come_back(tmp_path: Path) -> None:
    from tensorboard.summary import Writer
    from tensorboard.summary._output import DirectoryOutput

    writer = Writer(DirectoryOutput(str(tmp_path / "tb")))
    for step in range(5):
        writer.add_scalar("loss", 0.1 * step, step=step, description="falls")
    writer.close()
    back = there_and_back(tmp_path / "tb", tmp_path, "tensorboard")
    assert_same_run(tmp_path / "tb", tmp_path / "there", back)


def test_float64_scalars_are_exact_from_the_archive(tmp_path: Path) -> None:
    write_run(tmp_path / "tb", "tensorboard", [values_for("tensorboard", range(3))])
    back = there_and_back(tmp_path / "tb", tmp_path, "tensorboard")
    values = [t.value for e in read(back, "tensorboard") if isinstance(e.content, Summary) for t in e.content.values]
    assert [v.value for v in values if isinstance(v, Scalar) and not v.is_float32] == [0.1, 1.1, 2.1]


# --- restore, by itself


def payload_of(event: Event) -> bytes:
    """Some bytes that differ where time, step or text do."""
    return repr(event).encode()


def plain(wall_time: float, step: int, text: str = "") -> Event:
    return Event(wall_time, step, Opaque("own", text.encode()), "tensorboard")


@given(st.lists(st.tuples(FEW_TIMES, FEW_STEPS, st.sampled_from(["own", "replaced", "behind"])), max_size=20))
def test_restore_puts_every_original_in_its_place(rows: list[tuple[float, int, str]]) -> None:
    counter = PlaceCounter()
    output: list[tuple[Event, int]] = []
    archive: list[tuple[ArchivePosition, Event]] = []
    expected: list[Event] = []
    for number, (wall_time, step, kind) in enumerate(rows):
        event = plain(wall_time, step, f"{kind} {number}")
        expected.append(event)
        if kind == "behind":
            archive.append((counter.last, event))
            continue
        written = event if kind == "own" else plain(wall_time, step, "approximate")
        place = counter.advance(payload_of(written))
        output.append((written, crc32c(payload_of(written))))
        if kind == "replaced":
            archive.append((place, event))
    assert list(restore(output, archive)) == expected


@given(st.integers(2, 30), st.data())
def test_restore_finds_its_way_behind_lost_events(count: int, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    start = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(start + 1, count))
    counter = PlaceCounter()
    events = [plain(float(number), number, "approximate" if kind else "own") for number, kind in enumerate(kinds)]
    places = [counter.advance(payload_of(event)) for event in events]
    marked = [(event, crc32c(payload_of(event))) for event in events]
    originals = {n: plain(float(n), n, "original") for n, kind in enumerate(kinds) if kind}
    archive = [(places[n], event) for n, event in originals.items()]
    damage = Damage(0, 30 * (end - start), "broken")
    found = [item for item in restore([*marked[:start], damage, *marked[end:]], archive) if isinstance(item, Event)]
    rest = [*range(start), *range(end, count)]
    expected = sorted([*originals.values(), *(events[n] for n in rest if n not in originals)], key=lambda e: e.step)
    assert sorted(found, key=lambda event: event.step) == expected
    assert [event for event in found if event in originals.values()] == list(originals.values())


@given(
    st.text(max_size=30)
    | st.builds(ArchivePosition, st.booleans(), st.integers(0, 10**18), st.integers(0, 2**32 - 1)).map(
        ArchivePosition.encode
    )
)
def test_place_reads_what_it_writes_and_nothing_else(text: str) -> None:
    place = ArchivePosition.decode(text)
    assert place is None or place.encode() == text


def test_places_of_archives_that_are_about_already_are_read() -> None:
    assert ArchivePosition.decode("ms_summary_bridge.archive replaces 12 0a1b2c3d") == ArchivePosition(
        True, 12, 0x0A1B2C3D, 0
    )
    assert ArchivePosition.decode("ms_summary_bridge.archive follows 0 00000000 1") == ArchivePosition(False, 0, 0, 1)


@pytest.mark.parametrize(
    "text", ["", "x", "ms_summary_bridge.archive replaces 1", "ms_summary_bridge.archive behind 1 00000000"]
)
def test_what_is_no_place_is_none(text: str) -> None:
    assert ArchivePosition.decode(text) is None
