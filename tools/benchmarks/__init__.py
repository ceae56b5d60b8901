"""Benchmarks, started by tools/bench."""
