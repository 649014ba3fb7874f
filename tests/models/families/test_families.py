"""Families: densities against scipy, derivatives against nested autodiff, gains, numbers far out, draws, starts."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from family_cases import COSTLY_SLOW, EXTREMES, FAMILIES
from jax import random as jr

from checks import Z_LIMIT
from conftest import SEED
from tallchain.models.families import Bernoulli, Categorical, Family, Gaussian, Ordinal, StudentT

ROWS = 40
SCALES = (1e-4, 0.3, 3.0, 300.0)  # of steps
FAR = (-1e4, -300.0, -100.0, -40.0, -15.0, -5.0, -1.0, 0.0, 1.0, 5.0, 15.0, 40.0, 100.0, 300.0, 1e4)


@pytest.fixture(scope="module", params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    """Of a family: the tests of one family follow each other, and share its programs."""
    return request.param


def rows_of(name: str, count: int = ROWS) -> tuple[np.ndarray, ...]:
    """Predictors, steps (scale, row, predictor) and outcomes; in float32, so that both precisions have the same."""
    family, outcomes, centre, _ = FAMILIES[name]
    random = np.random.default_rng(SEED)
    eta, step = random.normal(size=(2, count, len(centre)))
    steps = np.multiply.outer(SCALES, step)
    return np.float32(eta + centre), np.float32(steps), family.outcomes("f", outcomes(random, count))


def along(function: Any) -> Any:
    """The derivative by the first argument, a number; by forward mode."""
    return lambda x, *rest: jax.jvp(lambda x: function(x, *rest), (x,), (jnp.ones_like(x),))[1]


def differentiated(family: Family, eta: Any, y: Any) -> tuple[Any, ...]:
    """The derivatives of the log density by autodiff: reverse mode, forward over it, and forward alone."""
    needs_array = isinstance(family, Categorical | Ordinal)
    function = lambda *numbers: family.log_density(jnp.stack(numbers) if needs_array else numbers, y)  # noqa: E731
    whole = lambda eta: family.log_density(eta, y)  # noqa: E731
    third = jax.grad(along(along(function)), tuple(range(len(eta))))(*eta)
    return jax.grad(whole)(eta), jax.hessian(whole)(eta), jnp.stack(third), along(along(along(along(function))))(*eta)


@cache
def in_double(name: str) -> dict[str, Any]:
    """All that the tests in float64 need, by one program for each family."""
    family, _, centre, _ = FAMILIES[name]

    def one_row(eta: Any, steps: Any, y: Any) -> dict[str, Any]:
        gain = lambda step: family.gain(eta, step, y)  # noqa: E731
        value = lambda eta: family.log_density(eta, y)  # noqa: E731
        return {
            "value": value(eta),
            "central": value(jnp.array(centre)),
            "there": jax.vmap(value)(eta + steps),
            "gain": jax.vmap(gain)(steps),
            "closed": family.derivatives(eta, y),
            "auto": differentiated(family, eta, y),
            "higher": family.higher(eta, y),
            "differentiated": Family.higher(family, eta, y),
        }

    with jax.enable_x64(True):
        rows = (jnp.asarray(a, jnp.float64) for a in rows_of(name))
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(one_row, (0, 1, 0)))(*rows))


# ---- in float64 --------------------------------------------------------------------------------


def test_log_density_is_scipys(name: str) -> None:
    """Up to a constant in the predictors, so between two of them."""
    _, _, centre, exact = FAMILIES[name]
    eta, _, y = (a.astype(np.float64) for a in rows_of(name))
    others = np.broadcast_to(np.array(centre), eta.shape)
    ours = in_double(name)["value"] - in_double(name)["central"]
    np.testing.assert_allclose(ours, exact(y, *eta.T) - exact(y, *others.T), rtol=1e-9, atol=1e-10)


def test_derivatives_are_those_of_the_log_density(name: str) -> None:
    found = in_double(name)
    for closed, auto in zip(found["closed"], found["auto"], strict=True):
        assert closed.shape == auto.shape
        np.testing.assert_allclose(closed, auto, rtol=1e-10, atol=1e-10 * np.median(np.abs(auto)) + 1e-14)


def test_higher_derivatives_are_those_of_the_fourth(name: str) -> None:
    """Orders 5 and 6 by autodiff of order 4, which the test above has compared with the log density."""
    found = in_double(name)
    for closed, auto in zip(found["higher"].T, found["differentiated"].T, strict=True):
        np.testing.assert_allclose(closed, auto, rtol=1e-10, atol=1e-10 * np.median(np.abs(auto)) + 1e-14)


def test_gain_is_the_difference(name: str) -> None:
    """For steps of every length, long ones of a hundred units included."""
    found = in_double(name)
    here = found["value"][:, None]
    errors = np.abs(found["gain"] - (found["there"] - here)) / (1 + np.abs(found["there"]) + np.abs(here))
    assert np.max(errors) < 1e-12


# ---- in float32 --------------------------------------------------------------------------------


def test_short_gains_keep_their_digits(name: str) -> None:
    """Steps of 1e-4: errors relative to the terms of the first order. Differences of log densities must fail."""
    family = FAMILIES[name].family
    eta, steps, y = rows_of(name)
    default = lambda *arguments: Family.gain(family, *arguments)  # noqa: E731
    both = jax.jit(jax.vmap(lambda *arguments: jnp.stack([family.gain(*arguments), default(*arguments)])))
    size = np.sum(np.abs(in_double(name)["closed"].first * steps[0]), 1)
    errors = np.abs(np.asarray(both(eta, steps[0], y)).T - in_double(name)["gain"][:, 0]) / size
    assert np.max(errors[0]) < 1e-5
    assert np.max(errors[1]) > 1e-4


@pytest.mark.parametrize("name", COSTLY_SLOW)
def test_all_is_finite_far_out(name: str) -> None:
    """Predictors from -10^4 to 10^4, each with each; long steps and none; derivatives forward and backward."""
    family, outcomes, centre, _ = FAMILIES[name]
    y = rows_of(name, 6)[2]
    y = np.concatenate([y, np.float32(EXTREMES.get(outcomes, y))])
    random = np.random.default_rng(SEED)
    eta = np.stack(np.meshgrid(*[np.float32(FAR)] * len(centre)), -1).reshape(-1, len(centre))
    eta = eta if len(eta) < 600 else random.permutation(eta)[:600]

    def one_step(step: Any, eta: Any, y: Any) -> dict[str, Any]:
        gain = lambda step, eta: family.gain(eta, step, y)  # noqa: E731
        onward = lambda t: gain(step + t, eta)  # noqa: E731
        slopes, curve = jax.grad(gain, (0, 1))(step, eta), along(along(onward))(jnp.zeros(()))
        return {"gain": gain(step, eta), "slopes": slopes, "curve": curve}

    def one_row(eta: Any, steps: Any, y: Any) -> dict[str, Any]:
        value = lambda eta: family.log_density(eta, y)  # noqa: E731
        return {
            "value": value(eta),
            "closed": family.derivatives(eta, y)[:2],
            "backward": (jax.grad(value)(eta), jax.hessian(value)(eta)),
            "steps": jax.vmap(one_step, (0, None, None))(steps, eta, y),
        }

    steps = np.stack([np.zeros_like(eta), random.permutation(eta) - eta], 1)
    look = jax.jit(jax.vmap(jax.vmap(one_row, (0, 0, None)), (None, None, 0)))
    found = jax.tree.map(np.asarray, look(eta, steps, y))
    for path, value in jax.tree_util.tree_leaves_with_path(found):
        assert value.dtype == np.float32
        assert np.all(np.isfinite(value)), jax.tree_util.keystr(path)
    assert np.all(found["steps"]["gain"][:, :, 0] == 0)
    for closed, auto in zip(found["closed"], found["backward"], strict=True):
        size = 1 + np.abs(auto) + np.expand_dims(np.abs(found["value"]), tuple(range(2, closed.ndim)))
        assert np.max((np.abs(closed - auto) / size)[:6]) < 2e-3, "extreme outcomes excepted: sums of large terms"


# ---- draws, starts, settings -------------------------------------------------------------------


def test_draws_have_the_mean(name: str) -> None:
    family, _, centre, _ = FAMILIES[name]
    eta, trials = jnp.array(centre), 7.0
    many = jax.jit(jax.vmap(lambda key: family.draw(key, eta, trials)))
    draws = np.asarray(many(jr.split(jr.key(SEED), 20_000)))
    family.outcomes("f", draws)
    if draws.ndim == 2:  # successes of 7 trials; times, which are observed
        assert np.all(draws[:, 1] == (trials if name == "binomial" else 1))
        draws = draws[:, 0] / (trials if name == "binomial" else 1)
    mean = np.asarray(family.mean(eta))
    values = draws[:, None] == np.arange(mean.size) if mean.ndim else draws
    z = (values.mean(0) - mean) / (values.std(0) / np.sqrt(len(values)))
    assert np.all(np.abs(z) < Z_LIMIT), z


def test_start_is_near_the_best(name: str) -> None:
    """A Newton step from there would gain little of the log likelihood of all rows."""
    family, outcomes, _, _ = FAMILIES[name]
    y = family.outcomes("f", outcomes(np.random.default_rng(SEED), 2000))
    start = family.start(y)
    assert start.shape == (family.num_predictors,)
    sums = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64).sum(0),
        jax.jit(jax.vmap(family.derivatives, (None, 0)))(jnp.asarray(start, jnp.float32), y),
    )
    free = slice(1, None) if "ordinal" in name else slice(None)  # z and the cutpoints shift together
    first, second = sums.first[free], sums.second[free, free]
    assert 0.5 * first @ np.linalg.solve(-second, first) < 0.005 * len(y)


def test_names_and_sizes(name: str) -> None:
    family, _, centre, _ = FAMILIES[name]
    assert family.num_predictors == len(centre) == family.num_linear + len(family.shared)
    assert family == type(family)(**vars(family))
    assert hash(family) == hash(type(family)(**vars(family)))
    assert repr(Bernoulli("probit")) == "Bernoulli(link='probit')"


def test_units() -> None:
    y = np.array([0.0, 2.0, 4.0, 6.0, 1000.0], np.float32)
    assert Gaussian().unit(y) == pytest.approx(y.std())
    assert StudentT().unit(y) == pytest.approx(4 / 1.349, rel=1e-3)
    assert Bernoulli().unit(y) == 1
