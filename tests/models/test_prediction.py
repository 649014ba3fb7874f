"""Predictions: means against NumPy, intervals, outcomes, new rows by name and label, draws from priors; refusals."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax import random as jr
from scipy import special, stats

from checks import P_LIMIT, Z_LIMIT
from conftest import SEED
from models.families.family_cases import FAMILIES
from tallchain.models import Group, Prior, Regression, families, prediction, priors
from tallchain.models.families import Bernoulli, Binomial, Gaussian, Poisson

pd = pytest.importorskip("pandas")

ROWS, DRAWS = 120, 60
KEY = jr.key(SEED)


@cache
def model_of(name: str) -> Regression:
    """Two features and an offset; a factor with a slope, and one crossed with it."""
    random, case = np.random.default_rng(SEED), FAMILIES[name]
    x = random.normal(size=(ROWS, 2))
    clinic = np.r_[np.arange(5), random.integers(0, 5, ROWS - 5)]
    groups = {"clinic": Group(np.array(list("dbcae"))[clinic], slopes={"x0": x[:, 0]}), "doctor": np.arange(ROWS) % 3}
    offset = 0.1 * random.normal(size=ROWS)
    outcomes = case.outcomes(random, ROWS)
    return Regression(
        case.family, y=outcomes, x=x, groups=groups if case.family.num_linear == 1 else None, offset=offset
    )


def draws_of(model: Regression, lead: tuple[int, ...] = (2, DRAWS // 2), spread: float = 0.1) -> Any:
    random = np.random.default_rng(SEED + 1)
    shapes = model.layout.shapes()
    draw = lambda v, shape: np.asarray(v + spread * random.normal(size=(*lead, *shape)), np.float32)  # noqa: E731
    if model.layout.is_vector:
        return draw(model.start, shapes)
    return {name: draw(model.start[name], shapes[name]) for name in shapes}


def predictors(model: Regression, position: Any) -> list[np.ndarray]:
    """Each predictor, (draw, row), in float64."""
    flat = jax.tree.map(lambda v: np.asarray(v, np.float64).reshape(DRAWS, *v.shape[2:]), position)
    data, of = model.data, flat["coefficients"] if isinstance(flat, dict) else flat
    linear = [each @ data["x"].T for each in (np.moveaxis(of, 1, 0) if model.layout.num_linear > 1 else [of])]
    linear[0] = linear[0] + data["offset"]
    if model.layout.terms:
        clinic, doctor = data["groups"].T
        linear[0] += flat["clinic"][:, clinic] + flat["clinic:x0"][:, clinic] * data["slopes"][:, 0]
        linear[0] += flat["doctor"][:, doctor]
    return [*linear, *(np.repeat(flat[name][:, None], ROWS, 1) for name in model.layout.shared)]


def of_levels(z: np.ndarray, *c: np.ndarray) -> np.ndarray:
    cuts = np.cumsum(np.stack([c[0], *map(np.exp, c[1:])], -1), -1)
    below = special.expit(cuts - z[..., None])
    return np.diff(below, axis=-1, prepend=0, append=1)


MEANS = {  # of other families, `family.mean`, which their draws are compared with in any case
    "logit": special.expit,
    "probit": special.ndtr,
    "cloglog": lambda z: 1 - np.exp(-np.exp(z)),
    "binomial": special.expit,
    "poisson": np.exp,
    "negative binomial": lambda z, s: np.exp(z),
    "gaussian": lambda z, s: z,
    "gaussian, known": lambda z: z,
    "t": lambda z, s, v: z,
    "t, known": lambda z, s: z,
    "gamma": lambda z, s: np.exp(z),
    "weibull": lambda z, s: np.exp(z) * special.gamma(1 + np.exp(-s)),
    "categorical": lambda *z: special.softmax(np.stack([0 * z[0], *z], -1), -1),
    "ordinal": of_levels,
    "ordinal of two": of_levels,
}


def by_family(model: Regression) -> Any:
    """E[y] of predictors, each (draw, row)."""
    return lambda *eta: np.asarray(jax.vmap(jax.vmap(model.family.mean))(np.stack(eta, -1)), np.float64)


def of_first(y: np.ndarray, family: families.Family) -> np.ndarray:
    """A number of each outcome: the share of successes, the time, the level."""
    return y[..., 0] / y[..., 1] if family.has_trials else y[..., 0] if y.ndim > 2 else y


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name: str) -> None:
    """The rows of the regression itself: means and intervals by NumPy, and outcomes with these means."""
    model = model_of(name)
    position = draws_of(model)
    found = model.predict(SimpleNamespace(position=position), key=KEY, draws=True, interval=0.8)
    exact = MEANS.get(name, by_family(model))(*predictors(model, position))
    np.testing.assert_allclose(found.mean, exact.mean(0), rtol=2e-4, atol=1e-5)
    in_order = np.sort(exact, 0)
    assert np.all(np.abs(found.interval.lower - in_order[5]) <= 2e-4 * np.abs(in_order[5]) + 1e-5)
    assert np.all(np.abs(found.interval.upper - in_order[54]) <= 2e-4 * np.abs(in_order[54]) + 1e-5)
    assert found.draws is not None
    assert found.draws.shape == (DRAWS, *model.data["y"].shape)
    model.family.outcomes("f", found.draws.reshape(-1, *model.data["y"].shape[1:]))
    if exact.ndim > 2:
        exact = exact @ np.arange(exact.shape[-1])
    gap = of_first(found.draws, model.family) - exact
    assert abs(gap.mean() / (gap.std() / np.sqrt(gap.size))) < Z_LIMIT
    if name == "categorical":
        assert found.outcome_interval is None
    else:
        of = np.sort(found.draws[..., 0] if found.draws.ndim > 2 else found.draws, 0)
        assert found.outcome_interval is not None
        np.testing.assert_array_equal(found.outcome_interval, of[[5, 54]])


def test_draws_are_taken_evenly() -> None:
    model = model_of("logit")
    position = draws_of(model, (3, 100))
    few = model.predict(position, max_draws=7)
    assert few.num_draws == 7
    flat = position["coefficients"].reshape(300, -1)
    np.testing.assert_array_equal(few.position["coefficients"], flat[[0, 50, 100, 150, 199, 249, 299]])
    assert model.predict(position).num_draws == 300
    flattened = jax.tree.map(lambda v: v.reshape(300, *v.shape[2:]), position)
    np.testing.assert_array_equal(model.predict(flattened, max_draws=7).mean, few.mean)
    one = model.predict(model.start)
    np.testing.assert_array_equal(one.mean, one.interval.lower)


def test_blocks_have_no_part_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("poisson")
    position = draws_of(model)
    whole = model.predict(position, key=KEY, draws=True)
    some = model.predict(position, key=KEY, draws=True, rows=[3, 30, 7])
    monkeypatch.setattr(prediction, "_BLOCK", DRAWS * 16)
    parts = model.predict(position, key=KEY, draws=True)
    for found, rows in ((parts, np.arange(ROWS)), (some, [3, 30, 7])):
        np.testing.assert_allclose(found.mean, whole.mean[rows], rtol=1e-5)
        assert np.mean(found.draws != whole.draws[:, rows]) < 1e-3, "rounding may change a few"
    mask = np.isin(np.arange(ROWS), [3, 30])
    np.testing.assert_allclose(model.predict(position, rows=mask).mean, whole.mean[[3, 30]], rtol=1e-5)
    np.testing.assert_allclose(model.predict(position, rows=slice(-2, None)).mean, whole.mean[-2:], rtol=1e-5)


def test_programs_are_kept() -> None:
    """Other rows, and other data with the same settings, compile nothing."""
    first = model_of("logit")
    groups = {"clinic": Group(np.arange(ROWS) % 5, slopes={"x0": np.ones(ROWS)}), "doctor": np.arange(ROWS) % 3}
    second = Regression(Bernoulli(), y=np.arange(ROWS) % 2, x=np.eye(ROWS, 2), groups=groups, offset=np.ones(ROWS))
    first.predict(draws_of(first))
    compiled = first.posterior.log_likelihood.programs[prediction._expected]
    before = compiled._cache_size()
    first.predict(draws_of(first), rows=np.arange(70))
    second.predict(draws_of(second))
    assert compiled._cache_size() == before


# ---- new rows ----------------------------------------------------------------------------------


def test_new_rows_are_as_the_own_ones() -> None:
    model = model_of("logit")
    position, data = draws_of(model), model.data
    own = model.predict(position)
    labels = {name: of[data["groups"][:, at]] for at, (name, of) in enumerate(model.levels.items())}
    groups = {"doctor": labels["doctor"], "clinic": Group(labels["clinic"], slopes={"x0": data["slopes"][:, 0]})}
    new = model.predict(position, data["x"][:, 1:], groups, data["offset"])
    jax.tree.map(np.testing.assert_array_equal, (new.mean, new.interval), (own.mean, own.interval))
    clinic = Group(labels["clinic"][:3], slopes={"x0": np.zeros(3)})
    three = {"x": data["x"][:3, 1:], "groups": {"clinic": clinic, "doctor": labels["doctor"][:3]}}
    shifted, plain = (special.logit(model.predict(model.start, **three, offset=of).mean) for of in (1, np.zeros(3)))
    np.testing.assert_allclose(shifted - plain, np.ones(3), rtol=1e-4)


@cache
def framed() -> tuple[Regression, Any, Any]:
    """A regression from a frame, its frame, and draws."""
    random = np.random.default_rng(SEED)
    clinic = np.array(list("dbcae"))[np.r_[np.arange(5), random.integers(0, 5, ROWS - 5)]]
    frame = pd.DataFrame({"age": random.normal(size=ROWS), "height": random.normal(size=ROWS), "clinic": clinic})
    frame = frame.assign(exposure=random.normal(size=ROWS), y=random.integers(0, 3, ROWS), trials=4)
    model = Regression(
        Binomial(),
        y=("y", "trials"),
        x=["age", "height"],
        groups={"clinic": Group("clinic", slopes=["age"])},
        offset="exposure",
        data=frame,
    )
    return model, frame, draws_of(model)


def test_columns_are_found_by_name() -> None:
    model, frame, position = framed()
    own = model.predict(position, key=KEY, draws=True)
    turned = frame[["trials", "exposure", "clinic", "height", "age"]]
    explicit = {"x": ["height", "age"], "groups": {"clinic": "clinic"}, "offset": "exposure", "data": frame}
    for found in (
        model.predict(position, data=turned, key=KEY, draws=True),
        model.predict(position, x=turned[["height", "age"]], data=turned, key=KEY, draws=True, size="trials"),
        model.predict(position, **explicit, key=KEY, draws=True, size=4),
    ):
        np.testing.assert_array_equal(found.mean, own.mean)
        np.testing.assert_array_equal(found.draws, own.draws)
    assert np.all(own.draws[..., 1] == 4)
    without = model.predict(position, data=frame.drop(columns=["trials", "y"]), key=KEY)
    np.testing.assert_array_equal(without.mean, own.mean)
    assert without.outcome_interval is None, "the numbers of trials are not known"
    found = model.predict(position, data=frame, key=KEY)
    np.testing.assert_array_equal(found.outcome_interval, own.outcome_interval)
    assert found.draws is None


# ---- new levels --------------------------------------------------------------------------------


def test_effects_of_new_levels_are_drawn() -> None:
    """N(0, sd^2) by draw, the same for all rows of a label; other rows do not change."""
    random = np.random.default_rng(SEED)
    count, labels = 3000, np.array(["a", "b"])[np.arange(ROWS) % 2]
    group = Group(labels, slopes={"w": random.normal(size=ROWS)})
    model = Regression(Gaussian(1.0), y=random.normal(size=ROWS), groups={"g": group})
    position = draws_of(model, (count,), 0.0)
    position |= {"log_sd(g)": np.full(count, np.log(0.5)), "log_sd(g:w)": np.full(count, np.log(2.0))}
    asked = {"g": Group(["a", "new", "newer", "new"], slopes={"w": [0, 0, 3, 0]})}
    found = model.predict(position, groups=asked, key=KEY, max_draws=count, draws=True, new_levels="draw")
    expected = model.predict(position, groups=asked, key=KEY, max_draws=count, interval=0.5, new_levels="draw")
    intercept = model.start["coefficients"][0]
    sd = np.array([0, 0.5, np.hypot(0.5, 6.0)])
    np.testing.assert_allclose(expected.mean[:3], intercept, atol=float(Z_LIMIT * sd.max() / np.sqrt(count)))
    assert expected.interval.lower[0] == expected.interval.upper[0]
    np.testing.assert_allclose(expected.interval.upper[:3] - intercept, sd * stats.norm.ppf(0.75), rtol=0.1)
    np.testing.assert_array_equal(expected.mean[1], expected.mean[3])
    assert found.draws is not None
    noise = found.draws[:, 1] - found.draws[:, 3]
    assert np.std(noise) == pytest.approx(np.sqrt(2), rel=0.1), "one effect, and noise of their own"
    assert stats.kstest((found.draws[:, 2] - intercept) / np.hypot(1, sd[2]), "norm").pvalue > P_LIMIT
    known = {"g": Group(["a"], slopes={"w": [0]})}
    assert model.predict(position, groups=known, new_levels="draw").mean[0] == pytest.approx(intercept)


# ---- draws from the prior ----------------------------------------------------------------------


def p_value(values: np.ndarray, law: Any) -> float:
    return float(stats.kstest(np.ravel(values).astype(np.float64), law.cdf).pvalue)


def test_positions_from_a_prior() -> None:
    random, groups = np.random.default_rng(SEED), {"g": np.arange(ROWS) % 4}
    y, x = random.normal(size=ROWS), random.normal(size=(ROWS, 2))
    prior = Prior(priors.StudentT(4.0, 0.3), priors.Normal(2.0), 0.7)
    found = Regression(Gaussian(), y=y, x=x, groups=groups, prior=prior).prior_predict(KEY, 2000, rows=[0, 1])
    at = found.position
    assert list(at) == ["coefficients", "log_noise_sd", "g", "log_sd(g)"]
    assert p_value(at["coefficients"][:, 0], stats.norm(scale=2.0)) > P_LIMIT
    assert p_value(at["coefficients"][:, 1:], stats.t(4.0, scale=0.3)) > P_LIMIT
    assert p_value(at["log_noise_sd"], stats.norm(np.log(np.std(y)), 3.0)) > P_LIMIT
    assert p_value(np.exp(at["log_sd(g)"]), stats.halfnorm(scale=0.7)) > P_LIMIT
    assert p_value(at["g"] / np.exp(at["log_sd(g)"])[:, None], stats.norm()) > P_LIMIT
    assert found.draws is not None
    mean = at["coefficients"] @ np.column_stack([np.ones(ROWS), x])[:2].T + at["g"][:, :2]
    assert p_value((found.draws - mean) / np.exp(at["log_noise_sd"])[:, None], stats.norm()) > P_LIMIT


def test_positions_from_a_horseshoe() -> None:
    horseshoe = priors.Horseshoe(0.2, 1.5, 5.0)
    model = Regression(Bernoulli(), y=np.arange(ROWS) % 2, x=np.eye(ROWS, 3), prior=Prior(horseshoe))
    found = model.prior_predict(KEY, 2000, draws=False)
    assert found.draws is None
    at = found.position
    assert p_value(np.exp(at["log_local"]), stats.halfcauchy()) > P_LIMIT
    assert p_value(np.exp(at["log_global"]), stats.halfcauchy(scale=0.2)) > P_LIMIT
    assert p_value(np.exp(2 * at["log_slab"]), stats.invgamma(2.5, scale=2.5 * 1.5**2)) > P_LIMIT
    both = 1 / np.exp(2 * (at["log_local"] + at["log_global"][:, None])) + np.exp(-2 * at["log_slab"])[:, None]
    assert p_value(at["coefficients"][:, 1:] * np.sqrt(both), stats.norm()) > P_LIMIT
    assert p_value(at["coefficients"][:, 0], stats.norm(scale=10.0)) > P_LIMIT


def test_the_check_refuses_another_prior() -> None:
    model = Regression(Poisson(), y=np.arange(ROWS) % 3, prior=Prior(intercept=priors.Normal(0.5)))
    found = model.prior_predict(KEY, 2000, rows=0)
    assert p_value(found.position, stats.norm(scale=0.5)) > P_LIMIT > p_value(found.position, stats.norm(scale=0.7))
    fewer = model.prior_predict(KEY, 10, rows=0)
    np.testing.assert_array_equal(fewer.position, found.position[:10])
    assert found.mean[0] == pytest.approx(np.exp(found.position).mean(), rel=1e-4)
