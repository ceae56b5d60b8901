"""Exports a logdir's values to files that other programs read."""
