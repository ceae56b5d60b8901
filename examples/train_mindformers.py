"""Trains a tiny Llama on random tokens with MindFormers, recorded by what its YAML file names.

Usage: python examples/train_mindformers.py [CONFIG]

CONFIG is examples/mindformers_llama.yaml unless another file is named. It needs MindFormers and its MindSpore
(`pip install 'ms_summary_bridge[mindformers]'`), and writes to ./output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import numpy.typing as npt
from mindformers import MindFormerConfig, Trainer, build_context
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindformers.wrapper.wrapper import MFTrainOneStepCell
from mindspore.dataset import GeneratorDataset

# The only line that a program needs: from here on a YAML file may name SummaryBridgeMonitor and
# MindSporeTransformersMonitor. Where no line may change, `auto_register` in the entries does the same.
import ms_summary_bridge.mindformers  # noqa: F401

CONFIG = Path(__file__).with_name("mindformers_llama.yaml")


@MindFormerRegister.register(MindFormerModuleType.WRAPPER)
class CpuTrainOneStepCell(MFTrainOneStepCell):  # type: ignore[misc]
    """MindFormers' training cell for a CPU, which has no register that tells of an overflow."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ascend_910a_target = self.ascend_910b_target = False

    def get_overflow_status(self, status: Any, compute_output: tuple[mindspore.Tensor, ...]) -> mindspore.Tensor:
        """Looks at the gradients."""
        odd = mindspore.Tensor(0.0, mindspore.float32)
        for gradient in compute_output:
            odd = odd + (1.0 - mindspore.ops.isfinite(gradient).all().astype(mindspore.float32))
        return odd > 0.5


def main(path: str = str(CONFIG)) -> None:
    """Trains."""
    if not Path(path).is_file():
        sys.exit(f"{path}: there is no such file; name a configuration of MindFormers")
    config = MindFormerConfig(path)
    build_context(config)
    length, words = config.model.model_config.seq_length, config.model.model_config.vocab_size
    batch_size = config.runner_config.batch_size

    def tokens() -> Iterator[tuple[npt.NDArray[np.int32]]]:
        rng = np.random.default_rng(1)
        for _ in range(config.lr_schedule.total_steps * batch_size):
            yield (rng.integers(3, words, length + 1).astype(np.int32),)  # the last one is only a label

    dataset = GeneratorDataset(tokens, ["input_ids"], shuffle=False, num_parallel_workers=1).batch(batch_size)
    Trainer(args=config, train_dataset=dataset).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
