"""Regressions with groups, calibrated by simulation: ranks of parameters that are drawn from the prior are uniform.

Draw parameters from the prior, outcomes given these, and draws from the posterior given the outcomes. The rank of a
parameter among its draws is then uniform (Talts, Betancourt, Simpson, Vehtari and Gelman 2018), for any model and any
number of rows, if the posterior is the right one and the sampler is exact. Parameters and outcomes are drawn with NumPy
and not with the library. The same ranks must not be uniform for draws with too small a spread, and for another prior.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import tallchain as tc
from conftest import SEED
from tallchain.acceptance.stopping import LEAST_ROWS
from tallchain.models import Prior, Regression, families
from tallchain.models.priors import Normal

ROWS = 600
REPLICATIONS = 300
BATCH = 50  # rows between two judgements, where the least are not enough
CHAINS, KEPT, THIN = 64, 8, 8  # effective draws of the worst parameter: one of seven, where a group sd is near 0
ALPHA = 1e-3  # how often a family with right ranks fails, at most, at other seeds
INTERCEPT, SLOPE, GROUP_SD = 1.0, 0.5, 0.5  # standard deviations under the prior; of a half-normal, for the last
SHARED_SD = 3.0  # of the library's prior of numbers that all rows share, around where the search starts

Position = dict[str, Any]
Random = np.random.Generator


class Case(NamedTuple):
    """A family, and how its outcomes are drawn."""

    family: families.Family
    outcomes: Callable[[Random, np.ndarray, Position], np.ndarray]
    """Given linear predictors and a position."""
    shared: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Mean and standard deviation, under the prior, of numbers that all rows share."""
    levels: Mapping[str, int] = MappingProxyType({"g": 30})
    """Of the factors."""


def _gaussian(random: Random, z: np.ndarray, at: Position) -> np.ndarray:
    return z + np.exp(at["log_noise_sd"]) * random.normal(size=len(z))


def _negative_binomial(random: Random, z: np.ndarray, at: Position) -> np.ndarray:
    shape = np.exp(at["log_shape"])
    return random.negative_binomial(shape, shape / (shape + np.exp(z)))


def _ordinal(random: Random, z: np.ndarray, at: Position) -> np.ndarray:
    cuts = np.cumsum([at["cutpoint"], np.exp(at["log_gap_1"]), np.exp(at["log_gap_2"])])
    return np.searchsorted(cuts, z + random.logistic(size=len(z)))


CASES = {
    "bernoulli": Case(
        families.Bernoulli(), lambda random, z, _: random.random(len(z)) < expit(z), levels={"g": 30, "h": 12}
    ),
    "poisson": Case(families.Poisson(), lambda random, z, _: random.poisson(np.exp(z))),
    "negative binomial": Case(families.NegativeBinomial(), _negative_binomial, {"log_shape": (0.5, 0.5)}),
    "gaussian": Case(families.Gaussian(), _gaussian, {"log_noise_sd": (0.0, 0.5)}),
    "ordinal": Case(
        families.Ordinal(4), _ordinal, {"cutpoint": (-1.0, 0.5), "log_gap_1": (0.0, 0.3), "log_gap_2": (0.0, 0.3)}
    ),
}


# ---- one replication ---------------------------------------------------------------------------


def labels(levels: int, random: Random) -> np.ndarray:
    """The first level has the most rows, the last one about a thirtieth of that."""
    ends = np.cumsum(np.geomspace(30.0, 1.0, levels))
    return random.permutation(np.searchsorted(ends / ends[-1], (np.arange(ROWS) + 0.5) / ROWS))


def from_prior(case: Case, random: Random) -> Position:
    """Draw a position."""
    sds = [INTERCEPT, SLOPE, SLOPE] if case.family.takes_intercept else [SLOPE, SLOPE]
    position: Position = {"coefficients": sds * random.normal(size=len(sds))}
    position |= {name: random.normal(mean, sd) for name, (mean, sd) in case.shared.items()}
    for name, count in case.levels.items():
        sd = GROUP_SD * abs(random.normal())
        position |= {name: sd * random.normal(size=count), f"log_sd({name})": np.log(sd)}
    return position


@dataclasses.dataclass(frozen=True)
class Replication:
    """What was drawn from the prior, and from the posterior given its outcomes."""

    truth: dict[str, float]
    draws: dict[str, np.ndarray]
    log_weights: np.ndarray
    """That turn the library's prior of the numbers that all rows share, which depends on the outcomes, into ours."""
    jitter: float


def quantities(case: Case, position: Position) -> dict[str, Any]:
    """The numbers to rank: all but the effects of most levels."""
    beta = position["coefficients"]
    found = {f"coefficients[{at}]": beta[..., at] for at in range(beta.shape[-1])}
    found |= {name: position[name] for name in case.shared}
    for name in case.levels:
        effects = position[name]
        found |= {f"log_sd({name})": position[f"log_sd({name})"]}
        found |= {f"{name}, most rows": effects[..., 0], f"{name}, fewest rows": effects[..., -1]}
    return found


def steady(prepared: tc.Prepared) -> tc.Prepared:
    """The same rows to read, in one of two shapes: a shape of its own for every replication takes most of the time."""
    rows = prepared.influence
    if rows.copies is None and not len(rows.exact) and rows.batch_size == LEAST_ROWS:
        return prepared
    more = np.diff(np.round(np.cumsum(rows.scores, dtype=np.float64) * (ROWS / rows.scores.sum())), prepend=0)
    copies = 1 + more.astype(np.int32)  # about as many as there were, and 2 ROWS in all
    rows = dataclasses.replace(rows, copies=copies, exact=rows.exact[:0], batch_size=max(BATCH, rows.batch_size))
    return dataclasses.replace(prepared, influence=rows)


def replicate(name: str, number: int) -> Replication:
    """From the prior to draws from the posterior; what the library refuses is an error here, too."""
    case, random = CASES[name], np.random.default_rng([SEED, list(CASES).index(name), number])
    truth, x = from_prior(case, random), random.normal(size=(ROWS, 2))
    groups = {name: labels(count, np.random.default_rng(at)) for at, (name, count) in enumerate(case.levels.items())}
    design = np.column_stack([np.ones(ROWS), x]) if case.family.takes_intercept else x
    z = design @ truth["coefficients"] + sum(truth[name][of] for name, of in groups.items())
    y = case.outcomes(random, z, truth)
    prior = Prior(Normal(SLOPE), Normal(INTERCEPT), GROUP_SD)
    model = Regression(case.family, y=y, x=x, groups=groups, prior=prior)
    prepared = tc.prepare(model, seed=number, progress=False)
    of_starts, of_chains = jax.random.split(jax.random.key(random.integers(2**31)))
    trace = tc.sample(
        of_chains, steady(prepared).kernel(), prepared.starts(of_starts, CHAINS), KEPT * THIN, num_chains=CHAINS,
        num_warmup=THIN, thin=THIN, scan=0, progress=False,
    )  # fmt: skip
    drawn = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).reshape(-1, *leaf.shape[2:]), trace.position)
    log_weights = np.zeros(CHAINS * KEPT)
    for shared, (mean, sd) in case.shared.items():
        log_weights += stats.norm.logpdf(drawn[shared], mean, sd)
        log_weights -= stats.norm.logpdf(drawn[shared], float(model.start[shared]), SHARED_SD)
    return Replication(quantities(case, truth), quantities(case, drawn), log_weights, random.random())


# ---- ranks -------------------------------------------------------------------------------------


def ranks(replications: list[Replication], spread: float = 1.0, group_sd: float = GROUP_SD) -> dict[str, np.ndarray]:
    """The share of the draws that are below the truth, by quantity and replication, between 0 and 1.

    Args:
        replications: any.
        spread: what to multiply the deviations of the draws from their mean with.
        group_sd: scale of the half-normal prior of the standard deviations of effects, in place of the right one.
    """
    found: dict[str, list[float]] = {name: [] for name in replications[0].truth}
    for of in replications:
        log_weights = of.log_weights.copy()
        for name, values in of.draws.items():
            if name.startswith("log_sd("):
                log_weights -= 0.5 * np.exp(2 * values) * (group_sd**-2 - GROUP_SD**-2)
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        for name, values in of.draws.items():
            mean = weights @ values
            below = weights @ (mean + spread * (values - mean) < of.truth[name])
            found[name].append((len(weights) * below + of.jitter) / (len(weights) + 1))
    return {name: np.array(values) for name, values in found.items()}


def p_values(found: dict[str, np.ndarray]) -> dict[tuple[str, str], float]:
    """By quantity: of the mean and the spread of the ranks' normal scores, and of Kolmogorov and Smirnov."""
    p = {}
    for name, of in found.items():
        scores = stats.norm.ppf(of)
        square = stats.chi2(len(of)).cdf(np.sum(scores**2))
        p[name, "mean"] = 2 * stats.norm.sf(abs(scores.sum()) / np.sqrt(len(of)))
        p[name, "spread"] = 2 * min(square, 1 - square)
        p[name, "shape"] = stats.kstest(of, "uniform").pvalue
    return {at: float(value) for at, value in p.items()}


def check(replications: list[Replication]) -> None:
    """Ranks are uniform, and those of wrong draws are not."""
    right = p_values(ranks(replications))
    limit = ALPHA / len(right)
    low = {at: value for at, value in right.items() if value < limit}
    assert not low, f"{low}, of {len(right)} with a limit of {limit:.2g}"
    assert min(p_values(ranks(replications, spread=0.7)).values()) < limit
    assert min(p_values(ranks(replications, group_sd=GROUP_SD / 3)).values()) < limit


def exact(number: int) -> Replication:
    """Twenty effects that are known, and draws of their standard deviation from its posterior on a grid."""
    random = np.random.default_rng([SEED, number])
    sd = GROUP_SD * abs(random.normal())
    square, log_sds = np.sum((sd * random.normal(size=20)) ** 2), np.linspace(-12, 2, 20_001)
    log_density = -0.5 * square * np.exp(-2 * log_sds) - 19 * log_sds - 0.5 * (np.exp(log_sds) / GROUP_SD) ** 2
    density = np.exp(log_density - log_density.max())
    draws = random.choice(log_sds, CHAINS * KEPT, p=density / density.sum())
    return Replication({"log_sd(g)": float(np.log(sd))}, {"log_sd(g)": draws}, np.zeros(len(draws)), random.random())


def test_ranks_of_exact_draws() -> None:
    """The check itself."""
    check([exact(number) for number in range(REPLICATIONS)])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ranks_are_uniform(name: str) -> None:
    """For every family, from `prepare` to draws."""
    check([replicate(name, number) for number in range(REPLICATIONS)])
