"""Coordinates for coefficients under a horseshoe prior, in which NUTS needs few steps.

With estimates b_j of variance 1/D_j, nearly independent, and a prior t_j ~ N(0, s_j^2),

    t_j = m_j(s) + v_j/sqrt(D_j + 1/s_j^2),   m_j(s) = D_j b_j/(D_j + 1/s_j^2),

makes v_j standard normal whatever the scales are. (`Conditional` does so too, with the correlations of the estimates;
these are apart from it, so that the reference does not depend on what it is compared with.)
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tallchain.models import Regression
from tallchain.models.layout import COEFFICIENTS
from tallchain.models.priors import LOG_GLOBAL, LOG_LOCAL, LOG_SLAB, Horseshoe, log_prior_of
from tallchain.parts import part, static
from tallchain.sources import Shuffled
from tallchain.surrogates.bulk import find_bulk
from tallchain.types import Array, PyTree


@part
class Shrunk:
    """These coordinates: first v of all coefficients, then the logs of the scales."""

    horseshoe: Horseshoe = static()
    estimate: Array
    """b; the first is an intercept."""
    precision: Array
    """D."""
    log_scales: Array
    """At w = 0: local, global, slab."""

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.estimate) + len(self.log_scales)

    def back(self, w: Array) -> PyTree:
        """t(w)."""
        v, scales = jnp.split(w, [len(self.estimate)])
        hyper = self._hyper(scales)
        total = self._total(hyper)
        return {COEFFICIENTS: (self.precision * self.estimate + jnp.sqrt(total) * v) / total} | hyper

    def to(self, position: PyTree) -> Array:
        """w."""
        total = self._total(position)
        v = (position[COEFFICIENTS] * total - self.precision * self.estimate) / jnp.sqrt(total)
        scales = [position[LOG_LOCAL], position[LOG_GLOBAL][None], position[LOG_SLAB][None]]
        return jnp.concatenate([v, jnp.concatenate(scales) - self.log_scales])

    def log_det(self, w: Array) -> Array:
        """log |dt/dw|."""
        return -0.5 * jnp.sum(jnp.log(self._total(self._hyper(w[len(self.estimate) :]))))

    def _hyper(self, scales: Array) -> PyTree:
        log_local, rest = jnp.split(scales + self.log_scales, [len(scales) - 2])
        return {LOG_LOCAL: log_local, LOG_GLOBAL: rest[0], LOG_SLAB: rest[1]}

    def _total(self, hyper: PyTree) -> Array:
        """D + 1/s^2; the intercept has no scale."""
        return self.precision + jnp.concatenate([jnp.zeros(1), jnp.exp(-2 * self.horseshoe.log_scales(hyper))])


def shrunk(model: Regression) -> Shrunk:
    """Return the coordinates from a fit that hardly shrinks; they begin with scales of the size of the estimates."""
    horseshoe, start = log_prior_of(model.posterior).prior.coefficients, model.start
    assert isinstance(horseshoe, Horseshoe)
    wide = start | {LOG_LOCAL: start[LOG_LOCAL] - start[LOG_GLOBAL]}
    bulk = find_bulk(model.posterior, Shuffled(model.data, 50), wide)
    estimate, precision = np.asarray(bulk.position[COEFFICIENTS]), -np.diag(np.asarray(bulk.sums.second))
    log_local = np.log(np.abs(estimate) + precision**-0.5)[1:] - start[LOG_GLOBAL]
    log_scales = np.concatenate([log_local, [start[LOG_GLOBAL], start[LOG_SLAB]]])
    return Shrunk(horseshoe, *(jnp.asarray(values, float) for values in (estimate, precision, log_scales)))
