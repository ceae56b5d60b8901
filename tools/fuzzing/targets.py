"""All targets by name."""

from __future__ import annotations

from tools.fuzzing import targets_codecs, targets_files, targets_graphs, targets_texts
from tools.fuzzing.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (targets_files, targets_codecs, targets_graphs, targets_texts)
    for target in module.TARGETS
}
