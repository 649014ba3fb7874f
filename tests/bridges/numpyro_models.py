"""NumPyro models for tests. Each takes `part`, the subsample size of its plate, so that NumPyro can have all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

NUM_ROWS = 60
PART = 7


class Case(NamedTuple):
    model: Callable[..., Any]
    arguments: tuple[Any, ...]
    sites: tuple[str, ...]
    """All sites that draws have."""


def regression(x: Any, y: Any, part: Any = None) -> None:
    """No indices: what is outside of the plate is computed from all rows."""
    w = numpyro.sample("w", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Cauchy(0, 1))
    logits = numpyro.deterministic("logits", x @ w + b)  # of the rows: no part of draws
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def constrained(y: Any, part: Any = None) -> None:
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    share = numpyro.sample("share", dist.Beta(2.0, 3.0))
    low = numpyro.sample("low", dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0))
    numpyro.deterministic("precision", scale**-2)
    with numpyro.plate("rows", len(y), subsample_size=part) as i:
        numpyro.sample("y", dist.Normal(share + low, scale), obs=y[i])


def simplex_and_factor(y: Any, kind: Any, part: Any = None) -> None:
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    factor = numpyro.sample("L", dist.LKJCholesky(2, 1.5))
    means = numpyro.sample("means", dist.TransformedDistribution(dist.Normal(0, 1).expand([2]).to_event(1), order))
    with numpyro.plate("rows", len(kind), subsample_size=part) as i:
        numpyro.sample("kind", dist.Categorical(probs=shares), obs=kind[i])
        numpyro.sample("y", dist.MultivariateNormal(means, scale_tril=factor), obs=y[i])


order = dist.transforms.OrderedTransform()


def outside(x: Any, y: Any, total: float, part: Any = None) -> None:
    """A factor, and an observed site, outside of the plate."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.factor("more", -0.5 * (jnp.log(rate) - slope) ** 2)
    numpyro.sample("total", dist.Normal(10 * rate, 3.0), obs=total)
    with numpyro.plate("rows", len(y), subsample_size=part) as i:
        numpyro.sample("y", dist.Poisson(rate * jnp.exp(0.1 * slope * x[i, 0])), obs=y[i])
        numpyro.factor("penalty", -0.01 * slope**2 * x[i, 1] ** 2)


def hierarchical(x: Any, y: Any, group: Any, part: Any = None) -> None:
    """Non-centred effects of groups, in a plate of their own."""
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    with numpyro.plate("groups", 5):
        z = numpyro.sample("z", dist.Normal(0, 1))
        own = numpyro.sample("own", dist.Exponential(1.0))
    effects = numpyro.deterministic("effects", mean + tau * z)
    with numpyro.plate("rows", len(y), subsample_size=part) as i:
        numpyro.sample("y", dist.Normal(effects[group[i]] + x[i, 0], own[group[i]]), obs=y[i])


def supports_that_depend(y: Any, part: Any = None) -> None:
    upper = numpyro.sample("upper", dist.LogNormal(0.0, 0.5))
    scale = numpyro.sample("scale", dist.Uniform(0.0, upper))
    with numpyro.plate("rows", len(y), subsample_size=part):
        batch = numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.StudentT(5.0, 0.0, scale), obs=batch)


def scaled(x: Any, y: Any, part: Any = None) -> None:
    """Handlers of the user's, a plate with its own dimension, a mask."""
    with handlers.scale(scale=0.5):
        w = numpyro.sample("w", dist.HalfNormal(1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y), subsample_size=part, dim=-1) as i, handlers.scale(scale=2.0):
        keep = x[i, 0] > -0.5
        numpyro.sample("y", dist.Normal(x[i] @ w, 1.0).mask(keep), obs=y[i])
        numpyro.sample("pair", dist.Normal(w, 1.0).to_event(1), obs=x[i])


def improper(data: dict[str, Any], part: Any = None) -> None:
    """A dict of arrays, and a prior that cannot be drawn from."""
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
    scale = numpyro.sample("scale", dist.ImproperUniform(dist.constraints.positive, (), ()))
    with numpyro.plate("rows", len(data["y"]), subsample_size=part) as i:
        numpyro.sample("y", dist.Laplace(mean, scale), obs=data["y"][i])


def cases() -> dict[str, Case]:
    random = np.random.default_rng(0)
    x = random.normal(size=(NUM_ROWS, 2)).astype(np.float32)
    y = random.normal(size=NUM_ROWS).astype(np.float32)
    is_one, count = (y > 0).astype(np.float32), random.poisson(1.0, NUM_ROWS)
    kind, group = random.integers(0, 3, NUM_ROWS), random.integers(0, 5, NUM_ROWS)
    listed = {
        regression: Case(regression, (x, is_one), ("w", "b")),
        constrained: Case(constrained, (y,), ("scale", "share", "low", "precision")),
        simplex_and_factor: Case(simplex_and_factor, (x, kind), ("shares", "L", "means")),
        outside: Case(outside, (x, count, 9.0), ("rate", "slope")),
        hierarchical: Case(hierarchical, (x, y, group), ("mean", "tau", "z", "own", "effects")),
        supports_that_depend: Case(supports_that_depend, (y,), ("upper", "scale")),
        scaled: Case(scaled, (x, y), ("w",)),
        improper: Case(improper, ({"y": y},), ("mean", "scale")),
    }
    return {case.model.__name__: case for case in listed.values()}
