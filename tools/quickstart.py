"""Trains a small network with SummaryBridge, for TensorBoard and MindInsight, and says how to look at it.

What happens, in the directory .quickstart of this checkout:

  1. examples/train_with_summary_collector.py --callback bridge trains a CNN on pictures it draws itself. SummaryBridge,
     in the place of MindSpore's own SummaryCollector, records scalars, histograms, images, tensors, the graph and the
     lineage: in MindSpore's files, and live in a TensorBoard file beside them.
  2. `ms-summary-bridge verify` compares both, value for value.
  3. `ms-summary-bridge convert` makes TensorBoard files of MindSpore's files, as it does for directories that
     SummaryCollector wrote.
  4. `verify` compares these, too.

With --check, the real viewers are started on free ports of this machine and asked for what they show; every value must
be the one in MindSpore's file. The servers are stopped again:

  5. TensorBoard, with each of its two loaders, on the live file and on the converted one.
  6. MindInsight, in an environment of its own, on the directory of the trainings; and on a run written by tensorboardX
     and converted with `--to mindinsight`.

Each call adds a training with other numbers, run_1, run_2, ..., so that the viewers show them side by side.
`rm -r .quickstart` removes them all. The first call downloads MindSpore and TensorBoard, the first --check MindInsight;
after that it takes less than a minute, and with --check less than three.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tools.quickstart_check import (
    CHECKS,
    CheckError,
    Series,
    check_mindinsight,
    check_tensorboard,
    read_series,
    write_tensorboardx,
)
from tools.tensorboard_api import stop_process

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "train_with_summary_collector.py"
TRAINING_LIMIT_SECS = 600
MINDINSIGHT_SIZE = "about 100 MB to download and 500 MB of disk"


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


def mindinsight_programs() -> Path:
    """Returns where the programs of MindInsight's environment are, or will be."""
    return Path(os.environ.get("MSB_VENVS", ROOT / ".venvs")).resolve() / "mindinsight" / "bin"


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
            [sys.executable, str(EXAMPLE), str(summary_dir), "--callback", "bridge", "--seed", str(seed)],
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


def call_check(check: Callable[[], int], log_path: Path) -> int:
    """Returns how many series a viewer does not show as they should be.

    Raises:
        QuickstartError: It could not be asked.
    """
    try:
        return check()
    except CheckError as error:
        raise QuickstartError(f"{error}\nwhat it said itself is in {shown(log_path)}") from error


def ask_tensorboard(directory: Path, run: str, series: Series) -> None:
    """Asks TensorBoard, with each of its loaders, for the live file and for the converted one.

    Raises:
        QuickstartError: Something is missing or differs.
    """
    runs = {"live": f"mindspore/{run}", "converted": f"tensorboard/{run}"}
    wrong = 0
    for load_fast in (True, False):
        log_path = directory / "work" / run / f"tensorboard-{'fast' if load_fast else 'slow'}.log"
        check = partial(check_tensorboard, directory, runs, series, log_path, load_fast=load_fast)
        wrong += call_check(check, log_path)
    if wrong:
        raise QuickstartError(f"TensorBoard does not show {wrong} series as MindSpore wrote them")
    print(f"   all {len(series)} series are there, live and converted, in both loaders", flush=True)


def ask_mindinsight(directory: Path, run: str, series: Series) -> None:
    """Asks MindInsight for the training, and for a TensorBoard log converted to its format.

    Raises:
        QuickstartError: Something is missing or differs.
    """
    work_dir = directory / "work" / run
    if not mindinsight_programs().is_dir():
        print(f"   MindInsight gets an environment of its own, once: {MINDINSIGHT_SIZE}", flush=True)
    workspace = work_dir / "mindinsight-1"
    check = partial(check_mindinsight, directory / "mindspore", f"./{run}", series, workspace, "mindinsight")
    wrong = call_check(check, workspace)

    print("   and a run of tensorboardX, converted for MindInsight:", flush=True)
    source, target = work_dir / "tensorboardx", work_dir / "mindinsight"
    write_tensorboardx(source / "team" / "first")  # MindInsight lists one level, so the name becomes team+first
    bridge("convert", source, target, "--to", "mindinsight")
    bridge("verify", source, target)
    workspace = work_dir / "mindinsight-2"
    check = partial(check_mindinsight, target, "./team+first", read_series(source), workspace, "mindinsight/converted")
    wrong += call_check(check, workspace)
    if wrong:
        raise QuickstartError(f"MindInsight does not show {wrong} series as they are in the files")
    print("   all of them are there", flush=True)


def headings(is_check: bool) -> Iterator[str]:
    """Yields the heading of each step."""
    steps = [
        "train a small CNN on MindSpore, with SummaryBridge",
        "verify the live TensorBoard file against MindSpore's files",
        "convert MindSpore's files to TensorBoard, as for directories from before",
        "verify the conversion",
    ]
    steps += ["ask the real TensorBoard", "ask the real MindInsight"] if is_check else []
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
    bridge("verify", mindspore_dir / run, mindspore_dir / run)
    print(next(step), flush=True)
    bridge("convert", mindspore_dir, tensorboard_dir)
    print(next(step), flush=True)
    bridge("verify", mindspore_dir / run, tensorboard_dir / run)
    if is_check:
        series = read_series(mindspore_dir / run)
        missing = CHECKS.keys() - {kind for kind, _ in series}
        if missing:
            raise QuickstartError(f"the training recorded no {', '.join(sorted(missing))}: nothing to compare")
        print(next(step), flush=True)
        ask_tensorboard(directory, run, series)
        print(next(step), flush=True)
        ask_mindinsight(directory, run, series)
    mindinsight = f"PATH={shlex.quote(str(mindinsight_programs()))}:$PATH mindinsight"
    print(
        f"""
done in {time.monotonic() - begun:.0f} s

  MindSpore's files, the live TensorBoard file beside them   {shown(mindspore_dir / run)}
  TensorBoard files that convert made                        {shown(tensorboard_dir / run)}

TensorBoard, live or converted: run one of these, open http://localhost:6006 in a browser (Ctrl-C ends it):
  {command_line("tensorboard", "--logdir", mindspore_dir)}
  {command_line("tensorboard", "--logdir", tensorboard_dir)}

MindInsight, in an environment of its own, at http://localhost:8080:
  {shown(ROOT / "tools" / "environment")} mindinsight
  {mindinsight} start --summary-base-dir {shown(mindspore_dir)}
  {mindinsight} stop

To record your own training, put SummaryBridge in the place of SummaryCollector, as in
  {shown(EXAMPLE)}
To convert a summary directory from before (a second time, only what is new is added):
  {command_line("ms-summary-bridge", "convert")} SUMMARY_DIR TENSORBOARD_DIR"""
    )


def main() -> int:
    """Returns the exit code: 0, 1 if a step failed, 2 for wrong usage, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="tools/quickstart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="also ask the real TensorBoard and MindInsight whether all is there"
    )
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
