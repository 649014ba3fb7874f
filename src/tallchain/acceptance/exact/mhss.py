"""Metropolis-Hastings with scalable subsampling (Prado, Nemeth, Sherlock 2024)."""

from __future__ import annotations

import jax.numpy as jnp

from tallchain.acceptance.exact.base import PoissonTest
from tallchain.acceptance.exact.counting import Kept
from tallchain.parts import part, set_fields, static
from tallchain.types import Array
from tallchain.validation import brief, is_truth


@part
class MHSS(PoissonTest):
    """Draw B ~ Poisson(L) rows, keep each with probability 1 - max(0, rho), and accept with min(1, e^(offset + P)).

    rho = W/L, and P is the sum over the rows kept of log(1 - max(0, -rho)) - log(1 - max(0, rho)). Exact: e^P is
    unbiased for the likelihood ratio, and detailed balance holds for any L that bounds |W|. Its acceptance is that of
    `Penalty` with the variance of P, about sum d_i^2/b_i.

    Args:
        limit: rows to expect above which the test reads every row instead; None for N.
        batch: rows of one look; None for the source's `batch_size`. The number read does not depend on it.
        two_stages: accept with probability min(1, e^offset) min(1, e^P), as the authors' package does: a candidate
            that the first factor rejects costs no row.
    """

    two_stages: bool = static(False)

    def __init__(self, limit: float | None = None, batch: int | None = None, *, two_stages: bool = False) -> None:
        if not is_truth(two_stages):
            raise TypeError(f"`{type(self).__name__}(two_stages=...)` must be True or False; got {brief(two_stages)}.")
        set_fields(self, limit=limit, batch=batch, two_stages=bool(two_stages))
        self.__post_init__()

    def kept(self, rho: Array, most: Array) -> Array:
        """1 - max(0, rho)."""
        return 1 - jnp.maximum(rho, 0)

    def log_factor(self, rho: Array, most: Array) -> Array:
        """log(1 - max(0, -rho)) - log(1 - max(0, rho)), of which one is 0."""
        rest = jnp.log(1 - jnp.abs(rho))
        return jnp.where(rho > 0, -rest, rest)

    def log_chance(self, offset: Array, log_product: Array) -> Array:
        """offset + P, or each of them at most 0."""
        if self.two_stages:
            return jnp.minimum(offset, 0) + jnp.minimum(log_product, 0)
        return offset + log_product

    @property
    def judges_first(self) -> bool:
        """In two stages."""
        return self.two_stages

    def is_rejection_certain(self, evidence: Kept) -> Array | bool:
        """In two stages, while no row was read."""
        return evidence.count == 0 if self.two_stages else False
