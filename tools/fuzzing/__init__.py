"""Inputs that nobody expects, for all that reads bytes: what a target is, how inputs change, how they are kept.

A target (`tools.fuzzing.targets`) is a function that takes bytes. For any bytes it may return, or raise a
`BridgeError`. Anything else is a fault, and so are a promise that is broken (`AssertionError`), more than 64 MiB for
1 MiB of input, and more than a second of processor time for 100 KiB (`tools.fuzzing.measure`).

`tools/torture fuzz` hunts with atheris, which is guided by what code an input reaches; where atheris is not installed,
with the same changes drawn at random. Inputs that reached new code, or showed a fault, are kept in tests/data/fuzz, one
file for each target; the tests go through these, and through some changed ones (tests/project/test_fuzz_corpus.py).
"""
