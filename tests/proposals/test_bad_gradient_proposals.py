"""Gradient proposals refuse bad input before anything compiles, and survive bad gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

from tallchain import MetropolisHastings, Penalty, Posterior, Shuffled, sample
from tallchain.firefly import FireflyMC
from tallchain.models import logistic_regression
from tallchain.proposals import Amagold, Hamiltonian, Langevin, Laplace

ROWS = np.random.default_rng(3).normal(0.4, 1.3, 6)


def log_prior(t: Any) -> Any:
    return -0.5 * jnp.sum(t**2) / 4


def log_likelihood(t: Any, x: Any) -> Any:
    return -jnp.log1p((x - t) ** 2)


POSTERIOR = Posterior(log_prior, log_likelihood)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Langevin(0.0, 10), ValueError, r"`Langevin\(scale=\.\.\.\)` is a standard deviation and must be pos"),
        (lambda: Langevin(1e39, 10), ValueError, r"`Langevin\(scale=\.\.\.\)` is .* positive and finite .* got 1e\+39"),
        (lambda: Langevin(0.1, 2.5), ValueError, r"`Langevin\(rows=\.\.\.\)` must be a whole number, at least 0; got"),
        (lambda: Langevin(0.1, -1), ValueError, r"`Langevin\(rows=\.\.\.\)` must be a whole number"),
        (lambda: Langevin("a", 10), TypeError, r"`Langevin\(scale=\.\.\.\)` must hold numbers"),
        (lambda: Langevin.preconditioned(None, 10), TypeError, r"`Langevin.preconditioned\(laplace=\.\.\.\)`"),
        (lambda: Hamiltonian(0.1, 0), ValueError, r"`Hamiltonian\(num_steps=\.\.\.\)` must be a whole number, at le"),
        (lambda: Hamiltonian(-0.1, 3), ValueError, r"`Hamiltonian\(scale=\.\.\.\)` is a standard deviation"),
        (lambda: Hamiltonian(None, 3), ValueError, r"`Hamiltonian\(scale=None\)` needs `laplace=\.\.\.`"),
        (
            lambda: Hamiltonian(4.0, 3, laplace=Laplace(np.zeros(1), np.eye(1))),
            ValueError,
            "is the angle of a step, above 0 and below pi",
        ),
        (lambda: Amagold(0.1, 3, friction=1.0), ValueError, r"`Amagold\(friction=\.\.\.\)` must be above 0 and below"),
        (lambda: Amagold(0.1, 0), ValueError, r"`Amagold\(num_steps=\.\.\.\)` must be a whole number"),
        (lambda: kernel(Langevin(0.1, 7)), ValueError, r"`Langevin\(rows=7\)`: the source has 6 rows to draw from"),
        (lambda: kernel(Hamiltonian(0.1, 2, 0)), ValueError, r"`Hamiltonian\(rows=0\)` takes its gradient from the k"),
        (lambda: start(Langevin(np.ones(3), 2)), ValueError, r"`Langevin\(scale=\.\.\.\)` must be a number, or fit"),
        (lambda: start(Amagold(np.ones(3), 2, 2)), ValueError, r"`Amagold\(scale=\.\.\.\)` must be a number, or fit"),
        (
            lambda: start(Hamiltonian(None, 2, 2, Laplace(np.zeros(2), np.eye(2)))),
            ValueError,
            r"`Hamiltonian\(laplace=\.\.\.\)` moves positions of shapes \(2,\); got one of shapes",
        ),
    ],
)
def test_bad_input(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def kernel(proposal: Any, posterior: Posterior = POSTERIOR) -> MetropolisHastings:
    return MetropolisHastings(posterior, Shuffled(ROWS.astype(np.float32), 2), proposal=proposal, acceptance=Penalty())


def start(proposal: Any, posterior: Posterior = POSTERIOR) -> Any:
    return sample(jr.key(0), kernel(proposal, posterior), jnp.float32(0.1), 2, scan=0, progress=False)


def test_a_likelihood_without_a_gradient_is_refused() -> None:
    def rounded(t: Any, x: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(lambda t, x: np.float32(-((t - x) ** 2)), shape, t, x, vmap_method="sequential")

    posterior = Posterior(log_prior, rounded)
    message = r"`log_likelihood\(position, row\)` has no gradient by the position, and Langevin\(\.\.\.\) needs one"
    with pytest.raises(ValueError, match=message):
        start(Langevin(0.1, 2), posterior)


def test_another_kernel_refuses_them() -> None:
    rng = np.random.default_rng(0)
    model = logistic_regression(rng.normal(size=(50, 2)).astype("f"), (rng.random(50) < 0.5).astype("f"), prior_sd=1.0)
    with pytest.raises(TypeError, match=r"FireflyMC\(proposal=\.\.\.\)`: Langevin"):
        FireflyMC(model, np.zeros(2, np.float32), proposal=Langevin(0.1, 10))


def test_far_from_everything_candidates_are_rejected() -> None:
    """A gradient that overflows gives no candidate; nothing hangs."""
    posterior = Posterior(lambda t: -jnp.exp(t**2), log_likelihood)
    trace = sample(
        jr.key(0), kernel(Langevin(3.0, 2), posterior), jnp.float32(2.0), 50, num_chains=4, scan=0, progress=False
    )
    assert np.isfinite(trace.position).all()
    assert np.abs(trace.position).max() < 3


def test_rows_are_counted() -> None:
    for proposal, count in ((Langevin(0.1, 5), 5), (Hamiltonian(0.1, 3, 4), 4), (Amagold(0.1, 3, 4), 12)):
        trace = start(proposal)
        assert (trace.rows_scanned == count).all()


def test_amagold_takes_narrow_positions_where_numbers_are_wide() -> None:
    """At a low temperature `sample` turns 64 bits on by itself."""
    rows = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    posterior = Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2, temperature=1e-5)
    kernel = MetropolisHastings(posterior, Shuffled(rows, 100), proposal=Amagold(1e-5, 3, 500), acceptance=Penalty())
    trace = sample(jr.key(1), kernel, rows.mean(), 5, num_chains=4, scan=0, progress=False)
    assert np.isfinite(trace.position).all()


def test_a_wide_laplace_moves_a_narrow_position() -> None:
    """Where JAX has 64 bits, a position may have 32 and N(r, S) 64."""
    with jax.enable_x64(True):
        proposal = Hamiltonian(0.1, 3, 6, Laplace(np.float64(0.4), np.eye(1)))
        trace = start(proposal)
        assert proposal.laplace.factor.dtype == np.float64
        assert trace.position.dtype == np.float32
        assert trace.is_accepted.any()


def test_a_gradient_that_is_not_a_number_is_refused() -> None:
    """`jnp.where` hands NaN on from the branch that is not taken."""
    posterior = Posterior(log_prior, lambda t, x: jnp.where(t > 0, 0.0 * jnp.sqrt(t), 0.0) - (x - t) ** 2)
    with pytest.raises(ValueError, match=r"the gradient of `log_likelihood\(position, row\)` is nan"):
        sample(jr.key(0), kernel(Langevin(0.1, 2), posterior), jnp.float32(-0.5), 2, scan=0, progress=False)
