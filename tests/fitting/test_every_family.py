"""Fits by default of every family, against a long run of BlackJAX's NUTS on all rows."""

from __future__ import annotations

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import tallchain as tc
from conftest import SEED
from tallchain.checking.convergence import convergence_of
from tallchain.models import Regression, families

N, GROUPS = 4_000, 12
CHAINS, DRAWS, WARMUP = 4, 4_000, 1_000  # of NUTS
Z_LIMIT = 4.0


def either(random: np.random.Generator, p: np.ndarray) -> np.ndarray:
    return (random.random(len(p)) < p).astype(np.float32)


def trials(random: np.random.Generator, z: np.ndarray) -> np.ndarray:
    count = random.integers(1, 20, len(z))
    return np.stack([random.binomial(count, 1 / (1 + np.exp(-z))), count], 1)


def times(random: np.random.Generator, z: np.ndarray) -> np.ndarray:
    failing, leaving = np.exp(z) * random.weibull(1.5, len(z)), random.exponential(4, len(z))
    return np.stack([np.minimum(failing, leaving), failing < leaving], 1)


def classes(random: np.random.Generator, z: np.ndarray) -> np.ndarray:
    return np.argmax(np.stack([0 * z, z, -0.5 * z], 1) + random.gumbel(size=(len(z), 3)), 1)


CASES: dict[str, tuple[families.Family, Any]] = {
    "bernoulli": (families.Bernoulli(), lambda random, z: either(random, 1 / (1 + np.exp(-z)))),
    "probit": (families.Bernoulli("probit"), lambda random, z: (random.normal(size=len(z)) < z).astype(np.float32)),
    "cloglog": (families.Bernoulli("cloglog"), lambda random, z: either(random, -np.expm1(-np.exp(z)))),
    "binomial": (families.Binomial(), trials),
    "poisson": (families.Poisson(), lambda random, z: random.poisson(np.exp(z))),
    "negative binomial": (
        families.NegativeBinomial(),
        lambda random, z: random.poisson(np.exp(z) * random.gamma(2.0, 0.5, len(z))),
    ),
    "gaussian": (families.Gaussian(), lambda random, z: z + 0.8 * random.normal(size=len(z))),
    "t": (families.StudentT(), lambda random, z: z + 0.8 * random.standard_t(4, len(z))),
    "gamma": (families.Gamma(), lambda random, z: random.gamma(2.0, np.exp(z) / 2)),
    "weibull": (families.Weibull(), times),
    "categorical": (families.Categorical(3), classes),
    "ordinal": (
        families.Ordinal(4),
        lambda random, z: np.digitize(z + random.logistic(size=len(z)), [-1.0, 0.3, 1.5]),
    ),
}


def model_of(name: str) -> Regression:
    """Two features and a dozen groups; several outcomes at a time have no groups."""
    random = np.random.default_rng(SEED)
    x, group = random.normal(size=(N, 2)), random.integers(0, GROUPS, N)
    family, outcomes = CASES[name]
    groups = None if family.num_linear > 1 else {"g": group}
    z = 0.3 + x @ [0.6, -0.4] + (0.5 * random.normal(size=GROUPS)[group] if groups else 0.0)
    return Regression(family, y=outcomes(random, z), x=x, groups=groups)


def by_nuts(model: Regression, start: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, standard deviations, and Monte Carlo errors of the means, of all parameters."""
    rows, posterior = jax.tree.map(jnp.asarray, model.data), model.posterior
    flat, back = ravel_pytree(start)

    def log_density(at: jax.Array) -> jax.Array:
        position = back(at)
        return posterior.log_prior(position) + jnp.sum(
            jax.vmap(lambda row: posterior.log_likelihood(position, row))(rows)
        )

    def chain(key: jax.Array) -> jax.Array:
        one, two, three = jax.random.split(key, 3)
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
        apart = flat + 0.05 * jax.random.normal(one, flat.shape)
        (state, parameters), _ = adaptation.run(two, apart, num_steps=WARMUP)
        step = blackjax.nuts(log_density, **parameters).step

        def move(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            state, _ = step(key, state)
            return state, state.position

        return jax.lax.scan(move, state, jax.random.split(three, DRAWS))[1]

    draws = np.asarray(jax.lax.map(chain, jax.random.split(jax.random.key(SEED), CHAINS)), np.float64)
    found = convergence_of([draws])
    assert np.max(found.r_hat) < 1.01
    spread = draws.std((0, 1))
    return draws.mean((0, 1)), spread, spread / np.sqrt(found.ess)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_fit_by_default(name: str) -> None:
    model = model_of(name)
    fit = tc.fit(model, progress=False)
    trace = fit.trace
    flat = np.concatenate(
        [np.asarray(leaf, np.float64).reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(trace.position)], 2
    )
    found = convergence_of([flat])
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, -1]), trace.position)
    mean, spread, error = by_nuts(model, start)
    ours = flat.std((0, 1)) / np.sqrt(found.ess)
    z = (flat.mean((0, 1)) - mean) / np.hypot(ours, error)
    apart, widths = np.abs(flat.mean((0, 1)) - mean) / spread, flat.std((0, 1)) / spread
    print(
        f"{name}: R-hat {np.max(found.r_hat):.4f}, least effective draws {np.min(found.ess):,.0f}, "
        f"worst z {np.abs(z).max():.2f}, means apart by {apart.max():.3f} sd, sd ratios {widths.min():.3f} to "
        f"{widths.max():.3f}, acceptance {trace.is_accepted.mean():.2f}"
    )
    assert np.max(found.r_hat) <= 1.01
    assert np.min(found.ess) >= 4000
    assert np.abs(z).max() < Z_LIMIT


SCALES = {
    "nested": ("y ~ x + (1 | g/h)", 0.7),
    "three": ("y ~ x + (1 | k)", 0.0),
    "one": ("y ~ x + (1 | only)", 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_scales_near_0_and_of_few_groups(name: str, seed: int) -> None:
    """Starts twice as far out as draws are then have scales that are far too large."""
    pd = pytest.importorskip("pandas")
    random = np.random.default_rng(seed)
    formula, outer = SCALES[name]
    frame = pd.DataFrame({"x": random.normal(size=20_000), "only": 0})
    frame["g"], frame["h"], frame["k"] = (random.integers(0, count, 20_000) for count in (6, 4, 3))
    frame["y"] = 0.5 * frame["x"] + outer * random.normal(size=6)[frame["g"]] + random.normal(size=20_000)
    found = tc.fit(formula, frame, family="gaussian", progress=False).facts.convergence
    assert found.worst_r_hat <= 1.01
    assert found.worst_ess >= 4000
