"""The environment: which packages are there, and which of them are known to clash."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from ms_summary_bridge.doctor.finding import Finding, Verdict, fault, good
from ms_summary_bridge.viewers.environment import find_environment

__all__ = ["CLASHES", "Clash", "PackageFacts", "check_packages", "find_packages"]

_LOOKED_AT: Final = (
    *("mindspore", "mindformers", "protobuf", "numpy", "tensorboard", "tensorboard-data-server", "mindinsight"),
    *("gunicorn", "marshmallow", "pandas", "pyarrow", "setuptools", "transformers", "vllm", "ms_summary_bridge"),
)
_PLUGINS: Final = "tensorboard_plugins"


class PackageFacts(msgspec.Struct, frozen=True):
    """What is installed beside this program."""

    versions: dict[str, str]
    """By package, and `python`; without those that are not installed."""
    has_plugin: bool = True
    """This package's plugin is registered with TensorBoard."""
    programs: dict[str, str] = {}
    """`tensorboard` and `gunicorn` as a shell would find them, by name."""
    bin: str = ""
    """Directory of this environment's programs."""
    mindinsight_environment: str = ""
    """Where `view` has installed MindInsight; empty for nowhere."""


class Clash(NamedTuple):
    """Packages of versions that do not go together."""

    id: str
    verdict: Verdict
    versions: Mapping[str, tuple[str, str]]
    """By package, from which version on, and below which; empty for any."""
    text: str
    mend: str


_VIEW: Final = "ms-summary-bridge view DIR --with mindinsight makes an environment for it"

# As pip resolves each MindSpore: up to 2.9 it takes the newest protobuf, for which that was not made; 2.10 asks for
# 7.34.1 and later. Measured on MindSpore 2.7 to 2.10, MindInsight 2.3.1, TensorBoard 2.16 to 2.21; that of vllm is
# from vllm-project/vllm-ascend issue 2046.
CLASHES: Final = (
    Clash(
        "packages.mindspore-protobuf",
        "wrong",
        {"mindspore": ("", "2.10"), "protobuf": ("4", "")},
        "SummaryCollector ends the training at step 1 (RepeatedCompositeFieldContainer object does not support item "
        "assignment); SummaryBridge goes on without the data set graph",
        "pip install 'protobuf==3.20.3' 'tensorboard<2.21'",
    ),
    Clash(
        "packages.mindspore-protobuf",
        "wrong",
        {"mindspore": ("2.10", ""), "protobuf": ("", "7.34.1")},
        "this MindSpore needs protobuf 7.34.1 or newer",
        "pip install 'protobuf>=7.34.1'",
    ),
    Clash(
        "packages.mindspore-numpy",
        "warning",
        {"mindspore": ("", ""), "numpy": ("2", "")},
        "a data set that yields NumPy scalars fails (Unable to avoid copy while creating an array as requested)",
        "pip install 'numpy<2'",
    ),
    Clash(
        "packages.mindspore-version",
        "warning",
        {"mindspore": ("", "2.7")},
        "the callbacks are made for MindSpore 2.7 and newer; converting and viewing work",
        "pip install 'mindspore>=2.7'",
    ),
    Clash(
        "packages.mindformers-mindspore",
        "warning",
        {"mindformers": ("1.9", "2"), "mindspore": ("2.10", "")},
        "this MindFormers is made for MindSpore 2.9",
        "pip install 'mindspore==2.9.0' 'protobuf==3.20.3' in its environment",
    ),
    Clash(
        "packages.tensorboard-protobuf",
        "wrong",
        {"tensorboard": ("2.21", ""), "protobuf": ("", "6.31.1")},
        "this TensorBoard needs protobuf 6.31.1 or newer",
        "pip install 'tensorboard<2.21'",
    ),
    Clash(
        "packages.tensorboard-protobuf",
        "warning",
        {"tensorboard": ("", "2.17"), "protobuf": ("5", "")},
        "the HParams page answers with an error",
        "pip install 'tensorboard>=2.17'",
    ),
    Clash(
        "packages.mindinsight-protobuf",
        "wrong",
        {"mindinsight": ("", ""), "protobuf": ("4", "")},
        "MindInsight does not start (Descriptors cannot be created directly)",
        f"{_VIEW}; here it cannot work beside a MindSpore of now",
    ),
    Clash(
        "packages.mindinsight-numpy",
        "wrong",
        {"mindinsight": ("", ""), "numpy": ("2", "")},
        "MindInsight loses every tensor (np.PINF was removed)",
        f"pip install 'numpy==1.26.4' in its environment, or {_VIEW}",
    ),
    Clash(
        "packages.mindinsight-marshmallow",
        "wrong",
        {"mindinsight": ("", ""), "marshmallow": ("4", "")},
        "MindInsight's lineage and data set pages answer with an error (unexpected keyword argument 'data_key')",
        f"pip install 'marshmallow<4' in its environment, or {_VIEW}",
    ),
    Clash(
        "packages.mindinsight-pandas",
        "warning",
        {"mindinsight": ("", ""), "pandas": ("2", ""), "python": ("", "3.12")},
        "MindInsight's lineage page says System error",
        f"pip install 'pandas==1.5.3' in its environment, or {_VIEW}",
    ),
    Clash(
        "packages.mindinsight-setuptools",
        "wrong",
        {"mindinsight": ("", ""), "setuptools": ("81", "")},
        "MindInsight does not start (No module named 'pkg_resources')",
        f"pip install 'setuptools<81' in its environment, or {_VIEW}",
    ),
    Clash(
        "packages.vllm-transformers",
        "wrong",
        {"vllm": ("", "0.10"), "transformers": ("4.54", "")},
        "import vllm fails ('aimv2' is already used by a Transformers config, pick another name)",
        "pip install 'vllm>=0.10', or pip install 'transformers<4.54' in an environment of its own",
    ),
    Clash(
        "packages.pyarrow-numpy",
        "warning",
        {"pyarrow": ("26", ""), "numpy": ("", "2")},
        "this pyarrow refuses NumPy 1, so export --format parquet fails",
        "pip install 'pyarrow<26'",
    ),
)


def find_packages() -> PackageFacts:
    """Looks at the environment of this process, without importing a package."""
    versions = {"python": platform.python_version()}
    for name in _LOOKED_AT:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    points = importlib.metadata.entry_points(group=_PLUGINS)
    programs = {name: shutil.which(name) or "" for name in ("tensorboard", "gunicorn")}
    return PackageFacts(
        versions,
        any(point.value.startswith("ms_summary_bridge.") for point in points),
        {name: path for name, path in programs.items() if path},
        os.path.dirname(sys.executable),
        find_environment(),
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version, as far as they order releases."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[+-]", version)[0])))


def _meets(version: str, bounds: tuple[str, str]) -> bool:
    low, below = bounds
    numbers = _numbers(version)
    return (not low or numbers >= _numbers(low)) and (not below or numbers < _numbers(below))


def check_packages(facts: PackageFacts) -> Iterator[Finding]:
    """Yields what there is to say of the environment."""
    versions = facts.versions
    yield good("packages.python", f"Python {versions['python']}" + _list(versions, "mindspore", "mindformers"))
    clashes = [
        clash
        for clash in CLASHES
        if all(name in versions and _meets(versions[name], bounds) for name, bounds in clash.versions.items())
    ]
    for clash in clashes:
        packages = " with ".join(f"{name} {versions[name]}" for name in clash.versions)
        yield fault(clash.id, clash.verdict, f"{packages}: {clash.text}", clash.mend)
    if not clashes:
        yield good("packages.clashes", "no known clash" + _list(versions, "protobuf", "numpy"))
    yield from _check_tensorboard(facts)
    yield from _check_mindinsight(facts)


def _list(versions: Mapping[str, str], *names: str) -> str:
    return "".join(f", {name} {versions[name]}" for name in names if name in versions)


def _check_tensorboard(facts: PackageFacts) -> Iterator[Finding]:
    version = facts.versions.get("tensorboard")
    if version is None:
        if "mindinsight" in facts.versions or facts.mindinsight_environment:
            yield good("packages.tensorboard", "TensorBoard is not installed here, MindInsight is")
        else:
            yield good("packages.tensorboard", "no viewer is installed here, which a training does not need")
        return
    if not facts.has_plugin:
        yield fault(
            "packages.plugin",
            "wrong",
            f"TensorBoard {version} does not know this package's plugin: it shows no MindSpore summary",
            "pip install ms_summary_bridge into TensorBoard's environment, or use ms-summary-bridge view DIR",
        )
    program = facts.programs.get("tensorboard", "")
    if program and facts.bin and os.path.dirname(program) != facts.bin:
        yield fault(
            "packages.tensorboard-program",
            "warning",
            f"`tensorboard` in this shell is {program}, of another environment",
            f"start {os.path.join(facts.bin, 'tensorboard')}, or activate its environment",
        )
    if "tensorboard-data-server" not in facts.versions:
        yield fault(
            "packages.slow-loader",
            "warning",
            "TensorBoard has its slow loader only: of a run's files it follows the newest",
            "pip install tensorboard-data-server, or start tensorboard --reload_multifile=true",
        )
    elif facts.has_plugin:
        yield good("packages.tensorboard", f"TensorBoard {version} with the fast loader and the plugin of this package")


def _check_mindinsight(facts: PackageFacts) -> Iterator[Finding]:
    version = facts.versions.get("mindinsight")
    if version is None:
        if facts.mindinsight_environment:
            yield good("packages.mindinsight", f"MindInsight is in {facts.mindinsight_environment}")
    elif "gunicorn" not in facts.versions:
        yield fault(
            "packages.gunicorn",
            "wrong",
            f"MindInsight {version} cannot start without gunicorn",
            "pip install gunicorn in its environment",
        )
    elif not facts.programs.get("gunicorn"):
        yield fault(
            "packages.gunicorn",
            "wrong",
            f"MindInsight {version} calls gunicorn by its name, and the shell does not find it",
            f"activate the environment: export PATH={facts.bin}:$PATH",
        )
    else:
        yield good("packages.mindinsight", f"MindInsight {version}")
