"""Converts between MindSpore summary files and TensorBoard event files, and watches trainings."""
