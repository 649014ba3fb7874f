"""Designing the sequential test of Korattikara, Chen and Welling 2014, "Austerity in MCMC Land".

The test reads `batch` more rows at every look, without replacement, and stops when a Student tail falls below `epsilon`
or all N rows are read. This module computes how often it is wrong and how much it reads, and chooses `batch` and
`epsilon`.

After j looks a share pi_j = j batch / N of the rows is read. In the time t_j = pi_j / (1 - pi_j) the studentised
statistic is Brownian motion W with drift mu_std, divided by sqrt(t):

    z_j = W(t_j) / sqrt(t_j),     mu_std = (mean d - mu0) sqrt(N - 1) / sd(d)     over all N rows,

    z_j | z_{j-1} ~ N(mu_std (t_j - t_{j-1}) / sqrt(t_j) + sqrt(t_{j-1}/t_j) z_{j-1}, 1 - t_{j-1}/t_j),

which is the recursion of the paper, and replaces Student's tail by the normal one. The test stops at the first
|z_j| > G, Phi(G) = 1 - epsilon, and is wrong when z_j and mu_std differ in sign; the look that reads all N rows is
never wrong.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

EPSILONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.2)
BATCHES = tuple(range(50, 501, 50))
MAX_MU_STD = 10.0
SPACING = 0.1

_BINS = 100
_MAX_MU = 1e100  # its square is still finite
_FINISHED = 1e-9  # probability of still reading that counts as 0

# How far a walk of normal steps lands beyond a barrier, in steps: -zeta(1/2) / sqrt(2 pi) (Siegmund 1979).
_OVERSHOOT = 0.5825971579390107
_TAIL = 8.0  # standard deviations of a step beyond which nothing lands
_TAIL_BINS = 20


class Outcome(NamedTuple):
    """What a sequential test does, each an array of the shape of mu_std."""

    error: Any
    """Probability of the wrong decision; at mu_std = 0, half the probability of stopping early."""
    share: Any
    """Expected share of the N rows that is read."""
    looks: Any
    """Expected number of looks."""


class Design(NamedTuple):
    """The two numbers that a sequential test needs."""

    batch: int
    """Rows read between looks."""
    epsilon: float
    """Tail probability below which the test stops."""


class Designs(NamedTuple):
    """A design for each |mu_std|: that of the nearest entry, or of the last entry beyond it.

    The bound holds at the entries. Between them the error can exceed it: for 13,000 rows and a bound of 0.1, by an
    eighth next to 0 and by a twentieth elsewhere.
    """

    mu_std: Array
    """0, SPACING, ..., MAX_MU_STD."""
    batch: NDArray[np.int32]
    """Rows read between looks."""
    epsilon: Array
    """Tail probability below which the test stops."""

    def at(self, mu_std: float) -> Design:
        """The design of the entry nearest to |mu_std|."""
        index = round(min(abs(mu_std), MAX_MU_STD) / SPACING)
        return Design(int(self.batch[index]), float(self.epsilon[index]))


def sequential_error(num_rows: int, batch: int, epsilon: float, mu_std: ArrayLike, bins: int = _BINS) -> Outcome:
    """Error, share of the rows read and looks of the test, by propagating the density of z_j on [-G, G].

    The density is kept at `bins` Gauss-Legendre nodes, which integrate a step to rounding error while its standard
    deviation is no less than their distance, pi G / bins. Looks that follow each other more closely (halfway through
    the data, from 420 looks on at epsilon = 0.001 and 5,700 at 0.2) are taken several at a time with an adjusted
    barrier (`_looks`): 100 bins are then right to 0.1% in the error and 0.2% in the share.
    """
    call = f"sequential_error({num_rows!r}, batch={batch!r}, epsilon={epsilon!r}, mu_std=..., bins={bins!r})"
    num_rows = _check_whole(call, "num_rows", num_rows, 1, math.inf)
    batch = _check_whole(call, "batch", batch, 1, num_rows)
    epsilon = _check_between(call, "epsilon", epsilon, 0.5)
    bins = _check_whole(call, "bins", bins, max(20, math.ceil(-2 * math.pi * scipy.special.ndtri(epsilon))), 2000)
    mu = np.abs(np.asarray(mu_std, dtype=float))
    if not np.all(mu <= _MAX_MU):
        raise ValueError(f"`{call}` needs |mu_std| <= {_MAX_MU:g}; got mu_std = {mu_std!r}.")
    outcome = _propagate(num_rows, Design(batch, epsilon), mu.ravel(), bins)
    return Outcome(*(value.reshape(mu.shape)[()] for value in outcome))


def conservative(num_rows: int, error: float) -> Design:
    """The pair of EPSILONS x BATCHES that reads least with error at most `error` at mu_std = 0, the worst case.

    As mu_std approaches 0 the error approaches its largest value, so the bound holds for every mu_std.
    """
    designs = _choose(f"conservative({num_rows!r}, error={error!r})", num_rows, error, np.zeros(1))
    return designs.at(0.0)


def nonconservative(num_rows: int, error: float) -> Designs:
    """For each |mu_std| the pair of EPSILONS x BATCHES that reads least with error at most `error` there.

    It needs mu_std, for which all rows must be read: it is a yardstick for other tests, and saves nothing.
    Takes 0.3 s at N = 13,000 and 3 s at N = 10^6; `conservative` takes half of that.
    """
    grid = np.linspace(0.0, MAX_MU_STD, round(MAX_MU_STD / SPACING) + 1)
    return _choose(f"nonconservative({num_rows!r}, error={error!r})", num_rows, error, grid)


def _choose(call: str, num_rows: int, error: float, mu: Array) -> Designs:
    """Find the least share with error within the bound, at each mu; drop a pair for a mu once it cannot win there."""
    num_rows = _check_whole(call, "num_rows", num_rows, BATCHES[0], math.inf)
    error = _check_between(call, "error", error, 1.0)
    share = np.full(mu.shape, np.inf)
    designs = Designs(mu, np.zeros(mu.shape, np.int32), np.zeros(mu.shape))
    for design in _pairs(num_rows):
        outcome = _propagate(num_rows, design, mu, _BINS, max_error=error, max_share=share)
        wins = (outcome.error <= error) & (outcome.share < share)
        share[wins] = outcome.share[wins]
        designs.batch[wins], designs.epsilon[wins] = design
    if np.any(np.isinf(share)):
        least = min(
            float(_propagate(num_rows, Design(batch, EPSILONS[0]), np.zeros(1), _BINS).error[0])
            for batch in BATCHES
            if batch <= num_rows
        )
        raise ValueError(
            f"`{call}`: no batch of {BATCHES[0]} to {BATCHES[-1]} rows with epsilon of {EPSILONS[0]} to {EPSILONS[-1]} "
            f"keeps the error within {error}. The least they achieve at mu_std = 0 is {least:.4g}: allow more than "
            "that, or choose batch and epsilon by hand with `sequential_error`."
        )
    return designs


def _pairs(num_rows: int) -> Iterator[Design]:
    """The grid of the paper, without batches larger than the data."""
    return (Design(batch, epsilon) for epsilon in EPSILONS for batch in BATCHES if batch <= num_rows)


# ---- The walk --------------------------------------------------------------------------------------------------------


class _Walk(NamedTuple):
    """What is still in [-edge, edge] at mu_std = 0. Its density is even: only z >= 0 is kept, for both signs."""

    look: int
    time: float
    z: Array
    mass: Array
    """Density at z times quadrature weight, which sums to half the probability."""


class _Landed(NamedTuple):
    """What one look finds below -edge; by symmetry there is as much above edge."""

    z: Array
    mass: Array


def _propagate(
    num_rows: int, design: Design, mu: Array, bins: int, max_error: float = 1.0, max_share: Array | float = np.inf
) -> Outcome:
    """Follow the walk to its end, for all mu >= 0 in one run without drift (`_tilt`).

    Error and share only grow from look to look. A mu is dropped when either has passed its limit; its result then shows
    only that.
    """
    looks = _num_looks(num_rows, design)
    error, before, waits, last = np.zeros(mu.size), np.ones(mu.size), np.zeros(mu.size), np.zeros(mu.size)
    max_waits = np.broadcast_to(max_share, mu.shape) * num_rows / design.batch - 1
    going = np.arange(mu.size)
    for walk, landed, num_passed in _looks(num_rows, design, bins):
        tilt = mu[going] * math.sqrt(walk.time)
        still = walk.mass @ (_tilt(walk.z, tilt) + _tilt(-walk.z, tilt))
        error[going] += landed.mass @ _tilt(landed.z, tilt)
        waits[going] += (num_passed * (before + still) + still - before) / 2  # trapezoid; `still` where it is one look
        if walk.look == looks - 1:
            last[going] = still
        is_open = (still > _FINISHED) & (error[going] <= max_error) & (waits[going] < max_waits[going])
        going, before = going[is_open], still[is_open]
        if not going.size:
            break
    expected_looks = 1 + waits
    share = (design.batch * expected_looks - (looks * design.batch - num_rows) * last) / num_rows
    return Outcome(error, share, expected_looks)


def _tilt(z: Array, tilt: Array) -> Array:
    """How many times more likely a path to z is with drift than without: exp(mu w - mu^2 t / 2), w = z sqrt(t).

    (z, mu), with tilt = mu sqrt(t).
    """
    return np.exp(z[:, None] * tilt - tilt**2 / 2)


def _num_looks(num_rows: int, design: Design) -> int:
    """Looks until all rows are read."""
    return -(-num_rows // design.batch)


def _looks(num_rows: int, design: Design, bins: int) -> Iterator[tuple[_Walk, _Landed, int]]:
    """The walk after each look but the last, what the look absorbed, and how many looks it stands for.

    A walk that is observed after every step of standard deviation s leaves [-G, G] as a continuously observed walk
    leaves [-G - c s, G + c s], c = 0.5826 (Siegmund 1979). So one look in place of several, at the end of a step of
    standard deviation S, absorbs as much as they do if its barrier is G + c (s - S).
    """
    barrier = float(-scipy.special.ndtri(design.epsilon))
    narrowest = math.pi * barrier / bins

    def time(look: int) -> float:
        return look * design.batch / (num_rows - look * design.batch)

    walk = _Walk(0, 0.0, np.zeros(1), np.full(1, 0.5))
    while walk.look < (final := _num_looks(num_rows, design) - 1):
        wide_enough = walk.time / (1 - narrowest**2)
        look = math.ceil(num_rows / design.batch * wide_enough / (1 + wide_enough))
        look = min(max(look, walk.look + 1), final)
        edge = barrier + _OVERSHOOT * (_spread(time(look - 1), time(look)) - _spread(walk.time, time(look)))
        num_passed = look - walk.look
        walk, landed = _step(walk, look, time(look), edge, bins)
        yield walk, landed, num_passed


def _spread(before: float, after: float) -> float:
    """Standard deviation of z at the time `after`, given z at the time `before`."""
    return math.sqrt(1 - before / after)


def _step(walk: _Walk, look: int, time: float, edge: float, bins: int) -> tuple[_Walk, _Landed]:
    """z' ~ N(sqrt(t/t') z, 1 - t/t'): what stays within the edge, and what lands below -edge."""
    spread = _spread(walk.time, time)
    inside, inside_weights = _half_nodes(bins, edge)
    beyond, beyond_weights = _tail_nodes(spread)
    z = np.concatenate([inside, beyond + edge])
    weights = np.concatenate([inside_weights, beyond_weights])
    mean = math.sqrt(walk.time / time) * walk.z
    scale = spread * math.sqrt(2)
    kernel = _bell(z / scale, mean / scale) + _bell(z / scale, -mean / scale)
    mass = (kernel @ walk.mass) * weights / (scale * math.sqrt(math.pi))
    split = inside.size
    return _Walk(look, time, inside, mass[:split]), _Landed(-z[split:], mass[split:])


def _bell(x: Array, y: Array) -> Array:
    """exp(-(x - y)^2) of every x with every y: (x, y)."""
    return np.exp(-((x[:, None] - y) ** 2))


def _half_nodes(bins: int, edge: float) -> tuple[Array, Array]:
    """The positive half of Gauss and Legendre's nodes on [-edge, edge], with their weights."""
    nodes, weights = _gauss(bins + bins % 2)
    half = nodes.size // 2
    return edge * nodes[half:], edge * weights[half:]


def _tail_nodes(spread: float) -> tuple[Array, Array]:
    """Nodes and weights on [0, 8 spread], beyond which no step from inside lands."""
    nodes, weights = _gauss(_TAIL_BINS)
    half = _TAIL * spread / 2
    return half * (1 + nodes), half * weights


@functools.cache
def _gauss(count: int) -> tuple[Array, Array]:
    """Gauss and Legendre's nodes and weights on [-1, 1]."""
    nodes, weights = scipy.special.roots_legendre(count)
    return nodes, weights


# ---- Refusals --------------------------------------------------------------------------------------------------------


def _check_whole(call: str, name: str, value: Any, least: int, most: float) -> int:
    try:
        whole = operator.index(value)
    except TypeError:
        whole = -1
    if isinstance(value, bool) or not least <= whole <= most:
        wanted = f"{least} or more" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"`{call}` needs {name} to be a whole number, {wanted}; got {name} = {value!r}.")
    return whole


def _check_between(call: str, name: str, value: Any, most: float) -> float:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and 0 < value < most):
        raise ValueError(f"`{call}` needs 0 < {name} < {most:g}, a probability; got {name} = {value!r}.")
    return float(value)
