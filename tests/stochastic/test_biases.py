"""The draws of each dynamics have the variance that its recursion has on a normal posterior: its known bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from gaussian import (
    BATCH,
    ROWS,
    Z_LIMIT,
    Gaussian,
    friction_variance,
    langevin_variance,
    run,
    shuffled,
    trajectory_variance,
    variance_ratio,
    with_replacement,
    z_scores,
)
from tallchain.stochastic import SGHMC, SGLD, SGNHT, StochasticGradient
from tallchain.surrogates import Taylor

pytest.importorskip("blackjax")

TARGET = Gaussian.make()
SOURCES: dict[str, Callable[[Any], Any]] = {"shuffled": shuffled, "with replacement": with_replacement}


def kernel_of(dynamics: Any, rows: int, target: Gaussian = TARGET, source: Any = shuffled, **options: Any) -> Any:
    return StochasticGradient(target.posterior, source(target.data), dynamics, rows, **options)


# ---- SGLD ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.8])
def test_sgld_on_all_rows_is_an_autoregression(share: float) -> None:
    """1/(P (1 - eps P/2)); 1/P is refuted where the step is long."""
    eps = share / TARGET.precision
    trace = run(kernel_of(SGLD(eps), ROWS), TARGET.mean)
    variance = langevin_variance(eps, TARGET.precision, 0.0)
    assert variance == pytest.approx(1 / TARGET.precision / (1 - share / 2))
    assert np.abs(z_scores(trace, TARGET.mean, variance)).max() < Z_LIMIT
    if share > 0.5:
        assert np.abs(z_scores(trace, TARGET.mean, 1 / TARGET.precision)).max() > 2 * Z_LIMIT


@pytest.mark.parametrize("name", SOURCES)
def test_sgld_adds_the_noise_of_the_minibatch(name: str) -> None:
    """(1 + eps s2/2)/(P (1 - eps P/2)), s2 with the finite-population factor where rows do not repeat."""
    eps = 0.2 / TARGET.precision
    trace = run(kernel_of(SGLD(eps), BATCH, source=SOURCES[name]), TARGET.mean)
    noise = TARGET.noise(BATCH, repeats=name == "with replacement")
    variance = langevin_variance(eps, TARGET.precision, noise)
    short = (1 + eps * noise / 2) / (TARGET.precision * (1 - eps * TARGET.precision / 2))
    np.testing.assert_allclose(variance, short)
    assert np.abs(z_scores(trace, TARGET.mean, variance)).max() < Z_LIMIT
    unnoticed = langevin_variance(eps, TARGET.precision, 0.0)
    assert np.abs(z_scores(trace, TARGET.mean, unnoticed)).max() > 2 * Z_LIMIT


def test_sgld_at_another_temperature() -> None:
    hot = Gaussian.make(temperature=8.0)
    eps = 0.2 / hot.precision
    trace = run(kernel_of(SGLD(eps), BATCH, hot), hot.mean)
    variance = langevin_variance(eps, hot.precision, hot.noise(BATCH, repeats=False))
    assert np.abs(z_scores(trace, hot.mean, variance)).max() < Z_LIMIT
    assert trace.settings.is_tempered


def test_a_surrogate_takes_the_noise_out() -> None:
    """An expansion of order 2 is exact here: two rows are as good as all."""
    surrogate = Taylor(TARGET.posterior, TARGET.data, TARGET.mean.astype(np.float32), 2)
    eps = 0.8 / TARGET.precision
    trace = run(kernel_of(SGLD(eps), 2, surrogate=surrogate), TARGET.mean)
    variance = langevin_variance(eps, TARGET.precision, 0.0)
    assert np.abs(z_scores(trace, TARGET.mean, variance)).max() < Z_LIMIT


def test_rows_that_are_always_read_lower_the_noise() -> None:
    """Those of a reweighted source: half of them always, and the others sampled."""
    half = ROWS // 2
    source = lambda data: shuffled(data).reweighted(exact=np.arange(half))  # noqa: E731
    eps = 0.2 / TARGET.precision
    trace = run(kernel_of(SGLD(eps), BATCH, source=source), TARGET.mean)
    noise = half**2 * (1 - BATCH / half) * TARGET.data[half:].astype(float).var(0, ddof=1) / BATCH
    assert np.abs(z_scores(trace, TARGET.mean, langevin_variance(eps, TARGET.precision, noise))).max() < Z_LIMIT
    assert (trace.rows_read == BATCH + half).all()


# ---- SGHMC ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [ROWS, BATCH])
def test_sghmc_is_a_linear_recursion(rows: int) -> None:
    h, steps = 0.15 / np.sqrt(TARGET.precision), 5
    alpha, beta = 0.3 / h, 0.5 / h**2
    noise = TARGET.noise(rows, repeats=False)
    variance = np.array(
        [trajectory_variance(h, steps, alpha, beta, precision=TARGET.precision, noise=each) for each in noise]
    )
    trace = run(kernel_of(SGHMC(h, steps, alpha, beta), rows), TARGET.mean)
    assert np.abs(z_scores(trace, TARGET.mean, variance)).max() < Z_LIMIT
    assert np.abs(z_scores(trace, TARGET.mean, 1 / TARGET.precision)).max() > 2 * Z_LIMIT


# ---- SGNHT ---------------------------------------------------------------------------------------


def thermostat(h: float, alpha: float, *, precision: float, noise: float) -> float:
    """The friction at which the momentum has variance 1."""
    excess = lambda friction: friction_variance(h, friction, alpha, precision=precision, noise=noise)[1, 1] - 1  # noqa: E731
    return float(brentq(excess, 1.01 * h * precision, 1 / h))


def test_the_thermostat_absorbs_the_noise_of_the_minibatch() -> None:
    """The friction settles where the momentum has variance 1, which is nearly the right variance of the position.

    SGLD that moves as fast, eps = h/f, does not: there the noise of the gradient adds to the variance.
    """
    many = Gaussian.make(temperature=ROWS, size=40, spread=20.0)  # precision 2, so that a thermostat of mass 1 is fast
    rows, h, alpha = BATCH, 0.05, 0.5
    noise = many.noise(rows, repeats=False).mean()
    friction = thermostat(h, alpha, precision=many.precision, noise=noise)
    assert friction > alpha + 0.9 * h * noise / 2 > 1.5 * alpha
    expected = friction_variance(h, friction, alpha, precision=many.precision, noise=noise)[0, 0] * many.precision
    trace = run(kernel_of(SGNHT(h, alpha), rows, many), many.mean, 300, num_warmup=200)
    ratio = variance_ratio(trace, many.mean, 1 / many.precision)
    assert ratio == pytest.approx(expected, abs=0.02)
    plain = run(kernel_of(SGLD(h / friction), rows, many), many.mean)
    assert abs(ratio - 1) < 0.2 * abs(variance_ratio(plain, many.mean, 1 / many.precision) - 1)
    constant = friction_variance(h, alpha, alpha, precision=many.precision, noise=noise)[0, 0] * many.precision
    assert abs(ratio - 1) < 0.2 * abs(constant - 1)
