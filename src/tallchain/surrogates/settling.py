"""A reference in the bulk of a posterior, and a sampler of its surrogate: expand, sample the surrogate, move.

The expansion is made where a search ended (`find_bulk`). The surrogate posterior is sampled without reading a row, and
if the mean of its draws is far from the reference, the expansion is made there instead: one more sweep. It is over when
the mean is within half a standard deviation.

The draws are of Hamiltonian Monte Carlo in coordinates in which the surrogate posterior is nearly standard normal
(`Conditional`): there a trajectory of length pi/2, a quarter of a turn, ends at a point that is nearly independent of
where it began, and the step size for d coordinates is known in advance, since the error of the energy has a standard
deviation of about step^2 sqrt(d/32) (Beskos et al. 2013). With a shrinkage prior, whose posterior is far from normal in
any coordinates, the No-U-Turn Sampler is adapted instead.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import jax
import numpy as np
from jax import random as jr

from tallchain.keys import make_key
from tallchain.models.likelihood import layout_of
from tallchain.progress import shown
from tallchain.proposals.adapting import adapt_transition, sample_surrogate
from tallchain.proposals.transition import Transition
from tallchain.surrogates.bulk import Bulk
from tallchain.surrogates.conditional import Conditional
from tallchain.surrogates.predictor_sums import Sums, sum_predictors
from tallchain.surrogates.predictors import Predictors
from tallchain.surrogates.structure import reach_of
from tallchain.types import Posterior, PyTree, Source, Target

_CHAINS, _WARMUP, _DRAWS = 8, 10, 40  # of the surrogate, at each place
_FAR = 0.5  # standard deviations from the reference to the mean: root mean square, and largest of dense parameters
_MOST_MOVES = 4
_ENERGY = 0.45  # standard deviation of the error of the energy, if it were as said: about three quarters are accepted
_LEAST_STEPS = 3
_LEAST_ACCEPTANCE = 0.5
_SHORTENINGS = 4
_ADAPTATION = 300  # steps, with a shrinkage prior


class Settled(NamedTuple):
    """An expansion in the bulk, and what samples it."""

    surrogate: Predictors
    transition: Transition
    draws: PyTree
    """From the surrogate posterior, along a first axis, in random order."""
    moves: tuple[float, ...]
    """Distance from each reference to the mean of its draws, in standard deviations."""
    acceptance: float
    """Of the transition's own steps."""
    num_rows: int
    """N."""
    num_passes: int
    """Sweeps over all rows."""
    rows_swept: int
    seconds: float

    @property
    def position(self) -> PyTree:
        """The reference."""
        return self.surrogate.position

    @property
    def words(self) -> str:
        """A line for a report."""
        count = sum(leaf[0].size for leaf in jax.tree.leaves(self.draws))
        return (
            f"reference            of {count:,} parameters over {self.num_rows:,} rows, in the bulk of the posterior: "
            f"{self.moves[-1]:.1g} standard deviations from the mean of the surrogate's draws"
        )

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is not as it should be, in words."""
        found = []
        if self.moves[-1] > _FAR:
            found.append(
                f"NOT SETTLED          after {len(self.moves)} expansions the mean of the surrogate's draws is still "
                f"{self.moves[-1]:.2g} standard deviations from the reference"
            )
        if self.acceptance < _LEAST_ACCEPTANCE:
            found.append(
                f"SHORT STEPS          {self.acceptance:.0%} of the steps on the surrogate posterior are accepted: it "
                "is far from normal, and chains will move slowly"
            )
        return tuple(found)

    def some_draws(self, key: jax.Array, count: int) -> PyTree:
        """Return some of the draws; some come twice if more are wanted than there are."""
        size = len(jax.tree.leaves(self.draws)[0])
        random = np.random.default_rng(np.asarray(jr.key_data(key)).astype(np.uint32).ravel().tolist())
        order = np.concatenate([random.permutation(size) for _ in range(-(-count // size))])[:count]
        return jax.tree.map(lambda leaf: leaf[order], self.draws)


def settle(posterior: Posterior, source: Source, bulk: Bulk, *, seed: int = 0, progress: bool = False) -> Settled:
    """Expand at a place in the bulk, and move until the mean of the surrogate's draws is near the reference."""
    position, sums, moves, begun = bulk.position, bulk.sums, [], time.perf_counter()
    key = make_key(seed)
    while True:
        surrogate = _expanded(posterior, source, position, sums)
        with shown(progress, "sampling the surrogate", is_step=True):
            transition, draws, acceptance = _sampled(jr.fold_in(key, len(moves)), posterior, surrogate)
        moves.append(_distance(surrogate, draws))
        if moves[-1] <= _FAR or len(moves) > _MOST_MOVES:
            break
        position = jax.tree.map(lambda leaf: np.mean(leaf, (0, 1), dtype=np.float64).astype(leaf.dtype), draws)
        with shown(progress, "expanding at the mean of the surrogate's draws", is_step=True):
            sums = sum_predictors(posterior, source, position)
    population = source.population
    passes = bulk.num_passes + len(moves) - 1
    swept = bulk.rows_swept + (len(moves) - 1) * (population.num_rows + population.num_exact)
    mixed, seconds = _mixed(draws, seed), bulk.seconds + time.perf_counter() - begun
    return Settled(surrogate, transition, mixed, tuple(moves), acceptance, population.total, passes, swept, seconds)


def _expanded(posterior: Posterior, source: Source, position: PyTree, sums: Sums) -> Predictors:
    layout = layout_of(posterior)
    log_sds = {term.log_sd: float(position[term.log_sd]) for term in layout.terms}
    reach = reach_of(layout, sums, float(posterior.temperature), log_sds)
    return Predictors(posterior, source, position, sums=sums, reach=reach)


def _sampled(key: jax.Array, posterior: Posterior, surrogate: Predictors) -> tuple[Transition, PyTree, float]:
    """Return a transition, draws by chain and draw, and the share of its steps that moved."""
    coordinates = Conditional(posterior, surrogate)
    target = Target(posterior, surrogate, None)  # ty: ignore[invalid-argument-type]
    size = coordinates.size
    starts = coordinates.many(jr.normal(jr.fold_in(key, 0), (_CHAINS, size)))
    if surrogate.layout.hyper:
        adapted = adapt_transition(
            jr.fold_in(key, 1), target, starts, coordinates=coordinates, num_steps=_ADAPTATION, progress=False
        )
        draws = sample_surrogate(jr.fold_in(key, 2), target, adapted.transition, adapted.positions, _DRAWS)
        return adapted.transition, _on_host(draws), _share_moved(_on_host(draws))
    steps = max(_LEAST_STEPS, math.ceil(math.pi / 2 / (32 * _ENERGY**2 / size) ** 0.25))
    for shortening in range(_SHORTENINGS):
        parameters = {"step_size": math.pi / 2 / steps, "inverse_mass_matrix": np.ones(size)}
        transition = Transition("hmc", parameters | {"num_integration_steps": steps}, coordinates)
        some = _on_host(sample_surrogate(jr.fold_in(key, 2), target, transition, starts, _WARMUP + _DRAWS))
        draws = jax.tree.map(lambda leaf: leaf[:, _WARMUP:], some)
        acceptance = _share_moved(draws)
        if acceptance >= _LEAST_ACCEPTANCE or shortening == _SHORTENINGS - 1:
            break
        steps = math.ceil(1.5 * steps)
    return transition, draws, acceptance


def _on_host(tree: PyTree) -> PyTree:
    return jax.tree.map(np.asarray, tree)


def _share_moved(draws: PyTree) -> float:
    first = draws["coefficients"].reshape(*draws["coefficients"].shape[:2], -1)[..., 0]
    return float(np.mean(first[:, 1:] != first[:, :-1]))


def _distance(surrogate: Predictors, draws: PyTree) -> float:
    """From the reference to the mean of the draws, over the parameters that rows depend on."""
    layout, r = surrogate.layout, surrogate.position

    def distances(name: str) -> np.ndarray:
        of = draws[name].astype(np.float64)
        return np.ravel((of.mean((0, 1)) - np.asarray(r[name])) / np.maximum(of.std((0, 1)), 1e-30))

    dense = np.concatenate([distances(name) for name in ("coefficients", *layout.shared)])
    every = np.concatenate([dense, *(distances(term.name) for term in layout.terms)])
    return float(max(np.sqrt(np.mean(every**2)), np.max(np.abs(dense))))


def _mixed(draws: PyTree, seed: int) -> PyTree:
    """Return the draws of all chains in random order."""
    count = int(np.prod(draws["coefficients"].shape[:2]))
    order = np.random.default_rng(seed).permutation(count)
    return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:])[order], draws)
