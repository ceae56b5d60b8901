"""Each number in README and manual is the code's, or was measured; the Chinese pages have the same ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import pytest

from ms_summary_bridge.cli.app import EXIT_CODES
from ms_summary_bridge.doctor.packages import CLASHES
from ms_summary_bridge.monitor.config.recipes import RECIPES
from ms_summary_bridge.monitor.watchdog.collective_limits import exec_timeout
from tests.project.test_claims import ROOT, SECTIONS, blocks, split_claims
from tests.project.test_docs import LANGUAGES, TYPED

MEASURED = ("measured",)  # by tools/bench, or of another program: the entry of the claim says by what
PACKAGE = "ms_summary_bridge"


def constant(path: str, name: str) -> Any:
    """Returns the value of a constant, or of a parameter's default, as a module below the package writes it."""
    tree = ast.parse((ROOT / PACKAGE / path).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name and node.value:
            return ast.literal_eval(ast.unparse(node.value))
        if isinstance(node, ast.arguments):
            for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
                if argument.arg == name and default is not None:
                    return ast.literal_eval(default)
    raise AssertionError(f"{path} has no constant {name}")


def found(path: str, pattern: str) -> tuple[str, ...]:
    """Returns what the groups of a pattern match in a file of the checkout."""
    match = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"))
    assert match is not None, (path, pattern)
    return match.groups()


def pin(environment: str, package: str) -> str:
    return found(f"tools/environments/{environment}.txt", rf"(?m)^{package}==([\d.]*\d)")[0]


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def shown_points() -> tuple[object, ...]:
    path = "convert/mindspore_sink.py"
    points = constant(path, "_SHOWN_POINTS")
    return (constant(path, "_SHOWN_TAGS"), constant(path, "_SHOWN_TENSORS"), *points.values())


def mindspores() -> list[str]:
    return [minor(pin(name, "mindspore")) for name in ("mindspore27", "mindspore28", "mindspore29", "main")]


MINDINSIGHT_SIZE = r"about (\d+) MB to download and (\d+) MB of disk"

# What stands around a number in a page, with a group for it, and where it comes from.
NUMBERS: list[tuple[str, Callable[[], tuple[object, ...]]]] = [
    (r"about (\d) GB to download", lambda: found("tools/environment", r"main \|.*size='about (\d) GB")),
    (r"histograms of (100) parameters.* about (0.15) of.* and (0.12) of.*about (0.1) s", lambda: MEASURED),
    (r"measured on (2) cores", lambda: MEASURED),
    (r"above (\d+) classes", lambda: (constant("callback/step_values.py", "_MOST_CLASSES"),)),
    (r"saves (19) checkpoints|up to (33) processes", lambda: MEASURED),
    (r"It works on MindSpore (\S+), (\S+), (\S+) and ([\d.]+):", lambda: tuple(mindspores())),
    (r"about (35) microseconds .* and (100) where .* network of (100) parameters", lambda: MEASURED),
    (r"for (\d+) steps, or far more", lambda: (constant("monitor/alarms/rules/divergence.py", "window"),)),
    (r"from Linux (6.15) on", lambda: MEASURED),
    (r"Beside (100) runs that rest it takes about (0.25) %", lambda: MEASURED),
    (r"at most (\d+) GB of it", lambda: (int(constant("tensorboard_plugin/loader.py", "_CACHE_GB")),)),
    (r"Exit code (3)\.", lambda: (next(code for code, text in EXIT_CODES.items() if "in part" in text),)),
    (r"Exit code (1)\.", lambda: (next(code for code, text in EXIT_CODES.items() if "failed" in text),)),
    (r"exit code (4) if", lambda: (next(code for code, text in EXIT_CODES.items() if "--strict" in text),)),
    (r"exit code is (5) where", lambda: (next(code for code, text in EXIT_CODES.items() if "diagnose" in text),)),
    (r"TensorBoard (\S+) or newer", lambda: found("setup.py", r"tensorboard>=([\d.]+)")),
    (r"MindSpore (\S+) or newer, with the NumPy (1)", lambda: (*found("setup.py", r"mindspore>=([\d.]+)"), 1)),
    (r"Python (\S+) to (\S+); .* for (\S+) to (\S+)\.$", lambda: pythons()),
    (r"MindSpore up to (\S+) that", lambda: (minor(pin("mindspore29-pip", "mindspore")),)),
    (r"takes TensorBoard (\S+)\.$", lambda: (pin("mindspore29", "tensorboard"),)),
    (
        r"first (8) x (8) elements",
        lambda: tuple(constant("formats/tensor.py", f"_TABLE_{name}") for name in ("ROWS", "COLUMNS")),
    ),
    (r"at most (\d+) buckets", lambda: (constant("formats/mindinsight.py", "MAX_BUCKETS"),)),
    (r"up to (\S+) pixels", lambda: (constant("formats/mindinsight.py", "MAX_PIXELS"),)),
    (r"up to (\S+) elements", lambda: (constant("formats/mindinsight.py", "MAX_TENSOR_ELEMENTS"),)),
    (r"more than (\d+) bytes", lambda: (constant("convert/names.py", "_MOST_BYTES"),)),
    (
        r"shows (\S+) tags of a run, (\S+) of .* (\S+) steps of a scalar, (\S+) of .* (\S+) of .* (\S+) of a\s",
        shown_points,
    ),
    (r"(\S+) events have come", lambda: (constant("convert/restarts.py", "_BOUND"),)),
    (r"([\d.]+) by default", lambda: (constant("viewers/view.py", "host"),)),
    (r"\(about (\d+) MB to download, with", lambda: found("tools/quickstart.py", MINDINSIGHT_SIZE)[:1]),
    (r"HCCL_EXEC_TIMEOUT` \((1836) s", lambda: (int(exec_timeout({})),)),
    (r"On Python (3.9), .* MindSpore (2.9.0), .*python=(3.11)", lambda: MEASURED),
    (r"For (3.9), pip finds MindSpore (2.9.0) at most, .* needs (3.10)", lambda: MEASURED),
    (r"`SummaryCollector`, MindSpore up to (\S+) \|", lambda: (minor(pin("mindspore29-pip", "mindspore")),)),
    (r"protobuf is newer than (\S+)\.", lambda: (minor(pin("mindinsight", "protobuf")),)),
    (r"setuptools (\d+) or newer", lambda: clash("packages.mindinsight-setuptools", "setuptools")),
    (r"marshmallow (\d+) ", lambda: clash("packages.mindinsight-marshmallow", "marshmallow")),
    (r"pandas (\d+) ", lambda: clash("packages.mindinsight-pandas", "pandas")),
    (r"\| NumPy (\d+) ", lambda: clash("packages.mindspore-numpy", "numpy")),
    (
        r"vLLM before (\S+) .* transformers (\S+) and",
        lambda: clash("packages.vllm-transformers", "vllm", 1) + clash("packages.vllm-transformers", "transformers"),
    ),
    (r"vllm-ascend` (2046), mended in `vllm-project/vllm` (20921)", lambda: MEASURED),
    (
        r"hotter than (\S+) degrees .* than (\S+) MiB .* for (\S+) seconds .* code is (3)\.",
        lambda: recipe("device-overload", r"temperature: (\d+), memory: (\d+), secs: (\d+),[^#]*exit_code: (\d)"),
    ),
    (r"when (\d+) hours or fewer", lambda: recipe("memory", r"hours: (\d+),")),
    (r"usual speed over (\d+) seconds", lambda: recipe("data-worker", r"ratio: 0.5, secs: (\d+),")),
    (r"from (0) to (1), over all cards", lambda: MEASURED),
    (r"with a Python (\S+) to (\S+)\)", lambda: mindinsight_pythons()),
    (r"long series: (10) images and (1,000) scalars", lambda: MEASURED),
    (r"MindSpore (\S+) to (\S+), TensorBoard (\S+) to (\S+), MindInsight (\S+) and", lambda: versions_tested()),
    (MINDINSIGHT_SIZE, lambda: found("tools/quickstart.py", MINDINSIGHT_SIZE)),
    (r"License (2.0),", lambda: found("setup.py", r'license="Apache-([\d.]+)"')),
    (r"[Rr]ank (0)|steps from (1)", lambda: MEASURED),  # names, no sizes
]
IN_PROSE = re.compile(r"(?<![\w.])\d(?:[\d.,]*\d)?(?![\w])")


def clash(name: str, package: str, bound: int = 0) -> tuple[str, ...]:
    (versions,) = (clash.versions for clash in CLASHES if clash.id == name)
    return (versions[package][bound],)


def recipe(name: str, pattern: str) -> tuple[str, ...]:
    match = re.search(pattern, RECIPES[name])
    assert match is not None, (name, pattern)
    return match.groups()


def pythons() -> tuple[str, ...]:
    versions = re.findall(r"Python :: (3\.\d+)", (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert f'python_requires=">={versions[0]}"' in (ROOT / "setup.py").read_text(encoding="utf-8")
    (newest,) = found("tools/environment", r"newest=(\d+) ")
    return versions[0], versions[-1], versions[0], f"3.{newest}"


def mindinsight_pythons() -> tuple[str, ...]:
    lowest, newest = re.findall(r"\((\d, \d+)\)", constant("viewers/environment.py", "_IS_SUITABLE"))
    return lowest.replace(", ", "."), newest.replace(", ", ".")


def versions_tested() -> tuple[str, ...]:
    boards = pin("tensorboard217", "tensorboard"), found("tools/environments/main.txt", r"tensorboard>=([\d.]+)")[0]
    return mindspores()[0], mindspores()[-1], *boards, pin("mindinsight", "mindinsight")


def numbers_of(text: str) -> list[tuple[int, str]]:
    """Returns place and text of each number that is not inside code or an address."""
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", lambda match: "\0" * len(match[0]), text)
    return [(match.start(), match[0]) for match in IN_PROSE.finditer(prose)]


def test_every_number_is_the_codes() -> None:
    unused = {pattern for pattern, _ in NUMBERS}
    claims = [
        (entries, claim)
        for page, entries in SECTIONS.items()
        if page in ("README.md", *TYPED)
        for claim in split_claims((ROOT / page).read_text(encoding="utf-8"))
    ]
    for entries, claim in claims:
        if claim.heading in entries and not any(claim.text.startswith(words) for words in entries):
            continue  # the tests of the whole table compare its numbers
        told: dict[int, str] = {}
        for pattern, source in NUMBERS:
            for match in re.finditer(pattern, claim.text):
                unused.discard(pattern)
                spans = [match.span(group) for group in range(1, (match.re.groups or 0) + 1) if match[group]]
                values = source()
                if values != MEASURED:
                    numbers = [claim.text[slice(*span)].replace(",", "") for span in spans]
                    assert numbers == [str(value) for value in values], claim.text
                told.update((start, claim.text[start:end]) for start, end in spans)
        assert [number for start, number in numbers_of(claim.text) if start not in told] == [], claim.text
    assert unused == set(), "found in no sentence"


@pytest.mark.parametrize(("name", "other"), list(zip(*LANGUAGES, strict=True)))
def test_both_languages_have_the_same_numbers(name: str, other: str) -> None:
    pages = [blocks((ROOT / page).read_text(encoding="utf-8")) for page in (name, other)]
    assert len(pages[0]) == len(pages[1]), "paragraphs, items and rows"
    for one, two in zip(*pages, strict=True):
        numbers = [
            sorted(re.findall(r"\d[\d.,]*\d|\d", re.sub(r"`[^`]*`|\]\([^)]*\)", "", text))) for text in (one, two)
        ]
        assert numbers[0] == numbers[1], (one, two)


def test_a_number_in_code_is_none_of_the_sentence() -> None:
    assert numbers_of("of `3` and 4, not x5 but 6,000.") == [(11, "4"), (25, "6,000")]
