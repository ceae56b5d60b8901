"""Our message classes: fresh, apart from everybody else's, and the same on the wire as the originals.

The originals are the generated modules of the installed mindspore, tensorboard and tensorboardX. Where a
package is not installed, the tests that need it are skipped.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Before mindspore, which else makes protobuf choose its pure Python implementation for this process.
import google.protobuf.message as protobuf_message
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_summary_bridge.formats import protos
from ms_summary_bridge.formats.protos import ProtoPackage, ms_pb, tb_pb

ROOT = Path(__file__).resolve().parents[2]
DESCRIPTOR_SET = ROOT / "ms_summary_bridge" / "formats" / protos.DESCRIPTOR_SET
MINDSPORE = "ms_summary_bridge.mindspore"
TENSORBOARD = "ms_summary_bridge.tensorboard"

FieldProto = descriptor_pb2.FieldDescriptorProto
PACKABLE = set(range(1, 19)) - {
    FieldProto.TYPE_STRING,
    FieldProto.TYPE_BYTES,
    FieldProto.TYPE_MESSAGE,
    FieldProto.TYPE_GROUP,
}


# What a set of files declares, under the names of our packages.


class Field(NamedTuple):
    """All that decides how a field is written and read."""

    name: str
    type: int
    type_name: str
    label: int
    packed: bool
    oneof: str
    has_presence: bool
    default: str


class Message(NamedTuple):
    """The fields by number."""

    fields: dict[int, Field]
    is_map_entry: bool


class Enum(NamedTuple):
    """The numbers by name; a closed enum (proto2) keeps an unknown number as an unknown field."""

    values: dict[str, int]
    is_closed: bool


def declarations(
    files: Iterable[descriptor_pb2.FileDescriptorProto], packages: dict[str, str]
) -> dict[str, Message | Enum]:
    """Everything in some files, by full name, where `packages` says under which name a package goes."""

    def renamed(name: str) -> str:
        for theirs, ours in sorted(packages.items(), key=lambda pair: -len(pair[0])):
            if name.startswith(f".{theirs}."):
                return ours + name[len(theirs) + 1 :]
        return name.lstrip(".")

    found: dict[str, Message | Enum] = {}

    def add_enum(scope: str, enum: descriptor_pb2.EnumDescriptorProto, *, proto3: bool) -> None:
        values = {value.name: value.number for value in enum.value}
        found[renamed(f"{scope}.{enum.name}")] = Enum(values, not proto3)

    def add_message(scope: str, message: descriptor_pb2.DescriptorProto, *, proto3: bool) -> None:
        name = f"{scope}.{message.name}"
        fields = {}
        for field in message.field:
            repeated = field.label == FieldProto.LABEL_REPEATED
            in_oneof = field.HasField("oneof_index") and not field.proto3_optional
            fields[field.number] = Field(
                name=field.name,
                type=field.type,
                type_name=renamed(field.type_name),
                label=field.label,
                packed=repeated
                and field.type in PACKABLE
                and (field.options.packed if field.options.HasField("packed") else proto3),
                oneof=message.oneof_decl[field.oneof_index].name if in_oneof else "",
                has_presence=not repeated
                and (not proto3 or field.HasField("oneof_index") or field.type == FieldProto.TYPE_MESSAGE),
                default=field.default_value,
            )
        found[renamed(name)] = Message(fields, message.options.map_entry)
        for inner in message.nested_type:
            add_message(name, inner, proto3=proto3)
        for enum in message.enum_type:
            add_enum(name, enum, proto3=proto3)

    for file in files:
        proto3 = file.syntax == "proto3"
        for message in file.message_type:
            add_message(f".{file.package}", message, proto3=proto3)
        for enum in file.enum_type:
            add_enum(f".{file.package}", enum, proto3=proto3)
    return found


@dataclasses.dataclass(frozen=True)
class Original:
    """Another package's generated modules."""

    name: str
    modules: tuple[str, ...]
    packages: dict[str, str]
    """Their package to ours."""
    left_out: frozenset[str] = frozenset()
    """Messages and enums of theirs that we do not declare: they never get into a file."""

    @functools.cached_property
    def loaded(self) -> list[Any]:
        """The modules; the running test is skipped if the package is not installed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pytest.importorskip(self.name)
            return [importlib.import_module(module) for module in self.modules]

    @functools.cached_property
    def declared(self) -> dict[str, Message | Enum]:
        """Everything in the modules, under our names."""
        files = []
        for module in self.loaded:
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            files.append(file)
        return declarations(files, self.packages)

    def message_class(self, our_name: str) -> Any:
        """Their class for a message of ours."""
        for theirs, ours in sorted(self.packages.items(), key=lambda pair: -len(pair[1])):
            if our_name.startswith(f"{ours}."):
                path = our_name[len(ours) + 1 :].split(".")
                for module in self.loaded:
                    if module.DESCRIPTOR.package == theirs and hasattr(module, path[0]):
                        return functools.reduce(getattr, path, module)
        raise LookupError(our_name)


MINDSPORE_ORIGINAL = Original(
    "mindspore",
    tuple(f"mindspore.train.{name}_pb2" for name in ("anf_ir", "summary", "lineage")),
    {"mindspore.irpb": MINDSPORE},
)
HPARAMS_SERVER = [
    "AggregationType",
    "ColParams",
    "GetExperimentRequest",
    "ListMetricEvalsRequest",
    "ListSessionGroupsRequest",
    "ListSessionGroupsResponse",
    "MetricValue",
    "Session",
    "SessionGroup",
    "SortOrder",
]
WORKERS = [
    "RequestedExitCode",
    "WatchdogConfig",
    "WorkerHealth",
    "WorkerHeartbeatRequest",
    "WorkerHeartbeatResponse",
    "WorkerShutdownMode",
]
TENSORBOARD_ORIGINAL = Original(
    "tensorboard",
    tuple(
        f"tensorboard.compat.proto.{name}_pb2"
        for name in [
            "attr_value",
            "event",
            "full_type",
            "function",
            "graph",
            "graph_debug_info",
            "histogram",
            "node_def",
            "op_def",
            "resource_handle",
            "summary",
            "tensor",
            "tensor_shape",
            "types",
            "versions",
        ]
    )
    + tuple(
        f"tensorboard.plugins.{name}_pb2"
        for name in [
            "histogram.plugin_data",
            "hparams.api",
            "hparams.plugin_data",
            "image.plugin_data",
            "mesh.plugin_data",
            "pr_curve.plugin_data",
            "scalar.plugin_data",
            "text.plugin_data",
        ]
    ),
    {
        "tensorboard": TENSORBOARD,
        "tensorboard.hparams": f"{TENSORBOARD}.hparams",
        "tensorboard.mesh": f"{TENSORBOARD}.mesh",
    },
    frozenset(
        [f"{TENSORBOARD}.hparams.{name}" for name in HPARAMS_SERVER]
        + [f"{TENSORBOARD}.{name}" for name in [*WORKERS, "OpList", "SerializedDType", "SummaryDescription"]]
    ),
)
TENSORBOARDX_ORIGINAL = Original(
    "tensorboardX",
    tuple(
        f"tensorboardX.proto.{name}_pb2"
        for name in [
            "api",
            "attr_value",
            "event",
            "graph",
            "node_def",
            "plugin_hparams",
            "plugin_mesh",
            "plugin_pr_curve",
            "plugin_text",
            "resource_handle",
            "summary",
            "tensor",
            "tensor_shape",
            "types",
            "versions",
        ]
    ),
    {
        "tensorboardX": TENSORBOARD,
        "tensorboardX.hparam": f"{TENSORBOARD}.hparams",
        "tensorboardX.mesh": f"{TENSORBOARD}.mesh",
    },
    frozenset([f"{TENSORBOARD}.hparams.{name}" for name in HPARAMS_SERVER] + [f"{TENSORBOARD}.SummaryDescription"]),
)

FILES = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTOR_SET.read_bytes()).file
OURS = declarations(FILES, {name: name for name in {file.package for file in FILES}})
OWN = frozenset(f"{TENSORBOARD}.{name}" for name in ("HistogramExtras", "Origin", "PluginContent"))
MESSAGES = [
    name
    for name, declared in OURS.items()
    if isinstance(declared, Message) and not declared.is_map_entry and not name.startswith("google.")
]


def our_class(name: str) -> Any:
    """Our class by its full name."""
    package, top = (ms_pb, MINDSPORE) if name.startswith(f"{MINDSPORE}.") else (tb_pb, TENSORBOARD)
    return functools.reduce(getattr, name[len(top) + 1 :].split("."), package)


# Messages at random, every field of them.

NUMBERS: dict[int, tuple[Any, ...]] = {
    FieldProto.TYPE_DOUBLE: (0.0, -0.0, 0.1, -1e300, 5e-324, float("inf"), float("-inf"), float("nan")),
    FieldProto.TYPE_FLOAT: (
        0.0,
        -0.0,
        struct.unpack("<f", struct.pack("<f", 0.1))[0],
        -1e30,
        float("inf"),
        float("-inf"),
        float("nan"),
    ),
    FieldProto.TYPE_INT64: (0, 1, -1, 2**63 - 1, -(2**63)),
    FieldProto.TYPE_INT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    FieldProto.TYPE_UINT64: (0, 1, 2**64 - 1),
    FieldProto.TYPE_UINT32: (0, 1, 2**32 - 1),
    FieldProto.TYPE_FIXED64: (0, 1, 2**64 - 1),
    FieldProto.TYPE_BOOL: (False, True),
    FieldProto.TYPE_STRING: ("", "loss", "Verlust/größer", "损失", "a\x00b"),
    FieldProto.TYPE_BYTES: (b"", b"\x00\xff", b"\x89PNG"),
}


def is_repeated(field: Any) -> bool:
    """Whether a field holds a list or a map; the older releases have only the label."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def is_required(field: Any) -> bool:
    """Whether a field must be set."""
    return bool(field.is_required if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED)


def any_value(field: Any, rng: random.Random) -> Any:
    """A value for a field that holds no message."""
    if field.enum_type is not None:
        return rng.choice(field.enum_type.values).number
    return rng.choice(NUMBERS[field.type])


def fill_field(message: Any, field: Any, rng: random.Random, depth: int) -> None:
    """Sets one field, inner messages down to a depth; a list gets one to three items."""
    target = getattr(message, field.name)
    if field.message_type is None:
        if is_repeated(field):
            target.extend(any_value(field, rng) for _ in range(rng.randint(1, 3)))
        else:
            setattr(message, field.name, any_value(field, rng))
    elif field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for _ in range(rng.randint(1, 3)):
            if value.message_type is None:
                target[any_value(key, rng)] = any_value(value, rng)
            else:
                fill(target[any_value(key, rng)], rng, depth - 1)
    elif is_repeated(field):
        for _ in range(rng.randint(1, 3 if depth > 1 else 1)):
            fill(target.add(), rng, depth - 1)
    else:
        target.SetInParent()
        fill(target, rng, depth - 1)


def fill(message: Any, rng: random.Random, depth: int) -> None:
    """Sets every field (below depth 0 only the required ones); of a oneof, any one stays."""
    fields = list(message.DESCRIPTOR.fields)
    rng.shuffle(fields)
    for field in fields:
        if depth > 0 or is_required(field):
            fill_field(message, field, rng, depth)


def filled_messages(cls: Any, rng: random.Random) -> Iterator[Any]:
    """One message for each field and oneof member: all fields set, and that one last, so that it stays."""
    for last in cls.DESCRIPTOR.fields:
        message = cls()
        fill(message, rng, 2)
        fill_field(message, last, rng, 2)
        yield message
    message = cls()
    fill(message, rng, 0)
    yield message


def assert_passes(written: Any, reader: Any) -> None:
    """Another class reads a message, knows all that is in it, and writes the same bytes."""
    payload = written.SerializeToString(deterministic=True)
    read = reader.FromString(payload)
    read.DiscardUnknownFields()
    assert read.SerializeToString(deterministic=True) == payload


def pairs(original: Original) -> list[tuple[str, Original]]:
    """What `parametrize` needs to run a test once for each message that may be in an original."""
    prefix = MINDSPORE if original is MINDSPORE_ORIGINAL else TENSORBOARD
    return [(name, original) for name in MESSAGES if name.startswith(f"{prefix}.") and name not in OWN]


EVERY_PAIR = pairs(MINDSPORE_ORIGINAL) + pairs(TENSORBOARD_ORIGINAL) + pairs(TENSORBOARDX_ORIGINAL)
EVERY_PAIR_IDS = [f"{original.name}-{name[len('ms_summary_bridge.') :]}" for name, original in EVERY_PAIR]


# The committed descriptor set.


def build_protos(root: Path, *arguments: str) -> int:
    """Runs the tool of a source tree, and returns its exit code."""
    pytest.importorskip("grpc_tools")
    tool = root / "tools" / "build_protos"
    return subprocess.run([sys.executable, tool, *arguments], check=False, capture_output=True).returncode


def test_committed_set_is_fresh() -> None:
    assert build_protos(ROOT, "--check") == 0


def test_changed_text_makes_the_set_stale(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    target = tmp_path / DESCRIPTOR_SET.relative_to(ROOT)
    target.parent.mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "build_protos", tmp_path / "tools")
    assert build_protos(tmp_path, "--check") == 1  # the set is missing
    assert build_protos(tmp_path) == 0
    assert target.read_bytes() == DESCRIPTOR_SET.read_bytes()

    versions = tmp_path / "proto" / "tensorboard" / "graph.proto"
    versions.write_text(versions.read_text().replace("min_consumer = 2", "min_consumer = 4"))
    assert build_protos(tmp_path, "--check") == 1
    assert target.read_bytes() == DESCRIPTOR_SET.read_bytes()


def test_set_is_self_contained() -> None:
    seen: set[str] = set()
    for file in FILES:
        assert set(file.dependency) <= seen
        seen.add(file.name)
    assert {file.package for file in FILES} == {
        MINDSPORE,
        TENSORBOARD,
        f"{TENSORBOARD}.hparams",
        f"{TENSORBOARD}.mesh",
        "google.protobuf",
    }


# The same declarations as the originals.


@pytest.mark.parametrize("original", [MINDSPORE_ORIGINAL, TENSORBOARD_ORIGINAL], ids=lambda o: o.name)
def test_we_declare_what_they_declare(original: Original) -> None:
    prefix = MINDSPORE if original is MINDSPORE_ORIGINAL else TENSORBOARD
    ours = {name for name in OURS if name.startswith(f"{prefix}.")} - OWN
    theirs = set(original.declared)

    def is_left_out(name: str) -> bool:
        return any(name == left or name.startswith(f"{left}.") for left in original.left_out)

    assert ours == {name for name in theirs if not is_left_out(name)}
    assert original.left_out <= theirs
    for name in sorted(ours):
        assert OURS[name] == original.declared[name], name


def test_tensorboardx_declares_a_part_of_ours() -> None:
    """Its copy of the messages is older: fields may be missing there, but none may differ on the wire.

    The names of enum values may: LogMessage.DEBUG is DEBUGGING in TensorBoard.
    """
    for name, theirs in TENSORBOARDX_ORIGINAL.declared.items():
        if any(name == left or name.startswith(f"{left}.") for left in TENSORBOARDX_ORIGINAL.left_out):
            continue
        ours = OURS[name]
        if isinstance(theirs, Enum):
            assert isinstance(ours, Enum), name
            assert set(theirs.values.values()) <= set(ours.values.values()), name
            assert theirs.is_closed == ours.is_closed, name
        else:
            assert isinstance(ours, Message), name
            for number, field in theirs.fields.items():
                assert field == ours.fields[number], name


# The same bytes as the originals.


@pytest.mark.parametrize(("name", "original"), EVERY_PAIR, ids=EVERY_PAIR_IDS)
def test_messages_pass_between_the_classes(name: str, original: Original) -> None:
    if name not in original.declared and original is TENSORBOARDX_ORIGINAL:
        pytest.skip("not in tensorboardX's copy")
    theirs = original.message_class(name)
    ours = our_class(name)

    @settings(max_examples=5, deadline=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        for message in filled_messages(theirs, random.Random(seed)):
            assert_passes(message, ours)
        if original is not TENSORBOARDX_ORIGINAL:
            for message in filled_messages(ours, random.Random(seed)):
                assert_passes(message, theirs)

    check()


@pytest.mark.parametrize("name", MESSAGES)
def test_our_messages_read_what_they_wrote(name: str) -> None:
    for message in filled_messages(our_class(name), random.Random(name)):
        assert_passes(message, our_class(name))


# The two namespaces.


@pytest.mark.parametrize("package", [ms_pb, tb_pb, tb_pb.hparams, tb_pb.mesh], ids=repr)
def test_every_listed_name_can_be_had(package: ProtoPackage) -> None:
    for name in dir(package):
        made = getattr(package, name)
        assert getattr(package, name) is made
        if not isinstance(made, ProtoPackage):
            assert made.DESCRIPTOR.name == name


def test_packages_list_all_that_the_files_declare() -> None:
    for package, full_name in ((ms_pb, MINDSPORE), (tb_pb, TENSORBOARD), (tb_pb.hparams, f"{TENSORBOARD}.hparams")):
        inner = {name[len(full_name) + 1 :] for name in OURS if name.startswith(f"{full_name}.")}
        assert set(dir(package)) == {name.split(".")[0] for name in inner}


@pytest.mark.parametrize("name", ["Evnet", "DT_FLOAT", "HParamsPluginData", "_Event", "__wrapped__", "Event.what"])
def test_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match="has no message or enum"):
        getattr(tb_pb, name)


def test_names_are_used_like_generated_modules() -> None:
    event = tb_pb.Event(wall_time=1.5, step=3)
    event.summary.value.add(tag="loss", simple_value=0.25)
    assert isinstance(event.summary.value[0], tb_pb.Summary.Value)
    assert isinstance(event, protobuf_message.Message)
    assert event.WhichOneof("what") == "summary"
    assert tb_pb.SessionLog.START == tb_pb.SessionLog.SessionStatus.Value("START") == 1
    assert tb_pb.DataType.DT_DOUBLE == 2
    assert ms_pb.DataType.Name(12) == "DT_FLOAT64"
    assert ms_pb.InputProto.CONTROL_EDGE == 1
    assert tb_pb.mesh.MeshPluginData.VERTEX == 1
    assert ms_pb.Summary.Histogram.bucket(left=1, width=2, count=3).left == 1

    start = tb_pb.hparams.HParamsPluginData().session_start_info
    start.hparams["learning_rate"].number_value = 0.1
    start.hparams["layers"].list_value.extend([8, "wide", True])
    assert start.hparams["layers"].list_value[1] == "wide"


def test_required_fields_are_required() -> None:
    with pytest.raises(protobuf_message.EncodeError, match="wall_time"):
        ms_pb.Event(step=1).SerializeToString()


def test_bytes_of_an_event_as_written_by_hand() -> None:
    tag = b"\x0a\x04loss"
    of_mindspore = tag + b"\x1d" + struct.pack("<f", 0.25)
    of_tensorboard = tag + b"\x15" + struct.pack("<f", 0.25)
    for package, value in ((ms_pb, of_mindspore), (tb_pb, of_tensorboard)):
        summary = b"\x0a" + bytes([len(value)]) + value
        payload = b"\x09" + struct.pack("<d", 1.5) + b"\x10\x03" + b"\x2a" + bytes([len(summary)]) + summary
        event = package.Event.FromString(payload)
        assert (event.wall_time, event.step, event.summary.value[0].tag) == (1.5, 3, "loss")
        assert event.SerializeToString(deterministic=True) == payload


def test_classes_are_in_no_shared_pool() -> None:
    shared = descriptor_pool.Default()
    for name in (f"{MINDSPORE}.Event", f"{TENSORBOARD}.Event"):
        with pytest.raises(KeyError):
            shared.FindMessageTypeByName(name)


def test_threads_get_one_class() -> None:
    package = ProtoPackage(TENSORBOARD)
    start = threading.Barrier(8)
    got: list[Any] = []

    def ask() -> None:
        start.wait()
        got.append((package.Event, package.hparams))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert all(event is got[0][0] and hparams is got[0][1] for event, hparams in got)


# Our own messages.


def test_origin_is_skipped_by_the_readers_of_plugin_data() -> None:
    content = tb_pb.PluginContent(version=7)
    content.origin.tag = "weights"
    content.origin.histogram.min = 0.0
    payload = content.SerializeToString()
    for reader in (tb_pb.HistogramPluginData, tb_pb.ScalarPluginData, tb_pb.TextPluginData):
        assert reader.FromString(payload).version == 7


def test_origin_can_stand_behind_any_plugin_data() -> None:
    mesh = tb_pb.mesh.MeshPluginData(version=1, name="loss", shape=[1, 9, 3])
    origin = tb_pb.PluginContent()
    origin.origin.derived = True
    payload = mesh.SerializeToString() + origin.SerializeToString()
    read = tb_pb.mesh.MeshPluginData.FromString(payload)
    assert (read.version, read.name, list(read.shape)) == (1, "loss", [1, 9, 3])
    assert tb_pb.PluginContent.FromString(payload).origin.derived


def test_zero_is_not_absent_in_histogram_extras() -> None:
    extras = tb_pb.HistogramExtras.FromString(tb_pb.HistogramExtras(min=0.0, count=0).SerializeToString())
    assert [field.name for field, _ in extras.ListFields()] == ["min", "count"]
    assert not tb_pb.PluginContent().HasField("origin")


# All in one process.

TOGETHER = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from mindspore.train import lineage_pb2, summary_pb2
from tensorboard.compat.proto import event_pb2, graph_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboardX.proto import event_pb2 as event_x_pb2, plugin_hparams_pb2
from ms_summary_bridge.formats.protos import ms_pb, tb_pb

def check(writer, *readers):
    payload = writer.SerializeToString(deterministic=True)
    for reader in readers:
        assert reader.FromString(payload).SerializeToString(deterministic=True) == payload, reader

event = ms_pb.Event(wall_time=1.5, step=3)
event.summary.value.add(tag="loss").scalar_value = 0.25
event.summary.value.add(tag="weights").histogram.buckets.add(left=1, width=2, count=3)
check(event, summary_pb2.Event, ms_pb.Event)
lineage = ms_pb.LineageEvent(wall_time=1.5)
lineage.user_defined_info.user_info.add().map_str["net"] = "LeNet"
check(lineage, lineage_pb2.LineageEvent, ms_pb.LineageEvent)
event = tb_pb.Event(wall_time=1.5, step=3)
event.summary.value.add(tag="loss", simple_value=0.25)
check(event, event_pb2.Event, event_x_pb2.Event, tb_pb.Event)
node = tb_pb.GraphDef()
node.node.add(name="a", op="Add").attr["T"].type = tb_pb.DataType.DT_FLOAT
check(node, graph_pb2.GraphDef, tb_pb.GraphDef)
data = tb_pb.hparams.HParamsPluginData()
data.session_start_info.hparams["lr"].number_value = 0.1
check(data, plugin_data_pb2.HParamsPluginData, plugin_hparams_pb2.HParamsPluginData, tb_pb.hparams.HParamsPluginData)
from google.protobuf.internal import api_implementation
print(api_implementation.Type())
"""


@pytest.mark.parametrize(
    "order",
    [
        ("mindspore", "tensorboard", "tensorboardX", "ms_summary_bridge.formats.protos"),
        ("ms_summary_bridge.formats.protos", "tensorboardX", "tensorboard", "mindspore"),
    ],
    ids=["mindspore-first", "ours-first"],
)
def test_all_packages_live_in_one_process(order: tuple[str, ...]) -> None:
    """Either way round: mindspore, if it comes first, sets protobuf to its pure Python implementation."""
    for package in ("mindspore", "tensorboard", "tensorboardX"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER, *order], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] in {"python", "upb", "cpp"}


_FAULT = """
from ms_summary_bridge.formats.protos import PARSE_ERRORS, ms_pb, parse_fault
try:
    ms_pb.LineageEvent.FromString(bytes.fromhex(%r))
except PARSE_ERRORS as error:
    print(parse_fault(error))
"""


@pytest.mark.parametrize("message", ["0f", "0a", "ff" * 12])
def test_each_implementation_of_protobuf_tells_a_fault_in_the_same_words(message: str) -> None:
    said = set()
    name = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
    free = {key: value for key, value in os.environ.items() if key != name}
    for env in (free, {**free, name: "python"}):
        said.add(
            subprocess.run([sys.executable, "-c", _FAULT % message], env=env, capture_output=True, text=True).stdout
        )
    assert said == {"the message is malformed\n"}
