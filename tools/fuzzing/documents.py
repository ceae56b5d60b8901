"""Changes of JSON and YAML that stay JSON and YAML: values, keys, and what is taken from another document."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tools.fuzzing.texts import change_bytes, change_lines, change_text

_NUMBERS = (0, 1, 2, -1, 7, 30, 1000, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 10**30)
_FLOATS = (0.0, -0.0, 0.5, 1.0, 1e-9, 1e15, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"))
_TEXTS = (
    "",
    "loss",
    "损失",
    "x" * 300,
    "a/b",
    "..",
    "/",
    "\0",
    "\ud800",
    "nan",
    "true",
    "1e5",
    "rank_0",
    "*",
    "?",
    "a b",
)
_MOST_DEPTH = 20


def change_json(data: bytes, rng: random.Random) -> bytes:
    """Changes a document of JSON."""
    return _change(data, rng, _read_json, _write_json, change_text)


def change_yaml(data: bytes, rng: random.Random) -> bytes:
    """Changes a document of YAML; its comments are gone then."""
    return _change(data, rng, _read_yaml, _writer_of_yaml(rng), change_lines)


def change_json_lines(data: bytes, rng: random.Random) -> bytes:
    """Changes a line of a file with a document on each."""
    lines = data.splitlines(keepends=True)
    if not lines or not rng.randrange(8):
        return change_lines(data, rng)
    place = rng.randrange(len(lines))
    end = b"\n" if lines[place].endswith(b"\n") else b""
    lines[place] = change_json(lines[place], rng).replace(b"\n", b" ") + end
    return b"".join(lines)


def join_json(one: bytes, other: bytes, rng: random.Random) -> bytes:
    """Returns the first document with a value of the second one."""
    return _join(one, other, rng, _read_json, _write_json)


def join_yaml(one: bytes, other: bytes, rng: random.Random) -> bytes:
    """Returns the first document with a value of the second one."""
    return _join(one, other, rng, _read_yaml, _writer_of_yaml(rng))


_MOST_DEPTH = 8
"""Of what is repeated: an input may be nested a thousand times."""


def grown_documents(data: bytes, size: int) -> Iterator[bytes]:
    """Yields a document with the entries of one list or mapping again and again, and with one long text."""
    try:
        tree = _read_yaml(data) if not data.lstrip().startswith((b"{", b"[")) else _read_json(data)
        _write_json(tree)
    except (ValueError, RecursionError):  # one that holds itself, too
        return
    for grown in _grow_node(tree, size):
        yield _write_json(grown)


def _grow_node(node: Any, size: int, depth: int = 0) -> Iterator[Any]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(node, dict) and node:
        for key, part in node.items():
            for grown in _grow_node(part, size, depth + 1):
                yield {**node, key: grown}
        key, part = next(iter(node.items()))
        yield {**node, **{f"{key}{number}": part for number in range(size // (len(_write_json({key: part})) + 5))}}
    elif isinstance(node, list) and node:
        for place in {0, len(node) - 1}:
            for grown in _grow_node(node[place], size, depth + 1):
                yield [*node[:place], grown, *node[place + 1 :]]
        yield node * (size // len(_write_json(node)))
    elif isinstance(node, str):
        yield (node or "x") * (size // (len(node) or 1))


_Read = Callable[[bytes], Any]
_Write = Callable[[Any], bytes]


def _change(
    data: bytes, rng: random.Random, read: _Read, write: _Write, otherwise: Callable[[bytes, random.Random], bytes]
) -> bytes:
    if not rng.randrange(16):
        return otherwise(data, rng)
    try:
        return write(_change_node(read(data), rng, 0))
    except (ValueError, RecursionError, OverflowError):
        return change_bytes(data, rng)


def _join(one: bytes, other: bytes, rng: random.Random, read: _Read, write: _Write) -> bytes:
    try:
        tree, given = read(one), read(other)
        return write(_graft(tree, given, rng, 0))
    except (ValueError, RecursionError, OverflowError):
        return one


def _read_json(data: bytes) -> Any:
    return json.loads(data)


def _write_json(tree: Any) -> bytes:
    return json.dumps(tree, separators=(", ", ": ")).encode()


def _read_yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise ValueError from error


def _writer_of_yaml(rng: random.Random) -> _Write:
    import yaml

    style = rng.choice((False, False, None, True))

    def write(tree: Any) -> bytes:
        try:
            dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
            text: str = yaml.dump(tree, None, dumper, default_flow_style=style, allow_unicode=True, sort_keys=False)
        except (yaml.YAMLError, TypeError) as error:
            raise ValueError from error
        return text.encode("utf-8", "surrogatepass")

    return write


def _change_node(node: Any, rng: random.Random, depth: int, others: Sequence[Any] = ()) -> Any:
    """Returns a value with a change in it; `others` stand beside it."""
    if isinstance(node, dict) and node:
        if depth < _MOST_DEPTH and rng.randrange(6):
            key = _choose(node, rng)
            node[key] = _change_node(node[key], rng, depth + 1, [*node.values()])
            return node
        return _change_keys(node, rng)
    if isinstance(node, list) and node:
        is_tuple = len({*map(type, node)}) > 1  # which has its length
        if depth < _MOST_DEPTH and rng.randrange(20 if is_tuple else 4):
            place = _choose(dict(enumerate(node)), rng)
            node[place] = _change_node(node[place], rng, depth + 1, node)
        else:
            _change_items(node, rng)
        return node
    return _change_leaf(node, rng, others) if rng.randrange(30) else _any_leaf(rng)


def _choose(parts: dict[Any, Any], rng: random.Random) -> Any:
    """Returns a key, those of larger values more often."""
    return rng.choices([*parts], [_size(part) for part in parts.values()])[0]


def _size(node: Any) -> int:
    return 1 + sum(map(_size, node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()))


def _change_keys(node: dict[Any, Any], rng: random.Random) -> dict[Any, Any]:
    key, other = rng.choice([*node]), rng.choice([*node])
    way = rng.randrange(5)
    if way == 0:
        del node[key]
    elif way == 1:
        node[_change_leaf(key, rng)] = copy.deepcopy(node[key])
    elif way == 2:
        return {name: node[name] for name in rng.sample([*node], len(node))}
    elif type(node[key]) is type(node[other]) or not rng.randrange(8):
        node[key] = copy.deepcopy(node[other])
    return node


def _change_items(node: list[Any], rng: random.Random) -> None:
    place, other = rng.randrange(len(node)), rng.randrange(len(node))
    way = rng.randrange(4)
    if way == 0:
        del node[place]
    elif way == 1:
        node.insert(other, copy.deepcopy(node[place]))
    elif way == 2:
        node[place], node[other] = node[other], node[place]
    else:
        node += [copy.deepcopy(node[place]) for _ in range(rng.choice((1, 5, 40)))]


def _change_leaf(leaf: Any, rng: random.Random, others: Sequence[Any] = ()) -> Any:
    """Returns another value of the same type, often one that stands beside it."""
    same = [other for other in others if type(other) is type(leaf) and other != leaf]
    if same and not rng.randrange(3):
        return copy.deepcopy(rng.choice(same))
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int):
        return rng.choice((leaf + 1, leaf - 1, leaf * 2, leaf // 2, rng.randrange(100), rng.choice(_NUMBERS)))
    if isinstance(leaf, float):
        return rng.choice((leaf * 2, leaf / 3, -leaf, rng.random(), rng.choice(_FLOATS)))
    if isinstance(leaf, str):
        if rng.randrange(3):
            return change_text(leaf.encode("utf-8", "surrogatepass"), rng).decode("utf-8", "ignore")
        return rng.choice(_TEXTS)
    return _any_leaf(rng)


def _any_leaf(rng: random.Random) -> Any:
    return rng.choice((None, True, rng.choice(_NUMBERS), rng.choice(_FLOATS), rng.choice(_TEXTS), [], {}, [1, "a"]))


def _graft(node: Any, given: Any, rng: random.Random, depth: int) -> Any:
    """Returns a value with a part of one that has the same keys."""
    if isinstance(node, dict) and isinstance(given, dict) and given:
        key = rng.choice([*given])
        if key in node and depth < _MOST_DEPTH and rng.randrange(5):
            node[key] = _graft(node[key], given[key], rng, depth + 1)
        else:
            node[key] = given[key]
        return node
    if isinstance(node, list) and isinstance(given, list) and given:
        node.insert(rng.randint(0, len(node)), rng.choice(given))
        return node
    return given
