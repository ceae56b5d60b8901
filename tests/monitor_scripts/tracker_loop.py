"""Records a training loop with a Monitor on a tracker, and reads back what the tracker's own package finds there.

Usage: python tests/monitor_scripts/tracker_loop.py SAVE_DIR PACKAGE [own | killed]

With `own` there is a run of the loop's own in this process, with one value before the monitor and one after it. With
`killed` the loop ends by SIGKILL, and says nothing: another call with `read` reads then. The last line on stdout is
JSON, a list of runs: what each is called, what it is about, its history, its alarms, and how it ended.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from ms_summary_bridge.monitor import Monitor

LOSSES: Final = (2.5, 3.5, float("nan"), 1.5)
PROJECT: Final = "offline"


def train(save_dir: str, package: str, *, is_killed: bool = False) -> None:
    section = {
        "interval": 0,
        "backend": package,
        "project": os.environ.get("LOOP_PROJECT", PROJECT),
        "run_id": os.environ.get("LOOP_RUN", "run"),
        "save_dir": save_dir,
        "metrics": ["loss", "lr"],
        "tags": {"dataset": "v3", "layers": 12, "odd tag?/ä\n": "a\tb"},
        "callback": {"params": {"warn_on_value": {"loss": 3.0}}},
    }
    with Monitor(section) as monitor:
        for step, loss in enumerate(LOSSES, 1):
            monitor.step(loss=loss, lr=0.1 / 2 ** (step - 1), accuracy=step / 4)
        if is_killed:
            deadline = time.monotonic() + 60
            log = next(Path(save_dir).glob(f"*/*/rank_0/{package}.log"), None)
            while time.monotonic() < deadline and (log is None or time.monotonic() < deadline - 58):
                log = next(Path(save_dir).glob(f"*/*/rank_0/{package}.log"), None)
                time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)


def text(value: float) -> str:
    """NaN and the infinities are not JSON."""
    return f"{value:g}" if math.isfinite(value) else str(value)


class Own:
    """A run of the user's own, as the package's examples begin one."""

    def __init__(self, package: str, save_dir: str) -> None:
        self.package = package
        place = Path(save_dir, "own")
        if package == "swanlab":
            import swanlab

            self.run: Any = swanlab.init(project="own", mode="offline", log_dir=str(place))
        elif package == "mlflow":
            import mlflow

            place.mkdir()
            mlflow.set_tracking_uri(f"sqlite:///{place}/mlflow.db")
            mlflow.set_experiment("own")
            self.run = mlflow.start_run()
        else:
            import trackio

            self.run = trackio.init(project="own", embed=False, auto_log_gpu=False, auto_log_cpu=False)

    def log(self, value: int) -> None:
        if self.package == "mlflow":
            import mlflow

            active = mlflow.active_run()
            assert active is not None
            assert active.info.run_id == self.run.info.run_id
            mlflow.log_metric("mine", value, step=value)
        elif self.package == "swanlab":
            import swanlab

            assert swanlab.get_run() is self.run
            swanlab.log({"mine": value}, step=value)
        else:
            import trackio

            assert trackio.context_vars.current_run.get() is self.run
            trackio.log({"mine": value})

    def finish(self) -> None:
        __import__(self.package).__dict__["end_run" if self.package == "mlflow" else "finish"]()


def read_swanlab(directory: Path) -> list[dict[str, Any]]:
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    runs = []
    for path in sorted(directory.glob("**/*.swanlab")):
        found: dict[str, Any] = {"values": {}, "alarms": []}
        reader = DataStoreReader()
        reader.open(path)
        for data in reader:
            record = Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "start":
                found |= {"project": record.start.project, "name": record.start.name, "group": record.start.group}
            elif kind == "scalar":
                value = record.scalar.value
                found["values"].setdefault(str(record.scalar.step or record.step), {})[record.scalar.key] = text(
                    getattr(value, "number", value)
                )
            elif kind == "finish":
                found["ended"] = str(record.finish.state)
        found["config"] = (path.parent / "files" / "config.yaml").read_text()
        found["alarms"] = [file.read_text() for file in sorted(path.parent.glob("media/text/*"))]
        runs.append(found)
    return runs


def read_mlflow(directory: Path) -> list[dict[str, Any]]:
    from mlflow import MlflowClient

    runs = []
    for path in sorted(directory.glob("**/mlflow.db")):
        os.chdir(path.parent)
        client = MlflowClient(tracking_uri="sqlite:///mlflow.db")
        for experiment in client.search_experiments():
            for run in client.search_runs([experiment.experiment_id]):
                values: dict[str, dict[str, str]] = {}
                for key in run.data.metrics:
                    for metric in client.get_metric_history(run.info.run_id, key):
                        values.setdefault(str(metric.step), {})[key] = text(metric.value)
                tags = run.data.tags
                runs.append(
                    {
                        "project": experiment.name,
                        "name": run.info.run_name,
                        "group": tags.get("group"),
                        "values": values,
                        "config": json.dumps(run.data.params, ensure_ascii=False),
                        "alarms": [tags[key] for key in sorted(tags) if key.startswith(("warning.", "alert."))],
                        "ended": run.info.status,
                    }
                )
    return runs


def read_trackio(directory: Path) -> list[dict[str, Any]]:
    place = next(directory.glob("*/*/rank_0/trackio"), None)
    if place is not None:
        os.environ["TRACKIO_DIR"] = str(place)
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    runs = []
    for project in SQLiteStorage.get_projects():
        for run in trackio.Api().runs(project):
            values: dict[str, dict[str, str]] = {}
            for row in SQLiteStorage.get_logs(project, run.name):
                numbers = {key: text(float(row[key])) for key in row if key not in ("step", "timestamp")}
                values.setdefault(str(row["step"]), {}).update(numbers)
            alarms = sorted(run.alerts(), key=lambda alert: (alert["step"], alert["title"]))
            config = run.config or {}
            runs.append(
                {
                    "project": project,
                    "name": run.name,
                    "group": config.get("_Group"),
                    "values": values,
                    "config": json.dumps(config, ensure_ascii=False),
                    "alarms": [f"{alert['title']}: {alert['text']}" for alert in alarms],
                }
            )
    return runs


READ: Final = {"swanlab": read_swanlab, "mlflow": read_mlflow, "trackio": read_trackio}


def main() -> None:
    save_dir, package, *how = sys.argv[1:]
    if how != ["read"]:
        own = Own(package, save_dir) if how == ["own"] else None
        if own is not None:
            own.log(1)
        train(save_dir, package, is_killed=how == ["killed"])
        if own is not None:
            own.log(2)
            own.finish()
        with contextlib.suppress(ChildProcessError):  # what a slow client does yet when the training has ended
            while True:
                os.wait()
    sys.stdout.flush()
    print(json.dumps(READ[package](Path(save_dir))))


if __name__ == "__main__":
    main()
