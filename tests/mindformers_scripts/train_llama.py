"""Trains a tiny Llama on random tokens through MindFormers' own Trainer, on a CPU.

Usage: python tests/mindformers_scripts/train_llama.py CONFIG.yaml STEPS [MODULE...]

Each MODULE is imported first, as a program does that uses callbacks of a package. Run it in the environment that
`tools/environment mindformers` makes.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator

import mindspore
import mindspore.dataset
import numpy as np
from mindformers import MindFormerConfig, Trainer, build_context
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindformers.wrapper.wrapper import MFTrainOneStepCell

SEQ_LENGTH = 32
VOCABULARY = 128


@MindFormerRegister.register(MindFormerModuleType.WRAPPER)
class CpuTrainOneStepCell(MFTrainOneStepCell):  # type: ignore[misc]
    """MindFormers' training cell asks an NPU's registers for an overflow; a CPU looks at the gradients."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.ascend_910a_target = self.ascend_910b_target = False

    def get_overflow_status(self, status: object, compute_output: tuple[mindspore.Tensor, ...]) -> mindspore.Tensor:
        odd = mindspore.Tensor(0.0, mindspore.float32)
        for gradient in compute_output:
            odd = odd + (1.0 - mindspore.ops.isfinite(gradient).all().astype(mindspore.float32))
        return odd > 0.5


def samples(count: int) -> Iterator[tuple[np.ndarray]]:
    """Yields rows of tokens, one more than a sequence holds: its last is only a label. Each rank has its own."""
    generator = np.random.default_rng(1 + int(os.environ.get("RANK_ID", "0")))
    for _ in range(count):
        yield (generator.integers(3, VOCABULARY, SEQ_LENGTH + 1).astype(np.int32),)


def main(config_path: str, steps: str, *modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    config = MindFormerConfig(config_path)
    build_context(config)  # without it the Trainer runs PYNATIVE whatever the configuration says
    batch_size = config.runner_config.batch_size
    rows = mindspore.dataset.GeneratorDataset(
        lambda: samples(int(steps) * batch_size), ["input_ids"], shuffle=False, num_parallel_workers=1
    )
    Trainer(args=config, train_dataset=rows.batch(batch_size)).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
