"""The kinds of value that a configuration takes: each checks a value and says the same to editors as JSON schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from ms_summary_bridge.monitor.config.problems import INVALID, Kind, Problems, nearest, show
from ms_summary_bridge.monitor.config.yaml_text import join_path

__all__ = ["Choice", "Flag", "Name", "Number", "OneOrMore", "Pattern", "Text", "Whole"]

_EXPONENT: Final = re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+", re.ASCII)
_CLOCK: Final = re.compile(r"[0-9]+(?::[0-5]?[0-9])+", re.ASCII)
_NUMERIC: Final = re.compile(r"[-+.]?[0-9]", re.ASCII)
_OCTAL: Final = re.compile(r"[-+]?0[0-9]+", re.ASCII)
_BOOLEAN_WORDS: Final = {"true", "yes", "on", "y", "false", "no", "off", "n"}
_SHOWN: Final = 60
_MAX_WHOLE: Final = (1 << 63) - 1


class Flag:
    """true or false."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _BOOLEAN_WORDS:
            # "false" in quotes would count as true, as every text does that is not empty
            hint = f"{value!r} is text, which is never false: write true or false, without quotes"
        else:
            hint = f"must be true or false, got {show(value)}"
        problems.add(path, hint)
        return INVALID

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "boolean"}


class Number:
    """A number, or the text of one that another YAML reader has made of `1e-5`.

    Args:
        above: The value must be greater than this.
        least: The value must be at least this.
        is_finite: Whether infinity is refused.
    """

    def __init__(self, *, above: float | None = None, least: float | None = None, is_finite: bool = True) -> None:
        self._above = above
        self._least = least
        self._is_finite = is_finite

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        number = value
        if isinstance(value, str) and _EXPONENT.fullmatch(value):
            number = float(value.replace("_", ""))
        if isinstance(number, bool) or not isinstance(number, int | float):
            problems.add(path, _say_no_number(value))
            return INVALID
        try:
            number = float(number)
        except OverflowError:
            number = math.copysign(math.inf, number)
        if math.isnan(number):
            problems.add(path, "nan is no limit: every comparison with it is false, so nothing would ever happen")
        elif math.isinf(number) and self._is_finite:
            problems.add(path, f"must be a finite number, got {show(value)}")
        elif self._above is not None and number <= self._above:
            problems.add(path, f"must be greater than {self._above:g}, got {show(value)}")
        elif self._least is not None and number < self._least:
            problems.add(path, f"must be {self._least:g} or more, got {show(value)}")
        else:
            return number
        return INVALID

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        schema: dict[str, Any] = {"type": "number"}
        if self._above is not None:
            schema["exclusiveMinimum"] = self._above
        if self._least is not None:
            schema["minimum"] = self._least
        return schema


def _say_no_number(value: Any) -> str:
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


class Whole:
    """A whole number from `least` to `most`; `1e3` is one too."""

    def __init__(self, least: int, *, most: int = _MAX_WHOLE) -> None:
        self._least = least
        self._most = most
        self._number = Number()

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        number = value if type(value) is int else self._number.check(value, path, problems)
        if number is INVALID:
            return INVALID
        if number != int(number):
            problems.add(path, f"must be a whole number, got {show(value)}")
        elif number < self._least:
            problems.add(path, f"must be {self._least} or more, got {show(value)}")
        elif number > self._most:
            limit = "" if self._most == _MAX_WHOLE else f"; {self._most} is the most"
            problems.add(path, f"is too large: {show(value)}{limit}")
        else:
            return int(number)
        return INVALID

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        limit = {} if self._most == _MAX_WHOLE else {"maximum": self._most}
        return {"type": "integer", "minimum": self._least, **limit}


class Text:
    """A text that is not empty."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if isinstance(value, bool):
            problems.add(path, f"must be text, got {str(value).lower()}: yes, no, on and off are text only in quotes")
        elif not isinstance(value, str):
            problems.add(path, f"must be text, got {show(value)}")
        elif not value.strip():
            problems.add(path, "is empty")
        elif any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in value):
            problems.add(path, f"holds a control character: {show(value)}")
        else:
            return value
        return INVALID

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "string", "pattern": r"\S"}


class Name:
    """The name of one directory; a whole number is taken for the text of it."""

    _LONGEST = 200  # bytes; a file system takes 255, and a suffix may follow

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        name = str(value) if type(value) is int and abs(value) <= _MAX_WHOLE else value
        if isinstance(name, float):
            problems.add(path, f"must be text, got the number {show(value)}: put it in quotes")
            return INVALID
        name = Text().check(name, path, problems)
        if name is INVALID:
            return INVALID
        if "/" in name or "\\" in name or name in (".", "..") or name != name.strip():
            problems.add(path, f"must be the name of one directory, without a slash, got {show(value)}")
        elif len(name.encode("utf-8")) > self._LONGEST:
            problems.add(path, f"is longer than {self._LONGEST} bytes: {show(value)}")
        else:
            return name
        return INVALID

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": ["string", "integer"], "pattern": r"^(?!\.{1,2}$)[^/\\\s]([^/\\]*[^/\\\s])?$"}


class Pattern:
    """A text of one form.

    Args:
        pattern: What the whole text must match, in the words that Python and JSON schema share.
        meaning: The form in words.
    """

    def __init__(self, pattern: str, meaning: str) -> None:
        self._pattern = pattern
        self._meaning = meaning

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if isinstance(value, str) and re.fullmatch(self._pattern, value):
            return value
        problems.add(path, f"must be {self._meaning}, got {show(value)}")
        return INVALID

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "string", "pattern": f"^(?:{self._pattern})$"}


class Choice:
    """One of a few words.

    Args:
        words: The words, in the spelling that comes out.
        other: What is taken besides.
    """

    def __init__(self, words: Sequence[str], other: Kind | None = None) -> None:
        self._words = tuple(words)
        self._other = other

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if isinstance(value, str) and not (self._other is not None and _NUMERIC.match(value)):
            for word in self._words:
                if value.lower() == word.lower():
                    return word
            text = f"must be {self._describe()}, got {show(value)}"
            problems.add(path, text + nearest(value, [word.lower() for word in self._words]))
            return INVALID
        if self._other is not None:
            return self._other.check(value, path, problems)
        problems.add(path, f"must be {self._describe()}, got {show(value)}")
        return INVALID

    def _describe(self) -> str:
        words = list(self._words) + (["a number"] if self._other is not None else [])
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        words = {"enum": sorted({*self._words, *(word.lower() for word in self._words)})}
        return words if self._other is None else {"anyOf": [words, self._other.schema()]}


class OneOrMore:
    """One item, or a list of different ones; always a tuple when checked.

    Args:
        item: The kind of each item.
        key: What must differ between the items.
        takes_one: Whether an item may stand without a list around it.
    """

    def __init__(self, item: Kind, *, key: Callable[[Any], object] = lambda item: item, takes_one: bool = True) -> None:
        self._item = item
        self._key = key
        self._takes_one = takes_one

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if not isinstance(value, list):
            if self._takes_one:
                item = self._item.check(value, path, problems)
                return INVALID if item is INVALID else (item,)
            problems.add(path, f"must be a list, like [{str(value)[:_SHOWN]}], got {show(value)}")
            return INVALID
        items: dict[object, Any] = {}
        is_valid = True
        for number, given in enumerate(value):
            item = self._item.check(given, join_path(path, number), problems)
            if item is INVALID:
                is_valid = False
            elif self._key(item) in items:
                problems.add(join_path(path, number), f"{self._key(item)!r} is in the list twice")
                is_valid = False
            else:
                items[self._key(item)] = item
        return tuple(items.values()) if is_valid else INVALID

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        many = {"type": "array", "items": self._item.schema(), "uniqueItems": True}
        return {"anyOf": [self._item.schema(), many]} if self._takes_one else many
