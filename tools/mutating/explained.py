"""Mutants that no test can notice: they do the same as the module, or change only what is free. Kept in explained.txt.

A line that begins with `== ` names a module; then come a line of it behind `- ` and what the mutant makes of it behind
`+ `, one or more such lines of either, and below them, indented, why nothing can notice the difference.
"""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("explained.txt")

Change = tuple[str, str, str]
"""Path of the module, the line before and after."""


class FormError(ValueError):
    """The file is not written as it should be."""


def read(path: Path = FILE) -> dict[Change, str]:
    """Returns the reason of each change.

    Raises:
        FormError: A line is in the wrong place.
    """
    found: dict[Change, str] = {}
    module = before = ""
    open_changes: list[Change] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        kind, rest = line[:2], line[2:].strip()
        if line.startswith("== "):
            module, before, open_changes = line[3:], "", []
        elif kind == "- " and module:
            before = rest
        elif kind == "+ " and before:
            if open_changes and found[open_changes[-1]]:
                open_changes = []
            change = module, before, rest
            if change in found:
                raise FormError(f"{path.name}:{number}: is there twice")
            open_changes.append(change)
            found[change] = ""
        elif kind == "  " and rest and open_changes:
            for change in open_changes:
                found[change] = f"{found[change]} {rest}".strip()
        elif line and not line.startswith("#"):
            raise FormError(f"{path.name}:{number}: is out of place")
    unexplained = [change for change, reason in found.items() if not reason]
    if unexplained:
        raise FormError(f"{path.name}: nothing says why for {unexplained[0]}")
    return found
