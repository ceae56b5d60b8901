"""Kinds of values in sentences."""

from __future__ import annotations

__all__ = ["with_article"]


def with_article(kind: str) -> str:
    """Returns a kind as a sentence has it, such as `an image` or `a text`."""
    return f"{'an' if kind[:1].lower() in tuple('aeiou') else 'a'} {kind}"
