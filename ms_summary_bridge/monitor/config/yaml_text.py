"""Reads one YAML document as a person means it, and remembers the line of every value.

PyYAML follows YAML 1.1, in which `1e-5` is text, `010` is 8 and `1:30` is 90. Here a number is what YAML 1.2 takes for
one: `1e-5` is a number, `010` and `1:30` are text, which the check refuses where a number is meant. `yes`, `no`, `on`
and `off` stay booleans. Only plain data can come out: a tag that would make another object is refused.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Final, NamedTuple

import yaml

from ms_summary_bridge.errors import ConfigError

__all__ = ["MAX_DEPTH", "MAX_NODES", "Document", "join_path", "read_file", "read_text", "read_value"]

_MAX_BYTES: Final = 1 << 20
"""A configuration is some kilobytes; what is larger is another kind of file."""
MAX_NODES: Final = 100_000
"""Most values after all aliases are followed: nine lines of aliases can stand for a billion values."""
MAX_DEPTH: Final = 50

_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_KEY: Final = re.compile(r"[\w-]+")
_DIGITS: Final = "[0-9][0-9_]*"
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0o[0-7][0-7_]*|0b[01][01_]*)$", re.ASCII)
_FLOAT: Final = re.compile(
    rf"(?:[-+]?(?:{_DIGITS}\.[0-9_]*|\.{_DIGITS})(?:[eE][-+]?[0-9]+)?"
    rf"|[-+]?{_DIGITS}[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
    re.ASCII,
)
_BOOL: Final = re.compile(r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$", re.ASCII)
_NULL: Final = re.compile(r"(?:~|null|Null|NULL|)$")
_MERGE: Final = re.compile(r"<<$")


class Document(NamedTuple):
    """What a document holds.

    Attributes:
        data: dicts, lists, texts, numbers, booleans and None.
        places: Where each value stands, by its path: `file.yaml, line 3`.
        problems: Keys that are given twice, one line for each.
    """

    data: Any
    places: dict[str, str]
    problems: list[str]


def join_path(path: str, key: object) -> str:
    """Returns the path of an item: `$.a`, `$.a[0]`, `$["a.b"]`."""
    if isinstance(key, int) and not isinstance(key, bool):
        return f"{path}[{key}]"
    text = str(key)
    return f"{path}.{text}" if _PLAIN_KEY.fullmatch(text) else f'{path}["{text}"]'


class _Loader(yaml.SafeLoader):
    """Knows null, booleans, numbers, texts, lists and mappings, and nothing else."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_DEPTH} levels deep", problem_mark=self.get_mark())
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
            return node
        finally:
            self.depth -= 1


def _scalar(loader: yaml.SafeLoader, node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise yaml.MarkedYAMLError(problem="a tag that does not fit its value", problem_mark=node.start_mark)
    return str(loader.construct_scalar(node))


def _construct_int(loader: yaml.SafeLoader, node: yaml.Node) -> int:
    text = _scalar(loader, node)
    try:
        return int(text.replace("_", ""), 0)
    except ValueError:
        raise yaml.MarkedYAMLError(problem=f"{text[:40]!r} is no integer", problem_mark=node.start_mark) from None


def _construct_float(loader: yaml.SafeLoader, node: yaml.Node) -> float:
    text = _scalar(loader, node).replace("_", "").lower()
    try:
        return float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", text))
    except ValueError:
        raise yaml.MarkedYAMLError(problem=f"{text[:40]!r} is no number", problem_mark=node.start_mark) from None


def _construct_bool(loader: yaml.SafeLoader, node: yaml.Node) -> bool:
    text = _scalar(loader, node)
    if not _BOOL.match(text):
        raise yaml.MarkedYAMLError(problem=f"{text[:40]!r} is no boolean", problem_mark=node.start_mark)
    return text.lower() in ("yes", "true", "on")


def _refuse(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    raise yaml.MarkedYAMLError(
        problem=f"the tag {node.tag!r} is refused: a configuration holds plain values only",
        problem_mark=node.start_mark,
    )


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in (
    ("bool", _BOOL, "yYnNtTfFoO"),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("null", _NULL, ["~", "n", "N", ""]),
    ("merge", _MERGE, "<"),
):
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, list(_first))
_Loader.yaml_constructors = {
    _TAG + "null": lambda loader, node: None,
    _TAG + "bool": _construct_bool,
    _TAG + "int": _construct_int,
    _TAG + "float": _construct_float,
    _TAG + "str": _scalar,
    _TAG + "seq": yaml.SafeLoader.construct_yaml_seq,
    _TAG + "map": yaml.SafeLoader.construct_yaml_map,
    None: _refuse,
}


def read_file(path: str) -> Document:
    """Reads a file.

    Raises:
        ConfigError: It cannot be read, or is no YAML.
    """
    content = None
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):  # a pipe that nobody writes to would be waited for
            with open(path, "rb") as file:
                content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except ValueError as error:  # a zero byte in the name
        raise ConfigError([f"{path!r}: is no name of a file"]) from error
    if content is None:
        raise ConfigError([f"{path}: is a directory" if stat.S_ISDIR(mode) else f"{path}: is no plain file"])
    if len(content) > _MAX_BYTES:
        raise ConfigError([f"{path}: is larger than {_MAX_BYTES >> 20} MiB: this is no configuration"])
    return read_text(_decode(content, path), path)


def _decode(content: bytes, path: str) -> str:
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        name = encoding.removesuffix("-sig").upper()
        raise ConfigError(
            [f"{path}, line {line}: byte {content[error.start]:#04x} is not {name}: save it as UTF-8"]
        ) from error


def read_text(text: str, source: str) -> Document:
    """Reads a document; `source` is what its places are called by.

    Raises:
        ConfigError: It is no YAML, or holds more than plain values.
    """
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(None, {}, [])
        problems = _check_nodes(node, source)
        data = loader.construct_document(node)
        places: dict[str, str] = {}
        _find_places(node, "$", source, places)
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_describe(error, source)]) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow; its text has more than one line
        raise ConfigError([f"{source}: is no YAML: {' '.join(str(error).split())}"]) from error
    finally:
        if loader is not None:
            loader.dispose()
    return Document(data, places, problems)


def read_value(text: str, source: str) -> Any:
    """Reads one value, as `--set` takes it.

    Raises:
        ConfigError: It is no YAML.
    """
    document = read_text(text, source)
    if document.problems:
        raise ConfigError(document.problems)
    return document.data


def _describe(error: yaml.MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{source}, line {mark.line + 1}" if mark is not None else source
    problem = error.problem or error.context or "is no YAML"
    if "'\\t'" in problem:
        problem = "a tab: YAML is indented with blanks only"
    return f"{place}: {problem}"


def _check_nodes(root: yaml.Node, source: str) -> list[str]:
    """Returns a line for each key that is given twice; refuses what would grow too large."""
    problems: list[str] = []
    sizes: dict[yaml.Node, tuple[int, int]] = {}  # values in it and levels below it, aliases followed
    pending: set[yaml.Node] = set()

    def measure(node: yaml.Node) -> tuple[int, int]:
        if node in sizes:
            return sizes[node]
        if node in pending:
            raise yaml.MarkedYAMLError(problem="a value that holds itself", problem_mark=node.start_mark)
        pending.add(node)
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            problems.extend(_find_twins(node, source))
            children = [child for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = list(node.value)
        below = [measure(child) for child in children]
        size = 1 + sum(count for count, _ in below)
        depth = 1 + max((levels for _, levels in below), default=0)
        if size > MAX_NODES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_NODES:,} values, aliases followed", problem_mark=node.start_mark
            )
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_DEPTH} levels deep", problem_mark=node.start_mark)
        pending.discard(node)
        sizes[node] = size, depth
        return sizes[node]

    measure(root)
    return problems


def _find_twins(node: yaml.MappingNode, source: str) -> list[str]:
    lines: dict[tuple[str, str], int] = {}
    problems = []
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            if (key.tag, key.value) in lines:
                before = lines[key.tag, key.value]
                problems.append(f"{source}, line {line}: the key {key.value!r} is given twice, first in line {before}")
            lines.setdefault((key.tag, key.value), line)
    return problems


def _find_places(node: yaml.Node, path: str, source: str, places: dict[str, str]) -> None:
    places[path] = f"{source}, line {node.start_mark.line + 1}"
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:  # merged already; of a key that is there twice, the later one counts
            if isinstance(key, yaml.ScalarNode):
                inner = join_path(path, key.value)
                _find_places(value, inner, source, places)
                places[inner] = f"{source}, line {key.start_mark.line + 1}"
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _find_places(value, join_path(path, number), source, places)
