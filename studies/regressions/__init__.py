"""Draws of regressions with groups, shrinkage priors and other families, against long runs of NUTS on all rows.

The answers are in `results/regressions_reference.json`; `studies.regressions.reference` makes them, with NumPyro. This
study draws with `prepare` and `sample` at their defaults and compares: some minutes on a CPU. `python -m studies
regressions --only weibull` leaves the other models as they are in the result file.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from benchmarks.records import table
from studies.regressions.comparison import Sizes, compare
from studies.regressions.models import SEED, SETTINGS
from studies.study import RESULTS, Keep, Result, forget

REFERENCE = RESULTS / "regressions_reference.json"
SIZES = Sizes()


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    settings: tuple[str, ...] = tuple(SETTINGS)
    sizes: Sizes = SIZES

    @classmethod
    def quick(cls) -> Config:
        """One model without groups, and few draws."""
        return cls(("softmax",), Sizes(16, 5, 20, effective=1))


def run(config: Config, keep: Keep = forget) -> Result:
    """Draw from every model, and compare."""
    references, results = json.loads(REFERENCE.read_text()), {}
    for name in config.settings:
        results[name] = compare(name, references[name], config.sizes)
        print(name, {key: value for key, value in results[name].items() if key != "compared"}, flush=True)
        keep(Result.of(CONFIGURATION, results))
    return Result.of(CONFIGURATION, results)


CONFIGURATION = {
    "reference": "NumPyro's NUTS on all rows in float64, results/regressions_reference.json",
    "difference": "of the means, in standard deviations of the reference; ratio: of the standard deviations",
    "errors": "Monte Carlo standard errors of difference and ratio, of both runs together",
    "seed": SEED,
}


# ---- the page ------------------------------------------------------------------------------------

KINDS = ("all", "scales", "small groups")
HEADER = (
    *("model", "rows", "parameters", "rows a decision", "accepted"),
    *(f"{what}, {kind}" for what in ("means", "sds") for kind in KINDS),
)


def page(result: Result) -> dict[str, str]:
    """The largest differences of every model, with their Monte Carlo errors."""
    rows = [cells(name, found) for name, found in result.results.items()]
    return {"regressions": table(HEADER, rows)}


def cells(name: str, found: dict[str, Any]) -> list[str]:
    """Return the cells under the header."""
    return [
        SETTINGS[name].words,
        f"{found['rows']:,}",
        f"{found['parameters']:,}",
        f"{found['rows_read']:,.0f}",
        f"{found['acceptance']:.0%}",
        *(_largest(found["worst"].get(kind), "difference", 0.0, "{:.3f}") for kind in KINDS),
        *(_largest(found["worst"].get(kind), "ratio", 1.0, "{:.1%}") for kind in KINDS),
    ]


def _largest(worst: dict[str, Any] | None, what: str, centre: float, shape: str) -> str:
    if worst is None:
        return ""
    value, error = worst[what]["value"] - centre, worst[what]["error"]
    return f"{shape.format(abs(value))} ({shape.format(error)})"
