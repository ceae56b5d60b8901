"""Graphs as people see them: MindInsight's answers for graphs from TensorBoard, and the graph pages of both viewers."""

from __future__ import annotations

import gzip
import json
import urllib.parse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import TimeoutError as PageTimeoutError

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.formats.graphs.ms_to_tb import convert_graph
from ms_summary_bridge.formats.graphs.tb_names import scope_of
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.formats.test_graph import graph_event
from tests.formats.test_graph_placement import count_boxes
from tests.formats.test_graph_restoration import write_log
from tests.graph_samples import constant, tensorflow_graph, tf_node, torch_graph
from tests.mindspore_run import scalars, write_summary
from tests.pages import WAIT_SECS, count_colours, photograph
from tools.mindinsight_api import MindInsightClient

if TYPE_CHECKING:
    from playwright.sync_api import Page

DATA = Path(__file__).resolve().parents[1] / "data"


def odd_graph() -> Any:
    """Names that are hard to draw, and more scopes than anybody opens."""
    deep = "/".join(f"s{number}" for number in range(1000))
    names = ["a:b", "it's", "{x|y}", "网络/层", "a;b", "#1", "100%", "x&amp;y", "a,b", "-", ".", "a\\b", 'say "hi"']
    nodes = [tf_node("first", "NoOp"), *(tf_node(name, "Identity", "first", f"^{deep}") for name in names)]
    return tb_pb.GraphDef(node=[*nodes, tf_node(deep, "NoOp"), constant("7", 1), tf_node("last", "Neg", "7")])


GRAPHS = {"tensorflow": tensorflow_graph, "torch": torch_graph, "odd": odd_graph}


@pytest.fixture
def client(tmp_path: Path, mindinsight_server: MindInsightServer) -> MindInsightClient:
    """A MindInsight that has read the graphs of three converted TensorBoard logs."""
    for name, make in GRAPHS.items():
        write_log(tmp_path / "tb" / name, make())
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    client = mindinsight_server(tmp_path / "ms")
    for name in GRAPHS:
        client.wait_job(f"./{name}")
    return client


def leaves(client: MindInsightClient, name: str) -> dict[str, Any]:
    """All nodes that are no scopes, by the names MindInsight gives them."""
    answer = client.get_json("datavisual/graphs/nodes/all", train_id=f"./{name}")
    return {node["name"]: node for node in answer["all_nodes_detail"]}


def edges_of(node: Any) -> dict[str, tuple[str, list[Any]]]:
    return {source: (edge["edge_type"], edge["shape"]) for source, edge in node["input"].items()}


def test_mindinsight_draws_graphs_of_tensorboard(client: MindInsightClient) -> None:
    nodes = leaves(client, "tensorflow")
    assert {name: node["type"] for name, node in nodes.items() if node["type"] not in ("Const", "Parameter")} == {
        "layer1/kernel/Assign": "AssignVariableOp",
        "layer1/MatMul": "MatMul",
        "(layer1)": "Add",
        "split": "Split",
        "out/a_b_": "Relu",
        "out/_b_": "Relu",
        "out/double": "Mul",
        "init": "NoOp",
        "call": "PartitionedCall",
        "lonely": "ConstOp",
        "lost": "Identity",
        "metric(:Scalar)": "Identity",
        "body/inner/mul": "Mul",
        "body/return/r": "Return",
        "body/return/done": "Return",
        "cond.then/unused": "Argument",
        "cond.then/Argument": "Argument",
        "cond.then/a_b_": "Return",
        "cond.then/deeper/op": "NoOp",
    }
    # Parameters and constants stand beside each scope that takes them.
    assert {name for name, node in nodes.items() if node["type"] == "Parameter"} == {
        "layer1/x", "layer1/layer1.kernel", "layer1/kernel/layer1.kernel", "body/inner/body.v",
        "cond.then/cond.then.x", "cond.then/deeper/cond.then.x",
    }  # fmt: skip
    assert {name for name, node in nodes.items() if node["type"] == "Const"} == {
        "layer1.bias", "layer1/kernel/layer1.kernel.zeros", "body/inner/body.two", "body/return/body.two",
    }  # fmt: skip
    assert edges_of(nodes["layer1/MatMul"]) == {
        "layer1/x": ("data", [[-1, 4]]),
        "layer1/layer1.kernel": ("data", [[]]),
    }
    assert edges_of(nodes["out/_b_"]) == {"init": ("control", []), "split": ("data", [[-1, 2], [-1, 1]])}
    assert edges_of(nodes["body/return/r"]) == {"body/inner/mul": ("data", [])}
    # 28 edges, three of them from names that nothing has and two drawn as one with another.
    assert sum(len(node["input"]) for node in nodes.values()) == 23
    assert nodes["layer1/MatMul"]["attr"]["transpose_a"] == "dtype: DT_BOOL\nbool_val: false\n"
    scopes = client.get_json("datavisual/graphs/nodes", train_id="./tensorflow")["nodes"]
    assert {node["name"] for node in scopes if node["type"] == "name_scope"} == {"layer1", "out", "body", "cond.then"}

    torch = leaves(client, "torch")
    assert edges_of(torch["Net/Linear[fc1]/input/15"]) == {
        "Net/Linear[fc1]/input/input.input.1": ("data", [[8, 4]]),
        "Net/Linear[fc1]/weight/12": ("data", [[3, 4]]),
        "Net/Linear[fc1]/input/Net.Linear[fc1].bias.13": ("data", [[3]]),
        "Net/Linear[fc1]/input/Net.Linear[fc1].alpha.14": ("data", [[]]),
    }
    assert sum(len(node["input"]) for node in torch.values()) == 6

    odd = leaves(client, "odd")
    assert len(odd) == len(odd_graph().node)
    assert sum(len(node["input"]) for node in odd.values()) == 13 * 2 + 1
    assert edges_of(odd["last"]) == {"(7)": ("data", [[1]])}


def test_scopes_open_to_as_few_boxes_as_in_mindinsight(tmp_path: Path, mindinsight_server: MindInsightServer) -> None:
    source = gzip.decompress((DATA / "mindformers-1.9.0-llama-graph.bin.gz").read_bytes())
    llama = ms_pb.GraphProto.FromString(source)
    write_summary(tmp_path / "ms" / "llama", [graph_event(llama), *scalars("loss", range(1, 3))])
    client = mindinsight_server(tmp_path / "ms")
    client.wait_job("./llama")
    client.wait_json("datavisual/graphs/nodes", train_id="./llama")
    drawn = tb_pb.GraphDef.FromString(convert_graph(source)[0]).node
    shown = count_boxes({each.name: each.op for each in drawn})
    weights = Counter(
        scope_of(each.name)
        for each in drawn
        if each.op == "Parameter" and each.name.startswith("Default/network") and "." not in each.name.split("/")[-1]
    )
    opened, wrong = [""], {}
    for scope in opened:  # grows
        query = {"type": "name_scope", "name": scope} if scope else {}
        nodes = client.get_json("datavisual/graphs/nodes", train_id="./llama", **query)["nodes"]
        opened += [each["name"] for each in nodes if each["type"] == "name_scope"]
        theirs = [each for each in nodes if each["type"] != "Const"]  # dots in TensorBoard
        unknown = {"output"} | {box for box in shown[scope] if box.startswith("Call-op")}  # MindInsight draws none
        ours = len({*shown[scope]} - unknown) - weights[scope]  # a weight it draws in each scope that takes it
        wrong.update({scope: (shown[scope], [each["name"] for each in theirs])} if ours > len(theirs) else {})
    assert wrong == {}
    assert len(opened) > 50


# ---------------------------------------------------------------- pages


SHOWN = """wanted => {
  const texts = [...document.querySelectorAll('svg g.node text, svg g.cluster text')].map(each => each.textContent);
  return wanted.every(text => texts.includes(text));
}"""


def test_graph_page_of_mindinsight(client: MindInsightClient, page: Page) -> None:
    page.add_init_script("localStorage.setItem('graphShowGuide', 'true')")  # it has been seen
    # Scopes to open with what is then in them, and what is to be seen without.
    expected = {
        "tensorflow": ({"layer1": "MatMul", "out": "double", "body": "inner"}, ["(layer1)", "x", "a_b_", "split"]),
        "torch": ({"Net": "Linear[fc1]"}, ["ReLU[act]", "output"]),
        "odd": ({"Identity[12]_0": "a:b"}, ["a:b", "it's", "{x|y}", "100%", "a;b", "-", "(7)"]),
    }
    for name, (scopes, shown) in expected.items():
        query = urllib.parse.urlencode({"train_id": f"./{name}", "id": f"./{name}"})
        for attempt in range(3):  # the page does not ask again where its server was too busy once
            page.goto("about:blank")
            page.goto(f"{client.url}/#/train-manage/graph?{query}")
            try:
                page.locator("svg g.node", has=page.get_by_text(next(iter(scopes)), exact=True)).first.wait_for(
                    timeout=WAIT_SECS * 500
                )
                break
            except PageTimeoutError:
                assert attempt < 2, f"{name}: no graph is drawn"
        for scope, inner in scopes.items():
            node = page.locator("svg g.node", has=page.get_by_text(scope, exact=True)).first
            for attempt in range(6):  # while it lays out a graph, the page takes no click
                node.dblclick()
                try:
                    page.wait_for_function(SHOWN, arg=[inner], timeout=10_000)
                    break
                except PageTimeoutError:
                    assert attempt < 5, f"{name}: {scope} does not open"
        page.wait_for_function(SHOWN, arg=shown)
        photograph(page, f"mindinsight-graph-{name}", count_colours, 100)


@pytest.mark.tensorboard
def test_graph_page_of_tensorboard(tmp_path: Path, tensorboard_server: TensorBoardServer, page: Page) -> None:
    llama = ms_pb.GraphProto.FromString(gzip.decompress((DATA / "mindformers-1.9.0-llama-graph.bin.gz").read_bytes()))
    write_summary(tmp_path / "ms" / "llama", [graph_event(llama), *scalars("loss", range(1, 3))])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    client = tensorboard_server(tmp_path / "tb")
    client.wait_json("data/plugin/graphs/info", lambda runs: runs.get("llama", {}).get("run_graph"))
    page.goto(f"{client.url}/?darkMode=false#graphs&run=llama")
    page.locator('g.node[data-name="Default"] > .nodeshape rect').first.dblclick()
    inner = {"/".join(each.full_name.split("/")[:2]) for each in llama.node if each.full_name.startswith("Default/")}
    scopes = sorted(name for name in inner if any(each.full_name.startswith(f"{name}/") for each in llama.node))
    assert scopes
    for scope in scopes:  # expanded one level
        page.locator(f"g.node[data-name={json.dumps(scope)}]").first.wait_for()
    photograph(page, "tensorboard-graph", count_colours, 100)
