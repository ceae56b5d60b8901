"""The clients of programs that record experiments, each behind the same four calls. Runs in `tracker_process`.

Every client is told to begin a new run beside all others, in a place of this rank's alone unless the environment names
another, and to send nothing anywhere unless the environment says so. No client may ask for anything: there is no
terminal. Names that a client refuses are fitted, and that is said.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from ms_summary_bridge.errors import BridgeError

__all__ = ["Client", "make_client"]

_TEXT: Final = 5000


class Client(Protocol):
    """One run. Each method may raise whatever its package raises."""

    def log(self, values: Mapping[str, float], step: int, wall_time: float) -> None:
        """Records numbers."""

    def tell(self, kind: str, title: str, text: str, step: int) -> None:
        """Records a warning or an alarm."""

    def finish(self, reason: str) -> None:
        """Ends the run; with a reason it has failed."""


def make_client(about: Mapping[str, Any], say: Callable[[str], None]) -> Client:
    """Begins a run; `about` is what `TrackerSink` says of it, and `say` takes what the user should know.

    Raises:
        BridgeError: It is switched off.
        ImportError: The package is not there.
    """
    return _CLIENTS[about["package"]](about, say)


class _Swanlab:
    """Source: swanlab/sdk/cmd/init.py and internal/pkg/constraints of swanlab 0.10.3."""

    def __init__(self, about: Mapping[str, Any], say: Callable[[str], None]) -> None:
        mode = os.environ.get("SWANLAB_MODE") or "offline"
        if mode == "disabled":
            raise BridgeError("is switched off (SWANLAB_MODE is disabled): nothing is recorded there")
        swanlab = importlib.import_module("swanlab")
        nothing = dict.fromkeys(("hardware", "runtime", "requirements", "git", "swanlab", "monitor"), False)
        self._key = _Names("metric", r"[\x00-\x1f\x7f]|^[\s./]+|[\s./]+$", 512, say)
        self._run = swanlab.init(
            project=_Names("project", r"[^0-9A-Za-z_\-+.]", 100, say)(about["project"]),
            name=_plain(about["name"])[:512],
            group=_plain(about["group"])[:512],
            mode=mode,
            log_dir=os.environ.get("SWANLAB_LOG_DIR") or about["directory"],
            config=_plain({"tags": about["tags"], "monitor": about["monitor"]}),
            settings=swanlab.Settings(interactive=False, terminal={"proxy_type": "none"}, probe=nothing),
        )

    def log(self, values: Mapping[str, float], step: int, wall_time: float) -> None:
        self._run.log({self._key(name): value for name, value in values.items()}, step=step)

    def tell(self, kind: str, title: str, text: str, step: int) -> None:
        self._run.log_text(key=f"monitor/{kind}", data=_plain(f"{title}: {text}"), step=step)

    def finish(self, reason: str) -> None:
        self._run.finish(**({"state": "crashed", "error": _plain(reason)} if reason else {}))


class _Mlflow:
    """Source: mlflow/tracking/client.py and mlflow/utils/validation.py of mlflow 3.17."""

    def __init__(self, about: Mapping[str, Any], say: Callable[[str], None]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        mlflow = importlib.import_module("mlflow")
        self._entities = importlib.import_module("mlflow.entities")
        self._key = _Names("metric", r"[^\w\-. :/]|^[./]+|/$|(?<=/)\.*/|\.\.", 250, say)
        store = os.environ.get("MLFLOW_TRACKING_URI")
        artifacts = None
        if not store:
            os.makedirs(about["directory"], exist_ok=True)
            os.chdir(about["directory"])  # a path may hold what means something in the address of a database
            store, artifacts = "sqlite:///mlflow.db", pathlib.Path(about["directory"], "artifacts").as_uri()
        self._client = mlflow.MlflowClient(tracking_uri=store)
        project = _plain(about["project"])
        run = self._client.create_run(
            self._experiment(project, artifacts),
            run_name=_plain(about["name"])[:250],
            tags={"group": _plain(about["group"])[:_TEXT]},
        )
        self._id = run.info.run_id
        self._told = 0
        params = [
            self._entities.Param(self._key(name), _plain(str(value))[:_TEXT]) for name, value in about["tags"].items()
        ]
        for start in range(0, len(params), 100):
            self._client.log_batch(self._id, params=params[start : start + 100])
        versions = {f"version.{name}": str(version) for name, version in about["monitor"].get("versions", {}).items()}
        for name, value in versions.items():
            self._client.set_tag(self._id, self._key(name), _plain(value)[:_TEXT])

    def _experiment(self, name: str, artifacts: str | None) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name, artifacts))
            except Exception:
                found = self._client.get_experiment_by_name(name)  # another rank was faster
                if found is None:
                    raise
        return str(found.experiment_id)

    def log(self, values: Mapping[str, float], step: int, wall_time: float) -> None:
        moment = int(wall_time * 1000)
        metrics = [self._entities.Metric(self._key(name), float(values[name]), moment, step) for name in values]
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self._id, metrics=metrics[start : start + 1000])

    def tell(self, kind: str, title: str, text: str, step: int) -> None:
        self._told += 1
        key = self._key(f"{kind}.{self._told:04d}.step_{step}.{title}")
        self._client.set_tag(self._id, key, _plain(text)[:_TEXT])

    def finish(self, reason: str) -> None:
        if reason:
            self._client.set_tag(self._id, "end.reason", _plain(reason)[:_TEXT])
        self._client.set_terminated(self._id, status="FAILED" if reason else "FINISHED")


class _Trackio:
    """Source: trackio/__init__.py and trackio/run.py of trackio 0.43. It raises nothing; what it warns of is said."""

    def __init__(self, about: Mapping[str, Any], say: Callable[[str], None]) -> None:
        os.environ.setdefault("TRACKIO_DIR", about["directory"])  # read at its import
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        trackio = importlib.import_module("trackio")
        self._level = trackio.AlertLevel
        shown = warnings.showwarning

        def pass_on(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if category is UserWarning:
                say(f"says: {message}")
            shown(message, category, *rest)

        warnings.showwarning = pass_on  # type: ignore[assignment]
        self._run = trackio.init(
            project=_plain(about["project"]),
            name=_plain(about["name"]),
            group=_plain(about["group"]),
            config=_plain({"tags": about["tags"], "monitor": about["monitor"]}),
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, values: Mapping[str, float], step: int, wall_time: float) -> None:
        # It would rename what it calls by this name itself, at each call.
        self._run.log({_plain(name): value for name, value in values.items() if name != "step"}, step=step)

    def tell(self, kind: str, title: str, text: str, step: int) -> None:
        level = self._level.ERROR if kind == "alert" else self._level.WARN
        self._run.alert(title=_plain(title), text=_plain(text), level=level, step=step)

    def finish(self, reason: str) -> None:
        if reason:
            self._run.alert(title="end", text=_plain(reason), level=self._level.ERROR)
        self._run.finish()


_CLIENTS: Final[dict[str, Callable[[Mapping[str, Any], Callable[[str], None]], Client]]] = {
    "swanlab": _Swanlab,
    "mlflow": _Mlflow,
    "trackio": _Trackio,
}


def _plain(value: Any) -> Any:
    """Returns a value whose texts are UTF-8: a file name may hold other bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


class _Names:
    """Names that a client takes: what it refuses becomes `-`, and each name stays that of one thing."""

    def __init__(self, what: str, refused: str, most: int, say: Callable[[str], None]) -> None:
        self._what, self._refused, self._most, self._say = what, refused, most, say
        self._fitted: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        if name not in self._fitted:
            fitted = base = re.sub(self._refused, "-", _plain(name))[: self._most] or "-"
            number = 1
            while fitted in self._fitted.values():
                number += 1
                fitted = f"{base[: self._most - 10]}-{number}"
            if fitted != name:
                self._say(f"takes no {self._what} of the name {name!r}: it is {fitted!r} there")
            self._fitted[name] = fitted
        return self._fitted[name]
