"""A run of Weights & Biases: never asks anybody to log in, never touches a run of the user's own.

Imports wandb only when it opens.
"""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any, Final

from ms_summary_bridge.errors import BridgeError, MissingDependencyError
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.tracker_sink import KEPT_HERE
from ms_summary_bridge.monitor.sinks.writer import Sink
from ms_summary_bridge.training.facts import TrainingFacts

__all__ = ["WandbSink"]

_FINISH_SECS: Final = 8.0  # less than is waited for this sink


class WandbSink(Sink):
    """A run of Weights & Biases. `WANDB_MODE=offline` keeps it on this machine.

    The name of the run's directory is the run's, and the offline files go into it.
    """

    def __init__(
        self, config: MonitorConfig, training: TrainingFacts, run_directory: str, record: dict[str, Any]
    ) -> None:
        self._config = config
        self._training = training
        self._run_directory = run_directory
        self._record = record
        self._run: Any = None

    def open(self) -> None:
        """Begins the run. It may take a while where the network is slow.

        Raises:
            BridgeError: Nothing would be recorded: nobody is logged in, or the package is switched off.
            MissingDependencyError: The package is too old for two runs in one process.
        """
        wandb = importlib.import_module("wandb")
        name = os.path.basename(self._run_directory)
        os.makedirs(self._run_directory, exist_ok=True)
        self._run = wandb.init(
            project=self._config.project,
            name=name if self._training.ranks == 1 else f"{name}-rank-{self._training.rank}",
            group=name,
            dir=self._run_directory,
            config={
                "tags": dict(self._config.tags),
                "monitor": {key: value for key, value in self._record.items() if key not in KEPT_HERE},
            },
            mode=_require_mode(wandb),
            **_options(wandb),
        )

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""
        self._run.log(dict(sample.values), step=sample.step)

    def write_note(self, note: Note) -> None:
        """Takes warnings and alarms; the rest is in the summary."""
        if note.kind in ("warning", "alert"):
            about = note.fields.get("rule") or note.fields.get("metric", "warning")
            self._run.alert(title=f"{self._config.project}: {about}", text=note.text)

    def close(self) -> None:
        """Ends the run. With `finish_timeout`, what takes longer to upload waits for `wandb sync`."""
        self._run.finish()


def _require_mode(wandb: Any) -> str:
    """Returns the mode of the run: that of the user's own where there is one.

    Without a login `wandb.init` asks for one on a terminal, without limit, and then may hand out a run that swallows
    everything.
    """
    own = wandb.run
    mode = str((wandb.setup() if own is None else own).settings.mode)
    if mode == "disabled":
        raise BridgeError("Weights & Biases is switched off (mode 'disabled'): nothing is recorded there")
    if own is None and mode not in ("offline", "dryrun"):
        # Before there was `prompt`, a limit ends the question; where there is no terminal, `login` raises then.
        can_be_silent = "prompt" in inspect.signature(wandb.login).parameters
        if not (wandb.login(prompt=False) if can_be_silent else wandb.login(timeout=1)):
            raise BridgeError("not logged in: `wandb login`, or WANDB_MODE=offline")
    return mode


def _options(wandb: Any) -> dict[str, Any]:
    """Returns what keeps the run apart from others of this process, and its end short, where the package can do it."""
    options: dict[str, Any] = {}
    if "create_new" in str(inspect.signature(wandb.init).parameters["reinit"].annotation):
        options["reinit"] = "create_new"
    elif wandb.run is not None:
        raise MissingDependencyError(
            f"wandb {wandb.__version__} cannot have a run beside the one that is active here: pip install -U wandb"
        )
    if "finish_timeout" in getattr(wandb.Settings, "model_fields", {}):
        options["settings"] = {"finish_timeout": _FINISH_SECS}
    return options
