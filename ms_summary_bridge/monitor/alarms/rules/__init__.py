"""The rules of alarms: small classes that see numbers, one point after the other, and say when something is wrong."""

from __future__ import annotations

from ms_summary_bridge.monitor.alarms.rules.rule import (
    Level,
    Observation,
    Rule,
    find_rule,
    make_rule,
    rule_names,
    say_number,
)

__all__ = ["Level", "Observation", "Rule", "find_rule", "make_rule", "rule_names", "say_number"]
