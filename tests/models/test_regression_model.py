"""The class Regression: names, weights, offsets, log priors against scipy, programs shared."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from conftest import SEED
from models.families.family_cases import FAMILIES
from tallchain.models import Group, Prior, Regression, families, priors
from tallchain.models.families import Bernoulli, Categorical, Gaussian, Ordinal, Poisson
from tallchain.models.priors import log_prior_of
from tallchain.models.regression import _repeated
from tallchain.names import all_coordinates, in_order_of, labels_of

pd = pytest.importorskip("pandas")

ROWS = 60
RANDOM = np.random.default_rng(SEED)
X = RANDOM.normal(size=(ROWS, 2))
Y = np.arange(ROWS) % 3 == 0


FRAME = pd.DataFrame({"y": Y, "age": X[:, 0], "height": X[:, 1], "clinic": np.resize(["a", "b", "c"], ROWS)})


def log_posterior(model: Regression, position: Any) -> float:
    """By rows, in float32, added up in float64."""
    rows = jax.vmap(model.posterior.log_likelihood, (None, 0))(position, model.data)
    return float(np.sum(np.asarray(rows, np.float64)) + model.posterior.log_prior(position))


def some_position(model: Regression, at: int = 0) -> Any:
    random = np.random.default_rng(SEED + at)
    return jax.tree.map(lambda v: jnp.asarray(v + 0.3 * random.normal(size=np.shape(v)), jnp.float32), model.start)


# ---- names -------------------------------------------------------------------------------------


def coordinates(model: Regression) -> list[str]:
    draws = in_order_of(jax.tree.map(lambda v: np.zeros((1, 1, *np.shape(v))), model.start), model.start)
    return all_coordinates(draws, labels_of(model.posterior, model.start))[1]


def test_coefficients_and_levels_have_names() -> None:
    groups = {"clinic": Group("clinic", slopes="age")}
    model = Regression(Gaussian(), y="height", x=["age"], groups=groups, data=FRAME)
    effects = [f"clinic[{label}]" for label in "abc"]
    slopes = [f"clinic:age[{label}]" for label in "abc"]
    coefficients = ["coefficients[(intercept)]", "coefficients[age]", "log_noise_sd"]
    assert coordinates(model) == [*coefficients, *effects, "log_sd(clinic)", *slopes, "log_sd(clinic:age)"]
    assert model.names == ("(intercept)", "age")
    assert coordinates(Regression(Bernoulli(), y="y", x="age", data=FRAME)) == ["(intercept)", "age"]


def test_a_slope_may_have_a_colon_in_its_name() -> None:
    model = Regression(Bernoulli(), y=Y, groups={"g": Group(np.arange(ROWS) % 2, slopes={"a:b": X[:, 0]})})
    assert "g:a:b[1]" in coordinates(model)


def test_columns_of_a_frame_are_the_arrays() -> None:
    names = {"y": "y", "x": ["age", "height"], "groups": {"clinic": "clinic"}, "offset": "age", "weights": "y"}
    arrays = {"y": Y, "x": X, "groups": {"clinic": FRAME["clinic"]}, "offset": X[:, 0], "weights": Y}
    by_name, by_array = Regression(Bernoulli(), **names, data=FRAME), Regression(Bernoulli(), **arrays)
    jax.tree.map(np.testing.assert_array_equal, by_name.data, by_array.data)


# ---- weights and offsets -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logit", "gaussian", "weibull", "categorical", "ordinal"])
def test_a_weight_is_a_number_of_equal_rows(name: str) -> None:
    """With default priors too, whose scales and centres are found by the outcomes."""
    case, random = FAMILIES[name], np.random.default_rng(SEED)
    y, x = case.outcomes(random, 2 * ROWS), random.normal(size=(2 * ROWS, 2))
    weights = np.r_[0, 3, random.integers(1, 4, 2 * ROWS - 2)]
    once = Regression(case.family, y=y, x=x, weights=weights)
    often = Regression(case.family, y=np.repeat(y, weights, 0), x=np.repeat(x, weights, 0))
    priors_of = [log_prior_of(model.posterior) for model in (once, often)]
    assert priors_of[0].prior == priors_of[1].prior
    assert priors_of[0].centres == priors_of[1].centres
    here, there = some_position(once), some_position(once, 1)
    ratios = [log_posterior(model, here) - log_posterior(model, there) for model in (once, often)]
    np.testing.assert_allclose(*ratios, rtol=1e-5, atol=1e-3)


def test_weights_that_are_no_counts_stand_for_shares() -> None:
    y = np.arange(4.0)
    assert _repeated(y, None) is y
    np.testing.assert_array_equal(_repeated(y, np.float32([0, 2, 0, 1])), [1, 1, 3])
    np.testing.assert_array_equal(_repeated(y, np.float32([0, 0.2, 0, 0.2])), [1, 1, 3, 3])
    shares = np.bincount(_repeated(y, np.float32([1e7, 3e7, 0, 0])).astype(int), minlength=4)
    np.testing.assert_array_equal(shares, [250_000, 750_000, 0, 0])


def test_an_offset_is_added_to_the_predictor() -> None:
    offset = RANDOM.normal(size=ROWS)
    plain, shifted = (Regression(Poisson(), y=Y, x=X, offset=of) for of in (None, offset))
    known = Regression(Poisson(), y=Y, x=np.column_stack([X, offset]))
    position = some_position(plain)
    rows = jax.vmap(shifted.posterior.log_likelihood, (None, 0))(position, shifted.data)
    same = jax.vmap(known.posterior.log_likelihood, (None, 0))(jnp.append(position, 1.0), known.data)
    np.testing.assert_allclose(rows, same, rtol=1e-4, atol=1e-5)


def test_an_intercept_is_there_unless_cutpoints_are() -> None:
    levels = np.arange(ROWS) % 4
    assert not Regression(Ordinal(4), y=levels, x=X).layout.has_intercept
    assert not Regression(Ordinal(4), y=levels, x=X, intercept=False).layout.has_intercept
    assert Regression(Categorical(4), y=levels, x=X).layout.has_intercept
    assert Regression(Bernoulli(), y=Y).layout.num_features == 1
    assert Regression(Bernoulli(), y=Y, x=X, intercept=np.bool_(False)).layout.num_features == 2


# ---- priors ------------------------------------------------------------------------------------


def test_default_priors_are_in_units_of_the_outcomes() -> None:
    y = 50 * RANDOM.normal(size=ROWS)
    sd = float(np.std(y.astype(np.float32), dtype=np.float64))
    found = log_prior_of(Regression(Gaussian(), y=y, x=X).posterior).prior
    assert found == Prior(
        priors.Normal(2.5 * sd), priors.Normal(10 * sd, float(y.astype(np.float32).mean(dtype=np.float64))), sd
    )
    found = log_prior_of(Regression(Bernoulli(), y=Y, x=X).posterior).prior
    share = (Y.sum() + 0.5) / (ROWS + 1)
    assert (found.coefficients, found.group_sd) == (priors.Normal(2.5), 1.0)
    assert isinstance(found.intercept, priors.Normal)
    assert (found.intercept.sd, found.intercept.mean) == (10.0, pytest.approx(np.log(share / (1 - share))))
    given = Prior(priors.StudentT(3.0, 0.5), priors.Flat(), 0.2)
    assert log_prior_of(Regression(Gaussian(), y=y, x=X, prior=given).posterior).prior == given


COEFFICIENTS = {
    "normal": (priors.Normal(0.7), stats.norm(scale=0.7)),
    "t": (priors.StudentT(3.0, 0.4), stats.t(3.0, scale=0.4)),
}


def half_normal_log(log_sd: float, scale: float) -> float:
    """Of the logarithm: with its Jacobian."""
    return float(stats.halfnorm.logpdf(np.exp(log_sd), scale=scale) + log_sd)


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_log_prior_is_scipys(name: str) -> None:
    """Up to a constant, so between two positions."""
    prior, law = COEFFICIENTS[name]
    groups = {"g": Group(np.arange(ROWS) % 5, slopes={"x0": X[:, 0]})}
    y = 3 * X[:, 0] + RANDOM.normal(size=ROWS)
    model = Regression(Gaussian(), y=y, x=X, groups=groups, prior=Prior(prior, priors.Normal(2.0), 0.6))

    def exact(position: Any) -> float:
        position = jax.tree.map(lambda v: np.asarray(v, np.float64), position)
        total = stats.norm.logpdf(position["coefficients"][0], scale=2.0)
        total += law.logpdf(position["coefficients"][1:]).sum()
        total += stats.norm.logpdf(position["log_noise_sd"], np.log(np.std(y)), 3.0)
        for term in ("g", "g:x0"):
            log_sd = position[f"log_sd({term})"]
            total += stats.norm.logpdf(position[term], scale=np.exp(log_sd)).sum() + half_normal_log(log_sd, 0.6)
        return float(total)

    here, there = some_position(model), some_position(model, 1)
    ours = float(model.posterior.log_prior(here) - model.posterior.log_prior(there))
    assert ours == pytest.approx(exact(here) - exact(there), rel=1e-4)


@pytest.mark.parametrize("family", [Bernoulli(), Categorical(3)], ids=["one predictor", "two"])
def test_log_prior_of_a_horseshoe_is_scipys(family: families.Family) -> None:
    horseshoe = priors.Horseshoe(0.2, 1.5, 5.0)
    model = Regression(family, y=np.arange(ROWS) % (family.num_linear + 1), x=X, prior=Prior(horseshoe))
    assert np.shape(model.start["log_local"]) == ((2,) if family.num_linear == 1 else (2, 2))

    def exact(position: Any) -> float:
        position = jax.tree.map(lambda v: np.asarray(v, np.float64), position)
        local, slab = np.exp(position["log_local"]), np.exp(position["log_slab"])
        global_scale = np.exp(position["log_global"])
        scale = np.sqrt(1 / (1 / (global_scale * local) ** 2 + 1 / slab**2))
        total = stats.norm.logpdf(position["coefficients"][..., 1:], scale=scale).sum()
        total += stats.norm.logpdf(position["coefficients"][..., 0], scale=10.0).sum()
        total += (stats.halfcauchy.logpdf(local) + position["log_local"]).sum()
        total += stats.halfcauchy.logpdf(global_scale, scale=0.2) + position["log_global"]
        square = stats.invgamma.logpdf(slab**2, 2.5, scale=2.5 * 1.5**2)
        return float(total + square + 2 * position["log_slab"])

    here, there = some_position(model), some_position(model, 1)
    ours = float(model.posterior.log_prior(here) - model.posterior.log_prior(there))
    assert ours == pytest.approx(exact(here) - exact(there), rel=1e-4)


def test_equal_settings_share_their_programs() -> None:
    """Parts are looked up by their functions: equal settings must give equal ones."""
    groups = {"g": Group(np.arange(ROWS) % 5, slopes={"x0": X[:, 0]})}
    settings: list[dict[str, Any]] = [
        {"x": X, "groups": groups},
        {"x": X, "prior": Prior(priors.Horseshoe())},
        {"weights": Y + 1, "offset": X[:, 1]},
    ]
    for each in settings:
        first, second = (Regression(Bernoulli(), y=y, **each).posterior for y in (Y, ~Y))
        assert jax.tree.structure(first) == jax.tree.structure(second)
        other = Regression(Bernoulli("probit"), y=Y, **each).posterior
        assert jax.tree.structure(first) != jax.tree.structure(other)
