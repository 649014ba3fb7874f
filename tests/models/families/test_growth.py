"""The functions that families are made of, against scipy, far out and in float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammaln, log1p, log_expit, log_ndtr

from conftest import SEED
from tallchain.models.families import Bernoulli, Binomial, Family, NegativeBinomial, Ordinal, Poisson
from tallchain.models.families.gamma_function import gamma_rest, gamma_rest_rise
from tallchain.models.families.growth import Span, growth, growth_derivatives, growth_rise, log_hit, softplus_rise
from tallchain.models.families.links import mills

GRID = np.linspace(-12, 12, 97, dtype=np.float32)


def in_single(function: Any, *arguments: Any) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(function))(*map(np.float32, arguments)), np.float64)


def in_double(function: Any, *arguments: Any) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.vmap(function))(*map(np.float64, arguments)))


def test_growth_is_exp_and_then_a_parabola() -> None:
    x = np.array([-50.0, 0.0, 39.0, 40.0, 41.0, 1e4])
    beyond = np.maximum(x - 40, 0)
    exact = np.exp(np.minimum(x, 40)) * (1 + beyond + 0.5 * beyond**2)
    np.testing.assert_allclose(in_double(growth, x), exact, rtol=1e-12)
    first = in_double(jax.grad(growth), x), in_double(lambda x: growth_derivatives(x).first, x)
    np.testing.assert_allclose(*first, rtol=1e-12)
    for step in (0.0, 1e-3, 0.7, -3.0, 60.0):
        rise = in_double(growth_rise, x, np.full_like(x, step))
        assert np.all(np.abs(rise - in_double(growth, x + step) + exact) <= 1e-9 * np.abs(rise) + 1e-12 * exact)


@pytest.mark.parametrize("step", [0.0, 1e-5, -0.3, 5.0, -2e4])
def test_softplus_rise(step: float) -> None:
    x = np.concatenate([GRID, [-1e4, 1e4, -90.0, 90.0]]).astype(np.float64)
    exact = log_expit(-x) - log_expit(-x - step)
    np.testing.assert_allclose(in_double(softplus_rise, x, np.full_like(x, step)), exact, rtol=1e-9, atol=2e-12)


def test_derivatives_at_the_branch_of_softplus_rise() -> None:
    """At x = 0 the formula changes; no derivative may see it."""
    for step in (0.5, 4.0):
        slope = jax.grad(softplus_rise)
        p, q = expit(step), 0.5
        assert float(slope(0.0, step)) == pytest.approx(p - q, rel=1e-6)
        assert float(jax.grad(slope)(0.0, step)) == pytest.approx(p * (1 - p) - q * (1 - q), rel=1e-5)


def test_log_hit() -> None:
    x = GRID[GRID < 3].astype(np.float64)
    exact = np.log(-np.expm1(-np.exp(x)))
    np.testing.assert_allclose(in_double(log_hit, x), exact, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(in_single(log_hit, x), exact, rtol=1e-5, atol=1e-7)
    assert in_single(log_hit, [-1e4, 1e4]).tolist() == [-1e4, 0]


def test_span_moves_by_the_step_itself() -> None:
    span, x = Span(-1.0, 2.0), np.array([0.1, 0.1, 5.0, -3.0])
    steps = np.array([1e-9, 7.0, 1.0, 2.5])
    np.testing.assert_allclose(in_double(span.step, x, steps), [1e-9, 1.9, 0.0, 0.5], rtol=1e-12)
    np.testing.assert_allclose(in_double(span.slope, x), [1, 1, 0, 0])


# ---- the gamma function ------------------------------------------------------------------------


def test_gamma_rest_is_scipys() -> None:
    t = np.linspace(-12, 8, 81)
    exact = gammaln(np.exp(t)) - np.exp(t) * (t - 1) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(in_double(gamma_rest, t), exact, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(in_single(gamma_rest, np.float32(t)), exact, rtol=1e-6, atol=1e-5)


def test_gamma_rest_far_out() -> None:
    far = [-1e4, 20.0, 40.0, 1e4]
    np.testing.assert_allclose(in_single(gamma_rest, far), [1e4 - 0.5 * np.log(2 * np.pi), -10, -20, -5e3], rtol=1e-6)
    np.testing.assert_allclose(in_single(jax.grad(gamma_rest), far), [-1, -0.5, -0.5, -0.5], rtol=1e-5)


def test_gamma_rest_rise_keeps_digits() -> None:
    t = np.linspace(-12, 45, 200).astype(np.float32)
    step = np.full_like(t, 1e-4)
    in_full = in_double(gamma_rest_rise, t, step)
    np.testing.assert_allclose(
        in_full, in_double(gamma_rest, t + np.float64(step)) - in_double(gamma_rest, t), atol=1e-12
    )
    assert np.max(np.abs(in_single(gamma_rest_rise, t, step) / in_full - 1)) < 1e-5
    difference = in_single(lambda t, d: gamma_rest(t + d) - gamma_rest(t), t, step)
    assert np.max(np.abs(difference / in_full - 1)) > 1e-3, "negative control"


# ---- tails and large counts --------------------------------------------------------------------


def exact_mills(s: np.ndarray) -> list[np.ndarray]:
    """m, m + s and 1 - m (m + s), by a long continued fraction below -3."""
    t = np.maximum(-s, 3.0)
    fraction = t
    for j in range(400, 1, -1):
        fraction = t + j / fraction
    is_tail = s < -3
    ratio = np.where(is_tail, t + 1 / fraction, np.exp(stats.norm.logpdf(s) - log_ndtr(s)))
    gap = np.where(is_tail, 1 / fraction, ratio + s)
    return [ratio, gap, 1 - ratio * gap]


def test_mills_ratio_in_the_tail() -> None:
    s = np.concatenate([GRID, [-20.0, -100.0, -1e4]])
    for ours, exact in zip(in_single_each(mills, s), exact_mills(s.astype(np.float64)), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2e-4, atol=1e-6)
    for ours, exact in zip(in_double_each(mills, s), exact_mills(s.astype(np.float64)), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-8, atol=1e-10)


def in_single_each(function: Any, s: np.ndarray) -> list[np.ndarray]:
    return [in_single(lambda s, j=j: function(s)[j], s) for j in range(3)]


def in_double_each(function: Any, s: np.ndarray) -> list[np.ndarray]:
    return [in_double(lambda s, j=j: function(s)[j], s) for j in range(3)]


@pytest.mark.parametrize("step", [1e-4, 0.2, -1.5])
def test_probit_gains_in_the_tail(step: float) -> None:
    """Short steps, steps within the tail, and out of it."""
    s = np.concatenate([GRID, [-20.0, -100.0]])[:, None]
    ours = in_single(lambda s: Bernoulli("probit").gain(s, jnp.array([step]), jnp.ones(())), s)
    exact = log_ndtr(s[:, 0] + np.float64(np.float32(step))) - log_ndtr(s[:, 0].astype(np.float64))
    np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=2e-7)


def test_ordinal_probabilities_in_the_tail() -> None:
    """Of a level between cutpoints at 0 and 1, far from z: about exp(-|z|), which differences lose."""
    z = np.array([-80.0, -30.0, 0.0, 30.0, 80.0])
    eta = np.stack([z, np.zeros(5), np.zeros(5)], 1)
    exact = log_expit(1 - z) + log_expit(z) + log1p(-np.exp(-1.0))
    np.testing.assert_allclose(in_single(lambda eta: Ordinal(3).log_density(eta, jnp.ones(())), eta), exact, rtol=1e-6)


LARGE = {
    "poisson": (Poisson(), 1e6, [np.log(1e6)], lambda y, z: stats.poisson.logpmf(y, np.exp(z))),
    "binomial": (Binomial(), [4e5, 1e6], [np.log(2 / 3)], lambda y, z: stats.binom.logpmf(*y, expit(z))),
    "negative binomial": (
        NegativeBinomial(),
        1e6,
        [np.log(1e6), 9.0],
        lambda y, z, s: stats.nbinom.logpmf(y, np.exp(s), expit(s - z)),
    ),
}


@pytest.mark.parametrize(("family", "y", "eta", "exact"), LARGE.values(), ids=list(LARGE))
def test_a_large_count_keeps_its_digits(family: Family, y: Any, eta: Any, exact: Any) -> None:
    """The terms of the plain formulas are of the size of 10^7, where float32 is off by 1."""
    moves = np.random.default_rng(SEED).normal(size=(20, 2, len(eta))) * 2e-3
    here, there = (np.float32(eta + move) for move in moves.swapaxes(0, 1))
    values = in_single(lambda eta: family.log_density(eta, jnp.array(y)), there) - in_single(
        lambda eta: family.log_density(eta, jnp.array(y)), here
    )
    gains = in_single(lambda eta, step: family.gain(eta, step, jnp.array(y)), here, there - here)
    known = [exact(y, *at.astype(np.float64)) for at in there], [exact(y, *at.astype(np.float64)) for at in here]
    np.testing.assert_allclose(values, np.subtract(*known), atol=0.02)
    np.testing.assert_allclose(gains, np.subtract(*known), atol=0.02)
