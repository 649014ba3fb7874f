"""TunaMH (Zhang, Cooper, De Sa 2020, "Asymptotically optimal exact minibatch Metropolis-Hastings")."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tallchain.acceptance.exact.base import PoissonTest
from tallchain.parts import part, set_fields, static
from tallchain.types import Array
from tallchain.validation import brief, is_positive


@part
class TunaMH(PoissonTest):
    """Draw B ~ Poisson(L + chi L^2) rows and keep each with probability (chi L + (1 - rho)/2)/(chi L + 1).

    A row that is kept has the factor (2 chi L + 1 + rho)/(2 chi L + 1 - rho); P is the sum of their logarithms. Accept
    with probability min(1, e^(offset + P)). Exact for any chi; a larger one reads more rows, and P varies less: the
    acceptance is that of `Penalty` with variance sum d_i^2/(b_i (chi L + 1/2)).

    Args:
        chi: how many rows beyond the fewest; the authors' code has 1e-5.
        limit: rows to expect above which the test reads every row instead; None for N.
        batch: rows of one look; None for the source's `batch_size`.
    """

    chi: float = static(1e-5)

    def __init__(self, chi: float = 1e-5, limit: float | None = None, batch: int | None = None) -> None:
        if isinstance(chi, bool) or not (is_positive(chi) or (np.ndim(chi) == 0 and chi == 0)):
            raise ValueError(f"`TunaMH(chi=...)` must be a number, at least 0; got {brief(chi)}.")
        set_fields(self, chi=float(chi), limit=limit, batch=batch)
        self.__post_init__()

    def rate(self, most: Array) -> Array:
        """L + chi L^2."""
        return most + self.chi * most**2

    def kept(self, rho: Array, most: Array) -> Array:
        """(chi L + (1 - rho)/2)/(chi L + 1)."""
        return (self.chi * most + (1 - rho) / 2) / (self.chi * most + 1)

    def log_factor(self, rho: Array, most: Array) -> Array:
        """log((2 chi L + 1 + rho)/(2 chi L + 1 - rho))."""
        share = rho / (2 * self.chi * most + 1)
        return jnp.log1p(share) - jnp.log1p(-share)
