"""One error for whatever is wrong with a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError
from ms_summary_bridge.formats.protos import PARSE_ERRORS, parse_fault

__all__ = ["read_safely"]

_Result = TypeVar("_Result")


def read_safely(convert: Callable[[], _Result]) -> _Result:
    """Runs a conversion of a graph; whatever is wrong with its source becomes one error.

    Raises:
        InvalidValueError: The source cannot be read.
    """
    try:
        return convert()
    except InvalidValueError:
        raise
    except EventDecodeError as error:
        raise InvalidValueError(f"the graph cannot be read: {error.message}") from error
    except UnicodeError as error:
        raise InvalidValueError(f"the graph cannot be read: a text is not UTF-8 ({error})") from error
    except PARSE_ERRORS as error:  # protobuf in Python sets no limit to nesting; or not a number
        raise InvalidValueError(f"the graph cannot be read: {parse_fault(error)}") from error
