"""The error of the test at a fixed b, with no stopping rule: its order in b, with and without the skew correction.

By quadrature with known variance of the rows, and by simulation for the test as it is used. Some ten minutes; three
on a GPU, with a hundred times the decisions.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax

from benchmarks.records import table
from studies.orders.pictures import bound, bound_figure, orders_figure
from studies.orders.powers import LATE, powers, select
from studies.orders.quadrature import DELTAS, KNOWN_SIGMA, KNOWN_VARIANCE, by_quadrature
from studies.orders.rows import Rows, drawn_rows, posterior_rows
from studies.orders.simulation import USED_VARIANCE, by_simulation, used_tables
from studies.pairs import mean_error
from studies.study import Keep, Result, forget
from studies.targets import SEED
from tallchain.acceptance.tables import LADDER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 200
"""The b at which errors are shown."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    rows: int = 1_000_000
    """Drawn from each law."""
    steps: int = 31
    """Steps in each posterior, to choose a typical one from; 0 for the laws alone."""
    batches: tuple[int, ...] = (25, 50, 100, 200, 400, 800, 1600)
    decisions: int | None = None
    """Decisions to simulate; None for as many as the device makes in minutes."""
    few_laws: int | None = None
    """How many of the laws; None for all."""

    @classmethod
    def quick(cls) -> Config:
        """One law, two values of b, few decisions."""
        return cls(10_000, 0, (50, 200), 200, few_laws=1)

    @property
    def num_decisions(self) -> int:
        """Decisions to simulate."""
        return self.decisions or (40_000 if jax.default_backend() == "cpu" else 4_000_000)


def run(config: Config, keep: Keep = forget) -> Result:
    """Measure the errors for every kind of rows and every b."""
    everything = dict(list(drawn_rows(config.rows).items())[: config.few_laws])
    everything |= posterior_rows(config.steps) if config.steps else {}
    measured: dict[str, list[dict[str, Any]]] = {"quadrature": [], "simulation": []}
    with jax.enable_x64(True):
        tables = used_tables()
        for name, rows in everything.items():
            for b in config.batches:
                found = {
                    "quadrature": by_quadrature(rows, b),
                    "simulation": by_simulation(rows, tables, b, config.num_decisions),
                }
                for method, entries in found.items():
                    measured[method] += [{"rows": name} | entry for entry in entries]
                    print(name, b, method, {e["rule"]: f"{mean_error(e):.2g}" for e in entries}, flush=True)
            keep(Result.of(configuration(config), summary(everything, measured)))
    return Result.of(configuration(config), summary(everything, measured))


def summary(everything: dict[str, Rows], measured: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Put the results together."""
    moments = [{"rows": name} | rows.moments() for name, rows in everything.items()]
    return {"moments": moments, **measured, "powers": powers(measured)}


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "rows": f"laws: {config.rows:,} draws; models: log ratios of all rows in the step of median |skewness| out of "
        f"{config.steps} from the posterior; standardised, read with replacement",
        "deltas": DELTAS.tolist(),
        "quadrature": f"variance of Delta* {KNOWN_VARIANCE}, known; sigma {KNOWN_SIGMA}",
        "simulation": f"variance of Delta* {USED_VARIANCE}, estimated; sigma the smallest of {LADDER} that holds it",
        "trials": config.num_decisions,
        "seed": SEED,
    }


def page(result: Result) -> dict[str, str]:
    """The power of b, the errors at one b, and the paper's error bound."""
    return {"orders": _orders(result.results), "paper_bound": _paper_bound(result.results)}


def _orders(results: dict[str, Any]) -> str:
    power = {(p["method"], p["rows"], p["rule"]): p for p in results["powers"]}
    rows = []
    for kind in (entry["rows"] for entry in results["moments"]):
        known = [power["quadrature", kind, rule]["power"] for rule in ("none", "skew, own table", "skew")]
        used = [power["simulation", kind, rule]["power"] for rule in ("none", "printed", "skew")]
        used.append(power["simulation", kind, "skew"]["late_power"])
        errors = {r["rule"]: mean_error(r) for r in results["simulation"] if (r["rows"], r["b"]) == (kind, SHOWN)}
        cells = ["" if value is None else f"{value:+.2f}" for value in known + used]
        rows.append([kind, *cells, *(f"{errors[rule]:.4f}" for rule in ("none", "printed", "skew"))])
    header = [
        *("rows", "known: no correction", "skew, a table for each b", "skew, shipped tables"),
        *("estimated: no correction", "A.5 as printed", "skew", f"skew, b >= {LATE}"),
        *(f"error at b = {SHOWN}: no correction", "A.5 as printed", "skew"),
    ]
    clear = min(mean_error(r) / r["standard_error_of_mean"] for r in results["simulation"])
    told = f"{_floor(results)} Every simulated error is at least {clear:.0f} times its standard error."
    return f"{table(header, rows)}\n\n{told}"


def _floor(results: dict[str, Any]) -> str:
    """The error that interpolation between shipped tables leaves, at the largest b."""
    left, whole = (
        [select(results["quadrature"], entry["rows"], rule)[-1] for entry in results["moments"]]
        for rule in ("skew", "none")
    )
    shares = [mean_error(a) / mean_error(b) for a, b in zip(left, whole, strict=True)]
    return (
        f"With variance and skewness known, the shipped tables leave {min(shares):.1%} to {max(shares):.1%} of the "
        f"uncorrected error at b = {left[0]['b']}."
    )


def _paper_bound(results: dict[str, Any]) -> str:
    rows = []
    for entry in results["moments"]:
        series = [r for r in results["quadrature"] if (r["rows"], r["b"]) == (entry["rows"], SHOWN)]
        error = {r["rule"]: r["chance_error"] for r in series}
        rows.append([entry["rows"], f"{bound(entry, SHOWN):.2f}", f"{error['none']:.5f}", f"{error['skew']:.5f}"])
    return table([f"b = {SHOWN}", "error bound", "error of P(accept), no correction", "skew correction"], rows)


def pictures(result: Result) -> dict[str, Figure]:
    """The errors against b, and the paper's error bound."""
    return {"orders": orders_figure(result.results), "bound": bound_figure(result.results)}
