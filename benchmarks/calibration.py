"""Simulation-based calibration (Talts et al. 2018): the rank of a true parameter among draws of its posterior.

Draw parameters from the prior, rows given the parameters, and positions from the posterior given the rows: each
parameter and its draws then have the same law given the rows, so its rank among them is uniform. No closed form is
needed. Here every draw is the end of a chain of its own. A chain starts in the normal approximation of its posterior,
not at the truth: so ranks are fair however long chains are, and four relaxation times let errors show.

`python -m benchmarks.calibration`: measures, and draws docs/calibration.png.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr
from scipy import stats
from scipy.special import ndtri

import tallchain as tc
from benchmarks.measure import load, save
from tallchain.acceptance import Austere, Confidence, MinibatchBarker, Penalty
from tallchain.functions import shared
from tallchain.kernel import Trial, where
from tallchain.models.likelihoods import (
    LinearLogLikelihood,
    NormalLogPrior,
    logistic_log_likelihood,
    poisson_log_likelihood,
)
from tallchain.models.range_bound import RangeBound
from tallchain.types import Array, Proposed, PyTree, part, replace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS = Path(__file__).parent.parent / "docs"
SEED = 7
ROWS = 1000
CHAINS = 9  # per data set, one draw of each: a rank is one of 0, ..., 9
START_WIDTH = 2.0  # of the starts, in standard deviations of the normal approximation
RELAXATIONS = 4.0
LEVEL = 0.01  # chance that one of all combinations is refused though all are sound
FACTORS = (0.67, 0.8, 0.9, 1.1, 1.25, 1.5)  # wrong variances for which to say how often they are seen
# Okabe and Ito's colours, told apart by colour-blind readers too.
COLORS = ("#0072B2", "#D55E00", "#009E73")
_NEWTON = 8


# ---- models -----------------------------------------------------------------------------------


class Model(NamedTuple):
    """A posterior, and how its parameters and rows come about."""

    posterior: tc.Posterior
    prior_sd: float
    features: Callable[[np.random.Generator, int], np.ndarray]
    """(random, rows) -> (row, parameter); one design for all data sets."""
    outcomes: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    """(random, linear predictors) -> outcomes of the same shape."""
    bound: Callable[[np.ndarray, np.ndarray], Any]
    """(features, outcomes) -> the kernel's `bound`, one for all data sets, or None."""
    step: float
    """Of the random walk, in posterior standard deviations."""
    sets: int
    """Data sets, for a test that reads most rows."""


@dataclasses.dataclass(frozen=True)
class SpanBound:
    """Range over rows of -(y - t')^2/2 + (y - t)^2/2: the span of y times |t' - t|."""

    span: float

    def __call__(self, position: Array, candidate: Array) -> Array:
        """Return the range, at least."""
        return self.span * jnp.abs(candidate - position)[0]


def _posterior(prior_sd: float, log_likelihood: Any, temperature: float = 1.0) -> tc.Posterior:
    return tc.Posterior(shared(NormalLogPrior(prior_sd)), shared(log_likelihood), temperature)


_NOISE_SD = 2.0

MODELS: dict[str, Model] = {
    # A temperature K with a normal likelihood is a variance K times as large: the rows have that variance.
    "normal mean": Model(
        _posterior(1.0, LinearLogLikelihood(1.0), _NOISE_SD**2),
        1.0,
        lambda random, rows: np.ones((rows, 1)),
        lambda random, eta: random.normal(eta, _NOISE_SD),
        lambda x, y: SpanBound(float(np.ptp(y, axis=1).max()) * (1 + 1e-5)),
        step=0.3,
        sets=1000,
    ),
    "logistic regression": Model(
        _posterior(1.0, logistic_log_likelihood),
        1.0,
        lambda random, rows: np.concatenate([np.ones((rows, 1)), random.normal(size=(rows, 2))], 1),
        lambda random, eta: random.random(eta.shape) < 1 / (1 + np.exp(-eta)),
        lambda x, y: RangeBound.of(x),
        step=0.25,
        sets=400,
    ),
    "Poisson regression": Model(
        _posterior(0.5, poisson_log_likelihood),
        0.5,
        lambda random, rows: np.concatenate([np.ones((rows, 1)), random.uniform(-1.7, 1.7, (rows, 2))], 1),
        lambda random, eta: random.poisson(np.exp(eta)),
        lambda x, y: None,
        step=0.25,
        sets=400,
    ),
}


class Setting(NamedTuple):
    """An acceptance test, and what it takes to run it."""

    make: Callable[[], Any]
    acceptance: float
    """Roughly, for the length of chains."""
    batch: int = 50
    times: int = 1
    """As many data sets as the model says: more where rows are few."""


TESTS: dict[str, Setting] = {
    "MinibatchBarker()": Setting(MinibatchBarker, 0.47, times=2),
    "Penalty()": Setting(Penalty, 0.6, times=2),
    "Austere(0.005)": Setting(partial(Austere, 0.005), 0.8),
    "Confidence(0.1)": Setting(partial(Confidence, 0.1), 0.8, batch=200),
}


# ---- data sets --------------------------------------------------------------------------------


class Joint(NamedTuple):
    """Parameters and rows from their joint law, with the normal approximation of each posterior."""

    truth: np.ndarray
    """(set, parameter)."""
    data: dict[str, np.ndarray]
    """{"x": (set, row, parameter), "y": (set, row)}."""
    mode: np.ndarray
    root: np.ndarray
    """(set, parameter, parameter), L with L L' the covariance."""


def simulate(model: Model, random: np.random.Generator, sets: int, rows: int = ROWS) -> Joint:
    """Draw from the joint law of a model."""
    x = model.features(random, rows).astype(np.float32)
    truth = random.normal(0, model.prior_sd, (sets, x.shape[1])).astype(np.float32)
    y = model.outcomes(random, truth @ x.T).astype(np.float32)
    data = {"x": np.broadcast_to(x, (sets, *x.shape)), "y": y}
    mode, root = (np.asarray(found) for found in _approximate(model.posterior, data, truth))
    return Joint(truth, data, mode, root)


@jax.jit
def _approximate(posterior: tc.Posterior, data: PyTree, starts: Array) -> tuple[Array, Array]:
    """Mode and root of the covariance of every posterior, by Newton's method."""

    def density(t: Array, data: PyTree) -> Array:
        log_likelihood = jax.vmap(posterior.log_likelihood, (None, 0))(t, data)
        return posterior.log_prior(t) + log_likelihood.sum() / posterior.temperature

    def one(data: PyTree, t: Array) -> tuple[Array, Array]:
        def newton(_: int, t: Array) -> Array:
            return t - jnp.linalg.solve(jax.hessian(density)(t, data), jax.grad(density)(t, data))

        t = lax.fori_loop(0, _NEWTON, newton, t)
        return t, jnp.linalg.cholesky(jnp.linalg.inv(-jax.hessian(density)(t, data)))

    return jax.vmap(one)(data, starts)


# ---- chains: every data set has its own kernel -------------------------------------------------

Break = Callable[[tc.MetropolisHastings, float], tc.MetropolisHastings]
"""(kernel, step in posterior standard deviations) -> the kernel, broken on purpose."""


class Lane(NamedTuple):
    """One chain, and its cost so far."""

    draw: Array
    """Decisions made; -1 before the first trial."""
    position: Array
    trial: Trial
    num_rows: Array
    num_scanned: Array
    num_accepted: Array


@jax.jit
def end_of_chains(
    kernel: tc.MetropolisHastings, data: PyTree, scale: Array, keys: Array, positions: Array, draws: Array
) -> Lane:
    """Run `draws` decisions of every chain (set, chain), one look of each at a time.

    `sample` does the same for chains with one kernel; here data and scale have the data set as their first axis. The
    keys are used as `sample` uses those of its chains, and give the same draws.
    """

    def start(key: Array, position: Array) -> Lane:
        shapes = jax.eval_shape(lambda: kernel.open(kernel.draw(key, position), position))
        zero = jnp.zeros((), jnp.int32)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return Lane(zero - 1, position, nothing, zero, zero, zero)

    def turn(kernel: tc.MetropolisHastings, key: Array, lane: Lane) -> Lane:
        trial, is_decided, is_accepted = kernel.judge(kernel.look(lane.position, lane.trial))
        is_counted = is_decided & (lane.draw >= 0) & (lane.draw < draws)
        position, verdict = kernel.close(lane.position, trial, is_counted & is_accepted)
        is_over = is_counted | (lane.draw < 0)
        draw = lane.draw + is_over
        opened = kernel.open(kernel.draw(jr.fold_in(key, draw), position), position)
        return Lane(
            draw,
            position,
            where(is_over, opened, trial),
            lane.num_rows + is_counted * verdict.num_rows,
            lane.num_scanned + is_counted * verdict.num_scanned,
            lane.num_accepted + (is_counted & is_accepted),
        )

    def turns_of_set(data: PyTree, scale: Array, keys: Array, lanes: Lane) -> Lane:
        here = replace(kernel.scaled(scale), source=replace(kernel.source, data=data))
        return jax.vmap(partial(turn, here))(keys, lanes)

    return lax.while_loop(
        lambda lanes: jnp.any(lanes.draw < draws),
        lambda lanes: jax.vmap(turns_of_set)(data, scale, keys, lanes),
        jax.vmap(jax.vmap(start))(keys, positions),
    )


class Run(NamedTuple):
    """Ranks, and what they cost."""

    ranks: np.ndarray
    """(set, parameter), from 0 to CHAINS."""
    draws: int
    share: float
    """Of the rows, looked at per decision."""
    scanned: float
    acceptance: float
    memory: float
    """What is left of a start at the end of a chain, as a share: the largest over parameters."""


def run(
    model_name: str,
    test_name: str,
    broken: Break | None = None,
    *,
    seed: int = SEED,
    sets: int | None = None,
    rows: int = ROWS,
) -> Run:
    """Simulate data sets, sample each posterior, and rank the truth among the draws."""
    model, test = MODELS[model_name], TESTS[test_name]
    # Data sets of their own for each combination: what chance does to one is nothing to the others.
    words = [seed, list(MODELS).index(model_name), list(TESTS).index(test_name)]
    random = np.random.default_rng(words)
    joint = simulate(model, random, test.times * model.sets if sets is None else sets, rows)
    kernel = kernel_of(model, test, joint)
    kernel = kernel if broken is None else broken(kernel, model.step)
    z = random.normal(size=(len(joint.truth), CHAINS, joint.truth.shape[1])).astype(np.float32)
    starts = joint.mode[:, None] + START_WIDTH * np.einsum("sij,scj->sci", joint.root, z)
    keys = jr.split(jr.key(random.integers(2**31)), starts.shape[:2])
    # A random walk with small steps is a diffusion: it forgets at a rate of acceptance step^2 / 2.
    draws = math.ceil(RELAXATIONS * 2 / (test.acceptance * model.step**2))
    lanes = end_of_chains(kernel, joint.data, model.step * joint.root, keys, starts, jnp.int32(draws))
    ends = np.asarray(lanes.position)
    standardised = np.linalg.solve(joint.root[:, None], (ends - joint.mode[:, None])[..., None])[..., 0]
    total = draws * starts[..., 0].size
    return Run(
        (ends < joint.truth[:, None]).sum(1),
        draws,
        float(np.asarray(lanes.num_rows).sum(dtype=np.int64)) / total / rows,
        float(np.asarray(lanes.num_scanned).sum(dtype=np.int64)) / total / rows,
        float(np.asarray(lanes.num_accepted).sum(dtype=np.int64)) / total,
        float(np.abs((z * standardised).mean((0, 1))).max()) / START_WIDTH,
    )


def kernel_of(model: Model, test: Setting, joint: Joint, of_set: int = 0) -> tc.MetropolisHastings:
    """Return the kernel of one of the data sets."""
    x, y = joint.data["x"], joint.data["y"]
    return tc.MetropolisHastings(
        model.posterior,
        tc.Shuffled({"x": x[of_set], "y": y[of_set]}, test.batch, windows=False),
        proposal=tc.RandomWalk(model.step * joint.root[of_set]),
        acceptance=test.make(),
        bound=model.bound(x[0], y),
    )


# ---- broken on purpose ------------------------------------------------------------------------


@part
class Wrong:
    """A random walk that adds to the log ratio: a constant, and a slope along the first standard normal of its step."""

    walk: Any
    shift: float
    slope: float

    def check(self, position: PyTree) -> None:
        """Refuse what the walk refuses."""
        self.walk.check(position)

    def draw(self, key: Array, position: PyTree) -> PyTree:
        """Draw as the walk does."""
        return self.walk.draw(key, position)

    def propose(self, noise: Array, position: PyTree) -> Proposed:
        """Propose as the walk does, with a log correction that does not belong there."""
        return self.walk.propose(noise, position)._replace(log_correction=self.shift + self.slope * noise[0])

    def with_scale(self, scale: PyTree) -> Wrong:
        """Return the same with another scale."""
        return replace(self, walk=self.walk.with_scale(scale))


def _without_correction(kernel: tc.MetropolisHastings, step: float) -> tc.MetropolisHastings:
    test: Any = kernel.acceptance
    tables = replace(test.tables, atoms=jnp.zeros_like(test.tables.atoms))
    return replace(kernel, acceptance=replace(test, tables=tables))


def _hotter(kernel: tc.MetropolisHastings, step: float) -> tc.MetropolisHastings:
    posterior = replace(kernel.posterior, temperature=1.5 * kernel.posterior.temperature)
    return replace(kernel, posterior=posterior)


def _shifted(kernel: tc.MetropolisHastings, step: float) -> tc.MetropolisHastings:
    return replace(kernel, proposal=Wrong(kernel.proposal, 1.0, 0.0))


def _moved(kernel: tc.MetropolisHastings, step: float) -> tc.MetropolisHastings:
    return replace(kernel, proposal=Wrong(kernel.proposal, 0.0, step / 3))


BROKEN: dict[str, Break] = {
    "correction variable dropped": _without_correction,
    "temperature times 1.5": _hotter,
    "1 added to every log ratio": _shifted,
    "target moved by sd/3": _moved,
}


# ---- are ranks uniform? -----------------------------------------------------------------------


def p_values(ranks: np.ndarray) -> dict[str, float]:
    """p-values of uniform ranks (set, parameter), by statistic; the smallest over parameters, times their number.

    A chi-square test sees any shape of histogram, and none well. The mean of the ranks' normal scores sees draws that
    are off to one side, their mean square draws that are too wide or too narrow. The latter is also summed over
    parameters, in standard errors between data sets, because the parameters of one are not independent.
    """
    num_sets, size = ranks.shape
    every = ndtri((np.arange(CHAINS + 1) + 0.5) / (CHAINS + 1))
    scores = every[ranks]
    excess = scores**2 - np.mean(every**2)
    found = {
        "chi-square": stats.chisquare(counts(ranks), axis=1).pvalue,
        "mean": _two_sided(scores.mean(0) / np.sqrt(np.mean(every**2) / num_sets)),
        "spread": _two_sided(excess.mean(0) / np.sqrt(np.var(every**2) / num_sets)),
    }
    found = {name: float(min(1.0, size * np.min(p))) for name, p in found.items()}
    if size > 1:
        total = excess.sum(1)
        found["spread of all"] = float(_two_sided(total.mean() / (total.std(ddof=1) / np.sqrt(num_sets))))
    return found


def p_value(ranks: np.ndarray) -> float:
    """Bonferroni's p-value of all of `p_values`."""
    found = p_values(ranks)
    return min(1.0, len(found) * min(found.values()))


def is_calibrated(ranks: np.ndarray) -> bool:
    """Whether ranks pass, at Bonferroni's level for one of all combinations."""
    return p_value(ranks) > LEVEL / (len(MODELS) * len(TESTS))


def counts(ranks: np.ndarray) -> np.ndarray:
    """How often each rank came: (parameter, rank)."""
    return np.stack([np.bincount(column, minlength=CHAINS + 1) for column in ranks.T])


def _two_sided(z: np.ndarray) -> np.ndarray:
    return 2 * stats.norm.sf(np.abs(z))


def power(sets: int, variance: float, trials: int = 1000) -> float:
    """Chance that one normal parameter is refused, with draws whose variance is off by this factor."""
    random = np.random.default_rng(SEED)
    refused = 0
    for _ in range(trials):
        draws = random.normal(0, math.sqrt(variance), (sets, CHAINS, 1))
        refused += not is_calibrated((draws < random.normal(size=(sets, 1, 1))).sum(1))
    return refused / trials


# ---- the full run -----------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    default = next(iter(TESTS))
    sets = TESTS[default].times * MODELS["normal mean"].sets
    return {
        "sound": [_record(model, test) for model in MODELS for test in TESTS],
        "broken": [_record(model, default, name) for model in MODELS for name in BROKEN],
        "power": {"sets": sets, "refused": {f"{factor:g}": power(sets, factor) for factor in FACTORS}},
    }


def _record(model: str, test: str, broken: str | None = None) -> dict[str, Any]:
    began = time.perf_counter()
    found = run(model, test, None if broken is None else BROKEN[broken])
    record = {
        "model": model,
        "test": test,
        "broken": broken,
        "sets": len(found.ranks),
        "draws": found.draws,
        "share_of_rows": found.share,
        "share_scanned": found.scanned,
        "acceptance": found.acceptance,
        "memory": found.memory,
        "p_value": p_value(found.ranks),
        "p_values": p_values(found.ranks),
        "is_calibrated": is_calibrated(found.ranks),
    }
    print(f"{time.perf_counter() - began:6.1f} s", record, flush=True)
    return record | {"counts": counts(found.ranks).tolist()}


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the histograms of ranks: a row for each model, and one of broken samplers."""
    from matplotlib.figure import Figure

    broken = [record for record in results["broken"] if record["model"] == next(iter(MODELS))]
    records = [*results["sound"], *broken]
    rows, columns = len(records) // len(TESTS), len(TESTS)
    figure = Figure(figsize=(11, 2.2 * rows + 0.3), dpi=120, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True)
    for axes, record in zip(grid.flat, records, strict=True):
        _draw_ranks(axes, record)
    for axes in grid[-1]:
        axes.set_xlabel("rank of the truth")
    for axes in grid[:, 0]:
        axes.set_ylabel("count / expected")
    figure.savefig(path)


def _draw_ranks(axes: Axes, record: dict[str, Any]) -> None:
    """One line per parameter, over the range in which 95 of 100 bins of uniform ranks fall."""
    ranks = np.arange(CHAINS + 1)
    expected = record["sets"] / len(ranks)
    low, high = stats.binom.interval(0.95, record["sets"], 1 / len(ranks))
    axes.axhspan(low / expected, high / expected, color="#dddddd", lw=0)
    for column, color in zip(record["counts"], COLORS, strict=False):
        axes.stairs(np.array(column) / expected, np.arange(len(ranks) + 1) - 0.5, color=color, lw=1.5)
    label = record["test"] if record["broken"] is None else record["broken"]
    axes.set_title(f"{record['model']}\n{label}: p = {record['p_value']:.2g}", fontsize=8.5)
    axes.set(xticks=ranks[::3], ylim=(0, 1.7))
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    configuration = {
        "rows": ROWS,
        "chains": CHAINS,
        "batch_size": {name: setting.batch for name, setting in TESTS.items()},
        "step": {name: model.step for name, model in MODELS.items()},
        "starts": f"normal approximation of the posterior, {START_WIDTH:g} times as wide",
        "relaxation_times": RELAXATIONS,
        "level": LEVEL,
        "seed": SEED,
    }
    save("calibration", configuration, measure(), quiet=True)
    draw(load("calibration")["results"], DOCS / "calibration.png")


if __name__ == "__main__":
    main()
