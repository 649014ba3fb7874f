"""The paper's idea for Langevin steps: estimate the log ratio of the densities from rows, and absorb its noise.

For a drift along the gradient g of ALL rows, and a step u = t' - t, the log ratio of the densities is

    log q(t | t') - log q(t' | t) = -u.(g(t) + g(t'))/2 + (|L'g(t)|^2 - |L'g(t')|^2)/8.

The first term is a sum over rows, so the test can take it with the log likelihood: a row's number is then the error of
the trapezoid rule along the step, of third order, and very few rows are needed. But the drift must come from a
minibatch, or nothing is saved. The density of the candidate is then not the one above: its noise is the gradient's too.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.records import table
from tallchain.parts import part
from tallchain.proposals import Langevin
from tallchain.proposals.gradients import gradient_of
from tallchain.proposals.scales import inner, scaled
from tallchain.types import Array, Proposed, PyTree, RowFunction, Target

SEED, D, N, TEMPERATURE = 5, 5, 100_000, 1000.0
SCALES = (0.4, 0.8, 1.2)
WORDS = (
    f"rows x_i ~ N(t, I), N = {N:,}, d = {D}, K = {TEMPERATURE:g}, flat prior: the posterior is normal, and the "
    "trapezoid rule exact, the best case for the idea; MinibatchBarker(), 50 rows a look; variance of the draws over "
    "the posterior's, and its Monte Carlo error"
)


@part
class Trapezoid:
    """As a surrogate: what a row takes from log q(t | t') - log q(t' | t), for a drift along all rows."""

    log_likelihood: Any

    def check(self, position: PyTree) -> None:
        """Any position."""

    def total(self, position: PyTree, candidate: PyTree) -> Array:
        """0: it is not known."""
        return jnp.zeros(())

    def row_difference(self, position: PyTree, candidate: PyTree) -> RowFunction:
        """u.(g_i(t) + g_i(t'))/2."""
        slope = jax.grad(self.log_likelihood)
        step = candidate - position
        return lambda row: 0.5 * jnp.dot(step, slope(position, row) + slope(candidate, row))


@part
class Absorbed:
    """A drift along a minibatch, whose density is taken for that of a drift along all rows."""

    langevin: Langevin

    def check(self, position: PyTree) -> None:
        """Any position."""

    def draw(self, key: Array, position: PyTree) -> Any:
        """As Langevin steps."""
        return self.langevin.draw(key, position)

    def propose(self, noise: Any, position: PyTree, target: Target) -> Proposed:
        """The quadratic terms are estimated from the minibatch."""
        gradient = gradient_of(target._replace(surrogate=None), noise.rows, self.langevin.rows, position)
        scale = self.langevin.scale
        here = scaled(scale, gradient(position), transposed=True)
        candidate = position + scaled(scale, noise.normals + 0.5 * here)
        there = scaled(scale, gradient(candidate), transposed=True)
        return Proposed(candidate, (inner(here, here) - inner(there, there)) / 8, self.langevin.rows)


def measured(chains: int, draws: int, minibatches: tuple[int, ...]) -> list[dict[str, Any]]:
    """Both ways, by scale and size of the minibatch."""
    rows = np.random.default_rng(SEED).normal(size=(N, D)).astype(np.float32)
    posterior = tc.Posterior(_flat, _log_likelihood, TEMPERATURE)
    source, sd = tc.Shuffled(rows, 50), (TEMPERATURE / N) ** 0.5
    mean = rows.mean(0, dtype=np.float64)
    starts = (mean + sd * np.random.default_rng(SEED).normal(size=(chains, D))).astype(np.float32)
    found = []
    for scale in SCALES:
        for count in minibatches:
            langevin = Langevin(scale * sd, count)
            for name, proposal, surrogate in (
                ("exact", langevin, None),
                ("absorbed", Absorbed(langevin), Trapezoid(posterior.log_likelihood)),
            ):
                kernel = tc.MetropolisHastings(posterior, source, proposal=proposal, surrogate=surrogate)
                trace = tc.sample(jr.key(SEED), kernel, starts, draws, num_chains=chains, scan=0, progress=False)
                ratios = (((np.asarray(trace.position, np.float64) - mean) / sd) ** 2).mean((1, 2))
                found.append(
                    {
                        "way": name,
                        "scale": scale,
                        "minibatch": count,
                        "rows": float(trace.rows_read.mean()),
                        "acceptance": float(trace.is_accepted.mean()),
                        "variance": float(ratios.mean()),
                        "error": float(ratios.std(ddof=1) / chains**0.5),
                    }
                )
                print(found[-1], flush=True)
    return found


def _flat(t: Array) -> Array:
    return jnp.zeros(())


def _log_likelihood(t: Array, x: Array) -> Array:
    return -0.5 * jnp.sum((x - t) ** 2)


def page(results: list[dict[str, Any]]) -> str:
    """Both ways in one row."""
    header = ["scale, in sd", "rows of the gradient"]
    ways, numbers = ("fixed minibatch", "absorbed"), ("rows", "acceptance", "variance")
    header += [f"{way}: {what}" for way in ways for what in numbers]
    pairs = zip(results[::2], results[1::2], strict=True)
    rows = [
        [
            f"{one['scale']:g}",
            f"{one['minibatch']:,}",
            *(
                cell
                for each in (one, other)
                for cell in (
                    f"{each['rows']:,.0f}",
                    f"{each['acceptance']:.2f}",
                    f"{each['variance']:.3f} ± {each['error']:.3f}",
                )
            ),
        ]
        for one, other in pairs
    ]
    return table(header, rows)
