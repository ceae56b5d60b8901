"""TensorBoard's data server, which reads event files in place of TensorBoard where it is installed.

It is another program, in another language, with rules of its own: asked over gRPC as TensorBoard asks it, it must show
the scalars that are in a file.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_EACH_SECS = 1
_MOST_SECS = 30.0
_ALL = 1 << 30

Series = dict[tuple[str, str], list[tuple[int, float, bytes]]]
"""By run and tag: step, wall_time in seconds, and the float32."""


def is_installed() -> bool:
    """Whether this TensorBoard has a data server for this system."""
    if any(importlib.util.find_spec(name) is None for name in ("tensorboard", "tensorboard_data_server", "grpc")):
        return False
    import tensorboard_data_server

    return tensorboard_data_server.server_binary() is not None


class DataServer:
    """One data server and the directory that it looks at."""

    def __init__(self, place: str) -> None:
        from tensorboard.data.server_ingester import SubprocessServerDataIngester, get_server_binary
        from tensorboard.util.grpc_util import ChannelCredsType

        self._place = Path(tempfile.mkdtemp(prefix="data_server.", dir=place))
        self._directory = self._place / "logs"
        self._directory.mkdir()
        self._number = 0
        self._server: Any = SubprocessServerDataIngester(
            get_server_binary(),
            str(self._directory),
            reload_interval=_EACH_SECS,
            channel_creds_type=ChannelCredsType.LOCAL,
            samples_per_plugin={"scalars": 0},
        )
        self._server.start()

    def check(self, output: str) -> int:
        """Asserts that the server shows every scalar of the event files below a directory, and no other.

        Returns:
            How many points there are.
        """
        self._number += 1
        name = f"output{self._number}"
        shutil.copytree(output, self._place / name)
        expected = {
            (f"{name}/{run}".removesuffix("/."), tag): points for (run, tag), points in scalars_of(output).items()
        }
        os.rename(self._place / name, self._directory / name)  # so that the server never sees a half of it
        until = time.monotonic() + _MOST_SECS
        while (shown := self._read(name)) != expected and time.monotonic() < until:
            time.sleep(0.1)
        for key in {*expected, *shown}:
            assert shown.get(key) == expected.get(key), f"the data server shows other points of {key}"
        shutil.rmtree(self._directory / name)
        return sum(map(len, expected.values()))

    def _read(self, name: str) -> Series:
        from tensorboard.context import RequestContext

        provider, context = self._server.data_provider, RequestContext()
        found: Series = {}
        asked = {"experiment_id": "", "plugin_name": "scalars"}
        for run, series in provider.read_scalars(context, **asked, downsample=_ALL).items():
            if run == name or run.startswith(f"{name}/"):
                for tag, points in series.items():
                    found[run, tag] = [(point.step, point.wall_time, _bits(point.value)) for point in points]
        return found


def scalars_of(output: str) -> Series:
    """Returns what a reader of event files that begins anew at each smaller step shows of their scalars."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    found: Series = {}
    for directory, _, names in os.walk(output):
        plugins: dict[str, str] = {}
        for name in sorted(name for name in names if "tfevents" in name):
            for event in EventFileLoader(os.path.join(directory, name)).Load():
                for value in event.summary.value if event.WhichOneof("what") == "summary" else ():
                    if plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name) != "scalars":
                        continue
                    points = found.setdefault((os.path.relpath(directory, output), value.tag), [])
                    while points and points[-1][0] >= event.step:
                        points.pop()
                    points.append((event.step, event.wall_time, _bits(float(make_ndarray(value.tensor)))))
    return found


def _bits(number: float) -> bytes:
    return struct.pack("<f", number) if not math.isnan(number) else b"nan"


def main() -> None:
    """Asks the data server for the event files below each of the directories; prints how many points it shows."""
    with tempfile.TemporaryDirectory() as place:
        server = DataServer(place)
        for directory in sys.argv[1:]:
            print(server.check(directory), flush=True)
    os._exit(0)  # which ends the server: its standard input ends


if __name__ == "__main__":
    main()
