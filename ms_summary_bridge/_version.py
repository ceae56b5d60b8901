"""The version of the package, written once: setup.py reads this file as text, CHANGELOG.md must agree."""

__all__ = ["__version__"]

__version__ = "0.1.0"
