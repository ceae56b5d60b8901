"""The dashboard "MindSpore": its page, and the data that the page asks for.

TensorBoard puts the module into a frame of its own page, under the same address and the content security policy that
allows scripts of that address alone (TensorBoard 2.21, `plugin_entry.html`). So all that the page is made of is served
from here: see `page_files`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.files.system import open_regular
from ms_summary_bridge.runs.report import encode_json
from ms_summary_bridge.tensorboard_plugin.page_files import content_type_of, page_files
from ms_summary_bridge.tensorboard_plugin.run_collector import RunCollector

__all__ = ["MindSporePlugin"]

_POINTS: Final = 500
_COLUMNS: Final = 200


class MindSporePlugin(base_plugin.TBPlugin):
    """Shows of each run of MindSpore's what TensorBoard's own pages have no place for.

    Args:
        source: The logdir itself, not the mirror of it.
        warn: Told what of ours went wrong.
    """

    plugin_name = "mindspore"

    def __init__(self, source: str, warn: Callable[[str], None]) -> None:
        self._collector = RunCollector(source, warn)
        self._warn = warn

    def get_plugin_apps(self) -> dict[str, Any]:
        """Returns what answers each path below `data/plugin/mindspore`."""
        answers: dict[str, Callable[[wrappers.Request], wrappers.Response]] = {
            **{name: functools.partial(self._serve_file, path) for name, path in page_files().items()},
            "/runs": self._serve_runs,
            "/run": self._serve_run,
            "/series": self._serve_series,
            "/metric": self._serve_metric,
            "/ranks": self._serve_ranks,
            "/profile": self._serve_profile,
            "/times": self._serve_times,
            "/changes": self._serve_changes,
        }
        return {path: wrappers.Request.application(answer) for path, answer in answers.items()}

    def is_active(self) -> bool:
        """Whether there is something of MindSpore's below the logdir."""
        return self._collector.has_runs()

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Returns the title of the page and where its module is; it asks for news itself."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="MindSpore", disable_reload=True)

    def _serve_file(self, path: str, request: wrappers.Request) -> wrappers.Response:
        try:
            with open(path, encoding="utf-8") as file:
                return _respond(request, file.read(), content_type_of(path))
        except OSError as error:
            self._warn(f"the MindSpore page is not shown: {error}")
            return _respond(request, str(error), "text/plain", code=500)

    def _serve_runs(self, request: wrappers.Request) -> wrappers.Response:
        return self._answer(request, lambda: self._collector.describe_all(request.args.get("cursor", "")))

    def _serve_run(self, request: wrappers.Request) -> wrappers.Response:
        return self._answer(request, lambda: self._collector.describe_one(request.args.get("key", "")))

    def _serve_series(self, request: wrappers.Request) -> wrappers.Response:
        tag, keys = request.args.get("tag", ""), request.args.getlist("key")
        points = _whole(request, "points", _POINTS)
        return self._answer(request, lambda: self._collector.describe_series(tag, keys, points))

    def _serve_metric(self, request: wrappers.Request) -> wrappers.Response:
        return self._answer(request, lambda: self._collector.describe_metric(request.args.get("tag", "")))

    def _serve_ranks(self, request: wrappers.Request) -> wrappers.Response:
        key, tag = request.args.get("key", ""), request.args.get("tag", "")
        columns, is_aggregate = _whole(request, "columns", _COLUMNS), request.args.get("from", "") == "aggregate"
        return self._answer(
            request, lambda: self._collector.describe_ranks(key, tag, columns, is_aggregate=is_aggregate)
        )

    def _serve_changes(self, request: wrappers.Request) -> wrappers.Response:
        a, b = request.args.get("a", ""), request.args.get("b", "")
        return self._answer(request, lambda: self._collector.describe_changes(a, b))

    def _serve_times(self, request: wrappers.Request) -> wrappers.Response:
        key, number = request.args.get("key", ""), _whole(request, "number", -1)
        return self._answer(request, lambda: self._collector.describe_profile(key, number))

    def _serve_profile(self, request: wrappers.Request) -> wrappers.Response:
        try:
            path = self._collector.profile_path(request.args.get("key", ""), _whole(request, "number", -1))
            if path is None:
                return _respond(request, encode_json({"error": "there is no such profile (any more)"}), code=404)
            file = open(path, "rb", opener=open_regular)  # noqa: SIM115 - the response closes it
        except (BridgeError, OSError) as error:
            return _respond(request, encode_json({"error": str(error)}), code=500)
        response = wrappers.Response(file, content_type="application/json", direct_passthrough=True)
        response.headers["Content-Disposition"] = 'attachment; filename="trace_view.json"'
        for name, value in _respond(request, "").headers.items():  # those that TensorBoard gives its own
            if name.startswith(("X-", "Cache-", "Expires")):
                response.headers[name] = value
        return response

    def _answer(self, request: wrappers.Request, describe: Callable[[], dict[str, Any] | None]) -> wrappers.Response:
        try:
            answer = describe()
            if answer is None:
                return _respond(request, encode_json({"error": "there is no such run (any more)"}), code=404)
            return _respond(request, encode_json(answer, indent=0))
        except Exception as error:  # a fault of ours is a text on the page
            text = str(error) if isinstance(error, BridgeError) else f"{type(error).__name__}: {error}"
            self._warn(f"the MindSpore page has no answer: {text}")
            return _respond(request, encode_json({"error": text}), code=500)


def _whole(request: wrappers.Request, name: str, default: int) -> int:
    return request.args.get(name, default, type=int)


def _respond(
    request: wrappers.Request, content: bytes | str, content_type: str = "application/json", code: int = 200
) -> wrappers.Response:
    response: wrappers.Response = http_util.Respond(request, content, content_type, code=code)
    return response
