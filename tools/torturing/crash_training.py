"""What is written while a model trains: live files, the journal, checkpoints, files that are replaced."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.files.atomic import create_file, replace_file
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.monitor.checkpoints.checkpoint_files import CheckpointFiles
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import Checkpoint, read_state
from ms_summary_bridge.monitor.sinks.journal import Journal, read_journal
from torturing.disk import Crash
from torturing.reading import our_values, tensorboard_values
from torturing.scenario import Mark, Scenario

_START = 1_700_000_000


class LiveFiles(Scenario):
    """Both files of a training, in several pieces, flushed now and then; with `fsync` the disk has them then."""

    fsync = False
    steps = 12

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.directory = self.root / "run"

    def _run(self, seconds: int) -> LiveRun:
        directory = str(self.directory)
        config = LiveRunConfig(directory, directory, seconds, float(seconds), 0, "host", 42, 3000, fsync=self.fsync)
        return LiveRun(config, lambda kind, text: None)

    def _write(self, run: LiveRun, steps: range, mark: Mark) -> None:
        for step in steps:
            scalars = [{"tag": f"loss{number}", "value": np.asarray(step + number / 8)} for number in range(3)]
            histograms = [{"tag": "weights", "value": np.arange(step + 2, dtype=np.float32)}]
            run.write_values(step, _START + step, {"scalar": scalars, "histogram": histograms})
            if step % 3 == 2:
                assert run.flush()
                mark(step)
        run.close()
        if not self.fsync:  # what is closed is with the operating system
            mark(steps[-1])

    def write(self, mark: Mark) -> None:
        self._write(self._run(_START), range(self.steps), mark)

    def _see(self) -> Iterator[tuple[str, Counter[int]]]:
        for viewer, values in (
            ("TensorBoard", tensorboard_values(str(self.directory))),
            ("our reader of MindSpore's", our_values(str(self.directory), MINDSPORE)),
            ("our reader of TensorBoard's", our_values(str(self.directory), TENSORBOARD)),
        ):
            yield viewer, Counter(step for _, tag, step, _ in values.elements() if tag.startswith(("loss", "weights")))

    def check(self, crash: Crash) -> Iterator[str]:
        promised = max(crash.promised, default=-1) if self.fsync or not crash.is_power else -1
        yield from self._compare(promised, "after the crash")
        self._write(self._run(_START + 100), range(100, 106), lambda token: None)
        yield from self._compare(promised, "after the next session", range(100, 106))
        report = convert_logdir(str(self.directory), str(self.root / "tb"), to="tensorboard")
        if report.failures:
            yield f"what the next session leaves cannot be converted: {report.failures}"
        seen = Counter(step for _, _, step, _ in tensorboard_values(str(self.root / "tb")).elements())
        if lost := [step for step in (*range(promised + 1), *range(100, 106)) if not seen[step]]:
            yield f"the conversion of it lacks the steps {lost}"

    def _compare(self, promised: int, when: str, later: range = range(0)) -> Iterator[str]:
        for viewer, seen in self._see():
            if lost := [step for step in (*range(promised + 1), *later) if seen[step] < 4]:
                yield f"{when} {viewer} lacks the steps {lost}"
            if twice := [step for step, count in seen.items() if count > 4]:
                yield f"{when} {viewer} has twice the steps {twice}"


class SyncedLiveFiles(LiveFiles):
    fsync = True


class JournalFiles(Scenario):
    """The journal of a rank, over several files and two sessions, flushed now and then."""

    lines = 24

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.directory = str(self.root / "rank_0")

    def _open(self) -> Journal:
        journal = Journal(self.directory, 0, {"run": "r"}, lambda kind, text: None, max_bytes=700)
        journal.open()
        return journal

    def _write(self, numbers: range, mark: Mark) -> None:
        journal = self._open()
        for number in numbers:
            journal.write(
                {"kind": "sample", "step": number, "values": {"loss": number / 8}, "text": "x" * (number % 40)}
            )
            if number % 2:
                journal.flush()
                mark(number)
        journal.close()

    def write(self, mark: Mark) -> None:
        self._write(range(self.lines // 2), mark)
        self._write(range(self.lines // 2, self.lines), mark)

    def check(self, crash: Crash) -> Iterator[str]:
        promised = -1 if crash.is_power else max(crash.promised, default=-1)
        if os.path.isdir(self.directory) and os.listdir(self.directory):
            yield from self._compare(promised, "after the crash")
        self._write(range(100, 110), lambda token: None)
        yield from self._compare(promised, "after the next session", range(100, 110))

    def _compare(self, promised: int, when: str, later: range = range(0)) -> Iterator[str]:
        steps = [line["step"] for line in read_journal(self.directory) if line["kind"] == "sample"]
        seen = Counter(steps)
        if lost := [number for number in (*range(promised + 1), *later) if not seen[number]]:
            yield f"{when} the journal lacks {lost}"
        if twice := [number for number, count in seen.items() if count > 1]:
            yield f"{when} the journal has twice {twice}"
        if steps != sorted(steps):
            yield f"{when} the journal is out of order: {steps}"


class Checkpoints(Scenario):
    """The best and the last checkpoints of a training, and of one that begins anew in their place."""

    values = (0.5, 0.3, 0.7, 0.2, 0.4, 0.6)

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.directory = str(self.root / "checkpoints")
        self.said: list[str] = []

    def _open(self, *, goes_on: bool = True) -> CheckpointFiles:
        return CheckpointFiles(
            self.directory, monitor="loss", mode="min", keep=2, warn=self.said.append, goes_on=lambda state: goes_on
        )

    @staticmethod
    def _content(step: int) -> bytes:
        return b"".join(b"%d of step %d|" % (number, step) for number in range(200))

    def _save(self, files: CheckpointFiles, step: int, value: float) -> None:
        def write(path: str) -> None:
            data = self._content(step)
            with open(path, "wb", buffering=0) as file:
                for start in range(0, len(data), 1500):
                    file.write(data[start : start + 1500])

        files.save(step, write, value=value)

    def write(self, mark: Mark) -> None:
        files = self._open()
        for step, value in enumerate(self.values):
            self._save(files, step, value)
            mark(("saved", step, min(self.values[: step + 1])))
        mark(("anew", 0, 0.0))
        files = self._open(goes_on=False)
        for step, value in ((50, 0.9), (51, 0.8)):
            self._save(files, step, value)
            mark(("saved", step, value))

    def check(self, crash: Crash) -> Iterator[str]:
        """A save that has returned is promised whatever happens: to the last, and to the best by its value."""
        self.said.clear()
        if os.path.isdir(self.directory):
            yield from self._look(crash.promised, "after the crash")
        files = self._open()
        if self.said:
            yield f"the next session says {self.said}"
        yield from self._look(crash.promised, "in the next session")
        self._save(files, 200, 0.95)
        yield from self._look([("saved", 200, None)], "after the next save")
        names = {each.file for state in self._states() for each in state.all}
        if left := [
            name for name in os.listdir(self.directory) if name.endswith((".ckpt", ".new")) and name not in names
        ]:
            yield f"the next session leaves {left}"

    def _states(self) -> Iterator[Any]:
        for name in sorted(os.listdir(self.directory)):
            if name.endswith(".json") and not name.startswith("."):
                state = read_state(self.directory, name)
                assert state is not None
                yield state

    def _look(self, promised: list[Any], when: str) -> Iterator[str]:
        states = list(self._states())
        for state in states:
            for each in state.all:
                yield from self._read(each, when)
        if not promised:
            return
        kind, step, value = promised[-1]
        known = [each for state in states for each in state.all]
        if kind == "saved" and all(each.step < step for each in known):
            yield f"{when} the checkpoint of step {step} is gone"
        if kind == "saved" and value is not None and all(each.value is None or each.value > value for each in known):
            yield f"{when} the best checkpoint, of value {value}, is gone"
        if any(token[0] == "anew" for token in promised) and all(each.value != min(self.values) for each in known):
            yield f"{when} the best checkpoint of the earlier training is gone"

    def _read(self, each: Checkpoint, when: str) -> Iterator[str]:
        with open(os.path.join(self.directory, each.file), "rb") as file:
            if file.read() != self._content(each.step):
                yield f"{when} {each.file} does not hold what was saved, and is named as whole"


class ReplacedFiles(Scenario):
    """Files that are replaced as a whole, and files that only one of several may make."""

    def write(self, mark: Mark) -> None:
        for number in range(6):
            replace_file(str(self.root / "file"), b"%d" % number * 1000)
            mark(number)
        create_file(str(self.root / "new"), b"6" * 1000)
        mark(6)

    def check(self, crash: Crash) -> Iterator[str]:
        last = max(crash.promised, default=-1)
        for name, oldest in (("file", min(last, 5)), ("new", 6 if last == 6 else -1)):
            path = self.root / name
            data = path.read_bytes() if path.exists() else None
            if data is None and oldest >= 0:
                yield f"{name} is gone"
            elif data is not None and (len(data) != 1000 or {*data} != {data[0]} or int(data[:1]) < oldest):
                yield f"{name} is not whole or older than {oldest}: {data[:20]!r}, {len(data)} bytes"
        replace_file(str(self.root / "file"), b"9" * 1000)
        if (self.root / "file").read_bytes() != b"9" * 1000:
            yield "the file cannot be replaced again"


WRITERS: dict[str, Callable[[Path], Scenario]] = {
    "live files, as they are": LiveFiles,
    "live files with fsync": SyncedLiveFiles,
    "the journal": JournalFiles,
    "checkpoints": Checkpoints,
    "files replaced as a whole": ReplacedFiles,
}
