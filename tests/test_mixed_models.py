"""Regressions with groups, from `prepare` to draws, against quadrature; each check refuses a wrong answer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import tallchain as tc
from checks import Z_LIMIT
from conftest import SEED
from tallchain.models import Group, Prior, Regression, families
from tallchain.models.priors import Normal
from tallchain.surrogates import Predictors
from tallchain.surrogates.own_ground import rows_depend_on

CHAINS = 100
DRAWS = 120


def drawn(model: Regression, acceptance: Any = None, **changes: Any) -> tuple[tc.Prepared, tc.Trace]:
    prepared = tc.prepare(model, progress=False)
    kernel = prepared.kernel(acceptance)
    key = jax.random.key(SEED)
    options = {"num_chains": CHAINS, "num_warmup": 40, "scan": 0, "progress": False} | changes
    return prepared, tc.sample(key, kernel, prepared.starts(key, CHAINS), DRAWS, **options)


def z_scores(values: dict[str, np.ndarray], mean: dict[str, np.ndarray], sd: dict[str, np.ndarray]) -> np.ndarray:
    """Means and standard deviations against the truth, in standard errors between chains."""
    found = []
    for name, of in values.items():
        centred = np.asarray(of, np.float64) - mean[name]
        for moment, truth in ((centred.mean(1), 0.0), ((centred**2).mean(1), sd[name] ** 2)):
            found.append(np.ravel((moment.mean(0) - truth) / (moment.std(0, ddof=1) / np.sqrt(CHAINS))))
    return np.concatenate(found)


# ---- linear: normal given the scales, which are on a grid ---------------------------------------


def linear(noise: float | None = 1.0, group_sd: float = 0.4, seed: int = SEED) -> tuple[Regression, Any, Any]:
    """A model with known noise, or noise of 0.3 to be estimated; means and standard deviations by quadrature."""
    random = np.random.default_rng(seed)
    group, x = np.arange(240) % 8, random.normal(size=240)
    effects = group_sd * random.normal(size=8)
    y = np.float32(1 + 0.5 * x + effects[group] + (noise or 0.3) * random.normal(size=240)).astype(np.float64)
    model = Regression(
        families.Gaussian(noise), y=y, x=x[:, None], groups={"g": group}, prior=Prior(Normal(1.0), Normal(2.0), 0.7)
    )
    design = np.column_stack([np.ones(240), x, np.eye(8)[group]])
    log_sds = np.linspace(-12, 2.0, 1050 if noise else 280)
    log_noises = np.array([np.log(noise)]) if noise else np.linspace(-1.6, -0.8, 120)
    weights, means, squares = [], [], []
    for log_noise in log_noises:  # Henderson's equations
        v = np.exp(-2 * log_noise)
        prior = np.array([np.r_[1 / 4, 1.0, np.full(8, np.exp(-2 * log_sd))] for log_sd in log_sds])
        precision = v * design.T @ design + prior[:, :, None] * np.eye(10)
        mean = np.linalg.solve(precision, np.tile(v * design.T @ y, (len(log_sds), 1))[..., None])[..., 0]
        fit = v * (mean @ (design.T @ y) - y @ y)
        marginal = 0.5 * (np.sum(np.log(prior), 1) - np.linalg.slogdet(precision)[1] + fit) - 240 * log_noise
        hyper = -0.5 * (np.exp(log_sds) / 0.7) ** 2 + log_sds
        hyper = hyper if noise else hyper - 0.5 * ((log_noise - np.log(np.std(y))) / 3) ** 2
        weights.append(marginal + hyper)
        means.append(mean)
        squares.append(np.diagonal(np.linalg.inv(precision), axis1=1, axis2=2) + mean**2)
    weight = np.exp(np.array(weights) - np.max(weights))
    weight /= weight.sum()
    mean, square = (np.einsum("ns,nsk->k", weight, of) for of in (np.array(means), np.array(squares)))
    sd = np.sqrt(square - mean**2)
    centres, spreads = {"coefficients": mean[:2], "g": mean[2:]}, {"coefficients": sd[:2], "g": sd[2:]}
    for name, grid, of in (("log_sd(g)", log_sds, weight.sum(0)), ("log_noise_sd", log_noises, weight.sum(1))):
        if len(grid) > 1:
            centres[name] = of @ grid
            spreads[name] = np.sqrt(of @ (grid - centres[name]) ** 2)
    return model, centres, spreads


@pytest.mark.parametrize("group_sd", [pytest.param(0.4, marks=pytest.mark.slow), 0.04, 0.0])
def test_linear_mixed_model(group_sd: float) -> None:
    """The expansion is exact: every decision accepts, and the posterior is known. Also where the scale is near 0."""
    model, mean, sd = linear(group_sd=group_sd)
    _, trace = drawn(model)
    assert trace.is_accepted.mean() > 0.999
    scores = z_scores({name: trace.position[name] for name in mean}, mean, sd)
    assert np.all(np.abs(scores) < Z_LIMIT), scores


@pytest.mark.slow
@pytest.mark.parametrize("group_sd", [0.4, 4.0])
def test_linear_mixed_model_with_unknown_noise(group_sd: float) -> None:
    """Also where the groups have most of the variance: at the start the log density is not concave then."""
    model, mean, sd = linear(None, group_sd)
    _, trace = drawn(model)
    scores = z_scores({name: trace.position[name] for name in mean}, mean, sd)
    assert np.all(np.abs(scores) < Z_LIMIT), scores


@pytest.mark.slow
def test_another_data_set_compiles_nothing() -> None:
    """Scales of default priors, centres and units are arguments of programs."""
    drawn(linear(None)[0])
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **facts: compiled.append(str(facts.get("fun_name"))) if "backend_compile" in event else None
    )
    drawn(linear(None, seed=SEED + 1)[0])
    assert not compiled


def test_the_check_refuses_another_scale() -> None:
    model, mean, sd = linear()
    wrong = Regression(
        model.family, y=model.data["y"], x=model.data["x"][:, 1:], groups={"g": np.arange(240) % 8},
        prior=Prior(Normal(1.0), Normal(2.0), 0.2),
    )  # fmt: skip
    _, trace = drawn(wrong)
    assert np.any(np.abs(z_scores({name: trace.position[name] for name in mean}, mean, sd)) > Z_LIMIT)


@pytest.mark.slow
def test_own_posterior_with_a_hierarchical_prior() -> None:
    """The same model written by hand, centred: its joint mode is where the scale is 0."""
    model, mean, sd = linear()

    def log_prior(t: Any) -> Any:
        effects = -0.5 * jnp.sum((t["g"] * jnp.exp(-t["log_sd(g)"])) ** 2) - 8 * t["log_sd(g)"]
        scale = -0.5 * (jnp.exp(t["log_sd(g)"]) / 0.7) ** 2 + t["log_sd(g)"]
        return effects + scale - 0.5 * (t["coefficients"][0] ** 2 / 4 + t["coefficients"][1] ** 2)

    def log_likelihood(t: Any, row: Any) -> Any:
        return -0.5 * (row["y"] - row["x"] @ t["coefficients"] - t["g"][row["groups"][0]]) ** 2

    posterior = tc.Posterior(log_prior, log_likelihood)
    start = {"coefficients": np.zeros(2, np.float32), "g": np.zeros(8, np.float32), "log_sd(g)": np.float32(-0.5)}
    source = tc.Shuffled(model.data, 20)
    found = rows_depend_on(posterior, source, start)
    np.testing.assert_array_equal(found.is_free, [True] * 10 + [False])
    assert found.rows_swept == 240
    prepared = tc.prepare(posterior, source, start, progress=False)
    assert "NUTS on the surrogate posterior" in str(prepared)
    with pytest.raises(ValueError, match="has no mode"):
        _ = prepared.laplace
    key = jax.random.key(SEED)
    trace = tc.sample(
        key, prepared.kernel(), prepared.starts(key, CHAINS), DRAWS, num_chains=CHAINS, num_warmup=40, scan=0,
        progress=False,
    )  # fmt: skip
    scores = z_scores({name: trace.position[name] for name in mean}, mean, sd)
    assert np.all(np.abs(scores) < Z_LIMIT), scores


def test_a_rare_column_is_not_taken_for_a_scale() -> None:
    """None of the rows that are looked at first depends on its coefficient; one of the others does."""
    x = np.zeros((5000, 2), np.float32)
    x[:, 0], x[-1, 1] = 1, 1
    posterior = tc.Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: jax.nn.log_sigmoid(row @ t))
    source = tc.Shuffled(x, 20)
    assert not np.any(source.some_rows(256)[:, 1]), "choose another seed: the rare row is among the first"
    assert np.all(rows_depend_on(posterior, source, np.zeros(2, np.float32)).is_free)


# ---- logistic, two groups: quadrature over both predictors and the scale ------------------------


def logistic() -> tuple[Regression, dict[str, Any], dict[str, Any]]:
    random, rows = np.random.default_rng(SEED), 3000
    group = np.arange(rows) % 2
    y = random.random(rows) < expit(np.array([-2.5, -1.5])[group])
    model = Regression(families.Bernoulli(), y=y, groups={"g": Group(group)}, prior=Prior(intercept=Normal(2.0)))
    ones, count = np.bincount(group, weights=y), np.bincount(group)
    best = np.log(ones / (count - ones))
    reach = 7 / np.sqrt(ones)
    eta = [np.linspace(best[k] - reach[k], best[k] + reach[k], 81) for k in (0, 1)]
    log_sd = np.linspace(-7, 2.5, 300)
    a, b, s = np.meshgrid(*eta, log_sd, indexing="ij")
    # beta ~ N(0, 4) and eta ~ N(beta, sd^2): given both, beta is normal, and eta is jointly normal without it.
    variance = np.exp(2 * s)
    precision = 1 / 4 + 2 / variance
    centre = (a + b) / variance / precision
    log_density = -0.5 * ((a**2 + b**2) / variance - centre**2 * precision) - 0.5 * np.log(precision) - 2 * s
    log_density += stats.binom.logpmf(ones[0], count[0], expit(a)) + stats.binom.logpmf(ones[1], count[1], expit(b))
    log_density += -0.5 * np.exp(2 * s) + s
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    of = {"coefficients": (centre, 1 / precision), "g0": (a - centre, 1 / precision), "g1": (b - centre, 1 / precision)}
    of["log_sd(g)"] = (s, 0 * s)
    mean = {name: np.sum(weight * at) for name, (at, _) in of.items()}
    sd = {name: np.sqrt(np.sum(weight * (at**2 + var)) - mean[name] ** 2) for name, (at, var) in of.items()}
    return model, mean, sd


def by_name(trace: tc.Trace) -> dict[str, np.ndarray]:
    position = trace.position
    first, second = np.moveaxis(position["g"], -1, 0)
    return {
        "coefficients": position["coefficients"][..., 0], "g0": first, "g1": second, "log_sd(g)": position["log_sd(g)"]
    }  # fmt: skip


@pytest.mark.parametrize(
    "acceptance",
    [pytest.param(tc.Penalty(), id="penalty"), pytest.param(tc.Metropolis(), id="metropolis", marks=pytest.mark.slow)],
)
def test_logistic_mixed_model(acceptance: Any) -> None:
    model, mean, sd = logistic()
    _, trace = drawn(model, acceptance)
    scores = z_scores(by_name(trace), mean, sd)
    assert np.all(np.abs(scores) < Z_LIMIT), scores


def test_the_check_refuses_a_surrogate_with_wrong_sums() -> None:
    """The residuals of rows would no longer add up to what the sums leave."""
    model, mean, sd = logistic()
    prepared = tc.prepare(model, progress=False)
    right = prepared.surrogate
    assert isinstance(right, Predictors)
    sums = right.sums._replace(terms=tuple(of._replace(first=of.first + 8.0) for of in right.sums.terms))
    wrong = Predictors(model.posterior, prepared.source, right.position, sums=sums, reach=right.reach)
    kernel = prepared.kernel()
    kernel = tc.MetropolisHastings(
        kernel.posterior, kernel.source, proposal=kernel.proposal, acceptance=tc.Penalty(), surrogate=wrong
    )
    key = jax.random.key(SEED)
    trace = tc.sample(
        key, kernel, prepared.starts(key, CHAINS), DRAWS, num_chains=CHAINS, num_warmup=40, scan=0, progress=False
    )
    assert np.any(np.abs(z_scores(by_name(trace), mean, sd)) > Z_LIMIT)
