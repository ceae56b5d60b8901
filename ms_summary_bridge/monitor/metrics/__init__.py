"""Metrics: each is a small class, and users add their own; the registry makes them by name."""

from __future__ import annotations

from ms_summary_bridge.monitor.metrics.registry import Metric, MetricValue, make_metric, register_metric

__all__ = ["Metric", "MetricValue", "make_metric", "register_metric"]
