"""The commands `config init`, `check`, `suggest` and `schema`."""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ms_summary_bridge.cli.output import print_document, print_json, print_text
from ms_summary_bridge.errors import ConfigError, LogdirError, UsageError, counted

if TYPE_CHECKING:
    from ms_summary_bridge.monitor.model.alert_config import ActionConfig
    from ms_summary_bridge.monitor.model.config import MonitorConfig
    from ms_summary_bridge.monitor.trial import TrialReport

__all__ = ["Recipe", "check", "init", "make_config_app", "schema", "suggest"]

_FILE = Annotated[
    str, typer.Argument(help="A YAML file with monitor_config, with the section alone, or of MindFormers.")
]
_SET = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key first, like tags.dataset=v3; may be repeated."),
]


class Recipe(str, Enum):
    """What `config init --recipe` takes: the names of `monitor.config.recipes`."""

    device_overload = "device-overload"
    memory = "memory"
    data_worker = "data-worker"
    warm_up = "warm-up"
    mfu = "mfu"


def check(
    file: _FILE,
    set_: _SET = None,
    try_: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Train three steps of a tiny network with it and send a test alarm through every action, in another "
            "process; needs MindSpore.",
        ),
    ] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Write a file of MindFormers anew beside it, as NAME.fixed.yaml, with keys of ours moved out of "
            "its own monitor_config, and check that one.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Check a configuration: every mistake at once, with its line and the nearest right key.

    Of a file of MindFormers, the entries in callbacks: are checked, and keys of ours in its own monitor_config are
    named with the lines to write in their place; --fix moves them. What may not be meant is said as a note.

    Example: ms-summary-bridge config check train.yaml --set interval=10 --try
    """
    import msgspec

    from ms_summary_bridge.monitor.config.advice import find_advice
    from ms_summary_bridge.monitor.config.file import load_config
    from ms_summary_bridge.monitor.model.alert_config import hide_secrets
    from ms_summary_bridge.monitor.trial import try_config

    try:
        file = _write_fixed(file, is_quiet=json) if fix else file
        config = load_config(file, overrides=set_ or [])
        trial = try_config(config) if try_ and config.enable else None
    except ConfigError as error:
        if not json:
            raise
        print_json({"file": file, "is_valid": False, "problems": error.problems, "notes": [], "config": None})
        return error.exit_code
    notes = find_advice(config)
    if json:
        # Without the addresses and secrets of webhooks.
        shown = hide_secrets(msgspec.to_builtins(msgspec.structs.asdict(config)))
        content = {"file": file, "is_valid": True, "problems": [], "notes": notes, "config": shown}
        print_json({**content, **({"trial": trial} if trial is not None else {})})
    else:
        print_text(f"{file}: right")
        if config.enable:
            print_text(_describe(config))
        for note in notes:
            print_text(f"note: {note}")
        if trial is not None:
            print_text(_describe_trial(trial, config))
    return 1 if trial is not None and trial.missing else 0


def _write_fixed(file: str, *, is_quiet: bool) -> str:
    """Returns the name of the file with our keys moved; FILE itself where there is nothing to move."""
    from ms_summary_bridge.monitor.config.document import read_file_text
    from ms_summary_bridge.monitor.config.mindformers_fix import move_misplaced

    fixed = move_misplaced(read_file_text(file), file)
    if fixed is None:
        if not is_quiet:
            print_text(f"{file}: holds no key of the monitor in a monitor_config of MindFormers: nothing to move")
        return file
    root, ending = os.path.splitext(file)
    path = f"{root}.fixed{ending}"
    _write_new(path, fixed.text)
    if not is_quiet:
        print_text(f"{path}: written, with the keys moved{'' if fixed.keeps_comments else ', without comments'}")
        print_text("    in the training: import ms_summary_bridge.mindformers, or auto_register in the entry")
    return path


def _write_new(path: str, text: str, *, force: bool = False, hint: str = "remove it first") -> None:
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as output:
            output.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path}: exists already; {hint}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LogdirError(f"{path}: cannot be written: {reason}") from error


def _describe_alarms(config: MonitorConfig) -> str:
    def actions(listed: tuple[ActionConfig, ...]) -> str:
        return " + ".join(action.title for action in listed) or "nothing"

    own = [f"{alert.rule} ({actions(alert.actions)})" for alert in config.alerts if alert.actions is not None]
    others = [alert.rule for alert in config.alerts if alert.actions is None]
    return ", ".join([*own, *others]) + f"; else {actions(config.alert_actions)}" if config.alerts else "of nothing"


def _describe(config: MonitorConfig) -> str:
    from ms_summary_bridge.monitor.config.advice import find_needs

    if config.interval == "auto":
        how_often = "30 s on one card, 60 s on more, 120 s from 64 on"
    else:
        how_often = f"{config.interval:g} s" if config.interval else "step"
    names = [
        metric.name
        + (f" from step {metric.from_step}" if metric.from_step else "")
        + (f" to step {metric.to_step}" if metric.to_step is not None else "")
        for metric in config.metrics
    ]
    limits = [
        f"{name} {side} {bound:g}"
        for name, bounds in config.callback.warn_on_value.items()
        for side, bound in (("above", bounds.above), ("below", bounds.below))
        if bound is not None
    ]
    place = os.path.join(config.save_dir, config.project, config.run_id or "<time of the start>")
    lines = [
        f"  records   {', '.join(names) or 'nothing'}",
        f"  every     {how_often}",
        f"  to        {', '.join(config.backends)}, below {place}",
        f"  warns     {', '.join(limits) or 'of no value'}",
        f"  alarms    {_describe_alarms(config)}",
        f"  callback  {config.callback.type}",
    ]
    if config.enable:
        lines += [f"  {'' if number else 'needs':<9} {need}" for number, need in enumerate(find_needs(config))]
    return "\n".join(lines)


def _describe_trial(trial: TrialReport, config: MonitorConfig) -> str:
    lines = ["tried: three steps of a tiny network", "on the console:"]
    lines += [f"  {line}" for line in trial.console]
    lines.append(f"files below {config.save_dir}:")
    lines += [f"  {size:>9,} bytes  {name}" for name, size in trial.files.items()]
    for form, viewer in (("tensorboard", "TensorBoard"), ("mindspore", "MindInsight")):
        tags = trial.scalars.get(form, {})
        if tags:
            lines.append(f"{viewer} shows: {', '.join(f'{tag} ({points})' for tag, points in tags.items())}")
    lines += [f"alarm through {title}: {problem or 'done'}" for title, problem in trial.alarms.items()]
    lines += [f"missing: {text}" for text in trial.missing]
    return "\n".join(lines)


def init(
    file: Annotated[str, typer.Argument(help="File to write; standard output if not given.")] = "",
    mindformers: Annotated[
        bool, typer.Option("--mindformers", help="Write an entry for callbacks: of a MindFormers YAML.")
    ] = False,
    recipe: Annotated[
        Recipe | None,
        typer.Option("--recipe", help="Write a small section for one fear instead."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
) -> int:
    """Write a section to begin with, in which every key is explained.

    Example: ms-summary-bridge config init monitor.yaml
    """
    from ms_summary_bridge.monitor.config.recipes import write_recipe
    from ms_summary_bridge.monitor.config.template import write_template

    if recipe is not None:
        text = write_recipe(recipe.value, mindformers=mindformers)
    else:
        text = write_template(mindformers=mindformers)
    if not file:
        print_document(text.rstrip("\n"))
        return 0
    _write_new(file, text, force=force, hint="--force overwrites it")
    print_text(f"{file}: written; ms-summary-bridge config check {file}")
    return 0


def suggest(
    journal: Annotated[str, typer.Argument(help="metrics.jsonl of a healthy run, or the directory it is in.")],
) -> int:
    """Propose limits for warn_on_value from a healthy run, as a section with the reason of each.

    Example: ms-summary-bridge config suggest ./run/rank_0 > limits.yaml
    """
    from ms_summary_bridge.monitor.sinks.journal import read_journal
    from ms_summary_bridge.monitor.suggest import suggest_limits, write_suggestion

    torn: list[int] = []
    try:
        text = write_suggestion(suggest_limits(read_journal(journal, torn.append)))
    except UsageError as error:
        left_out = (
            f"; {counted(len(torn), 'line is', 'lines are')} damaged, the first is line {torn[0]}" if torn else ""
        )
        raise UsageError(f"{journal}: {error}{left_out}") from error
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:  # JSON that the monitor never writes
        raise UsageError(
            f"{journal}: holds a line that the monitor did not write ({error}); give the journal of a "
            "healthy run as it was written"
        ) from error
    print_document(text.rstrip("\n"))
    return 0


def schema(
    section: Annotated[
        bool, typer.Option("--section", help="Of the section alone, for a file that holds nothing else.")
    ] = False,
) -> int:
    """Print a JSON schema, by which editors complete and check the YAML.

    Example: ms-summary-bridge config schema > monitor.schema.json
    """
    from ms_summary_bridge.monitor.config.schema import build_schema, build_section_schema

    print_json(build_section_schema() if section else build_schema())
    return 0


def make_config_app() -> typer.Typer:
    """Returns the group of these commands."""
    app = typer.Typer(
        help="Write, check and improve a monitor_config section.\n\n"
        "Example: ms-summary-bridge config init monitor.yaml",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command in (init, check, suggest, schema):
        app.command()(command)
    return app
