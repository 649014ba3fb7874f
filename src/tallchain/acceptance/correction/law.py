"""Laws of the noise of Delta*, where it is not quite normal: an estimated scale, skewed rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from tallchain.acceptance.correction.record import Array


class Law(NamedTuple):
    """The noise e + X_nc that a correction is made for.

    With F the CDF of the standard normal law, or of Student's t with nu degrees of freedom where the scale of e was
    estimated from nu + 1 other rows, and kappa3 the third cumulant,

        P(e + X_nc <= x) = F(x/sigma) - kappa3/(6 sigma^3) F'''(x/sigma),

    for normal F the term is kappa3/(6 sigma^3) ((x/sigma)^2 - 1) phi(x/sigma). `printed` adds the paper's appendix A.5
    instead, y (2 (x/sigma)^2 + 1) phi(x/sigma) with y = gamma/(6 sqrt b): the expansion of the STUDENTISED mean, which
    is not what the decision uses. These are distributions to first order in 1/sqrt(b); far in the tails the density may
    be negative.
    """

    sigma: float
    nu: float = math.inf
    kappa3: float = 0.0
    printed: float = 0.0

    @property
    def is_skewed(self) -> bool:
        """Whether the law is not symmetric."""
        return self.kappa3 != 0 or self.printed != 0

    def lower(self, x: Array) -> Array:
        """P(e + X_nc <= x)."""
        t = x / self.sigma
        return self._cdf(t) + self._skew(t)

    def upper(self, x: Array) -> Array:
        """P(e + X_nc > x), without cancellation in the tail."""
        t = x / self.sigma
        return self._cdf(-t) - self._skew(t)

    def _cdf(self, t: Array) -> Array:
        return scipy.special.ndtr(t) if math.isinf(self.nu) else scipy.special.stdtr(self.nu, t)

    def _skew(self, t: Array) -> Array:
        nu = self.nu
        if math.isinf(nu):
            density = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
            second = (t**2 - 1) * density
        else:
            constant = math.exp(scipy.special.gammaln((nu + 1) / 2) - scipy.special.gammaln(nu / 2)) / math.sqrt(
                nu * math.pi
            )
            density = constant * (1 + t**2 / nu) ** (-(nu + 1) / 2)
            second = (nu + 1) * ((nu + 2) * t**2 - nu) / (nu + t**2) ** 2 * density
        return self.printed * (2 * t**2 + 1) * density - self.kappa3 / (6 * self.sigma**3) * second
