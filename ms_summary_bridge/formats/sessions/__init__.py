"""Lineage records of MindSpore and HParams sessions of TensorBoard."""
