"""Trains a small network, converts its summaries to TensorBoard, and says how to look at them.

What happens, in the directory .quickstart of this checkout:

  1. examples/train_with_summary_collector.py trains a CNN on pictures it draws itself, and MindSpore's own
     SummaryCollector records scalars, histograms, images, tensors, the graph and the lineage.
  2. `ms-summary-bridge convert` makes TensorBoard files of it.
  3. `ms-summary-bridge verify` compares both, value for value.
  4. With --check, the real TensorBoard is started on a free port of this machine, with each of its two loaders, and
     asked for what it shows; every value must be the one in MindSpore's file. The servers are stopped again.

Each call adds a training with other numbers, run_1, run_2, ..., so that TensorBoard shows them side by side.
`rm -r .quickstart` removes them all. The first call downloads MindSpore and TensorBoard; after that it takes about a
minute.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.tensorboard_api import TensorBoardClient, TensorBoardError, running_tensorboard, stop_process

if TYPE_CHECKING:
    from ms_summary_bridge.values import Value

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "train_with_summary_collector.py"
TRAINING_LIMIT_SECS = 600
READING_LIMIT_SECS = 60  # how long TensorBoard may take to read the files
# TensorBoard shows a sample of long series (10 images, for one). The check wants to see all there is.
ALL_SAMPLES = "scalars=100000,histograms=100000,images=100000,text=100000"

Series = dict[tuple[str, str], dict[int, "Value"]]
"""Values by (kind, tag) and step."""


class QuickstartError(Exception):
    """A step did not work; the message says what to do."""


def shown(path: Path) -> str:
    """Returns a path as it is typed in the directory where the tool was called."""
    relative = os.path.relpath(path, os.environ.get("QUICKSTART_CALLED_FROM") or None)
    return shlex.quote(str(path) if relative.startswith("../../..") else relative)


def command_line(program: str, *arguments: str | Path) -> str:
    """Returns a command of the environment, to be pasted."""
    words = [shown(arg) if isinstance(arg, Path) else shlex.quote(arg) for arg in arguments]
    return " ".join([shown(Path(sys.executable).parent / program), *words])


def make_run(directory: Path) -> int:
    """Makes the directory of the next training, run_1, run_2, ..., and returns its number.

    A number that was used once is not used again as long as anything of it is left.
    """
    used = [int(path.name[4:]) for path in directory.glob("*/run_*") if path.name[4:].isdecimal()]
    number = max(used, default=0) + 1
    while True:
        with contextlib.suppress(FileExistsError):  # another quickstart may have been quicker
            (directory / "mindspore" / f"run_{number}").mkdir(parents=True)
            return number
        number += 1


def train(summary_dir: Path, work_dir: Path, seed: int = 1) -> None:
    """Trains in a process of its own, in a directory of its own, since MindSpore leaves files where it stands.

    Raises:
        QuickstartError: The training failed.
    """
    work_dir.mkdir(parents=True)
    log_path = work_dir / "training.log"
    # To files and not to pipes: MindSpore's writer processes inherit them, and would hold a pipe open.
    with log_path.open("wb") as log, (work_dir / "training.out").open("w+b") as out:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), str(summary_dir), "--seed", str(seed)],
            cwd=work_dir,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
        )
        said = 0
        deadline = time.monotonic() + TRAINING_LIMIT_SECS
        try:
            code = None
            while code is None and time.monotonic() < deadline:
                code = process.poll()
                text = os.pread(out.fileno(), 1 << 20, said)
                for line in text.splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        said += len(line)
                        print(f"   {line.decode(errors='replace').rstrip()}", flush=True)
                time.sleep(0.1)
        finally:
            stop_process(process)
    if code != 0:
        how = f"is not done after {TRAINING_LIMIT_SECS} s" if code is None else f"ended with exit code {code}"
        last = log_path.read_text(errors="replace").splitlines()[-15:]
        raise QuickstartError("\n".join([f"the training {how}; all it said is in {shown(log_path)}", *last]))


def bridge(*arguments: str | Path) -> None:
    """Shows and runs one of our commands.

    Raises:
        QuickstartError: It ended with another exit code than 0.
    """
    print(f"   $ {command_line('ms-summary-bridge', *arguments)}", flush=True)
    command = [sys.executable, "-m", "ms_summary_bridge", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    for line in done.stdout.splitlines():
        print(f"   {line.rstrip()}", flush=True)
    if done.returncode:
        raise QuickstartError(f"`{arguments[0]}` ended with exit code {done.returncode}, see above")


def read_series(directory: Path) -> Series:
    """Returns what MindSpore's files hold; of a value written twice for one step, one."""
    from ms_summary_bridge.archive import make_decoder
    from ms_summary_bridge.event_file import EventFileReader
    from ms_summary_bridge.events import Event, iter_points
    from ms_summary_bridge.formats import mindspore
    from ms_summary_bridge.logdir import discover

    series: Series = {}
    for run in discover(str(directory)).runs:
        for file in run.files:
            with EventFileReader(file.path, make_decoder(mindspore.FORMAT)) as reader:
                for item in reader:
                    for point in iter_points(item) if isinstance(item, Event) else ():
                        series.setdefault((point.value.kind, point.tag), {})[point.step] = point.value
    return series


class Asker:
    """Waits for series of one run to be complete, but for all of them together no longer than a minute."""

    def __init__(self, client: TensorBoardClient, run: str) -> None:
        self._client = client
        self._run = run
        self._deadline = time.monotonic() + READING_LIMIT_SECS

    def rows(self, plugin: str, tag: str, count: int, **query: int) -> list[Any]:
        """Returns the points of a series as soon as there are `count`, or those that are there in the end."""

        def ask() -> Any:
            if plugin == "histograms":
                return self._client.get_histograms(self._run, tag)
            return self._client.get_json(f"data/plugin/{plugin}/{plugin}", run=self._run, tag=tag, **query)

        last: list[Any] = []

        def is_whole(rows: list[Any]) -> bool:
            last[:] = rows
            return len(rows) >= count

        with contextlib.suppress(TensorBoardError):
            self._client.wait(ask, is_whole, timeout_secs=max(0.0, self._deadline - time.monotonic()))
        return last

    def image(self, query: str) -> bytes:
        """Returns the file of one image."""
        return self._client.get(f"data/plugin/images/individualImage?{query}")


# Each of these returns what TensorBoard shows and what it should show, both as (step, value) pairs.
Pairs = list[tuple[int, Any]]


def scalars(asker: Asker, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The float32 bits at each step."""
    rows = asker.rows("scalars", tag, len(values))
    return [(step, struct.pack("<f", float(value))) for _, step, value in rows], [
        (step, value.bits) for step, value in values.items()
    ]


def histograms(asker: Asker, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The edges and counts at each step."""
    rows = asker.rows("histograms", tag, len(values))
    return [(step, buckets) for _, step, buckets in rows], [
        (step, [list(bucket) for bucket in zip(v.left.tolist(), v.right.tolist(), v.count.tolist(), strict=True)])
        for step, v in values.items()
    ]


def images(asker: Asker, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The bytes of each PNG file."""
    rows = asker.rows("images", tag, len(values), sample=0)
    return [(row["step"], asker.image(row["query"])) for row in rows], [
        (step, value.encoded[0]) for step, value in values.items()
    ]


def tables(asker: Asker, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The shape, smallest and largest element that the table of each tensor tells."""
    told = {
        step: [" x ".join(map(str, v.array.shape)), f"{float(v.array.min()):.6g}", f"{float(v.array.max()):.6g}"]
        for step, v in values.items()
    }
    rows = asker.rows("text", tag, len(values))
    found = [
        (row["step"], [cell for cell in told.get(row["step"], ()) if f"<td>{cell}</td>" in row["text"]]) for row in rows
    ]
    return found, list(told.items())


CHECKS: dict[str, tuple[str, Callable[[Asker, str, dict[int, Any]], tuple[Pairs, Pairs]]]] = {
    "scalar": ("same float32 bits", scalars),
    "histogram": ("same edges and counts", histograms),
    "image": ("same PNG bytes", images),
    "tensor": ("table tells its shape and range", tables),
}


def check_loader(tensorboard_dir: Path, run: str, series: Series, log_path: Path, *, load_fast: bool) -> int:
    """Compares what one of TensorBoard's loaders shows, with a line for each series; returns how many are wrong."""
    wrong = 0
    loader = "fast" if load_fast else "slow"
    options = ("--samples_per_plugin", ALL_SAMPLES)
    with running_tensorboard(tensorboard_dir, log_path, load_fast=load_fast, options=options) as client:
        asker = Asker(client, run)
        for (kind, tag), values in sorted(series.items()):
            what, check = CHECKS[kind]
            found, wanted = check(asker, tag, values)
            differing = [step for step, value in wanted if (step, value) not in found]
            if found == wanted:
                line = f"ok     {loader}  {kind:<9}  {tag:<22}  {len(values):>4} x {what}"
            else:
                wrong += 1
                line = f"WRONG  {loader}  {kind:<9}  {tag:<22}  {len(found)} of {len(wanted)} are shown"
                line += f", other or no values at the steps {differing[:10]}" if differing else ", in another order"
            print(f"   {line}", flush=True)
    return wrong


def check_tensorboard(directory: Path, run: str) -> None:
    """Asks TensorBoard, with each of its loaders, for everything in a run.

    Raises:
        QuickstartError: Something is missing or differs.
    """
    series = read_series(directory / "mindspore" / run)
    missing = CHECKS.keys() - {kind for kind, _ in series}
    if missing:
        raise QuickstartError(f"the training recorded no {', '.join(sorted(missing))}: nothing to compare")
    wrong = 0
    for load_fast in (True, False):
        log_path = directory / "work" / run / f"tensorboard-{'fast' if load_fast else 'slow'}.log"
        try:
            wrong += check_loader(directory / "tensorboard", run, series, log_path, load_fast=load_fast)
        except (TensorBoardError, OSError) as error:
            raise QuickstartError(f"{error}\nwhat TensorBoard said is in {shown(log_path)}") from error
    if wrong:
        raise QuickstartError(f"TensorBoard does not show {wrong} of {2 * len(series)} series as MindSpore wrote them")
    print(f"   all {len(series)} series are there, in both loaders", flush=True)


def headings(is_check: bool) -> Iterator[str]:
    """Yields the heading of each step."""
    steps = ["train a small CNN on MindSpore", "convert to TensorBoard", "verify"]
    steps += ["ask the real TensorBoard"] if is_check else []
    for number, step in enumerate(steps, 1):
        yield f"\n{number}/{len(steps)} {step}"


def run_all(directory: Path, is_check: bool) -> None:
    """Does one step after the other.

    Raises:
        QuickstartError: One of them failed.
    """
    begun = time.monotonic()
    step = headings(is_check)
    mindspore_dir, tensorboard_dir = directory / "mindspore", directory / "tensorboard"
    print(next(step), flush=True)
    number = make_run(directory)
    run = f"run_{number}"
    train(mindspore_dir / run, directory / "work" / run, seed=number)
    print(next(step), flush=True)
    bridge("convert", mindspore_dir, tensorboard_dir)
    print(next(step), flush=True)
    bridge("verify", mindspore_dir / run, tensorboard_dir / run)
    if is_check:
        print(next(step), flush=True)
        check_tensorboard(directory, run)
    print(
        f"""
done in {time.monotonic() - begun:.0f} s

  MindSpore's files     {shown(mindspore_dir / run)}
  TensorBoard's files   {shown(tensorboard_dir / run)}

To look at it, run this and open http://localhost:6006 in a browser (Ctrl-C ends it):
  {command_line("tensorboard", "--logdir", tensorboard_dir)}

To convert a summary directory of your own (a second time, only what is new is added):
  {command_line("ms-summary-bridge", "convert")} SUMMARY_DIR TENSORBOARD_DIR"""
    )


def main() -> int:
    """Returns the exit code: 0, 1 if a step failed, 2 for wrong usage, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="tools/quickstart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="also ask the real TensorBoard whether all is there")
    parser.add_argument(
        "--directory", type=Path, default=ROOT / ".quickstart", metavar="DIR", help="work there instead of .quickstart"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that servers are stopped then, too
    directory = Path(os.environ.get("QUICKSTART_CALLED_FROM", "."), arguments.directory).resolve()
    try:
        run_all(directory, arguments.check)
    except QuickstartError as error:
        print(f"\nquickstart: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"\nquickstart: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nquickstart: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
