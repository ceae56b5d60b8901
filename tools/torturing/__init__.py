"""Faults that are tried on the package, started by tools/torture.

A part is a module of this package with

* `NAME`, by which tools/torture knows it;
* a docstring, whose first line says what it tries;
* `run(budget_seconds: float, out: Path) -> list[Row]`, which ends within its budget, keeps its files below `out`, and
  returns a row (`torturing.report.Row`) for each kind of thing that it tried.

A part that is put here is found by itself. Each runs in a process of its own, so it may end that; two run at a time.
What it prints goes to stderr.
"""
