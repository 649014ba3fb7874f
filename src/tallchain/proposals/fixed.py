"""A fixed candidate, to repeat the same decision."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tallchain.parts import part
from tallchain.types import Array, Proposed, PyTree, Target


@part
class Fixed:
    """Always propose the same candidate.

    Args:
        candidate: the position to propose.
        log_correction: log q(old | new) - log q(new | old).
    """

    candidate: PyTree
    log_correction: Array | float = 0.0

    def check(self, position: PyTree) -> None:
        """Accept any position."""

    def draw(self, key: Array, position: PyTree) -> tuple[()]:
        """Nothing is random."""
        return ()

    def propose(self, noise: PyTree, position: PyTree, target: Target | None = None) -> Proposed:
        """Return the candidate."""
        return Proposed(jax.tree.map(jnp.asarray, self.candidate), self.log_correction)
