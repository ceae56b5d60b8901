"""Walks over plain values and the types that they should have, and tells every problem on the way.

What the types alone do not tell (short forms, names of metrics, addresses) is in `forms`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from msgspec import inspect

from ms_summary_bridge.monitor.config.fields import Field, read_fields, say_flow
from ms_summary_bridge.monitor.config.problems import INVALID, Problems, join_path, nearest, show
from ms_summary_bridge.monitor.model.alert_config import VARIABLE, Dialect
from ms_summary_bridge.monitor.model.config import Backend, HangAction, LogLevel
from ms_summary_bridge.monitor.model.rule_keys import Mode

__all__ = ["Describe", "Form", "Marks", "Walk"]

_EXPONENT: Final = re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+", re.ASCII)
_CLOCK: Final = re.compile(r"[0-9]+(?::[0-5]?[0-9])+", re.ASCII)
_NUMERIC: Final = re.compile(r"[-+.]?[0-9]", re.ASCII)
_OCTAL: Final = re.compile(r"[-+]?0[0-9]+", re.ASCII)
_BOOLEAN_WORDS: Final = {"true", "yes", "on", "y", "false", "no", "off", "n"}
_MAX_WHOLE: Final = (1 << 63) - 1
_FEW: Final = 16  # keys that a message lists
_ALL_KEYS: Final = "`ms-summary-bridge config schema` lists all keys"
_ORDERED: Final = {frozenset(words): words for words in map(get_args, (Backend, HangAction, LogLevel, Mode, Dialect))}
"""The words of choices in the order of their declaration, which msgspec does not keep."""

Marks: TypeAlias = Mapping[str, Any]
Describe: TypeAlias = Callable[[inspect.Type], dict[str, Any]]


class Form(NamedTuple):
    """How a value is written that its type alone does not tell.

    `check` takes the walk, the value, its path and the marks of its type, and returns what a method of the walk does;
    `schema` takes what describes types, and returns the JSON schema of it.
    """

    check: Callable[[Walk, Any, str, Marks], Any]
    schema: Callable[[Describe], dict[str, Any]]


class Walk:
    """Checks values; each method returns the value in its one form, or `INVALID` after adding problems.

    `forms` are found by the mark `form` or by a struct. `environ` has the variables for `${NAME}` in a text; without it
    these stay as they are.
    """

    def __init__(self, problems: Problems, forms: Mapping[Any, Form], environ: Mapping[str, str] | None) -> None:
        self.problems = problems
        self._forms = forms
        self._environ = environ

    def check(self, kind: inspect.Type, value: Any, path: str, marks: Marks | None = None) -> Any:
        """Checks a value of any type; `marks` are those of the types around it."""
        marks = marks or {}
        if isinstance(kind, inspect.Metadata):
            return self.check(kind.type, value, path, {**marks, **(kind.extra or {})})
        form = self._forms.get(marks.get("form", getattr(kind, "cls", None)))
        if form is not None:
            return form.check(self, value, path, marks)
        match kind:
            case inspect.UnionType():
                return self._union(kind, value, path, marks)
            case inspect.BoolType():
                return self._flag(value, path)
            case inspect.IntType():
                return self._whole(kind, value, path)
            case inspect.FloatType():
                return self._number(kind, value, path, is_finite=not marks.get("infinite"))
            case inspect.LiteralType(values=words):
                return self.choose(words, value, path)
            case inspect.StrType(pattern=pattern):
                return self.text(value, path, pattern=pattern if "words" in marks else None, words=marks.get("words"))
            case inspect.VarTupleType(item_type=item):
                return self._list(item, value, path, marks)
            case inspect.DictType():
                return self._dict(kind, value, path, marks)
            case inspect.StructType(cls=cls):
                return self.struct(cls, value, path, marks.get("example"))
        return self.expand(value, path) if isinstance(value, str) else value

    # ------------------------------------------------------------------ what has fields or items

    def mapping(self, value: Any, path: str, example: Any) -> dict[str, Any] | None:
        """Returns a mapping, or None after adding a problem that shows an example of one."""
        if isinstance(value, dict):
            return dict(value)
        self.problems.add(path, f"must be a mapping, like {say_flow(example)}, got {show(value)}")
        return None

    def keys(
        self,
        fields: Mapping[str, Field],
        given: Mapping[str, Any],
        path: str,
        elsewhere: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Returns the checked values by attribute; `elsewhere` says where a key belongs that is not here.

        A key without a value asks for the default.
        """
        values: dict[str, Any] = {}
        elsewhere = elsewhere or {}
        for name, value in given.items():
            inner = join_path(path, name)
            if name in elsewhere:
                values[name] = self.problems.add(inner, elsewhere[name])
            elif name not in fields:
                values[name] = self.no_key(name, [*fields, *elsewhere], inner)
            elif value is not None:
                values[fields[name].name] = self.check(
                    fields[name].kind, value, inner, {"example": fields[name].example}
                )
        return values

    def no_key(self, name: str, known: list[str], path: str) -> Any:
        """Adds a problem for a key that does not exist."""
        here, listed = (" here", f"there are {', '.join(known)}") if len(known) <= _FEW else ("", _ALL_KEYS)
        return self.problems.add(path, f"there is no key {name!r}{here}{nearest(name, known) or f'; {listed}'}")

    def struct(self, cls: type, value: Any, path: str, example: Any = None) -> Any:
        """Checks a mapping with the fields of a struct, or its first field alone, and makes the struct."""
        fields = read_fields(cls)
        first = next(iter(fields.values()))
        if example is not None and not isinstance(value, dict | bool):
            text = f"must be a mapping, like {say_flow(example)}, or true or false, got {show(value)}"
            return self.problems.add(path, text)
        if isinstance(value, dict):
            values = self.keys(fields, value, path)
        else:
            values = {first.name: self.check(first.kind, value, path)}
        for name, field in fields.items():
            if field.is_required and field.name not in values:
                values[name] = self.problems.add(path, f"has no {name}: {field.meaning}")
        if INVALID in values.values():
            return INVALID
        try:
            return cls(**values)
        except ValueError as error:  # fields that do not fit together
            return self.problems.add(path, str(error))

    def _dict(self, kind: inspect.DictType, value: Any, path: str, marks: Marks) -> Any:
        given = self.mapping(value, path, marks.get("example"))
        if given is None:
            return INVALID
        known = kind.key_type.values if isinstance(kind.key_type, inspect.LiteralType) else given
        found: dict[str, Any] = {}
        for name, item in given.items():
            inner = join_path(path, name)
            if name not in known:
                found[name] = self.no_key(name, list(map(str, known)), inner)
            elif item is not None:
                found[name] = self.check(kind.value_type, item, inner)
        return INVALID if INVALID in found.values() else found

    def _list(self, item: inspect.Type, value: Any, path: str, marks: Marks) -> Any:
        if not isinstance(value, list):
            if not marks.get("one"):
                text = f"[{show(value)[:40]}]" if not isinstance(value, str) else f"[{value[:40]}]"
                return self.problems.add(path, f"must be a list, like {text}, got {show(value)}")
            one = self.check(item, value, path)
            return INVALID if one is INVALID else (one,)
        found: dict[Any, Any] = {}
        for number, given in enumerate(value):
            inner = join_path(path, number)
            one = self.check(item, given, inner)
            name = getattr(one, "name", one)
            if one is not INVALID and name in found:
                title = one if isinstance(one, str) else getattr(one, "title", name)  # a text has a method called so
                one = self.problems.add(inner, f"{title!r} is in the list twice")
            found[number if one is INVALID else name] = one
        return INVALID if INVALID in found.values() else tuple(found.values())

    # ------------------------------------------------------------------ single values

    def _union(self, kind: inspect.UnionType, value: Any, path: str, marks: Marks) -> Any:
        one, *others = (one for one in kind.types if not isinstance(one, inspect.NoneType))
        for other in others:
            if isinstance(other, inspect.LiteralType) and isinstance(value, str) and not _NUMERIC.match(value):
                return self.choose(other.values, value, path, "a number")
        return self.check(one, value, path, marks)

    def _flag(self, value: Any, path: str) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _BOOLEAN_WORDS:
            # "false" in quotes would count as true, as every text does that is not empty
            return self.problems.add(
                path, f"{value!r} is text, which is never false: write true or false, without quotes"
            )
        return self.problems.add(path, f"must be true or false, got {show(value)}")

    def _number(self, kind: Any, value: Any, path: str, *, is_finite: bool = True) -> Any:
        number = value
        if isinstance(value, str) and _EXPONENT.fullmatch(value):  # another YAML reader takes 1e-5 for text
            number = float(value.replace("_", ""))
        if isinstance(number, bool) or not isinstance(number, int | float):
            return self.problems.add(path, _explain_text_for_number(value))
        try:
            number = float(number)
        except OverflowError:
            number = math.copysign(math.inf, number)
        if math.isnan(number):
            text = "nan cannot be a limit: every comparison with it is false, so nothing would ever happen"
        elif math.isinf(number) and is_finite:
            text = f"must be a finite number, got {show(value)}"
        elif kind.le is not None and kind.gt is not None and not kind.gt < number <= kind.le:
            text = f"must be between {kind.gt:g} and {kind.le:g}, got {show(value)}"
        elif kind.gt is not None and number <= kind.gt:
            text = f"must be greater than {kind.gt:g}, got {show(value)}"
        elif kind.ge is not None and number < kind.ge:
            text = f"must be {kind.ge:.12g} or more, got {show(value)}"
        else:
            return number
        return self.problems.add(path, text)

    def _whole(self, kind: inspect.IntType, value: Any, path: str) -> Any:
        number = value if type(value) is int else self._number(inspect.FloatType(), value, path)
        if number is INVALID:
            return INVALID
        most = _MAX_WHOLE if kind.le is None else kind.le
        if number != int(number):
            return self.problems.add(path, f"must be a whole number, got {show(value)}")
        if number > most:
            limit = "" if kind.le is None else f"; {kind.le} is the most"
            return self.problems.add(path, f"is too large: {show(value)}{limit}")
        if kind.ge is not None and number < kind.ge:
            return self.problems.add(path, f"must be {kind.ge} or more, got {show(value)}")
        return int(number)

    def choose(self, given: tuple[Any, ...], value: Any, path: str, other: str = "") -> Any:
        """Checks one of a few words, in any letters; returns it in its one spelling."""
        words = {word.lower(): word for word in _ORDERED.get(frozenset(given), given)}
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        listed = [*words.values(), *filter(None, [other])]
        choice = " or ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
        hint = nearest(value, words) if isinstance(value, str) else ""
        return self.problems.add(path, f"must be {choice}, got {show(value)}{hint}")

    def text(self, value: Any, path: str, *, pattern: str | None = None, words: str | None = None) -> Any:
        """Checks a text that is not empty; `pattern` is what it must match, `words` say the same."""
        if pattern is not None:
            is_right = isinstance(value, str) and re.search(pattern, value) and "\n" not in value
            return value if is_right else self.problems.add(path, f"must be {words}, got {show(value)}")
        if isinstance(value, bool):
            text = f"must be text, got {str(value).lower()}: yes, no, on and off are text only in quotes"
        elif not isinstance(value, str):
            text = f"must be text, got {show(value)}"
        elif not value.strip():
            text = "is empty"
        elif any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in value):
            text = f"holds a control character: {show(value)}"
        else:
            return self.expand(value, path)
        return self.problems.add(path, text)

    def expand(self, text: str, path: str, *, is_kept: bool = False) -> Any:
        """Returns a text with the values of the environment variables in it; `is_kept` for the text as it is."""
        names = [] if self._environ is None else VARIABLE.findall(text)
        missing = [name for name in names if not (self._environ or {}).get(name, "").strip()]
        for name in missing:
            self.problems.add(path, f"the environment variable {name} is not set here: export it before the start")
        if missing:
            return INVALID
        if is_kept or self._environ is None:
            return text
        environ = self._environ
        return VARIABLE.sub(lambda match: environ[match[1]].strip(), text)


def _explain_text_for_number(value: Any) -> str:
    if isinstance(value, bool):
        return f"must be a number, got {str(value).lower()}, which is a boolean"
    if isinstance(value, str):
        if _CLOCK.fullmatch(value):
            seconds = 0
            for part in value.split(":"):
                seconds = seconds * 60 + int(part[:9])
            return f"must be a number, got {value!r}: write {seconds} if that is what it means"
        if _OCTAL.fullmatch(value):
            return f"must be a number, got {value!r}: write it without the leading 0"
        try:
            float(value)
        except ValueError:
            pass
        else:
            return f"must be a number, got the text {show(value)}: write it without quotes"
    return f"must be a number, got {show(value)}"
