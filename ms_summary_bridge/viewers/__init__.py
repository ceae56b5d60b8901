"""Viewers: either format in either viewer, by one command that makes, starts, watches and stops what it needs.

Nothing is printed here: who calls is told, and says it.

TensorBoard is given the logdir itself, whose mirror our plugin shows it. MindInsight lives in an environment of its own
(`environment`), and is given the base of a mirror. Both run under a guard (`guard`), which ends them when this process
is gone.
"""
