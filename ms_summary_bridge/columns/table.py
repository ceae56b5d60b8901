"""The scalars of a logdir as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ms_summary_bridge.columns.growing import Columns
from ms_summary_bridge.errors import MissingDependencyError, counted

if TYPE_CHECKING:
    import numpy.typing as npt

    _STRINGS = npt.NDArray[np.object_]
    import pandas
    import polars
    import pyarrow

__all__ = ["ScalarTable", "clean_name"]


class ScalarTable:
    """One row for each scalar, in the order of the runs' names and, in a run, of its files.

    Attributes:
        runs: Names of the runs.
        tags: Tags.
        run_codes: int32, which of `runs` each row is of.
        tag_codes: int32, which of `tags`.
        step: int64.
        wall_time: float64, seconds since the epoch.
        value: float64; it holds a float32 exactly, but for the payload of a NaN.
        problems: What could not be read: a line for each damaged range, incomplete file and unreadable file.
    """

    def __init__(
        self,
        runs: list[str],
        tags: list[str],
        columns: Columns,
        problems: list[str],
    ) -> None:
        self.runs = runs
        self.tags = tags
        self.run_codes, self.tag_codes, self.step, self.wall_time, self.value = columns
        self.problems = problems

    @property
    def run(self) -> _STRINGS:
        """Name of each row's run, an array of str."""
        return np.array(self.runs, object)[self.run_codes] if self.runs else np.empty(0, object)

    @property
    def tag(self) -> _STRINGS:
        """Tag of each row, an array of str."""
        return np.array(self.tags, object)[self.tag_codes] if self.tags else np.empty(0, object)

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        counts = (counted(len(self), "scalar"), counted(len(self.tags), "tag"), counted(len(self.runs), "run"))
        return f"ScalarTable({', '.join(counts)})"

    def series(self, tag: str, run: str | None = None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Returns the steps and values of one tag.

        Args:
            tag: The tag.
            run: The run; it may be left out where there is one alone.

        Raises:
            KeyError: The table has no such tag or run, or `run` is needed.
        """
        if tag not in self.tags:
            raise KeyError(f"no scalar has the tag {tag!r}; there are {', '.join(map(repr, self.tags[:10]))}")
        if run is None and len(self.runs) != 1:
            raise KeyError(
                f"the table holds {counted(len(self.runs), 'run')}: name one of {', '.join(map(repr, self.runs[:10]))}"
            )
        if run is not None and run not in self.runs:
            raise KeyError(f"no run is called {run!r}; there are {', '.join(map(repr, self.runs[:10]))}")
        chosen = self.tag_codes == self.tags.index(tag)
        if run is not None:
            chosen &= self.run_codes == self.runs.index(run)
        return self.step[chosen], self.value[chosen]

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a DataFrame with the columns run, tag (both categorical), step, wall_time, value.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        pandas = _import("pandas")
        return pandas.DataFrame(
            {
                "run": pandas.Categorical.from_codes(self.run_codes, self.runs),
                "tag": pandas.Categorical.from_codes(self.tag_codes, self.tags),
                "step": self.step,
                "wall_time": self.wall_time,
                "value": self.value,
            },
            copy=False,
        )

    def to_arrow(self) -> pyarrow.Table:
        """Returns a Table with the columns run, tag (both dictionaries of strings), step, wall_time, value.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        arrow = _import("pyarrow")
        columns = {
            "run": arrow.DictionaryArray.from_arrays(
                self.run_codes, arrow.array([*map(clean_name, self.runs)], arrow.string())
            ),
            "tag": arrow.DictionaryArray.from_arrays(
                self.tag_codes, arrow.array([*map(clean_name, self.tags)], arrow.string())
            ),
            "step": arrow.array(self.step),
            "wall_time": arrow.array(self.wall_time),
            "value": arrow.array(self.value),
        }
        return arrow.table(columns)

    def to_polars(self) -> polars.DataFrame:
        """Returns a DataFrame with the columns run, tag (both categorical), step, wall_time, value.

        Raises:
            MissingDependencyError: polars is not installed.
        """
        polars = _import("polars")
        names = {"run": (self.runs, self.run_codes), "tag": (self.tags, self.tag_codes)}
        columns: dict[str, Any] = {
            name: polars.Series([*map(clean_name, words)], dtype=polars.String).gather(codes).cast(polars.Categorical)
            for name, (words, codes) in names.items()
        }
        return polars.DataFrame({**columns, "step": self.step, "wall_time": self.wall_time, "value": self.value})


def clean_name(name: str) -> str:
    """Returns a name without the half characters that a tag which is not UTF-8 is held with."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _import(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise MissingDependencyError(f"{name} is needed for this and not installed: pip install {name}") from error
