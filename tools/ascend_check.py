"""Runs the callback, the monitor and each device metric where they were never run by us, and leaves one report.

The report is a file of JSON without names of hosts, users and paths: whoever has an NPU can read and send it.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NPU_METRICS = ("npu_utilization", "npu_memory", "npu_power", "temperature")
METRICS = ("loss", "lr", "step_time", "data_time", "samples_per_second", "memory_usage", "host_memory", *NPU_METRICS)
PACKAGES = ("mindspore", "numpy", "protobuf", "tensorboardX", "msgspec")
START_SECS = 900.0  # for MindSpore's start, the compiler and, with several NPUs, the connection between them
CANN = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/latest", "/usr/local/Ascend/cann")
SHOWN_LINES = 60


def main(arguments: list[str] | None = None) -> int:
    """Runs the check; returns 0 where all that was tried worked."""
    parser = argparse.ArgumentParser(
        prog="tools/ascend_check",
        description="Trains a small network with SummaryBridge and the monitor, asks for each figure of the "
        "device and writes one report without names of hosts, users and paths. Without an NPU it says so.",
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to train (default: 600)")
    parser.add_argument("--npus", type=int, default=1, help="on how many NPUs of this host, 1 or 8 (default: 1)")
    parser.add_argument("--report", default="ascend_check.json", help="where to write the report")
    parser.add_argument("--train-in", metavar="DIR", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.train_in:
        return train(given.train_in, given.seconds)
    if given.seconds <= 0 or given.npus < 1:
        parser.error("--seconds and --npus must be above 0")
    report = check(given.seconds, given.npus)
    report = Names().clean(report)
    with open(given.report, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    for line in summarise(report):
        print(line)
    print(f"report: {given.report} (read it, then send it: it has no name of a host, a user or a path)")
    return 0 if report["ok"] else 1


# ------------------------------------------------------------------ the training, in a process of its own


def train(directory: str, seconds: float) -> int:
    """Trains until the time is over, with everything of ours around it."""
    import mindspore
    import numpy as np
    from mindspore import nn
    from mindspore.dataset import NumpySlicesDataset
    from mindspore.train import Callback, Model

    from ms_summary_bridge import SummaryBridge
    from ms_summary_bridge.monitor import build_monitor_callbacks

    has_npu = find_device(mindspore) == "Ascend"
    mindspore.set_device("Ascend" if has_npu else "CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    several = int(os.environ.get("RANK_SIZE") or os.environ.get("MS_WORKER_NUM") or 1) > 1
    if several:
        from mindspore.communication import init

        init()
        mindspore.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)

    class UntilTime(Callback):  # type: ignore[misc]
        """Asks for the end at the same step on all ranks: each counts the same steps after the first ones."""

        def on_train_begin(self, run_context: Any) -> None:
            self.began = time.monotonic()

        def on_train_step_end(self, run_context: Any) -> None:
            if not several and time.monotonic() - self.began > seconds:
                run_context.request_stop()
            if several:
                time.sleep(0.05)

    rows = np.linspace(-1, 1, 64 * 16, dtype=np.float32).reshape(-1, 16)
    columns = {"data": rows, "label": rows.sum(axis=1, keepdims=True)}
    dataset = NumpySlicesDataset(columns, shuffle=False).batch(8)
    network = nn.SequentialCell(nn.Dense(16, 64), nn.ReLU(), nn.Dense(64, 1))
    model = Model(network, nn.MSELoss(), nn.Adam(network.trainable_params(), learning_rate=0.001))
    section = {
        "save_dir": f"{directory}/monitor",
        "run_id": "check",
        "backend": ["local"],  # the callback beside it writes for both viewers
        "interval": min(5.0, seconds / 5),
        "metrics": list(METRICS),
        "global_batch_size": 8,
        "watchdog": {"floor": 600},
    }
    callbacks = [SummaryBridge(f"{directory}/summary", collect_freq=10), *build_monitor_callbacks(section), UntilTime()]
    epochs = max(1, int(seconds / 0.05 / 8)) if several else 10**6
    model.train(epochs, dataset, callbacks=callbacks, dataset_sink_mode=False)
    (Path(directory) / f"device-{os.environ.get('RANK_ID', '0')}.txt").write_text(
        mindspore.get_context("device_target")
    )
    return 0


def find_device(mindspore: Any) -> str:
    """Returns `Ascend` where this MindSpore has one that answers, else `CPU`."""
    with contextlib.suppress(Exception):
        if mindspore.device_context.ascend.is_available():
            return "Ascend"
    return "CPU"


# ------------------------------------------------------------------ around it


def check(seconds: float, npus: int) -> dict[str, Any]:
    """Runs the training and collects what came of it."""
    report: dict[str, Any] = {
        "format": 1,
        "seconds": seconds,
        "npus": npus,
        "machine": platform.machine(),
        "system": platform.system(),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "versions": versions(),
        "cann": cann_version(),
        "npu_smi": npu_smi(),
    }
    with tempfile.TemporaryDirectory(prefix="ascend-check-", ignore_cleanup_errors=True) as scratch:
        report["training"] = run_training(scratch, seconds, npus)
        devices = sorted({path.read_text() for path in Path(scratch).glob("device-*.txt")})
        report["device"] = devices[0] if len(devices) == 1 else ", ".join(devices)
        report["metrics"] = read_metrics(Path(scratch, "monitor"))
        report["files"] = check_files(scratch)
    report["npu_found"] = report["device"] == "Ascend"
    report["ok"] = report["training"]["exit_code"] == 0 and not report["files"]["problems"]
    if report["npu_found"]:
        report["ok"] = report["ok"] and all(report["metrics"].get(name, {}).get("samples") for name in NPU_METRICS)
    return report


def versions() -> dict[str, str]:
    """Returns the versions of what takes part."""
    from ms_summary_bridge._version import __version__

    found = {"ms_summary_bridge": __version__}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def cann_version() -> str:
    """Returns CANN's version by its own file; empty where there is none."""
    home = os.environ.get("ASCEND_HOME_PATH") or os.environ.get("ASCEND_TOOLKIT_HOME")
    for place in filter(None, (home, *CANN)):
        for path in (*sorted(Path(place).glob("*-linux/ascend_toolkit_install.info")), Path(place, "version.cfg")):
            with contextlib.suppress(OSError):
                if match := re.search(
                    r"(?m)^\s*(?:version|toolkit_installed_version)\s*=\s*\[?([\w.:]+)", path.read_text()
                ):
                    return match[1]
    return ""


def npu_smi() -> dict[str, Any]:
    """Returns what npu-smi says of its version and of the chips, without their addresses."""
    from ms_summary_bridge.monitor.metrics.npu_smi import parse_table

    try:
        done = subprocess.run(["npu-smi", "info"], capture_output=True, text=True, timeout=60, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"found": False, "problem": type(error).__name__, "chips": 0}
    version = re.search(r"npu-smi\s+(\S+)", done.stdout)
    names = re.findall(r"(?m)^\|\s*\d+\s+(\S+)\s*\|\s*(?:OK|Warning|Alarm|Critical|UNKNOWN)\b", done.stdout)
    return {
        "found": done.returncode == 0,
        "version": version[1] if version else "",
        "models": sorted(set(names)),
        "chips": len(parse_table(done.stdout)),
    }


def run_training(directory: str, seconds: float, npus: int) -> dict[str, Any]:
    """Runs the training to its end; returns its exit code and its last lines."""
    script = [str(Path(__file__).resolve()), "--train-in", directory, "--seconds", str(seconds)]
    program = [sys.executable, *script]
    if npus > 1:
        msrun = shutil.which("msrun") or str(Path(sys.executable).parent / "msrun")
        counts = [f"--worker_num={npus}", f"--local_worker_num={npus}", f"--master_port={free_port()}", "--join=True"]
        program = [msrun, *counts, f"--log_dir={directory}/logs", *script]
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))  # msrun asks for `python`
    modules = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PATH": paths, "PYTHONPATH": modules}
    began = time.monotonic()
    log = Path(directory, "said.txt")
    code: int | None = None
    with log.open("wb") as said:
        process = subprocess.Popen(
            program,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=seconds + START_SECS)
        finally:
            with contextlib.suppress(ProcessLookupError):  # also of what it has started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    texts = [log, *sorted(Path(directory, "logs").glob("*.log"))] if npus > 1 else [log]
    lines = [line for path in texts for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return {"exit_code": code, "secs": round(time.monotonic() - began, 1), "last_lines": lines[-SHOWN_LINES:]}


def free_port() -> int:
    """Returns a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def read_metrics(directory: Path) -> dict[str, dict[str, Any]]:
    """Returns for each metric how many samples all ranks have, and between which numbers they lie."""
    from ms_summary_bridge.monitor.sinks.journal import json_lines

    found: dict[str, list[float]] = {name: [] for name in METRICS}
    for path in directory.rglob("rank_*/metrics.jsonl"):
        for line in json_lines(path.read_bytes().splitlines()):
            if line.get("kind") == "sample":
                for name, value in line["values"].items():
                    if isinstance(value, (int, float)):
                        found.setdefault(name, []).append(float(value))
    return {
        name: {"samples": len(values), "min": min(values, default=None), "max": max(values, default=None)}
        for name, values in found.items()
    }


def check_files(directory: str) -> dict[str, Any]:
    """Returns whether the callback's two files say the same, and whether anything of them is damaged."""
    from ms_summary_bridge.convert.verify import verify_logdirs
    from ms_summary_bridge.errors import BridgeError

    summary = Path(directory, "summary")
    found: dict[str, Any] = {"runs": 0, "points": 0, "problems": []}
    try:
        result = verify_logdirs(str(summary), str(summary))
    except BridgeError as error:
        found["problems"].append(str(error))
        return found
    found |= {"runs": len(result.runs), "points": sum(run.points for run in result.runs)}
    if not result.is_equal:
        found["problems"].append("MindSpore's and TensorBoard's file are not equal")
    found["problems"] += [f"damaged: {each.reason}" for each in result.damaged]
    return found


class Names:
    """Takes names of hosts, users and paths, and addresses, out of a report."""

    _PATH = re.compile(
        r"(?<![\w.<])(?:~|[A-Za-z]:)?(?:/[\w.+@%~\-]+){2,}/?|(?<![\w.<])/(?:home|root|tmp|opt|usr)\b[\w./\-]*"
    )
    _ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?!\.\d)|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)

    def __init__(self) -> None:
        words = {platform.node(), platform.node().split(".")[0], os.environ.get("HOSTNAME", ""), Path.home().name}
        with contextlib.suppress(KeyError, OSError):
            words.add(getpass.getuser())
        long = sorted((word for word in words if len(word) > 1), key=len, reverse=True)
        self._words = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in long) or r"(?!)")

    def clean(self, value: Any) -> Any:
        """Returns it without them, in keys too."""
        if isinstance(value, dict):
            return {self.clean(key): self.clean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.clean(inner) for inner in value]
        if isinstance(value, str):
            return self._words.sub("<name>", self._ADDRESS.sub("<address>", self._PATH.sub("<path>", value)))
        return value


def summarise(report: dict[str, Any]) -> Iterator[str]:
    """Yields what came of it, for people."""
    if report["npu_found"]:
        models = ", ".join(report["npu_smi"].get("models", [])) or "unknown model"
        yield f"trained on {report['npus']} NPU(s) ({models}), CANN {report['cann'] or 'of unknown version'}"
    else:
        yield "no NPU was found: trained on the CPU, so nothing here says anything of Ascend"
        if report["npu_smi"]["chips"]:
            yield f"npu-smi lists {report['npu_smi']['chips']} chips, but this MindSpore does not train on them"
    for name in METRICS:
        metric = report["metrics"].get(name, {"samples": 0})
        values = f"{metric['min']:g} to {metric['max']:g}" if metric["samples"] else "no number came"
        yield f"  {name:<20} {metric['samples']:>6} samples  {values}"
    files = report["files"]
    yield (
        f"  the callback's files: {files['points']:,} points in {files['runs']} run(s), both formats the same"
        if (not files["problems"])
        else f"  the callback's files: {'; '.join(files['problems'])}"
    )
    if report["training"]["exit_code"] != 0:
        yield f"the training ended with {report['training']['exit_code']}: its last lines are in the report"
    yield "all that was tried works" if report["ok"] else "something does not work: the report has more"


if __name__ == "__main__":
    sys.exit(main())
