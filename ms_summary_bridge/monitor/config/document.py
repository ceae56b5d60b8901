"""Plain values of a configuration: of one YAML document, as a person means it, or of a dict of the user's.

PyYAML follows YAML 1.1, in which `1e-5` is text, `010` is 8 and `1:30` is 90. Here a number is what YAML 1.2 takes for
one: `1e-5` is a number, `010` and `1:30` are text, which the check refuses where a number is meant. `yes`, `no`, `on`
and `off` stay booleans. Only plain data can come out: a tag that would make another object is refused.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import yaml

from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.config.problems import Problems, join_path, show

__all__ = ["Document", "read_file", "read_file_text", "read_text", "to_plain"]

_MAX_BYTES: Final = 256 << 10
"""A configuration is some kilobytes; what is larger is another kind of file, and takes 150 times its size to read."""
_MAX_NODES: Final = 100_000
"""Most values after all aliases are followed: nine lines of aliases can stand for a billion values."""
_MAX_DEPTH: Final = 50

_TAG: Final = "tag:yaml.org,2002:"
_DIGITS: Final = "[0-9][0-9_]*"
_BOOL: Final = r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF"
_FLOAT: Final = (
    rf"[-+]?(?:{_DIGITS}\.[0-9_]*|\.{_DIGITS})(?:[eE][-+]?[0-9]+)?|[-+]?{_DIGITS}[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_SCALARS: Final = {  # what each kind of value looks like, and what it may begin with
    "bool": (_BOOL, "yYnNtTfFoO"),
    "int": (r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0o[0-7][0-7_]*|0b[01][01_]*)", "-+0123456789"),
    "float": (_FLOAT, "-+.0123456789"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": (r"<<", "<"),
}


class Document(NamedTuple):
    """What a document holds: plain values, where each of them stands by its path, and which keys are given twice."""

    data: Any
    places: dict[str, str]
    problems: list[str]


class _Loader(yaml.SafeLoader):
    """Composes nodes of null, booleans, numbers, texts, lists and mappings; what they hold is read by `_Reader`."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"more than {_MAX_DEPTH} levels deep", problem_mark=self.get_mark())
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
            return node
        finally:
            self.depth -= 1


_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})$", re.ASCII), list(_first))


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
        if self._count > _MAX_NODES:
            raise _error(node, f"more than {_MAX_NODES:,} values, aliases followed")
        if node in self._open:
            raise _error(node, "a value that holds itself")
        if len(self._open) >= _MAX_DEPTH:
            raise _error(node, f"more than {_MAX_DEPTH} levels deep")
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
        if not re.fullmatch(_BOOL, text):
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
    return read_text(read_file_text(path), path)


def read_file_text(path: str) -> str:
    """Returns the text of a file of UTF-8 or UTF-16.

    Raises:
        ConfigError: It cannot be read, or holds other bytes than text.
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
        raise ConfigError([f"{path}: is larger than {_MAX_BYTES >> 10} KiB: this cannot be a configuration"])
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
        ConfigError: It does not hold YAML, or holds more than plain values.
    """
    reader = _Reader(source)
    try:
        node = yaml.compose(text, _Loader)
        data = None if node is None else reader.read(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        place = source if mark is None else f"{source}, line {mark.line + 1}"
        problem = getattr(error, "problem", None) or f"cannot be read as YAML: {' '.join(str(error).split())}"
        if mark is not None and text[mark.index : mark.index + 1] == "\t":
            problem = "a tab: YAML is indented with blanks only"
        raise ConfigError([f"{place}: {problem}"]) from error
    return Document(data, reader.places, reader.problems)


def to_plain(value: Any, path: str, problems: Problems) -> Any:
    """Returns a copy of plain values that shares nothing with `value`; what has no plain form becomes None."""
    count = 0

    def convert(value: Any, path: str, depth: int) -> Any:
        nonlocal count
        count += 1
        problem = ""
        if count > _MAX_NODES:
            problem = f"more than {_MAX_NODES:,} values" if count == _MAX_NODES + 1 else ""
        elif depth > _MAX_DEPTH:
            problem = f"more than {_MAX_DEPTH} levels deep, or a value that holds itself"
        elif value is None or isinstance(value, bool):
            return value
        elif isinstance(value, str):
            if _is_unicode(value):
                return str.__str__(value)
            problem = f"holds half a character: {show(value)}"
        elif isinstance(value, int):
            if -(1 << 63) <= value < 1 << 63:
                return int(value)
            problem = "a whole number of more than 64 bits"
        elif isinstance(value, float):
            return float(value)
        elif isinstance(value, Mapping):
            return convert_mapping(value, path, depth)
        elif isinstance(value, list | tuple):
            return [convert(item, join_path(path, number), depth + 1) for number, item in enumerate(value)]
        elif isinstance(value, os.PathLike):
            return convert(os.fspath(value), path, depth + 1)
        elif getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of numpy
            return convert(value.item(), path, depth + 1)
        else:
            problem = f"cannot be a value of a configuration: {show(value)}"
        if problem:
            problems.add(path, problem)
        return None

    def convert_mapping(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                hint = ": on, off, yes and no are keys only in quotes" if isinstance(key, bool) else ""
                problems.add(path, f"has a key that is not text, {show(key)}{hint}")
            elif not _is_unicode(key):
                problems.add(path, f"holds half a character: {show(key)}")
            else:
                plain[str.__str__(key)] = convert(item, join_path(path, key), depth + 1)
        return plain

    return convert(value, path, 0)


def _is_unicode(text: str) -> bool:
    """Whether a file can hold a text; an escape can make half a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
