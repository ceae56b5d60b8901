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
from ms_summary_bridge.monitor.config.problems import join_path

__all__ = ["MAX_DEPTH", "MAX_NODES", "Document", "read_file", "read_text", "read_value"]

_MAX_BYTES: Final = 1 << 20
"""A configuration is some kilobytes; what is larger is another kind of file."""
MAX_NODES: Final = 100_000
"""Most values after all aliases are followed: nine lines of aliases can stand for a billion values."""
MAX_DEPTH: Final = 50

_TAG: Final = "tag:yaml.org,2002:"
_DIGITS: Final = "[0-9][0-9_]*"
_BOOL: Final = re.compile(r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$", re.ASCII)
_SCALARS: Final = {  # what each kind of value looks like, and what it may begin with
    "bool": (_BOOL, "yYnNtTfFoO"),
    "int": (
        re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0o[0-7][0-7_]*|0b[01][01_]*)$", re.ASCII),
        "-+0123456789",
    ),
    "float": (
        re.compile(
            rf"(?:[-+]?(?:{_DIGITS}\.[0-9_]*|\.{_DIGITS})(?:[eE][-+]?[0-9]+)?"
            rf"|[-+]?{_DIGITS}[eE][-+]?[0-9]+"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
            re.ASCII,
        ),
        "-+.0123456789",
    ),
    "null": (re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    "merge": (re.compile(r"<<$"), "<"),
}


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


class _Loader(yaml.SafeLoader):
    """Composes nodes of null, booleans, numbers, texts, lists and mappings; what they hold is read by `_Reader`."""

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


_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, list(_first))


class _Reader:
    """Reads the values of nodes, with aliases followed."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._count = 0
        self._open: set[yaml.Node] = set()
        self.places: dict[str, str] = {}
        self.problems: list[str] = []

    def read(self, node: yaml.Node, path: str = "$") -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            raise _error(node, f"more than {MAX_NODES:,} values, aliases followed")
        if node in self._open:
            raise _error(node, "a value that holds itself")
        if len(self._open) >= MAX_DEPTH:
            raise _error(node, f"more than {MAX_DEPTH} levels deep")
        self.places[path] = f"{self._source}, line {_line(node)}"
        tag = node.tag.removeprefix(_TAG)
        fits = {"seq": yaml.SequenceNode, "map": yaml.MappingNode}.get(tag, yaml.ScalarNode)
        if tag not in ("seq", "map", "str", "merge", *_SCALARS) or not node.tag.startswith(_TAG):
            raise _error(node, f"the tag {node.tag!r} is refused: a configuration holds plain values only")
        if not isinstance(node, fits):
            raise _error(node, "a tag that does not fit its value")
        if isinstance(node, yaml.ScalarNode):
            return _read_scalar(node, tag)
        self._open.add(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._read_mapping(node, path)
            return [self.read(item, join_path(path, number)) for number, item in enumerate(node.value)]
        finally:
            self._open.discard(node)

    def _read_mapping(self, node: yaml.MappingNode, path: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        pairs: dict[tuple[str, str], tuple[yaml.Node, yaml.Node]] = {}
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error(key, "a key must be a word, not a list or a mapping")
            name = key.tag, key.value
            if name in lines:
                text = f"the key {key.value!r} is given twice, first in line {lines[name]}"
                self.problems.append(f"{self._source}, line {_line(key)}: {text}")
            lines.setdefault(name, _line(key))
            if key.tag != _TAG + "merge":
                pairs[name] = key, value  # of a key that is there twice, the later one counts
                continue
            for base in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
                merged = self.read(base, path)
                if not isinstance(merged, dict):
                    raise _error(base, "<< takes a mapping, or a list of mappings")
                found.update(merged)
        for key, value in pairs.values():
            inner = join_path(path, key.value)
            found[self.read(key, inner)] = self.read(value, inner)
            self.places[inner] = f"{self._source}, line {_line(key)}"
        return found


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _error(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _read_scalar(node: yaml.ScalarNode, tag: str) -> Any:
    text = str(node.value)
    if tag in ("str", "merge"):
        return text
    if tag == "null":
        return None
    if tag == "bool":
        if not _BOOL.match(text):
            raise _error(node, f"{text[:40]!r} cannot be read as a boolean")
        return text.lower() in ("yes", "true", "on")
    number = text.replace("_", "")
    try:
        return int(number, 0) if tag == "int" else float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", number.lower()))
    except ValueError:
        raise _error(node, f"{text[:40]!r} cannot be read as a {'whole ' * (tag == 'int')}number") from None


def read_file(path: str) -> Document:
    """Reads a file.

    Raises:
        ConfigError: It cannot be read, or does not hold YAML.
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
        raise ConfigError([f"{path!r}: cannot be the name of a file"]) from error
    if content is None:
        kind = "a directory: give a file" if stat.S_ISDIR(mode) else "a device or a pipe: give a regular file"
        raise ConfigError([f"{path}: is {kind}"])
    if len(content) > _MAX_BYTES:
        raise ConfigError([f"{path}: is larger than {_MAX_BYTES >> 20} MiB: this cannot be a configuration"])
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        name = encoding.removesuffix("-sig").upper()
        raise ConfigError(
            [f"{path}, line {line}: byte {content[error.start]:#04x} is not {name}: save it as UTF-8"]
        ) from error
    return read_text(text, path)


def read_text(text: str, source: str) -> Document:
    """Reads a document; `source` is what its places are called by.

    Raises:
        ConfigError: It does not hold YAML, or holds more than plain values.
    """
    loader: _Loader | None = None
    reader = _Reader(source)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        data = None if node is None else reader.read(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source}, line {mark.line + 1}" if mark is not None else source
        problem = error.problem or error.context or "cannot be read as YAML"
        if "'\\t'" in problem:
            problem = "a tab: YAML is indented with blanks only"
        raise ConfigError([f"{place}: {problem}"]) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow; its text has more than one line
        raise ConfigError([f"{source}: cannot be read as YAML: {' '.join(str(error).split())}"]) from error
    finally:
        if loader is not None:
            loader.dispose()
    return Document(data, reader.places, reader.problems)


def read_value(text: str, source: str) -> Any:
    """Reads one value, as `--set` takes it.

    Raises:
        ConfigError: It does not hold YAML.
    """
    document = read_text(text, source)
    if document.problems:
        raise ConfigError(document.problems)
    return document.data
