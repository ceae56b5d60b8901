"""Where parameters and operators of a graph are drawn: each in its own layer, and few boxes in each scope."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.graphs.ms_to_tb import convert_graph, convert_graph_event
from ms_summary_bridge.formats.graphs.placement import ParameterPlaces, find_crowds
from ms_summary_bridge.formats.graphs.restoration import restore_graph
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.values import Opaque
from tests.formats.test_graph import Drawn, graph, node

LLAMA = Path(__file__).resolve().parents[1] / "data" / "mindformers-1.9.0-llama-graph.bin.gz"
MODEL = "Default/network-LlamaForCausalLM/model-LlamaModel"


def count_boxes(names: dict[str, str]) -> dict[str, list[str]]:
    """Returns what TensorBoard shows in each scope once it is opened: five or more of one kind and name as one box.

    Args:
        names: The operator of each node. A `Const` is drawn beside what takes it, as a dot.
    """
    scopes: dict[str, dict[str, str]] = defaultdict(dict)
    for name, op in names.items():
        parts = name.split("/")
        for depth in range(len(parts) - 1):
            scopes["/".join(parts[:depth])][parts[depth]] = ""
        if op != "Const":
            scopes["/".join(parts[:-1])].setdefault(parts[-1], op)
    shown = {}
    for scope, inner in scopes.items():
        series: dict[tuple[str, str], list[int]] = defaultdict(list)
        boxes = []
        for leaf, op in inner.items():
            match = re.fullmatch(r"(\D*)(\d+)", leaf)
            if op and match is not None:
                series[op, match[1]].append(int(match[2]))
            else:
                boxes.append(leaf)
        for (_, prefix), numbers in series.items():
            numbers.sort()
            start = 0
            for end in range(1, len(numbers) + 1):
                if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
                    run = numbers[start:end]
                    boxes += [f"{prefix}{each}" for each in run] if len(run) < 5 else [f"{prefix}[{len(run)}]"]
                    start = end
        shown[scope] = boxes
    return shown


# ---------------------------------------------------------------- parameters


def test_a_parameter_stands_in_its_own_layer() -> None:
    layer = "Default/network-WithLossCell/_backbone-ResNet/layer1-SequentialCell/0-Bottleneck"
    nodes = [
        node("1", "Load", "layer1.0.conv1.weight", full_name=f"{layer}/Load-op0"),
        node("2", "Conv2D", "1", full_name=f"{layer}/conv1-Conv2d/Conv2D-op0"),
        node("3", "BatchNorm", "2", "layer1.0.bn1.gamma", full_name=f"{layer}/bn1-BatchNorm2d/BatchNorm-op0"),
        node("4", "BatchNormGrad", "layer1.0.bn1.gamma", full_name=f"Gradients/{layer}/bn1-BatchNorm2d/Grad-op0"),
        *(
            node(str(5 + number), "ApplyMomentum", name, f"moments.{name}", "learning_rate", full_name=full_name)
            for number, (name, full_name) in enumerate(
                [
                    ("layer1.0.conv1.weight", "Default/optimizer-Momentum/ApplyMomentum-op0"),
                    ("layer1.0.bn1.gamma", "Default/optimizer-Momentum/ApplyMomentum-op1"),
                ]
            )
        ),
    ]
    names = ["layer1.0.conv1.weight", "layer1.0.bn1.gamma", "moments.layer1.0.conv1.weight"]
    drawn = Drawn(graph(*nodes, parameters=[*names, "moments.layer1.0.bn1.gamma", "learning_rate"]))
    assert [name for name, op in drawn.ops().items() if op == "Parameter"] == [
        f"{layer}/conv1-Conv2d/weight",
        f"{layer}/bn1-BatchNorm2d/gamma",
        "Default/optimizer-Momentum/state/moments/layer1/0/conv1/weight",
        "Default/optimizer-Momentum/state/moments/layer1/0/bn1/gamma",
        "Default/optimizer-Momentum/state/learning_rate",
    ]
    restored = ms_pb.GraphProto.FromString(restore_graph(drawn.bytes)[0])
    assert [each.name for each in restored.parameters][:3] == names


@pytest.mark.parametrize(
    ("name", "uses", "place"),
    [
        ("a.b.weight", ["net-N/a-A/b-B"], ("net-N/a-A/b-B", "weight")),
        ("a.b.weight", ["net-N/a-A", "Gradients/net-N/a-A/b-B"], ("net-N/a-A/b-B", "weight")),
        ("a.b.c.weight", ["net-N/a-A"], ("net-N/a-A/b-B", "c.weight")),
        ("x.a.b.weight", ["net-N/a-A/b-B"], ("net-N/a-A/b-B", "weight")),
        ("b.weight", ["net-N/c-C"], ("net-N/c-C/b-B", "weight")),
        ("b.weight", ["net-N"], ("net-N/a-A/b-B", "weight")),
        ("other.weight", ["net-N/c-C", "optimizer-O"], ("net-N/c-C", "other.weight")),
        ("inputs0", ["net-N/c-C", "Gradients/net-N/c-C"], ("net-N/c-C", "inputs0")),
        ("inputs0", ["net-N/c-C", "net-N/a-A"], ("net-N", "inputs0")),
        ("a.b.weight", [], ("", "a.b.weight")),
        ("m.w", ["optimizer-O"], ("optimizer-O", "m.w")),
        ("a/b.weight", ["net-N/a-A"], ("net-N/a-A", "a_b.weight")),
        ("." * 1000, ["net-N"], ("net-N", "." * 1000)),
    ],
)
def test_places(name: str, uses: list[str], place: tuple[str, str]) -> None:
    scopes = ["net-N/a-A/b-B", "net-N/c-C/b-B", "Gradients/net-N/a-A/b-B", "optimizer-O"]
    assert ParameterPlaces(scopes, [name], [uses], "").find() == [place]


def test_the_layers_of_a_real_network() -> None:
    source = gzip.decompress(LLAMA.read_bytes())
    graph_def, counts = convert_graph(source)
    nodes = {each.name: each.op for each in tb_pb.GraphDef.FromString(graph_def).node}
    places = [name for name, op in nodes.items() if op == "Parameter"]
    assert len(places) == counts.parameters == 66
    layers = [f"{MODEL}/layers-CellList/{number}-LLamaDecodeLayer" for number in (0, 1)]
    cells = {"attention": ("wq", "wk", "wv", "wo"), "feed_forward": ("w1", "w2", "w3")}
    wanted = {f"{layer}/{norm}-LlamaRMSNorm/weight" for layer in layers for norm in ("attention_norm", "ffn_norm")}
    for layer in layers:
        wanted |= {f"{layer}/attention-LLamaAttention/{cell}-Linear/weight" for cell in cells["attention"]}
        wanted |= {f"{layer}/feed_forward-LlamaFeedForward/{cell}-Linear/weight" for cell in cells["feed_forward"]}
    wanted |= {f"{MODEL}/norm_out-LlamaRMSNorm/weight", f"{MODEL}/tok_embeddings-LlamaEmbedding/embedding_weight"}
    wanted.add("Default/network-LlamaForCausalLM/lm_head-Linear/weight")
    assert wanted <= set(places)
    others = Counter("/".join(name.split("/")[:3]) for name in set(places) - wanted)
    assert others == {
        "Default/network-LlamaForCausalLM/inputs0": 1,
        "Default/optimizer_state/adam_m": 21,
        "Default/optimizer_state/adam_v": 21,
        "Default/optimizer_state/global_step": 1,
        "Default/optimizer_state/scale_sense": 1,
    }
    assert not [name for name in places if name.startswith("Gradients")]
    assert not [name for name in places if name.count("/") < 2 and "." in name], "no weight lies at the top"
    shown = count_boxes(nodes)
    assert len(shown[""]) <= 5
    assert len(shown["Default"]) <= 24, "of 122 operators, two layers beside the network, and 45 parameters"
    assert max(len(shown[layer]) for layer in layers) <= 10
    restored, again = restore_graph(graph_def)
    before, after = (ms_pb.GraphProto.FromString(data) for data in (source, restored))
    assert [each.name for each in after.parameters] == [each.name for each in before.parameters]
    named = [(one.full_name, two.full_name) for one, two in zip(before.node, after.node, strict=True) if one.full_name]
    assert [one for one, two in named if one != two] == []
    assert again.edges == counts.edges


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the graphs of three trainings that MindSpore has compiled."""
    directory = tmp_path_factory.mktemp("networks")
    script = Path(__file__).resolve().parents[1] / "real_networks.py"
    done = subprocess.run(  # MindSpore leaves files where it stands
        [sys.executable, str(script), str(directory)], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return directory


@pytest.mark.mindspore
@pytest.mark.parametrize(
    ("name", "weights", "states", "most"),
    [("resnet50", 267, 161 + 3, 16), ("llama", 21, 2 * 21 + 2, 55), ("bert", 47, 2 * 47 + 4, 32)],
)
def test_every_weight_of_large_networks_is_in_its_layer(
    networks: Path, name: str, weights: int, states: int, most: int
) -> None:
    (path,) = (networks / name).glob("*_MS")
    (payload,) = (
        event.content.payload
        for event in EventFileReader(str(path), MindSporeDecoder())
        if isinstance(event, Event) and isinstance(event.content, Opaque) and event.content.kind == "graph"
    )
    drawn = tb_pb.GraphDef.FromString(convert_graph_event(payload)[0]).node
    source = ms_pb.Event.FromString(payload).graph_def.parameters
    places = [each.name for each in drawn if each.op == "Parameter"]
    assert len(places) == len(source)
    layers = [(each.name, place) for each, place in zip(source, places, strict=True) if "/state/" not in place]
    for parameter, place in layers:
        *cells, leaf = place.split("/")
        path_of = [*(cell.partition("-")[0] for cell in cells), leaf]
        if not parameter.startswith("inputs"):
            assert path_of[-parameter.count(".") - 1 :] == parameter.split("."), "cells around it, and its own name"
    assert len([parameter for parameter, _ in layers if not parameter.startswith("inputs")]) == weights
    assert len(places) - len(layers) == states
    shown = count_boxes({each.name: each.op for each in drawn})
    assert sorted(shown[""]) == ["Default", "Gradients", "output"]
    assert len(shown["Default"]) <= 7
    assert max(map(len, shown.values())) <= most


# ---------------------------------------------------------------- operators


def test_many_operators_of_a_kind_are_one_box() -> None:
    kinds = {"Mul": range(5), "Add": (0, 1, 2, 3, 9), "Conv2D": range(6), "Neg": (0, 2, 4)}
    wishes = [(f"net/{kind}-op{number}", kind) for kind, numbers in kinds.items() for number in numbers]
    wishes += [(f"net/mine{number}", "Mul") for number in (1, 5)]
    found = dict(zip((name for name, _ in wishes), find_crowds(wishes), strict=True))
    assert {name for name, crowd in found.items() if crowd} == {
        *(f"net/Add-op{number}" for number in kinds["Add"]),  # TensorBoard's own boxes end at a gap
        *(f"net/Conv2D-op{number}" for number in kinds["Conv2D"]),  # and know no digit but at the end
    }
    nodes = [node(str(number), kind, full_name=name) for number, (name, kind) in enumerate(wishes, 1)]
    nodes += [node(str(50 + number), "ReLU6", "1", scope="net") for number in range(5)]
    source = graph(*nodes)
    drawn = Drawn(source)
    assert count_boxes(drawn.ops())["net"] == [
        *("Add", "Conv2D", "ReLU6", "Mul-op[5]"),
        *("Neg-op0", "Neg-op2", "Neg-op4", "mine1", "mine5"),
    ]
    assert drawn.inputs("net/ReLU6/ReLU6-op50") == ["net/Mul-op0"]
    assert drawn.counts.renamed == 0
    restored = ms_pb.GraphProto.FromString(restore_graph(drawn.bytes)[0])
    names = [each.full_name or f"net/ReLU6-op{each.name}" for each in source.node]
    assert [each.full_name for each in restored.node] == names
