"""What alarms do: webhooks against a server that takes only the services' documented shapes, commands, secrets."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import logging
import math
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from ms_summary_bridge.monitor.alarms.actions.message import ActionError, AlertSource, message_text
from ms_summary_bridge.monitor.alarms.actions.runner import ActionRunner, deliver
from ms_summary_bridge.monitor.alarms.actions.webhook import send
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import (
    DIALECTS,
    ActionConfig,
    CommandConfig,
    Dialect,
    WebhookConfig,
    hide_secrets,
)

TOKEN = "b7c0ffee5ec4e7"
SECRET = "SECf00dfacade42"

ALERT = Alert(
    rule="nonfinite",
    metric="loss",
    value=math.nan,
    step=120,
    epoch=3,
    rank=2,
    wall_time=1_700_000_000.0,
    severity="critical",
    message="loss is NaN since step 119 <&>",
    advice="go back to a checkpoint",
    since_step=119,
)
ORIGIN = AlertSource(project="bert", run="20260101-000000", run_directory="/runs/r", host="node-1", ranks=8)


def sign(key: str, message: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), message.encode(), hashlib.sha256).digest()).decode()


# ------------------------------------------------------------------ the services, as their documentation has them


class Refused(Exception):
    """What a service answers to a message that is not of its shape."""


def _only(body: Any, *keys: str) -> None:
    if not isinstance(body, dict) or set(body) != set(keys):
        raise Refused(f"keys {sorted(body)}")


def _text(text: Any, limit: int) -> None:
    if not isinstance(text, str) or not text or len(text.encode()) > limit:
        raise Refused("text")


def check_feishu(query: dict[str, str], body: Any) -> bytes:
    signed = {"timestamp", "sign"} & set(body)
    _only(body, "msg_type", "content", *signed)
    if body["msg_type"] != "text" or query:
        raise Refused("type")
    _only(body["content"], "text")
    _text(body["content"]["text"], 20_000)
    if signed:
        moment = body["timestamp"]
        if not isinstance(moment, str) or abs(int(moment) - time.time()) > 3600:
            raise Refused("timestamp")
        if body["sign"] != sign(f"{moment}\n{SECRET}", ""):
            return b'{"code":19021,"msg":"sign match fail or timestamp is not within one hour from current time"}'
    return b'{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}'


def check_dingtalk(query: dict[str, str], body: Any) -> bytes:
    if query.pop("access_token", None) != TOKEN:
        return b'{"errcode":300005,"errmsg":"token is not exist"}'
    _only(body, "msgtype", "text")
    _only(body["text"], "content")
    _text(body["text"]["content"], 20_000)
    if query:
        moment = query["timestamp"]
        if abs(int(moment) / 1000 - time.time()) > 3600 or query["sign"] != sign(SECRET, f"{moment}\n{SECRET}"):
            return b'{"errcode":310000,"errmsg":"sign not match"}'
    return b'{"errcode":0,"errmsg":"ok"}'


def check_wecom(query: dict[str, str], body: Any) -> bytes:
    if query != {"key": TOKEN}:
        return b'{"errcode":93000,"errmsg":"invalid webhook url"}'
    _only(body, "msgtype", "text")
    _only(body["text"], "content")
    _text(body["text"]["content"], 2048)
    return b'{"errcode":0,"errmsg":"ok"}'


def check_slack(query: dict[str, str], body: Any) -> bytes:
    _only(body, "text")
    _text(body["text"], 40_000)
    plain = body["text"].replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")
    if query or any(mark in plain for mark in "&<>"):
        raise Refused("invalid_payload")
    return b"ok"


def check_json(query: dict[str, str], body: Any) -> bytes:
    _only(body, "text", "alert", "origin")
    if body["alert"]["value"] != "nan" or body["origin"]["ranks"] != 8:
        raise Refused("alert")
    return b""


CHECKS: dict[str, Callable[[dict[str, str], Any], bytes]] = {
    "feishu": check_feishu,
    "dingtalk": check_dingtalk,
    "wecom": check_wecom,
    "slack": check_slack,
    "json": check_json,
}
PATHS = {
    "feishu": f"/open-apis/bot/v2/hook/{TOKEN}",
    "dingtalk": f"/robot/send?access_token={TOKEN}",
    "wecom": f"/cgi-bin/webhook/send?key={TOKEN}",
    "slack": f"/services/T000/B000/{TOKEN}",
    "json": f"/alarms/{TOKEN}",
}


class Service(ThreadingHTTPServer):
    """One chat service on the loopback interface."""

    daemon_threads = True

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.dialect = dialect
        self.taken: list[tuple[dict[str, str], Any]] = []
        """Query and body of each message that was taken."""
        self.asked = 0
        self.before: list[tuple[int, bytes, dict[str, str]]] = []
        """Answers to the first requests, whatever they hold."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{PATHS[self.dialect]}"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        service = self.server
        service.asked += 1
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if service.before:
            self._answer(*service.before.pop(0))
            return
        query = dict(parse_qsl(urlsplit(self.path).query, strict_parsing=True)) if "?" in self.path else {}
        asked = dict(query)
        try:
            if self.path.partition("?")[0] != PATHS[service.dialect].partition("?")[0]:
                raise Refused("path")
            if not self.headers["Content-Type"].startswith("application/json"):
                raise Refused("Content-Type")
            body = json.loads(raw)
            answer = CHECKS[service.dialect](query, body)
        except (Refused, KeyError, ValueError) as error:
            self._answer(400, f"invalid: {error}".encode(), {})
            return
        service.taken.append((asked, body))
        self._answer(200, answer, {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def serve() -> Iterator[Callable[[Dialect], Service]]:
    services: list[Service] = []

    def start(dialect: Dialect) -> Service:
        service = Service(dialect)
        services.append(service)
        threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return service

    yield start
    for service in services:
        service.shutdown()
        service.server_close()


class NoWait(threading.Event):
    """Waits for nothing, and remembers for how long it should have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return False


# ------------------------------------------------------------------ webhooks


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_dialect_has_the_shape_that_its_service_documents(
    dialect: Dialect, serve: Callable[[Dialect], Service]
) -> None:
    service = serve(dialect)
    deliver(ActionConfig(kind="webhook", webhook=WebhookConfig(dialect=dialect, url=service.url)), ALERT, ORIGIN)
    ((_, body),) = service.taken
    said = json.dumps(body)
    for part in ("nonfinite", "loss is NaN", "step 120", "since step 119", "rank 2 of 8", "node-1", "bert/20260101"):
        assert part in said


@pytest.mark.parametrize("dialect", ["feishu", "dingtalk"])
def test_a_signature_is_the_services_own(dialect: Dialect, serve: Callable[[Dialect], Service]) -> None:
    service = serve(dialect)
    send(WebhookConfig(dialect=dialect, url=service.url, secret=SECRET), ALERT, ORIGIN)
    ((query, body),) = service.taken
    assert "sign" in {**query, **body}
    with pytest.raises(ActionError, match=r"19021|310000"):
        send(WebhookConfig(dialect=dialect, url=service.url, secret="SECanother"), ALERT, ORIGIN)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_long_message_is_cut_between_two_letters(dialect: Dialect, serve: Callable[[Dialect], Service]) -> None:
    service = serve(dialect)
    long = msgspec.structs.replace(ALERT, message="损失" * 3000)
    send(WebhookConfig(dialect=dialect, url=service.url, keyword="报警"), long, ORIGIN)
    ((_, body),) = service.taken
    text = body.get("text") or body["content"]
    text = text if isinstance(text, str) else text.get("content") or text["text"]
    assert text.startswith("报警 ")
    assert text.endswith("...")
    assert len(text.encode()) <= 2048
    assert "\ufffd" not in text


def test_headers_and_variables_of_the_environment(
    serve: Callable[[Dialect], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve("json")
    monkeypatch.setenv("ALARM_URL", service.url)
    monkeypatch.setenv("ALARM_KEY", "Bearer abcdef")
    config = WebhookConfig(url="${ALARM_URL}", headers=(("Authorization", "${ALARM_KEY}"),))
    send(config, ALERT, ORIGIN)
    assert len(service.taken) == 1
    assert config.place == "${ALARM_URL}"
    monkeypatch.delenv("ALARM_URL")
    with pytest.raises(ActionError, match="variable ALARM_URL is not set"):
        send(config, ALERT, ORIGIN)


@pytest.mark.parametrize(
    ("dialect", "answers"),
    [
        ("json", [(500, b"", {}), (503, b"", {})]),
        ("slack", [(429, b"", {"Retry-After": "7"})]),
        ("dingtalk", [(200, b'{"errcode":130101,"errmsg":"send too fast"}', {})]),
        ("wecom", [(200, b'{"errcode":45009,"errmsg":"api freq out of limit"}', {})]),
        ("feishu", [(200, b'{"code":11232,"msg":"frequency limited"}', {})]),
    ],
)
def test_what_may_pass_is_tried_again(
    dialect: Dialect, answers: list[tuple[int, bytes, dict[str, str]]], serve: Callable[[Dialect], Service]
) -> None:
    service = serve(dialect)
    service.before = list(answers)
    waits = NoWait()
    send(WebhookConfig(dialect=dialect, url=service.url), ALERT, ORIGIN, hurry=waits)
    assert len(service.taken) == 1
    assert waits.waits == ([7.0] if dialect == "slack" else [1.0, 2.0][: len(answers)])


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("json", (404, b"no", {})),
        ("slack", (403, b"action_prohibited", {})),
        ("json", (302, b"", {"Location": "http://127.0.0.1:1/elsewhere"})),
        ("wecom", (200, b'{"errcode":93000,"errmsg":"invalid webhook url"}', {})),
        ("feishu", (200, b"<html>sign in</html>", {})),
    ],
)
def test_what_will_not_pass_is_not_tried_again(
    dialect: Dialect, answer: tuple[int, bytes, dict[str, str]], serve: Callable[[Dialect], Service]
) -> None:
    service = serve(dialect)
    service.before = [answer]
    with pytest.raises(ActionError):
        send(WebhookConfig(dialect=dialect, url=service.url), ALERT, ORIGIN, hurry=NoWait())
    assert service.asked == 1


def test_nobody_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # nobody listens
        waits = NoWait()
        with pytest.raises(ActionError, match=r"no connection: .* \(4 attempts\)"):
            send(WebhookConfig(url=f"http://127.0.0.1:{port}/{TOKEN}"), ALERT, ORIGIN, hurry=waits)
        assert waits.waits == [1.0, 2.0, 4.0]
        taken.listen()  # somebody listens, and says nothing
        config = WebhookConfig(url=f"http://127.0.0.1:{port}/{TOKEN}", timeout=0.1, attempts=2)
        with pytest.raises(ActionError, match=r"it took too long \(2 attempts\)"):
            send(config, ALERT, ORIGIN, hurry=NoWait())


@pytest.mark.parametrize(
    "url",
    [
        f"http://[::1/{TOKEN}",
        f"nonsense {TOKEN}",
        f"http://127.0.0.1:port{TOKEN}/",
        f"http://127.0.0.1:1/a b{TOKEN}",
        f"file:///{TOKEN}",
        f"http://\x7f{TOKEN}",
        f"ftp://127.0.0.1/{TOKEN}",
        f"http://user:{TOKEN}@127.0.0.1:1/",
    ],
)
def test_no_message_holds_an_address(url: str) -> None:
    config = WebhookConfig(url=url, secret=SECRET, attempts=1, timeout=1.0)
    with pytest.raises(ActionError) as caught:
        send(config, ALERT, ORIGIN)
    for text in (str(caught.value), repr(caught.value), repr(config), config.place):
        assert TOKEN not in text
        assert SECRET not in text


def test_a_server_that_says_the_token_back_is_not_repeated(serve: Callable[[Dialect], Service]) -> None:
    service = serve("wecom")
    service.before = [(200, json.dumps({"errcode": 1, "errmsg": f"bad key {TOKEN}"}).encode(), {})]
    with pytest.raises(ActionError, match=r"code 1: bad key \*\*\*"):
        send(WebhookConfig(dialect="wecom", url=service.url), ALERT, ORIGIN)


def test_secrets_are_hidden_wherever_a_section_is_shown() -> None:
    hook = {"dialect": "feishu", "url": f"https://h/{TOKEN}", "secret": SECRET, "headers": {"A": TOKEN}, "timeout": 3}
    section = {
        "alert_actions": ["log", {"webhook": hook}],
        "alerts": [{"rule": "spike", "actions": [{"webhook": f"https://h/{TOKEN}"}]}],
        "tags": {"url": "shown"},
    }
    shown = hide_secrets(section)
    assert TOKEN not in str(shown)
    assert SECRET not in str(shown)
    assert shown["tags"] == {"url": "shown"}
    assert shown["alert_actions"][1]["webhook"]["timeout"] == 3
    for arguments in (["curl", f"https://h/{TOKEN}"], {"argv": ["curl", f"https://h/{TOKEN}"], "timeout": 3}):
        assert TOKEN not in str(hide_secrets({"alert_actions": [{"command": arguments}]}))
        assert "curl" in str(hide_secrets({"alert_actions": [{"command": arguments}]}))
    kept = {"webhook": {"url": "${ALARM_URL}", "secret": ""}}
    assert hide_secrets(kept) == kept
    assert section["alert_actions"][1]["webhook"]["url"] == f"https://h/{TOKEN}"  # type: ignore[index]


# ------------------------------------------------------------------ commands


def command(*argv: str, timeout: float = 30.0) -> ActionConfig:
    return ActionConfig(kind="command", command=CommandConfig(argv=argv, timeout=timeout))


def test_a_command_is_told_everything(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    code = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    deliver(command(sys.executable, "-c", code, str(told)), ALERT, ORIGIN)
    found = {name: value for name, value in json.loads(told.read_text()).items() if name.startswith("ALERT_")}
    assert json.loads(found.pop("ALERT_JSON"))["value"] == "nan"
    assert found.pop("ALERT_TEXT") == message_text(ALERT, ORIGIN)
    assert found == {
        "ALERT_RULE": "nonfinite",
        "ALERT_METRIC": "loss",
        "ALERT_VALUE": "nan",
        "ALERT_BOUND": "",
        "ALERT_STEP": "120",
        "ALERT_SINCE_STEP": "119",
        "ALERT_EPOCH": "3",
        "ALERT_RANK": "2",
        "ALERT_RANKS": "8",
        "ALERT_SEVERITY": "critical",
        "ALERT_MESSAGE": ALERT.message,
        "ALERT_ADVICE": ALERT.advice,
        "ALERT_PROJECT": "bert",
        "ALERT_RUN": "20260101-000000",
        "ALERT_RUN_DIRECTORY": "/runs/r",
        "ALERT_HOST": "node-1",
    }


def test_a_command_that_lasts_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "open(sys.argv[1] + '.new', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.replace(sys.argv[1] + '.new', sys.argv[1])\n"
        "signal.pause()\n"
    )
    with pytest.raises(ActionError, match="was killed after 5 s"):
        deliver(command(sys.executable, "-c", code, str(pids), timeout=5), ALERT, ORIGIN)
    for pid in map(int, pids.read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            assert select.select([os.pidfd_open(pid)], [], [], 30)[0]  # it has ended, or does so in a moment


def test_a_command_does_not_outlive_the_training(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    os.mkfifo(pid)
    code = "import os, signal, sys; open(sys.argv[1], 'w').write(str(os.getpid())); signal.pause()"
    outcomes = Outcomes()
    runner = ActionRunner(ORIGIN, outcomes)
    runner.put(command(sys.executable, "-c", code, str(pid), timeout=600), ALERT)
    process = os.pidfd_open(int(pid.read_text()))
    assert not runner.close(0.0)
    assert select.select([process], [], [], 30)[0]
    outcomes.wait_for(("command", 120, "was killed: the training has ended"))


def test_a_command_that_fails_says_how() -> None:
    with pytest.raises(ActionError, match="ended with 3: no such queue"):
        deliver(command("sh", "-c", "echo no such queue >&2; exit 3"), ALERT, ORIGIN)
    with pytest.raises(ActionError, match="cannot be started: No such file"):
        deliver(command("/no/such/program"), ALERT, ORIGIN)


# ------------------------------------------------------------------ beside the training


class Outcomes:
    """Collects what became of actions."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, str]] = []
        self.changed = threading.Condition()

    def __call__(self, action: ActionConfig, alert: Alert, problem: str) -> None:
        with self.changed:
            self.found.append((action.kind, alert.step, problem))
            self.changed.notify_all()

    def wait_for(self, outcome: tuple[str, int, str]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: outcome in self.found, 30)


def test_a_dead_endpoint_holds_up_neither_the_caller_nor_another_action() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hook = WebhookConfig(url=f"http://127.0.0.1:{silent.getsockname()[1]}/{TOKEN}", timeout=600.0)
        outcomes = Outcomes()
        runner = ActionRunner(ORIGIN, outcomes)
        for step in range(100):  # the webhook takes none of them, and this does not wait
            runner.put(ActionConfig(kind="webhook", webhook=hook), msgspec.structs.replace(ALERT, step=step))
        runner.put(command("true"), ALERT)
        outcomes.wait_for(("command", 120, ""))
        refused = [problem for kind, _, problem in outcomes.found if kind == "webhook"]
        assert set(refused) == {"left out: 32 alarms are waiting already"}
        assert not runner.close(0.0)


def test_the_end_of_a_training_is_told_before_the_process_ends(serve: Callable[[Dialect], Service]) -> None:
    service = serve("slack")
    service.before = [(503, b"", {})]
    outcomes = Outcomes()
    runner = ActionRunner(ORIGIN, outcomes)
    action = ActionConfig(kind="webhook", webhook=WebhookConfig(dialect="slack", url=service.url))
    for step in (1, 2, 3):
        runner.put(action, msgspec.structs.replace(ALERT, step=step))
    assert runner.close(30.0)
    assert [step for _, step, _ in outcomes.found] == [1, 2, 3]
    assert len(service.taken) >= 2


def test_actions_go_to_another_process_as_json() -> None:
    """The watchdog gets them this way."""
    actions = (
        ActionConfig(kind="log"),
        command("true"),
        ActionConfig(kind="webhook", webhook=WebhookConfig(url="${A}", headers=(("B", "c"),))),
    )
    assert msgspec.json.decode(msgspec.json.encode(actions), type=tuple[ActionConfig, ...]) == actions
    assert [action.title for action in actions] == ["log", "command true", "webhook json ${A}"]


def test_nothing_is_logged_by_what_sends(serve: Callable[[Dialect], Service], caplog: pytest.LogCaptureFixture) -> None:
    service = serve("json")
    with caplog.at_level(logging.DEBUG):
        send(WebhookConfig(url=service.url), ALERT, ORIGIN)
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status: int, serve: Callable[[Dialect], Service]) -> None:
    """The address holds a token, and so do the headers: neither is for another host."""
    service, other = serve("json"), serve("json")
    service.before = [(status, b"", {"Location": f"{other.url}?seen={TOKEN}"})]
    config = WebhookConfig(url=service.url, headers=(("Authorization", SECRET),))
    with pytest.raises(ActionError, match=f"HTTP status {status}") as caught:
        send(config, ALERT, ORIGIN, hurry=NoWait())
    assert (service.asked, other.asked, other.taken) == (1, 0, [])
    assert TOKEN not in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value, chain=True))
    assert SECRET not in shown
    assert TOKEN not in shown
