"""What the site says of commands, keys, Python names and versions, made from the code while `mkdocs build` runs.

A hook of MkDocs (mkdocs.yml): a page holds a line `<!-- from the code: NAME -->`, and what NAME stands for takes its
place. So a page cannot be older than the code. It needs no MindSpore: names are read from the source by mkdocstrings.
"""

# ruff: noqa: E402 (the code of this checkout, whichever is installed)
from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import ms_summary_bridge
from ms_summary_bridge import errors
from ms_summary_bridge.monitor.alarms.rules.rule import find_rule
from ms_summary_bridge.monitor.config.fields import PARAMS, SECTION, Field, read_fields, say_flow
from ms_summary_bridge.monitor.model.alert_config import ACTIONS, AlertConfig, CommandConfig, WebhookConfig
from ms_summary_bridge.monitor.model.config import MetricConfig, WatchdogConfig
from ms_summary_bridge.monitor.model.metric_names import METRICS
from ms_summary_bridge.monitor.model.rule_keys import RULE_KEYS

__all__ = ["on_page_markdown", "write_api", "write_commands", "write_config", "write_matrix"]

_MARK = re.compile(r"^<!-- from the code: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts what the code says in the place of the marks of a page."""
    return _MARK.sub(lambda match: _PARTS[match[1]](), markdown)


def write_commands() -> str:
    """Returns every command with its arguments and options, as Typer describes them."""
    command = [sys.executable, "-m", "typer", "ms_summary_bridge.cli.app", "utils", "docs"]
    command += ["--name", "ms-summary-bridge"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    # Lists of commands are cut to a width, and each command ends in the exit codes, which commands.md has in a table.
    text = re.sub(r"^\*\*Commands\*\*:\n\n(?:\* .*\n)+", "", text, flags=re.MULTILINE)
    return re.sub(r"^(?:# .*|Exit codes: .*)\n", "", text, flags=re.MULTILINE)


def write_config() -> str:
    """Returns tables of all keys: of the section, of metrics, rules, actions and of the watchdog."""
    parts = ["## monitor_config", _table({**SECTION, **PARAMS})]
    parts += ["## metrics", _rows("metric", "meaning", ((name, metric.meaning) for name, metric in METRICS.items()))]
    parts += ["A metric may be a mapping with these keys.", _table(read_fields(MetricConfig))]
    parts += [
        "## alerts",
        "An alert is the name of a rule, or a mapping with `rule`, these keys and those of its rule.",
    ]
    parts += [_table({name: field for name, field in read_fields(AlertConfig).items() if field.meaning})]
    for name, keys in RULE_KEYS.items():
        rule = find_rule(name)
        assert rule is not None
        defaults = inspect.signature(rule).parameters
        rows = ((key, _shown(defaults[key].default), _meaning(kind)) for key, kind in keys.items())
        parts += [f"### {name}", _rows("key", "default", "meaning", rows)]
    parts += ["## actions", "`" + "`, `".join(ACTIONS) + "`. Two of them take a mapping."]
    parts += ["### command", _table(read_fields(CommandConfig)), "### webhook", _table(read_fields(WebhookConfig))]
    parts += ["## watchdog", _table(read_fields(WatchdogConfig))]
    return "\n\n".join(parts)


def write_api() -> str:
    """Returns a directive of mkdocstrings for each public name: what records, functions, the other classes, errors."""
    # A home names what it holds: `name`, or `public=name`.
    homes = {
        name.rpartition("=")[2]: module for module, names in ms_summary_bridge._HOMES.items() for name in names.split()
    }
    raised = [name for name in errors.__all__ if name in vars(ms_summary_bridge)]
    names = sorted({*homes, *raised})
    names.sort(key=lambda name: (name not in homes, name not in ms_summary_bridge._RECORDING, name[0].isupper()))
    return "\n\n".join(f"::: ms_summary_bridge.{homes.get(name, 'errors')}.{name}" for name in names)


def write_matrix() -> str:
    """Returns a table of what tools/matrix noted: each environment's versions, and how its tests ended."""
    record = json.loads((ROOT / "docs" / "matrix.json").read_text(encoding="utf-8"))
    (names,) = re.findall(r"\|\| names=\(([^)]+)\)", (ROOT / "tools" / "matrix").read_text(encoding="utf-8"))
    rows = []
    for name in names.split():
        if name not in record:
            rows.append((name, *["-"] * 5, "not noted yet", "-"))
            continue
        run = record[name]
        versions = (run["packages"][package] or "-" for package in _PACKAGES)
        rows.append((name, run["python"], *versions, f"{run['passed']} tests {run['result']}", run["date"]))
    return _rows("environment", "Python", "MindSpore", "protobuf", "NumPy", "TensorBoard", "result", "date", rows)


_PACKAGES = ("mindspore", "protobuf", "numpy", "tensorboard")
_PARTS: dict[str, Callable[[], str]] = {
    "commands": write_commands,
    "config": write_config,
    "api": write_api,
    "matrix": write_matrix,
}


def _meaning(kind: Any) -> str:
    found = msgspec.inspect.type_info(kind)
    return (found.extra_json_schema or {}).get("description", "") if isinstance(found, msgspec.inspect.Metadata) else ""


def _shown(default: Any) -> str:
    if default is inspect.Parameter.empty or default in (None, (), [], ""):
        return ""
    return f"`{say_flow(list(default) if isinstance(default, tuple) else default)}`"


def _table(fields: Mapping[str, Field]) -> str:
    return _rows("key", "default", "meaning", ((name, _shown(f.default), f.meaning) for name, f in fields.items()))


def _rows(*table: Any) -> str:
    *head, rows = table
    cells: Iterable[tuple[str, ...]] = ((f"`{name}`", *rest) for name, *rest in rows)
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
