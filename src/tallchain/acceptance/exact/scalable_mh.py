"""Scalable Metropolis-Hastings (Cornish, Vanetti, Bouchard-Cote, Deligiannidis, Doucet 2019)."""

from __future__ import annotations

import jax.numpy as jnp

from tallchain.acceptance.exact.base import PoissonTest
from tallchain.acceptance.exact.counting import Kept
from tallchain.parts import part
from tallchain.types import Array


@part
class ScalableMH(PoissonTest):
    """Draw B ~ Poisson(L) rows, each of which rejects with probability max(0, -rho); then min(1, e^offset).

    P(accept) = min(1, e^offset) exp(-sum max(0, -d_i)), a product over factors: exact, but lower than that of the other
    tests, since rows in favour do not make up for rows against. Which rows reject is integrated out: accept iff
    log u < min(0, offset) + sum over rows of log(1 - max(0, -rho)). Rows come in parts, and the test stops once the sum
    is below log u. The paper's SMH-1 and SMH-2 are this test with a surrogate of order 1 or 2 and its bound
    (`bounds.regression_bound(..., measure="scalable")` has the paper's own).

    Args:
        limit: rows to expect above which the test reads every row instead (the paper's truncation); None for N.
        batch: rows of one look; None for the source's `batch_size`.
    """

    def kept(self, rho: Array, most: Array) -> None:
        """All of them."""

    def log_factor(self, rho: Array, most: Array) -> Array:
        """log(1 - max(0, -rho))."""
        return jnp.log1p(-jnp.maximum(-rho, 0))

    def log_chance(self, offset: Array, log_product: Array) -> Array:
        """min(0, offset) and the logarithm of the product of factors."""
        return jnp.minimum(offset, 0) + log_product

    def is_rejection_certain(self, evidence: Kept) -> bool:
        """Always: a row never raises the chance to accept."""
        return True
