"""Findings: what a check says, and all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

__all__ = ["SHOWN", "Examination", "Finding", "Verdict", "build_schema", "fault", "good", "named"]

Verdict: TypeAlias = Literal["ok", "warning", "wrong", "not known"]

SHOWN: Final = 3
"""Places that a finding names; it counts the others."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=False):
    """What one check found."""

    id: str
    """`<family>.<check>`, stable for programs."""
    verdict: Verdict
    text: str
    mend: str = ""
    """What to do about it; never empty for what is wrong or a warning."""


class Examination(msgspec.Struct, frozen=True):
    """All that was looked at once."""

    target: str
    """The path or the configuration; empty for the environment alone."""
    findings: list[Finding]
    bytes_read: int
    """Of the files below the target: heads and tails, whatever their sizes."""

    @property
    def is_wrong(self) -> bool:
        """Whether something is wrong; warnings are not."""
        return any(finding.verdict == "wrong" for finding in self.findings)


def good(check: str, text: str) -> Finding:
    """Returns a finding that nothing is to be done about."""
    return Finding(check, "ok", text)


def fault(check: str, verdict: Verdict, text: str, mend: str) -> Finding:
    """Returns a finding with what to do about it."""
    return Finding(check, verdict, text, mend)


def named(names: Sequence[str]) -> str:
    """Returns the first of some names, and how many more there are."""
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


def build_schema() -> dict[str, Any]:
    """Returns the JSON schema of an `Examination`."""
    text = {"type": "string"}
    finding = {"id": {**text, "pattern": r"^[a-z]+\.[a-z-]+$"}, "verdict": {"enum": [*get_args(Verdict)]}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ms-summary-bridge doctor --json",
        "type": "object",
        "required": ["target", "findings", "bytes_read"],
        "additionalProperties": False,
        "properties": {
            "target": text,
            "bytes_read": {"type": "integer", "minimum": 0},
            "findings": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["id", "verdict", "text", "mend"],
                    "additionalProperties": False,
                    "properties": {**finding, "text": text, "mend": text},
                },
            },
        },
    }
