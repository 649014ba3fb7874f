"""Moments and quantiles of draws that are not kept: gathered chunk by chunk, in memory that does not grow.

The draws of each chain are divided into batches of equal length, of which there are about a thousand over all chains.
Mean and variance of every batch give those of all draws, and their Monte Carlo errors: with b draws to a batch and V
the variance of the batch means,

    ESS = n var / (b V)

for n draws in all. Adjacent batches are joined while at least 256 are left: batches must be long compared with the
autocorrelation. R-hat is that of halves of chains, without ranks (Gelman et al. 2013).

Quantiles come from a histogram for each coordinate. Its bins are laid over the first draws; when a draw falls beyond
them, all become twice, four times, ... as wide, and adjacent counts are added. So no draw is left out, and a quarter or
more of the bins to one side are in use.

What is gathered depends on the chunks in which draws arrive, and those on the time they take, by rounding and by the
place of the bins: with the same key, moments agree to about the digits of float32 and quantiles to a bin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc

from tallchain import digest
from tallchain.checking.convergence import MOST_R_HAT, Parameter
from tallchain.digest import power_of_two
from tallchain.packing import Chunk
from tallchain.types import Array

_BATCHES = 1024  # over all chains, about
_FEWEST, _MOST = 4, 64  # of one chain
_ENOUGH = 256  # batches for a variance
_COVARIED = 1024  # coordinates at most
_BINS, _COUNTS = 1024, 2**22  # of a coordinate; of all coordinates, about


class Quantiles(NamedTuple):
    """A quantile of every coordinate."""

    value: np.ndarray
    error: np.ndarray
    """Monte Carlo standard error, from the effective draws of the mean."""
    resolution: np.ndarray
    """Width of a bin: that far at most is the value from the quantile of the draws themselves."""


@dataclasses.dataclass(frozen=True)
class Moments:
    """Moments and quantiles of all draws of a run, by coordinate: the arrays of the position, flattened, as JAX does.

    Args:
        count: draws by (chain, batch).
        means: of every batch, (chain, batch, coordinate).
        scatter: sums of squared deviations from these means.
        size: draws in a full batch.
        covariance: of the coordinates; None if there are more than 1024 of them.
        middle: where the histogram of a coordinate has its centre.
        width: of its bins.
        counts: draws by (coordinate, bin).
    """

    count: np.ndarray
    means: np.ndarray
    scatter: np.ndarray
    size: int
    covariance: np.ndarray | None
    middle: np.ndarray
    width: np.ndarray
    counts: np.ndarray

    @property
    def num_draws(self) -> int:
        """Draws of all chains."""
        return int(self.count.sum())

    @property
    def mean(self) -> np.ndarray:
        """Mean of every coordinate."""
        return np.einsum("cb,cbd->d", self.count, self.means) / self.num_draws

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of every coordinate."""
        between = np.einsum("cb,cbd->d", self.count, (self.means - self.mean) ** 2)
        return np.sqrt((self.scatter.sum((0, 1)) + between) / self.num_draws)

    @property
    def ess(self) -> np.ndarray:
        """Effective draws for the mean of every coordinate; NaN where the draws are too few to tell."""
        count, means, _ = self._joined()
        return self.num_draws * _ratio(self.sd**2, count * _variance(means))

    def quantile(self, share: float) -> Quantiles:
        """Return the number below which this share of the draws are."""
        error = np.nan_to_num(np.sqrt(share * (1 - share) / self.ess))
        at, low, high = (self._quantile(np.clip(share + z * error, 0, 1)) for z in (0, -1, 1))
        return Quantiles(at, (high - low) / 2, self.width.astype(np.float64))

    def _quantile(self, shares: np.ndarray) -> np.ndarray:
        below = np.concatenate([np.zeros((len(self.counts), 1)), np.cumsum(self.counts, 1)], 1)
        bins = self.counts.shape[1]
        ends = np.arange(bins + 1) - bins // 2
        found = [np.interp(share * row[-1], row, ends) for share, row in zip(shares, below, strict=True)]
        return self.middle + np.array(found) * self.width

    def parameters(self, labels: list[str]) -> list[Parameter]:
        """Summarise the coordinates."""
        ess, sd, r_hat = self.ess, self.sd, self._r_hat()
        chance = np.where(r_hat > MOST_R_HAT, self._chance(), 1.0)
        quantiles = (self.quantile(share).value for share in (0.05, 0.5, 0.95))
        unknown = np.full(len(sd), np.nan)
        columns = (self.mean, sd, *quantiles, sd / np.sqrt(ess), self._sd_error(), ess, unknown, r_hat, chance)
        return [Parameter(label, *row) for label, row in zip(labels, np.stack(columns, 1).tolist(), strict=True)]

    # ---- batches ---------------------------------------------------------------------------------

    @property
    def _full(self) -> int:
        """Batches that all chains have filled, from the first."""
        return int(np.argmin(np.append(np.all(self.count == self.size, 0), False)))

    def _grouped(self, values: np.ndarray, length: int) -> np.ndarray:
        """Return values of full batches, (chain, group, batch, coordinate), `length` to a group."""
        groups = self._full // length
        return values[:, : groups * length].reshape(len(values), groups, length, -1)

    def _joined(self) -> tuple[int, np.ndarray, np.ndarray]:
        """Join full batches; return the draws in one, means, and mean squared deviations from the mean of all."""
        length = 1
        while length * 2 <= self._full and len(self.count) * (self._full // (2 * length)) >= _ENOUGH:
            length *= 2
        means = self._grouped(self.means, length)
        squares = self._grouped(self.scatter, length) / self.size + (means - self.mean) ** 2
        flat = (-1, means.shape[-1])
        return length * self.size, means.mean(2).reshape(flat), squares.mean(2).reshape(flat)

    def _sd_error(self) -> np.ndarray:
        _, _, squares = self._joined()
        return _ratio(np.sqrt(_ratio(_variance(squares), len(squares))), 2 * self.sd)

    def _r_hat(self) -> np.ndarray:
        length = self._full // 2
        if not length:
            return np.full(self.means.shape[2], np.nan)
        means, scatter = (self._grouped(values, length) for values in (self.means, self.scatter))
        halves, count = means.mean(2), length * self.size
        between = ((means - halves[:, :, None]) ** 2).sum(2) * self.size
        within = _ratio((scatter.sum(2) + between).mean((0, 1)), count - 1)
        return np.sqrt((count - 1) / count + _ratio(_variance(halves.reshape(-1, halves.shape[2])), within))

    def _chance(self) -> np.ndarray:
        """Chance of means of half-chains that far apart, by the spread of the batch means within them."""
        length = self._full // 2
        if length < 2:
            return np.ones(self.means.shape[2])
        means = self._grouped(self.means, length)
        halves = means.mean(2).reshape(-1, means.shape[3])
        within = means.var(2, ddof=1).mean((0, 1))
        return fdtrc(len(halves) - 1, len(halves) * (length - 1), length * _ratio(_variance(halves), within))


def _variance(values: np.ndarray) -> np.ndarray:
    """Variance along the first axis; NaN for fewer than two values."""
    return values.var(0, ddof=1) if len(values) > 1 else np.full(values.shape[1], np.nan)


def _ratio(a: np.ndarray, b: np.ndarray | float) -> np.ndarray:
    """a / b; NaN where that is not a number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.divide(a, b)
    return np.where(np.isfinite(ratio), ratio, np.nan)


# ---- chunk by chunk ------------------------------------------------------------------------------


class Gatherer:
    """Gathers moments as chunks of draws arrive."""

    def __init__(self, num_chains: int, num_samples: int, num_warmup: int) -> None:
        self._num_batches = min(max(power_of_two(-(-_BATCHES // num_chains)), _FEWEST), _MOST)
        self._size = -(-num_samples // self._num_batches)
        self._num_warmup = num_warmup
        self._made = np.zeros(num_chains, np.int64)
        """Draws of each chain, after the warm-up."""
        self._batches: dict[int, digest.Batches] = {}
        """By the first chain of a record."""
        self._grid: _Grid | None = None
        self._products: _Products | None = None

    def compile(self, chunk: Chunk) -> None:
        """Compile the programs that `add` needs for chunks of these shapes."""
        none, shapes = np.zeros(len(self._made), np.int64), digest.Shapes.of(chunk.like)
        for group in digest.Span.by_record(chunk, none, none, self._num_warmup):
            if group.chains.start not in self._batches:
                empty = digest.Batches.empty(len(group.record), self._num_batches, shapes)
                self._batches[group.chains.start] = empty
            _, spread = self._added(group, chunk)
            self._counted(group, chunk, _Grid(*np.zeros((2, *spread.least.shape), spread.least.dtype)))

    def add(self, chunk: Chunk, before: np.ndarray, after: np.ndarray) -> Callable[[], None]:
        """Begin to summarise a chunk; the function returned takes the results."""
        groups = [
            group
            for group in digest.Span.by_record(chunk, before, after, self._num_warmup)
            if group.span.after.max() > self._num_warmup
        ]
        if not groups:
            return lambda: None
        added = [self._added(group, chunk) for group in groups]
        least = np.min([np.asarray(spread.least) for _, spread in added], 0)
        most = np.max([np.asarray(spread.most) for _, spread in added], 0)
        grid = self._grid = self._grid or _Grid(least, most)
        grid.widen(least, most)
        counted = [self._counted(group, chunk, grid) for group in groups]

        def take() -> None:
            for group, (batches, spread), counts in zip(groups, added, counted, strict=True):
                grid.counts += np.asarray(counts)
                self._batches[group.chains.start] = batches
                made = np.maximum(group.span.after - self._num_warmup, 0)
                if spread.products is not None:
                    self._products = self._products or _Products(*np.shape(spread.mean))
                    self._products.add(int((made - self._made[group.chains]).sum()), spread)
                self._made[group.chains] = made

        return take

    def _added(self, group: digest.Group, chunk: Chunk) -> tuple[digest.Batches, digest.Spread]:
        shapes = digest.Shapes.of(chunk.like)
        return digest.moments(
            self._batches[group.chains.start],
            group.record,
            group.span,
            np.int32(self._size),
            shapes=shapes,
            spanned=power_of_two(min(self._num_batches, (group.record.shape[1] - 1) // self._size + 2)),
            with_products=shapes.num_coordinates <= _COVARIED,
        )

    def _counted(self, group: digest.Group, chunk: Chunk, grid: _Grid) -> Array:
        shapes, bins = digest.Shapes.of(chunk.like), grid.counts.shape[1]
        return digest.histogram(group.record, group.span, grid.middle, grid.width, shapes=shapes, bins=bins)

    def moments(self) -> Moments:
        """Return what was gathered."""
        assert self._grid is not None
        of = [self._batches[first] for first in sorted(self._batches)]
        origin, mean, scatter = (
            np.concatenate([np.asarray(leaf, np.float64) for leaf in leaves]) for leaves in zip(*of, strict=True)
        )
        count = np.clip(self._made[:, None] - self._size * np.arange(self._num_batches), 0, self._size)
        return Moments(
            count,
            origin[:, None] + mean,
            scatter,
            self._size,
            None if self._products is None else self._products.sums / self._products.count,
            self._grid.middle,
            self._grid.width,
            self._grid.counts,
        )


class _Products:
    """Sums of products of deviations from the mean."""

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.sums = 0, np.zeros(size), np.zeros((size, size))

    def add(self, count: int, spread: digest.Spread) -> None:
        """Add those of other draws (Chan, Golub and LeVeque 1979)."""
        apart, share = np.asarray(spread.mean, np.float64) - self.mean, count / max(self.count + count, 1)
        self.sums += np.asarray(spread.products, np.float64) + self.count * share * np.outer(apart, apart)
        self.mean += share * apart
        self.count += count


class _Grid:
    """Bins of equal width about the middle of the first draws, by coordinate."""

    def __init__(self, least: np.ndarray, most: np.ndarray) -> None:
        bins = max(min(_BINS, power_of_two(_COUNTS // len(least) + 1) // 2), 64)
        self.middle = (least + (most - least) / 2).astype(least.dtype)
        tiny = np.maximum(np.spacing(np.maximum(np.abs(least), np.abs(most))), np.finfo(least.dtype).tiny)
        self.width = np.maximum((most - least) / (bins // 4), tiny)
        self.counts = np.zeros((len(least), bins), np.int64)

    def widen(self, least: np.ndarray, most: np.ndarray) -> None:
        """Double the width of the bins, more than once if need be, until they hold these numbers."""
        bins = self.counts.shape[1]
        reach = np.maximum(most - self.middle, self.middle - least)
        doublings = np.maximum(np.ceil(np.log2(np.maximum(reach / (self.width * (bins // 2)), 1))), 0).astype(int)
        for i in np.flatnonzero(doublings):
            place = ((np.arange(bins) - bins // 2) >> doublings[i]) + bins // 2
            self.counts[i] = np.bincount(place, self.counts[i], bins)
        self.width = np.ldexp(self.width, doublings)
