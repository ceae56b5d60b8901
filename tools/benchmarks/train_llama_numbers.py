"""Trains a tiny Llama with and without a rank's own numbers, in turns; what `bench llama` measures.

Usage: python train_llama_numbers.py MODE PAIRS STEPS DIRECTORY, in the environment `mindformers`

Prints one line of JSON: for each pair the median microseconds of processor time of a step, of the monitor's hooks with
the usual metrics and with those before the reduction in addition, of steps in which GradientSummary records and of
others, and of steps with MindFormers' own `local_norm`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import mindspore
from mindformers.core.optim import AdamW
from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "mindformers_scripts"))
from train_llama import SEQ_LENGTH, VOCABULARY, CpuTrainOneStepCell, samples

from ms_summary_bridge import GradientSummary
from ms_summary_bridge.mindformers import MindSporeTransformersMonitor

USUAL = ["loss", "lr", "grad_norm", "step_time", "tokens_per_second"]
OWN = ["local_loss", "local_grad_norm", "local_grad_norms", "sub_losses", "mfu"]
RECORDED = 10  # each such step GradientSummary records
BATCH = 2
SKIPPED = 12
_MICRO = 1e6
_FLOAT32 = ("compute_dtype", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype", "param_init_type")


class Laps(Callback):
    """Waits for each step, and notes the processor time of the whole process up to there."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        run_context.original_args().net_outputs[0].asnumpy()
        self._ends.append(time.process_time())

    def medians(self) -> tuple[float, float]:
        """Returns those of steps that GradientSummary would record, and of the others."""
        laps = [after - before for before, after in zip(self._ends, self._ends[1:], strict=False)]
        steps = list(enumerate(laps, 2))[SKIPPED:]
        recorded = [lap for step, lap in steps if step % RECORDED == 0]
        others = [lap for step, lap in steps if step % RECORDED]
        return _MICRO * statistics.median(recorded), _MICRO * statistics.median(others)


class Stopwatch(Callback):
    """Adds up the processor time that the monitor's hooks take of the training thread in each step."""

    def __init__(self, monitor: Callback) -> None:
        super().__init__()
        self._monitor = monitor
        self._spent: dict[str, list[float]] = {"on_train_step_begin": [], "on_train_step_end": []}

    def on_train_begin(self, run_context: Any) -> None:
        for name, spent in self._spent.items():
            setattr(self._monitor, name, self._timed(getattr(self._monitor, name), spent))

    @staticmethod
    def _timed(hook: Any, spent: list[float]) -> Any:
        def call(run_context: Any) -> None:
            began = time.thread_time()
            hook(run_context)
            spent.append(time.thread_time() - began)

        return call

    def median(self) -> float:
        """Returns the microseconds of a step: the hook at the beginning of one reads the one before."""
        begins, ends = self._spent.values()
        return _MICRO * statistics.median(sum(pair) for pair in list(zip(begins, ends, strict=True))[SKIPPED:])


def make_cell(**options: Any) -> CpuTrainOneStepCell:
    config = LlamaConfig(
        batch_size=BATCH,
        seq_length=SEQ_LENGTH,
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        vocab_size=VOCABULARY,
        multiple_of=16,
        use_past=False,
        use_flash_attention=False,
        fused_rms_norm=False,
        use_rope_slice=True,
        **dict.fromkeys(_FLOAT32, "float32"),
    )
    network = LlamaForCausalLM(config)
    network.set_train(True)
    optimizer = AdamW(network.trainable_params(), learning_rate=1e-3)
    return CpuTrainOneStepCell(network, optimizer, use_clip_grad=True, **options)


def main(mode: int, pairs: int, steps: int, directory: str) -> None:
    """Trains each once to compile, then in turns."""
    mindspore.set_context(mode=mode)
    mindspore.set_device("CPU")
    cells = {
        "plain": make_cell(),
        "summary": GradientSummary(make_cell(), pattern=None, every=RECORDED),
        "local_norm": make_cell(local_norm=True),
    }
    models = {name: Model(cell) for name, cell in cells.items()}
    data = {
        name: GeneratorDataset(
            lambda: samples(steps * BATCH), ["input_ids"], shuffle=False, num_parallel_workers=1
        ).batch(BATCH)
        for name in cells
    }
    count = 0

    def train(name: str, metrics: list[str]) -> tuple[Laps, Stopwatch]:
        nonlocal count
        count += 1
        monitor = MindSporeTransformersMonitor(
            interval=30, backend="local", save_dir=directory, run_id=str(count), auto_print=False, metrics=metrics,
            peak_flops=1e12,
        )  # fmt: skip
        laps, stopwatch = Laps(), Stopwatch(monitor)
        models[name].train(1, data[name], callbacks=[laps, monitor, stopwatch], dataset_sink_mode=False)
        return laps, stopwatch

    for name in cells:
        train(name, USUAL)
    results = []
    for _ in range(pairs):
        laps, usual = train("plain", USUAL)
        _, own = train("plain", USUAL + OWN)
        recorded, others = train("summary", USUAL + OWN)[0].medians()
        results.append(
            {
                "step": laps.medians()[1],
                "usual": usual.median(),
                "own": own.median(),
                "recorded": recorded,
                "others": others,
                "local_norm": train("local_norm", USUAL)[0].medians()[1],
            }
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
