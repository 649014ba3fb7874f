"""The error of the test at a fixed b, with no stopping rule: its order in b, with and without the skew correction.

By quadrature, with the variance of the rows known: the chance to accept is an integral over the characteristic function
of the mean of b rows (Gil-Pelaez 1951), without simulation noise. By simulation, for the test as it is used, with
variance and skewness estimated from the b rows that also give Delta*.

`python -m benchmarks.orders` measures (some ten minutes; three on a GPU, with a hundred times the trials) and draws
docs/orders.png, docs/shift.png and docs/bound.png; with `--draw` it only draws.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr
from scipy.special import expit, logit

import tallchain as tc
from benchmarks import pairs
from benchmarks.measure import load, save
from benchmarks.targets import MIXTURE_STEP, PIXEL_STEP, PIXELS, SEED, exact_starts, mixture, pixels, run
from tallchain.acceptance.correction import Law, minimax, minimax_for
from tallchain.acceptance.correction.program import compute_for_law
from tallchain.acceptance.evidence import SkewMoments, row_variance
from tallchain.acceptance.stopping import third_cumulant
from tallchain.acceptance.tables import KAPPA3, LADDER, PRINTED, Reading, Tables
from tallchain.types import Array, Population

DOCS = Path(__file__).parent.parent / "docs"
DELTAS = np.array(pairs.DELTAS)
BATCHES = (25, 50, 100, 200, 400, 800, 1600)
KNOWN_VARIANCE, KNOWN_SIGMA = 0.8, 1.0
"""Of Delta* and of the test, for the quadrature."""
USED_VARIANCE = 1.0
"""Of Delta* in the simulation: what the default aims at; its tables (`LADDER`) begin at sigma 1.2."""
REACH = 20.0
AT_ONCE = 2**25  # numbers held at a time
CLEAR = 3.0  # standard errors above which a point counts in the fit
LATE = 400
"""Rows from which the power of b is fitted once more, nearer to its limit."""


# ---- the rows ----------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Numbers per row of mean 0 and variance 1, read with replacement."""

    values: np.ndarray
    points: np.ndarray
    """The same in bins, each at the mean of its rows: enough for a characteristic function."""
    weights: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, bins: int = 8000) -> Rows:
        """Standardise and bin."""
        values = standardised(values)
        edges = np.linspace(values.min(), values.max(), bins + 1)[1:-1]
        at = np.digitize(values, edges)
        counts = np.bincount(at, minlength=bins)
        points = np.bincount(at, values, bins)[counts > 0] / counts[counts > 0]
        return cls(values, points, counts[counts > 0] / len(values))

    def moment(self, power: int) -> float:
        """E X^power."""
        return float(np.mean(self.values**power))

    def absolute_moment(self, power: int) -> float:
        """E |X|^power."""
        return float(np.mean(np.abs(self.values) ** power))


def standardised(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64)
    return (values - values.mean()) / values.std()


def typical_ratios(model: Any, positions: np.ndarray, step: float) -> np.ndarray:
    """Log ratios per row of the random-walk step, one from each position, whose skewness has the median size."""
    steps = step * np.random.default_rng(SEED).standard_normal(positions.shape).astype(np.float32)
    log_likelihood = jax.jit(jax.vmap(model.posterior.log_likelihood, (None, 0)))

    def ratios(position: np.ndarray, step: np.ndarray) -> np.ndarray:
        there, here = log_likelihood(position + step, model.data), log_likelihood(position, model.data)
        return np.asarray(there, np.float64) - np.asarray(here, np.float64)

    sizes = [abs(pairs.skewness(standardised(ratios(*pair)))) for pair in zip(positions, steps, strict=True)]
    middle = np.argsort(sizes)[len(sizes) // 2]
    return ratios(positions[middle], steps[middle])


def all_rows(steps: int = 31) -> dict[str, Rows]:
    """Three laws of rows, and the log ratios of a typical step in the two posteriors of the benchmarks."""
    drawn = pairs.laws()
    found = {name.split(" (")[0]: drawn[name] for name in drawn if not name.startswith(("normal", "gamma"))}
    model, _ = mixture()
    found["paper's mixture"] = typical_ratios(model, exact_starts(model.quadrature(points=61), steps), MIXTURE_STEP)
    model, kernel = pixels()
    trace = run(kernel(tc.MinibatchBarker()), np.zeros((steps, PIXELS), np.float32), 10, warmup=500)
    found["logistic regression"] = typical_ratios(model, trace.position[:, -1], PIXEL_STEP)
    return {name: Rows.of(values) for name, values in found.items()}


# ---- quadrature --------------------------------------------------------------------------------

_STEP = 0.1
FREQUENCIES = _STEP * (np.arange(300) + 0.5)

Atoms = tuple[np.ndarray, np.ndarray]
"""Values of X_corr and their probabilities."""


def characteristic(rows: Rows, b: int, variance: float) -> np.ndarray:
    """E exp(i t e) at the frequencies t, e the mean of b rows with this variance."""
    t = np.sqrt(variance / b) * FREQUENCIES
    return (np.exp(1j * t[:, None] * rows.points) @ rows.weights) ** b


def chances(noise: np.ndarray, atoms: Atoms, padding: float, deltas: np.ndarray = DELTAS) -> np.ndarray:
    """P(Delta + e + X_nc + X_corr > 0) = 1/2 + (1/pi) int_0^inf Im phi(t)/t dt, phi the characteristic function.

    By the midpoint rule, the error of which is the chance that the sum is beyond 2 pi/step = 63: nothing.
    """
    t = FREQUENCIES[:, None]
    phi = noise * np.exp(-((padding * FREQUENCIES) ** 2) / 2) * (np.exp(1j * t * atoms[0]) @ atoms[1])
    return 0.5 + _STEP / np.pi * np.imag(phi[:, None] * np.exp(1j * t * deltas) / t).sum(0)


def interpolated(sigma: float, skew: float, nodes: tuple[float, ...], kind: str) -> Atoms:
    """X_corr from the tables at the nodes, as `Tables` interpolates it."""
    size = min(abs(skew), nodes[-1])
    share = np.maximum(1 - np.abs(np.asarray(nodes) - size) / (nodes[1] - nodes[0]), 0)
    found = [minimax_for(Law(sigma)._replace(**{kind: node})) for node in nodes]
    atoms = np.concatenate([table.atoms for table in found])
    weights = np.concatenate([w * table.weights for w, table in zip(share, found, strict=True)])
    return (atoms if skew >= 0 else -atoms), weights


def known_variance(gamma: float, b: int) -> dict[str, Atoms]:
    """X_corr by rule, for rows of known variance and skewness."""
    kappa3 = gamma * KNOWN_VARIANCE**1.5 / np.sqrt(b)
    own = compute_for_law(Law(KNOWN_SIGMA, kappa3=abs(kappa3)), REACH)
    plain = minimax(KNOWN_SIGMA)
    return {
        "none": (plain.atoms, plain.weights),
        "skew": interpolated(KNOWN_SIGMA, kappa3, KAPPA3, "kappa3"),
        "skew, own table": (np.sign(kappa3) * own.atoms, own.weights),
        "printed": interpolated(KNOWN_SIGMA, gamma / (6 * np.sqrt(b)), PRINTED, "printed"),
    }


def by_quadrature(rows: Rows, b: int) -> list[dict[str, Any]]:
    """Error in log-odds of each rule, the variance of the rows known."""
    noise = characteristic(rows, b, KNOWN_VARIANCE)
    padding = np.sqrt(KNOWN_SIGMA**2 - KNOWN_VARIANCE)
    fine = np.linspace(-8, 8, 161)
    results = []
    for rule, atoms in known_variance(rows.moment(3), b).items():
        errors = logit(chances(noise, atoms, padding)) - DELTAS
        gap = np.abs(chances(noise, atoms, padding, fine) - expit(fine)).max()
        results.append({"rule": rule, "b": b, "log_odds_error": errors.tolist(), "chance_error": float(gap)})
    return results


# ---- simulation --------------------------------------------------------------------------------

RULES: dict[str, bool | str] = {"none": False, "skew": True, "skew, true skewness": True, "printed": "printed"}
"""As in `MinibatchBarker(skew=...)`. The third shows what the ESTIMATE of the skewness costs."""


def used_tables() -> list[Tables]:
    """The tables of the default, by rule; appendix A.5 has its own."""
    return [Tables.of_laws(LADDER, skew=kind) for kind in RULES.values()]


def readings(values: Array, gamma: Array, population: Population) -> list[Reading]:
    """What each rule knows after b rows of skewness gamma."""
    found = SkewMoments.of(values, jnp.ones(values.shape, bool))
    b, variance = found.count, row_variance(found)
    kappa3 = third_cumulant(found.skewness, variance, b, population, of_same_rows=True)
    true = third_cumulant(gamma, jnp.full_like(variance, b * USED_VARIANCE), b, population, of_same_rows=True)
    skews = (jnp.zeros_like(kappa3), kappa3, true, found.skewness / (6 * jnp.sqrt(b)))
    return [Reading(found.mean, variance / b, skew) for skew in skews]


@partial(jax.jit, static_argnames=("b", "trials"))
def products(key: Array, rows: Array, gamma: Array, tables: list[Tables], b: int, trials: int) -> Array:
    """Sums of the products of all pairs of: 1, the controls, and the chances to accept less Barker's, by rule."""
    population = Population(len(rows), b, repeats=True)

    def at_deltas(table: Tables, reading: Reading) -> Array:
        return jax.vmap(lambda delta: table.chance(reading._replace(estimate=reading.estimate + delta)))(DELTAS)

    def one(key: Array) -> Array:
        values = jnp.sqrt(b * USED_VARIANCE) * rows[jr.randint(key, (b,), 0, len(rows))]
        found = readings(values, gamma, population)
        mean, extra = found[0].estimate, found[0].s2 - USED_VARIANCE
        simple = at_deltas(tables[0], Reading(mean, jnp.full_like(mean, USED_VARIANCE)))
        powers = jnp.stack([mean, mean**2, extra, mean * extra, mean**2 * extra])
        chosen = [at_deltas(*pair) - expit(DELTAS) for pair in zip(tables, found, strict=True)]
        return jnp.concatenate([jnp.ones(1), simple, powers, *chosen])

    columns = jax.vmap(one)(jr.split(key, trials))
    return columns.T @ columns


def expected_controls(rows: Rows, b: int) -> np.ndarray:
    """The known means of the controls of `products`: the test with the variance known, and moments of mean and s2."""
    noise = characteristic(rows, b, USED_VARIANCE)
    plain = minimax(LADDER[0])
    simple = chances(noise, (plain.atoms, plain.weights), np.sqrt(LADDER[0] ** 2 - USED_VARIANCE))
    third = rows.moment(3) * USED_VARIANCE**1.5 / np.sqrt(b)
    fourth = (rows.moment(4) - 3) * USED_VARIANCE**2 / b
    return np.concatenate([simple, [0.0, USED_VARIANCE, 0.0, third, fourth]])


def by_simulation(rows: Rows, tables: list[Tables], b: int, trials: int) -> list[dict[str, Any]]:
    """Error in log-odds of each rule, variance and skewness estimated from the b rows, with its standard errors.

    The same rows serve all rules and all Delta. What is known exactly, the test with the variance known and moments of
    the mean and of s2, is regressed out of the chances.
    """
    values, gamma = jnp.asarray(rows.values), jnp.asarray(rows.moment(3))
    at_once = min(trials, max(1, AT_ONCE // max(b, 64)))
    turns = -(-trials // at_once)
    sums: Any = 0.0
    for turn in range(turns):
        key = jr.fold_in(jr.fold_in(jr.key(SEED), b), turn)
        sums = sums + np.asarray(products(key, values, gamma, tables, b, at_once))
    n = turns * at_once
    controls = expected_controls(rows, b)
    errors, covariance = regressed(sums / n, controls, n)
    results = []
    for i, rule in enumerate(RULES):
        part = slice(i * len(DELTAS), (i + 1) * len(DELTAS))
        p = expit(DELTAS) + errors[part]
        scale = 1 / (p * (1 - p))
        off = logit(p) - DELTAS
        signs = np.sign(off) * scale / len(DELTAS)
        results.append(
            {
                "rule": rule,
                "b": b,
                "trials": n,
                "log_odds_error": off.tolist(),
                "standard_error": (np.sqrt(np.diag(covariance)[part]) * scale).tolist(),
                "standard_error_of_mean": float(np.sqrt(signs @ covariance[part, part] @ signs)),
            }
        )
    return results


def regressed(moments: np.ndarray, controls: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of the last columns with the controls regressed out, and the covariance of these means."""
    centred = moments - np.outer(moments[0], moments[0])
    x, y = slice(1, 1 + len(controls)), slice(1 + len(controls), None)
    units = np.sqrt(np.diag(centred)[x])
    slope = np.linalg.lstsq(centred[x, x] / np.outer(units, units), centred[x, y] / units[:, None], rcond=1e-12)[0]
    slope /= units[:, None]
    means = moments[0, y] - (moments[0, x] - controls) @ slope
    left = centred[y, y] - slope.T @ centred[x, y]
    return means, left / n


# ---- the whole ---------------------------------------------------------------------------------


def mean_error(result: dict[str, Any]) -> float:
    return float(np.mean(np.abs(result["log_odds_error"])))


def power_of(series: list[dict[str, Any]]) -> dict[str, Any]:
    """Fit the power of b to the mean errors: least squares in logs, over the points that stand clear of their noise."""
    clear = [r for r in series if mean_error(r) > CLEAR * r.get("standard_error_of_mean", 0.0)]
    late = [r for r in clear if r["b"] >= LATE]
    return {"power": slope(clear), "late_power": slope(late), "fitted_b": [r["b"] for r in clear]}


def slope(series: list[dict[str, Any]]) -> float | None:
    """Of the line through the points in logs; None for fewer than two."""
    b, errors = [r["b"] for r in series], [mean_error(r) for r in series]
    return float(np.polyfit(np.log(b), np.log(errors), 1)[0]) if len(series) > 1 else None


def powers(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The power of b by method, kind of rows and rule."""
    found = []
    for method, entries in results.items():
        for name, rule in dict.fromkeys((r["rows"], r["rule"]) for r in entries):
            found.append({"method": method, "rows": name, "rule": rule} | power_of(select(entries, name, rule)))
    return found


def measure(trials: int) -> dict[str, Any]:
    everything = all_rows()
    jax.config.update("jax_enable_x64", True)  # after the chains of `all_rows`, which are in float32 as always
    tables = used_tables()
    measured: dict[str, list[dict[str, Any]]] = {"quadrature": [], "simulation": []}
    for name, rows in everything.items():
        for b in BATCHES:
            found = {"quadrature": by_quadrature(rows, b), "simulation": by_simulation(rows, tables, b, trials)}
            for method, entries in found.items():
                measured[method] += [{"rows": name} | entry for entry in entries]
                print(name, b, method, {r["rule"]: f"{mean_error(r):.2g}" for r in entries}, flush=True)
    moments = [
        {
            "rows": name,
            "skewness": rows.moment(3),
            "kurtosis": rows.moment(4),
            "first_absolute_moment": rows.absolute_moment(1),
            "third_absolute_moment": rows.absolute_moment(3),
        }
        for name, rows in everything.items()
    ]
    return {"moments": moments, **measured, "powers": powers(measured)}


# ---- pictures ----------------------------------------------------------------------------------

# Okabe and Ito's colours, told apart by colour-blind readers too.
STYLES: dict[str, dict[str, Any]] = {
    "printed": {"color": "#D55E00", "marker": "s", "label": "A.5 as printed"},
    "none": {"color": "#000000", "marker": "o", "label": "no correction"},
    "skew": {"color": "#0072B2", "marker": "^", "label": "skew correction"},
    "skew, own table": {"color": "#009E73", "marker": "v", "label": "the same, a table made for each b"},
    "skew, true skewness": {"color": "#CC79A7", "marker": "D", "label": "the same, with the true skewness"},
}
SHIFT_STYLES = {
    "growth": {"color": "#D55E00", "marker": "s"},
    "pilot": {"color": "#009E73", "marker": "^"},
    "fresh": {"color": "#0072B2", "marker": "o"},
}
FINE = 300.0
"""Rows needed (6 batches) from which the steps of growth are fine."""
METHODS = {"quadrature": "variance and skewness known", "simulation": "estimated from the same rows"}
GUIDES = {"none": (-0.5, "#D9D9D9", r"$b^{-1/2}$"), "skew": (-1.0, "#BBD7EC", r"$b^{-1}$")}


def select(entries: list[dict[str, Any]], kind: str, rule: str) -> list[dict[str, Any]]:
    return [r for r in entries if (r["rows"], r["rule"]) == (kind, rule)]


def draw_orders(results: dict[str, Any], path: Path) -> None:
    """Mean error against b: a column for each kind of rows, a row for each method."""
    kinds = [entry["rows"] for entry in results["moments"]]
    figure, grid = _figure((14, 6.6), len(METHODS), len(kinds), sharex=True, sharey="row")
    for line, method in zip(grid, METHODS, strict=True):
        for axes, kind in zip(line, kinds, strict=True):
            for rule, style in STYLES.items():
                series = select(results[method], kind, rule)
                if not series:
                    continue
                bars = [2 * r.get("standard_error_of_mean", 0.0) for r in series]
                axes.errorbar([r["b"] for r in series], [mean_error(r) for r in series], bars, ms=4, lw=1.4, **style)
                if rule in GUIDES:
                    _guide(axes, rule, mean_error(series[0]))
            axes.set(xscale="log", yscale="log", xticks=[25, 100, 400, 1600], xticklabels=["25", "100", "400", "1600"])
            axes.minorticks_off()
        line[0].set_ylabel(f"mean |log-odds error|\n{METHODS[method]}")
    for axes, entry in zip(grid[0], results["moments"], strict=True):
        axes.set_title(f"{entry['rows']}\n(skewness {entry['skewness']:.2g})", fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("rows b")
    _legend(figure, grid, 7)
    figure.savefig(path)


def draw_shift(results: dict[str, Any], path: Path) -> None:
    """Mean of Delta* - Delta against the law of its shift by growth; hollow where the steps of growth are coarse."""
    figure, axes = _figure((6.8, 4.8))
    for rule, style in SHIFT_STYLES.items():
        series = [r for r in results["by_rows"] if r["rule"] == rule]
        for is_coarse in (False, True):
            part = [r for r in series if (r["needed"] < FINE) == is_coarse]
            look = style | ({"markerfacecolor": "white"} if is_coarse else {"label": rule})
            law, shift = [shift_law(r) for r in part], [r["shift"] for r in part]
            axes.errorbar(law, shift, [2 * r["shift_error"] for r in part], lw=0, elinewidth=1.2, ms=5, **look)
    low, _ = axes.get_xlim()
    axes.plot([low, 0], [low, 0], color="#999999", zorder=0, label=r"$-\gamma\sqrt{s^2/b}$")
    axes.axhline(0, color="#999999", ls="--", zorder=0)
    axes.set(xlabel=r"$-\gamma\sqrt{s^2/b}$ at $s^2 = \sigma^2 = 1$", ylabel=r"measured mean of $\Delta^* - \Delta$")
    _legend(figure, axes, 4)
    figure.savefig(path)


def shift_law(result: dict[str, Any]) -> float:
    """-gamma sqrt(s2/b), s2 = 1."""
    return -result["skewness"] * result["mean_root_inverse_b"]


def draw_bound(
    results: dict[str, Any], path: Path, kinds: tuple[str, ...] = ("exponential", "paper's mixture")
) -> None:
    """The paper's bound, the estimate by skewness, and the error itself against b."""
    figure, panels = _figure((9.6, 4.4), 1, len(kinds), sharey=True)
    b = np.array(BATCHES)
    for axes, kind in zip(panels, kinds, strict=True):
        entry = next(e for e in results["moments"] if e["rows"] == kind)
        axes.axhline(1, color="#999999", ls=":", label="1: a bound above it says nothing")
        axes.plot(b, bound(entry, b), color="#D55E00", marker="s", ms=4, label="the paper's bound")
        estimate = np.abs(entry["skewness"]) * KNOWN_VARIANCE**1.5 / np.sqrt(b) / 6
        axes.plot(b, estimate, color="#009E73", ls="--", label=r"$|\kappa_3|/6$ (log-odds)")
        for rule in ("none", "skew"):
            series = select(results["quadrature"], kind, rule)
            style = STYLES[rule] | {"label": f"error of P(accept), {STYLES[rule]['label']}"}
            axes.plot(b, [r["chance_error"] for r in series], ms=4, **style)
        axes.set(xscale="log", yscale="log", xlabel="rows b", title=kind)
        axes.set_xticks(b[::2], [str(value) for value in b[::2]])
        axes.minorticks_off()
    panels[0].set_ylabel("error")
    _legend(figure, panels, 3)
    figure.savefig(path)


def bound(entry: dict[str, Any], b: Any) -> Any:
    """The paper's bound on the distance of the studentised mean's CDF from the normal one, of standardised rows."""
    return (6.4 * entry["third_absolute_moment"] + 2 * entry["first_absolute_moment"]) / np.sqrt(b)


def draw() -> None:
    """Draw the three pictures from the result files."""
    results = load("orders")["results"]
    draw_orders(results, DOCS / "orders.png")
    draw_shift(load("pairs")["results"], DOCS / "shift.png")
    draw_bound(results, DOCS / "bound.png")


def _figure(size: tuple[float, float], *shape: int, **shared: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=130, layout="constrained")
    panels = figure.subplots(*shape, **shared)
    for axes in np.ravel(panels):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure, panels


def _guide(axes: Any, rule: str, start: float) -> None:
    """A power of b as a band behind the data, through the first point."""
    power, color, name = GUIDES[rule]
    ends = np.array([BATCHES[0], BATCHES[-1]])
    axes.plot(ends, start * (ends / ends[0]) ** power, color=color, lw=7, zorder=0, label=name)


def _legend(figure: Any, panels: Any, columns: int) -> None:
    """One for all panels, below them."""
    entries = [pair for axes in np.ravel(panels) for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(entries)}
    labels = list(dict.fromkeys(label for _, label in entries))
    place = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend([handles[label] for label in labels], labels, **place)


def main() -> None:
    trials = 40_000 if jax.default_backend() == "cpu" else 4_000_000
    configuration = {
        "rows": "laws: 1,000,000 draws; models: log ratios of all rows in the step of median |skewness| out of 31 from "
        "the posterior; standardised, read with replacement",
        "deltas": DELTAS.tolist(),
        "quadrature": f"variance of Delta* {KNOWN_VARIANCE}, known; sigma {KNOWN_SIGMA}",
        "simulation": f"variance of Delta* {USED_VARIANCE}, estimated; sigma the smallest of {LADDER} that holds it",
        "trials": trials,
        "seed": SEED,
    }
    save("orders", configuration, measure(trials), quiet=True)


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        main()
    draw()
