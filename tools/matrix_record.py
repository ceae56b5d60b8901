"""Notes how the tests ended in the environment that this runs in: python tools/matrix_record.py NAME RESULT OUTPUT.

tools/matrix calls it after each environment. docs/matrix.json holds the last run of each, and the site shows it.
OUTPUT is a file with what pytest said.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import re
import sys
from pathlib import Path

RECORD = Path(__file__).resolve().parents[1] / "docs" / "matrix.json"
PACKAGES = ("mindspore", "protobuf", "numpy", "tensorboard")


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def main(name: str, result: str, output: str) -> None:
    said = Path(output).read_text(encoding="utf-8", errors="replace")
    counts = [re.findall(r"(\d+) passed", line) for line in said.splitlines() if re.search(r" in [\d.]+s\b", line)]
    entry = {
        "result": result,
        "passed": sum(int(number) for numbers in counts for number in numbers),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        "packages": {package: version_of(package) for package in PACKAGES},
    }
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    record[name] = entry
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(record[key])}" for key in sorted(record))
    RECORD.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
