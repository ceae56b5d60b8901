"""What a configuration may say of alarms, and that no mistake in it shows an address with a token."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.alarms.rules.rule import find_rule, make_rule, rule_names
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.config.schema import build_section_schema
from ms_summary_bridge.monitor.model.alert_config import ActionConfig, CommandConfig, WebhookConfig
from ms_summary_bridge.monitor.model.config import DEFAULT_ALERTS
from ms_summary_bridge.monitor.model.rule_keys import RULE_KEYS
from tests.json_schema import is_valid

TOKEN = "b7c0ffee5ec4e7"
URL = f"https://open.feishu.cn/open-apis/bot/v2/hook/{TOKEN}"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that sections below name are set."""
    for name in ("A", "H", "HOOK"):
        monkeypatch.setenv(name, URL)


def problems_of(section: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(section)
    return caught.value.problems


def test_rules_that_are_on_by_default_can_be_changed_added_to_and_switched_off() -> None:
    assert tuple(alert.rule for alert in load_config({"csv": True}).alerts) == DEFAULT_ALERTS
    assert load_config({"alerts": False}).alerts == ()
    config = load_config(
        {
            "alerts": [
                {"rule": "spike", "factor": 20},
                {"rule": "spike", "metric": "grad_norm"},
                {"rule": "overload", "enable": False},
                "not_improving",
                {"rule": "nonfinite", "metrics": "loss", "actions": ["log", "stop"], "cool_down": 5, "after_steps": 2},
            ]
        }
    )
    rules = [alert.rule for alert in config.alerts]
    assert rules[-4:] == ["spike", "spike", "not_improving", "nonfinite"]
    assert sorted(rules) == sorted([*set(DEFAULT_ALERTS) - {"overload"}, "spike", "not_improving"])
    last = config.alerts[-1]
    assert last.params == {"metrics": ("loss",)}
    assert (last.cool_down, last.after_steps) == (5.0, 2)
    assert last.actions == (ActionConfig(kind="log"), ActionConfig(kind="stop"))
    for alert in config.alerts:
        make_rule(alert.rule, alert.params)


def test_actions() -> None:
    config = load_config(
        {
            "alert_actions": [
                "log",
                "save_checkpoint",
                {"dump_stacks": None},
                {"command": ["scancel", 1234]},
                {"command": {"argv": ["page", "me"], "timeout": 5}},
                {"webhook": URL},
                {"webhook": {"url": "${HOOK}", "dialect": "DingTalk", "secret": "SECx", "keyword": "训练"}},
                {"webhook": {"url": "http://10.0.0.1/alarm", "headers": {"Authorization": "Bearer x"}, "attempts": 2}},
            ]
        }
    )
    assert config.alert_actions[:3] == tuple(
        ActionConfig(kind=kind) for kind in ("log", "save_checkpoint", "dump_stacks")
    )
    assert [action.command for action in config.alert_actions[3:5]] == [
        CommandConfig(argv=("scancel", "1234")),
        CommandConfig(argv=("page", "me"), timeout=5.0),
    ]
    assert [action.webhook for action in config.alert_actions[5:]] == [
        WebhookConfig(dialect="feishu", url=URL),
        WebhookConfig(dialect="dingtalk", url="${HOOK}", secret="SECx", keyword="训练"),
        WebhookConfig(url="http://10.0.0.1/alarm", headers=(("Authorization", "Bearer x"),), attempts=2),
    ]
    assert load_config({"alert_actions": "stop"}).alert_actions == (ActionConfig(kind="stop"),)


def test_what_a_rule_is_told_to_look_at_is_measured() -> None:
    def measured(section: Any) -> set[str]:
        return {metric.name for metric in load_config({"metrics": ["loss"], **section}).metrics}

    assert measured({}) == {"loss"}
    assert measured({"alerts": [{"rule": "threshold", "metric": "learning_rate", "above": 1}]}) == {"loss", "lr"}
    assert measured({"alerts": [{"rule": "overload", "memory": 60000}]}) == {"loss", "temperature"}, (
        "of a GPU it is another"
    )
    assert measured({"alerts": [{"rule": "memory_trend", "limit": 60000}]}) == {"loss", "memory_usage"}
    assert measured({"alerts": [{"rule": "spike", "factor": 20}]}) == {"loss"}


def test_parameters_are_the_arguments_of_the_rules() -> None:
    assert set(RULE_KEYS) == set(rule_names())
    for name, keys in RULE_KEYS.items():
        arguments = set(inspect.signature(find_rule(name)).parameters) - {"limits"}  # what the engine gives
        assert set(keys) == arguments, name


def test_variables_that_are_not_set_are_told_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLANK", " ")
    webhook = {"url": "https://host/${NONE_A}/x", "secret": "${NONE_B}", "dialect": "feishu"}
    section = {"alert_actions": [{"webhook": "${NONE_A}"}, {"webhook": {**webhook, "headers": {"A": "${BLANK}"}}}]}
    assert [problem.partition(" is not set")[0] for problem in problems_of(section)] == [
        "$.alert_actions[0].webhook.url: the environment variable NONE_A",
        "$.alert_actions[1].webhook.url: the environment variable NONE_A",
        "$.alert_actions[1].webhook.secret: the environment variable NONE_B",
        "$.alert_actions[1].webhook.headers.A: the environment variable BLANK",
    ]
    assert not load_config({**section, "enable": False}).enable, "what is off may name what is set elsewhere"
    (action,) = load_config({"alert_actions": [{"webhook": "${HOOK}"}]}).alert_actions
    assert action.webhook is not None
    assert action.webhook.url == "${HOOK}", "a secret is not kept"
    assert "must be an address" in problems_of({"alert_actions": {"webhook": "${not a name}"}})[0]
    # A program's arguments are left alone: a shell in it expands them when the alarm comes.
    config = load_config({"alert_actions": {"command": ["sh", "-c", "echo ${ALARM_STEP}"]}})
    assert config.alert_actions[0].title == "command sh"


WRONG = [
    ({"alerts": [{"rule": "spke"}]}, "$.alerts[0].rule: there is no rule 'spke'; did you mean 'spike'?"),
    ({"alerts": ["spke"]}, "did you mean 'spike'?"),
    ({"alerts": [{"factor": 3}]}, "$.alerts[0].rule: must name a rule; there are threshold, nonfinite"),
    ({"alerts": [{"rule": "spike", "facter": 3}]}, "there is no key 'facter' here; did you mean 'factor'?"),
    ({"alerts": [{"rule": "spike", "factor": "much"}]}, "$.alerts[0].factor: must be a number"),
    ({"alerts": [{"rule": "spike", "factor": 0}]}, "must be greater than 0"),
    ({"alerts": [{"rule": "spike", "window": 10**12}]}, "$.alerts[0].window: is too large"),
    ({"alerts": [{"rule": "spike", "metric": "los"}]}, "did you mean 'loss'?"),
    ({"alerts": [{"rule": "threshold", "metric": "loss"}]}, "threshold has no bound"),
    ({"alerts": [{"rule": "threshold", "above": 1}]}, "threshold must name a metric"),
    ({"alerts": [{"rule": "threshold", "metric": "lr", "above": 1, "below": 2}]}, "the wrong way round"),
    ({"alerts": [{"rule": "divergence", "share": 1.5}]}, "must be between 0 and 1"),
    ({"alerts": "all"}, "$.alerts: must be true, false or a list"),
    ({"alerts": [{"rule": "spike", "actions": ["lgo"]}]}, "no action 'lgo'; did you mean 'log'?"),
    ({"alert_actions": ["tensorboard"]}, "cannot be an action: every alarm goes to each backend"),
    ({"alert_actions": ["log", "log"]}, "$.alert_actions[1]: 'log' is in the list twice"),
    ({"backend": ["local", "local"]}, "$.backend[1]: 'local' is in the list twice"),
    ({"alert_actions": ["webhook"]}, "webhook must say which"),
    ({"alert_actions": [{"command": "rm -rf /tmp/x"}]}, "must be the program and its arguments as a list"),
    ({"alert_actions": [{"command": {"argv": ["a"], "timout": 3}}]}, "did you mean 'timeout'?"),
    ({"alert_actions": [{"webhook": {"dialect": "slack"}}]}, "$.alert_actions[0].webhook: has no url"),
    ({"alert_actions": [{"webhook": {"url": "${H}", "dialect": "feishoo"}}]}, "did you mean 'feishu'?"),
    ({"alert_actions": [{"webhook": {"url": "${H}", "dialect": "slack", "secret": "x"}}]}, "slack has no signature"),
    ({"exit_code": -1}, "$.exit_code: must be 0 or more"),
    ({"exit_code": 256}, "$.exit_code: is too large: 256; 255 is the most"),  # would be 0
]


@pytest.mark.parametrize(("section", "words"), WRONG)
def test_mistakes(section: Any, words: str) -> None:
    (problem,) = problems_of(section)
    assert words in problem
    if "threshold" not in str(section) and "secret" not in str(section) and "twice" not in words:
        assert not is_valid(section, build_section_schema())


@pytest.mark.parametrize(
    "action",
    [
        URL,
        {"webhok": URL},
        {"webhook": f"hooks.slack.com/{TOKEN}"},
        {"webhook": [URL]},
        {"webhook": {"ulr": URL}},
        {"webhook": {"url": [URL]}},
        {"webhook": {"url": f"{URL}\n"}},
        {"webhook": {"url": URL, "secret": [TOKEN]}},
        {"webhook": {"url": URL, "headers": TOKEN}},
        {"webhook": {"url": URL, "headers": {"A": [TOKEN]}}},
        {"webhook": URL, "timeout": 3},
        [{"webhook": {"url": URL, "attempts": 0}}],
    ],
)
def test_no_mistake_shows_an_address(action: Any) -> None:
    for section in ({"alert_actions": action}, {"alerts": [{"rule": "spike", "actions": action}]}):
        assert TOKEN not in "\n".join(problems_of(section))


def test_a_configuration_that_is_printed_shows_no_address(tmp_path: Path) -> None:
    config = load_config({"alert_actions": [{"webhook": {"url": URL, "secret": TOKEN}}]})
    assert TOKEN not in repr(config.alert_actions)


VALID = [
    {"alerts": True},
    {"alerts": False},
    {"alerts": ["not_improving", {"rule": "spike", "factor": None, "enable": False}]},
    {"alerts": [{"rule": "threshold", "metric": "learning_rate", "above": 0.1, "times": 3, "actions": "stop"}]},
    {"alerts": [{"rule": "nonfinite", "metrics": ["loss", "lr"], "actions": [{"command": ["a", 1]}, "stop"]}]},
    {"alert_actions": [{"webhook": URL}, {"webhook": {"url": "${A}", "headers": {"B": "c"}}}, "dump_stacks"]},
    {"exit_code": 0, "stop_patience": 1.5},
]


@pytest.mark.parametrize("section", VALID)
def test_editors_know_what_is_right(section: Any) -> None:
    load_config(section)
    assert is_valid(section, build_section_schema())
