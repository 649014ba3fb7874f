"""Moments and quantiles of draws that are not kept: gathered chunk by chunk, in memory that does not grow.

The draws of each chain are divided into batches of equal length: 64 of them, or fewer if there are many chains. Mean
and variance of every batch give those of all draws, and their Monte Carlo errors: with b draws to a batch, V the
variance of the batch means and tau their autocorrelation time (1 if batches are long),

    ESS = n var / (b V tau)

for n draws in all. R-hat is that of halves of chains, without ranks (Gelman et al. 2013), so chains that differ only in
their spread go unnoticed. Both are of the batches that every chain has filled.

Quantiles come from a histogram for each coordinate. Its bins are laid over the first draws; when a draw falls beyond
them, all become twice, four times, ... as wide, and adjacent counts are added. So no draw is left out, and a quarter or
more of the bins to one side are in use.

What is gathered depends on the chunks in which draws arrive, and those on the time they take, by rounding and by the
place of the bins: with the same key, moments agree to about the digits of float32 and quantiles to a bin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy

from tallchain import digest
from tallchain.checking.bins import Bins, Products
from tallchain.checking.convergence import MOST_R_HAT, Parameter
from tallchain.coordinates import Coordinates
from tallchain.crew import Crew
from tallchain.digest import power_of_two
from tallchain.packing import Chunk

_BATCHES = 1024  # over all chains, about
_FEWEST, _MOST = 10, 64  # of one chain
_LEAST = 4  # batches for an autocorrelation time
_REFINEMENTS = 3  # of an autocorrelation time
_COVARIED = 1024  # coordinates at most


class Quantiles(NamedTuple):
    """A quantile of every coordinate."""

    value: np.ndarray
    error: np.ndarray
    """Monte Carlo standard error, from the effective draws of the mean."""
    resolution: np.ndarray
    """Width of a bin. The value is at most that far from the least draw that as large a share is not above."""


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
        """Mean of every coordinate; NaN where a draw is not finite."""
        return np.einsum("cb,cbd->d", self.count, self.means) / self.num_draws

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of every coordinate."""
        between = np.einsum("cb,cbd->d", self.count, (self.means - self.mean) ** 2)
        return np.sqrt((self.scatter.sum((0, 1)) + between) / self.num_draws)

    @property
    def ess(self) -> np.ndarray:
        """Effective draws for the mean of every coordinate; NaN where the draws are too few to tell."""
        return _ratio(self.sd**2, self._variance_of_mean(self.means))

    def quantile(self, share: float) -> Quantiles:
        """Return the number below which this share of the draws are; NaN where a draw is not finite."""
        error = np.sqrt(share * (1 - share) * _ratio(1.0, self.ess))
        at, low, high = (self._quantile(np.clip(share + z * np.nan_to_num(error), 0, 1)) for z in (0, -1, 1))
        return Quantiles(at, np.where(np.isnan(error), np.nan, (high - low) / 2), self.width.astype(np.float64))

    def _quantile(self, shares: np.ndarray) -> np.ndarray:
        """Go as far into the first bin that reaches a share as its draws need to be, if they are spread evenly."""
        until = np.cumsum(self.counts, 1)
        wanted = shares * until[:, -1]
        reached = np.argmax((until >= wanted[:, None]) & (self.counts > 0), 1)
        rows = np.arange(len(reached))
        part = _ratio(wanted - until[rows, reached], self.counts[rows, reached]) + 1
        value = self.middle + (reached + part - self.counts.shape[1] // 2) * self.width.astype(np.float64)
        return np.where(until[:, -1] == self.num_draws, value, np.nan)

    @property
    def is_coarse(self) -> np.ndarray:
        """By coordinate, whether nine tenths of the draws are within ten bins, though not all draws are equal."""
        inner = self.quantile(0.95).value - self.quantile(0.05).value
        return (inner < 10 * self.width) & (self.sd > 0)

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
        """Return values of full batches, (half-chain, batch, coordinate), `length` to a half."""
        return values[:, : 2 * length].reshape(2 * len(values), length, -1)

    def _variance_of_mean(self, values: np.ndarray) -> np.ndarray:
        """Squared Monte Carlo error of the mean over all draws, from its values in the batches."""
        full = values[:, : self._full]
        if full[..., 0].size < _LEAST:
            return np.full(values.shape[2], np.nan)
        return _long_run_variance(full - full.mean((0, 1)), len(full)) * self.size / self.num_draws

    def _sd_error(self) -> np.ndarray:
        squares = self.scatter / self.size + (self.means - self.mean) ** 2
        return _ratio(np.sqrt(self._variance_of_mean(squares)), 2 * self.sd)

    def _r_hat(self) -> np.ndarray:
        length = self._full // 2
        if not length:
            return np.full(self.means.shape[2], np.nan)
        means, scatter = (self._grouped(values, length) for values in (self.means, self.scatter))
        halves, count = means.mean(1), length * self.size
        within = scatter.sum(1) + ((means - halves[:, None]) ** 2).sum(1) * self.size
        with np.errstate(divide="ignore", invalid="ignore"):  # chains that never moved: infinite, or NaN if they agree
            return np.sqrt((count - 1) / count + halves.var(0, ddof=1) / (within.mean(0) / (count - 1)))

    def _chance(self) -> np.ndarray:
        """Chance of means of half-chains that far apart, by the spread of the batch means within them; 1 if unknown."""
        length = self._full // 2
        if length < _LEAST:
            return np.ones(self.means.shape[2])
        means = self._grouped(self.means, length)
        halves = means.mean(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            f = halves.var(0, ddof=1) * length / _long_run_variance(means - halves[:, None], 1)
        return scipy.special.fdtrc(len(halves) - 1, len(halves) * (length - 1), f)


def _long_run_variance(centred: np.ndarray, shared: int) -> np.ndarray:
    """Variance times tau = 1 + 2 sum of autocorrelations, of series (series, batch, coordinate).

    They are deviations from the mean of `shared` series, so they lack the variance of that mean (as a sum of squares
    divided by n does, and not by n - 1).
    """
    length = centred.shape[1]
    covariance = np.stack(
        [
            np.einsum("sbd,sbd->d", centred[:, lag:], centred[:, : length - lag]) / (len(centred) * (length - lag))
            for lag in range(length)
        ]
    )
    tau = np.ones(centred.shape[2])
    for _ in range(_REFINEMENTS):
        share = np.minimum(tau / (shared * length), 0.5)
        within = covariance + covariance[0] * share / (1 - share)
        tau = np.nan_to_num(_positive_sequence(within), nan=1.0)
    return within[0] * tau


def _positive_sequence(covariance: np.ndarray) -> np.ndarray:
    """tau from autocovariances (lag, coordinate), by Geyer's initial monotone sequence (1992)."""
    length = len(covariance) // 2
    sums = covariance[: 2 * length].reshape(length, 2, covariance.shape[1]).sum(1)
    is_on = np.logical_and.accumulate(sums > 0)
    total = np.minimum.accumulate(np.where(is_on, sums, 0)).sum(0)
    return np.maximum(_ratio(2 * total, covariance[0]) - 1, 1 / len(covariance))


def _ratio(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """a / b; NaN where that is not a number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.divide(a, b)
    return np.where(np.isfinite(ratio), ratio, np.nan)


# ---- chunk by chunk ------------------------------------------------------------------------------


class Gatherer:
    """Gathers moments as chunks of draws arrive."""

    def __init__(
        self,
        num_chains: int,
        num_samples: int,
        num_warmup: int,
        coordinates: Coordinates | None = None,
        apart: Crew | None = None,
    ) -> None:
        self._num_batches = min(max(power_of_two(-(-_BATCHES // num_chains)), _FEWEST), _MOST)
        self._size = -(-num_samples // self._num_batches)
        self._num_warmup = num_warmup
        self._coordinates = coordinates
        self._apart = apart
        """Processes that gather the draws that they have made themselves, until all are put together."""
        self._own: set[int] = set()
        """Groups of chains that were with this process since the processes met."""
        self._made = np.zeros(num_chains, np.int64)
        """Draws of each chain, after the warm-up."""
        self._batches: dict[int, digest.Batches] = {}
        """By the first chain of a record."""
        self._grid: Bins | None = None
        self._products: Products | None = None

    def compile(self, chunk: Chunk) -> None:
        """Compile the programs that `add` needs for chunks of these shapes."""
        none, shapes = np.zeros(len(self._made), np.int64), self._shapes(chunk)
        for group in digest.Span.by_record(chunk, none, none, self._num_warmup):
            if group.chains.start not in self._batches:
                empty = digest.Batches.empty(len(group.record), self._num_batches, shapes)
                self._batches[group.chains.start] = empty
            if not group.is_own:
                continue
            least, most = digest.extent(group.record, group.span, shapes=shapes)
            self._added(group, chunk, Bins(np.asarray(least), np.asarray(most)))

    def add(self, chunk: Chunk, before: np.ndarray, after: np.ndarray) -> Callable[[], None]:
        """Begin to summarise a chunk; the function returned takes the results."""
        if after.max() <= self._num_warmup:
            return lambda: None
        groups = [
            group
            for group in digest.Span.by_record(chunk, before, after, self._num_warmup)
            if group.is_own and group.span.after.max() > self._num_warmup
        ]
        grid = self._grid = self._laid(groups, self._shapes(chunk))
        added = [self._added(group, chunk, grid) for group in groups]

        def take() -> None:
            fetched = jax.device_get([spread for _, spread in added])  # all or nothing
            for group, (batches, _), spread in zip(groups, added, fetched, strict=True):
                grid.counts += spread.counts
                self._batches[group.chains.start] = batches
                self._own.add(group.chains.start)
                if spread.products is not None:
                    self._products = self._products or Products(*np.shape(spread.mean))
                    counted = np.maximum(group.span.after - np.maximum(group.span.before, self._num_warmup), 0)
                    self._products.add(int(counted.sum()), spread, grid.width)
            self._made = np.maximum(after - self._num_warmup, 0)

        return take

    def _laid(self, groups: list[digest.Group], shapes: digest.Shapes) -> Bins:
        """Return bins that hold the draws of a chunk, those that other processes have made too."""
        none = np.full(shapes.num_coordinates, np.finfo(shapes.dtype).max, shapes.dtype)
        extents = [digest.extent(group.record, group.span, shapes=shapes) for group in groups] or [(none, -none)]
        held = [np.array(of) for of in zip(*extents, strict=True)]
        every = [held] if self._apart is None else self._apart.gather_arrays("the extent of draws", held)
        least, most = (np.concatenate(parts) for parts in zip(*every, strict=True))
        grid = self._grid or Bins(least.min(0), most.max(0))
        grid.widen(least.min(0), most.max(0))
        return grid

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing that other processes have."""
        return self._apart is None

    def meet(self) -> None:
        """Take the batches of chains that were with other processes; they may go on with this one."""
        if self._apart is None:
            return
        said = [of for first in sorted(self._own) for of in (np.array(first), *map(np.asarray, self._batches[first]))]
        self._own.clear()
        size = 1 + len(digest.Batches._fields)
        for rank, arrays in enumerate(self._apart.gather_arrays("batches of draws", said)):
            for at in range(0, len(arrays) if rank != self._apart.rank else 0, size):
                first, *batches = arrays[at : at + size]
                self._batches[int(first)] = digest.Batches(*map(jax.device_put, batches))

    def put_together(self) -> None:
        """Take all that the other processes have gathered."""
        self.meet()
        if self._apart is None or self._grid is None:
            return
        of = self._products
        products = [np.zeros(0)] * 3 if of is None else [np.array(of.count), of.mean, of.sums]
        every = self._apart.gather_arrays("moments", [self._grid.counts, *products])
        for rank, (counts, count, mean, sums) in enumerate(every):
            if rank == self._apart.rank:
                continue
            self._grid.counts += counts
            if len(sums):
                self._products = self._products or Products(len(mean))
                self._products.join(int(count), mean, sums)
        self._apart = None

    def _shapes(self, chunk: Chunk) -> digest.Shapes:
        return digest.Shapes.of(chunk.like, self._coordinates)

    def _added(self, group: digest.Group, chunk: Chunk, grid: Bins) -> tuple[digest.Batches, digest.Spread]:
        shapes, record = self._shapes(chunk), group.record
        # Chains that travel between parts of the rows come from another device.
        device = record.device if isinstance(record, jax.Array) else None
        return digest.moments(
            jax.device_put(self._batches[group.chains.start], device),
            record,
            group.span,
            np.int32(self._size),
            digest.Grid(grid.middle, grid.width),
            shapes=shapes,
            bins=grid.counts.shape[1],
            spanned=power_of_two(min(self._num_batches, (group.record.shape[1] - 1) // self._size + 2)),
            with_products=shapes.num_coordinates <= _COVARIED,
        )

    def state(self) -> dict[str, np.ndarray]:
        """Return what `restore` goes on from."""
        found = {"made": self._made}
        if self._grid is not None:
            found |= {f"grid/{name}": of for name, of in vars(self._grid).items()}
        if self._products is not None:
            found |= {f"products/{name}": np.asarray(of) for name, of in vars(self._products).items()}
        for first, batches in self._batches.items():
            found |= {f"batches/{first}/{name}": np.asarray(of) for name, of in batches._asdict().items()}
        return found

    def restore(self, state: dict[str, np.ndarray], _: Any) -> None:
        """Go on from a state; the chains are divided into the same records."""
        self._made = state["made"]
        if "grid/counts" in state:
            self._grid = object.__new__(Bins)
            vars(self._grid).update({name: state[f"grid/{name}"] for name in ("middle", "width", "counts")})
        if "products/sums" in state:
            self._products = Products(len(state["products/mean"]))
            self._products.count = int(state["products/count"])
            self._products.mean, self._products.sums = state["products/mean"], state["products/sums"]
        for first in {name.split("/")[1] for name in state if name.startswith("batches/")}:
            leaves = {name: jax.device_put(state[f"batches/{first}/{name}"]) for name in digest.Batches._fields}
            self._batches[int(first)] = digest.Batches(**leaves)

    def moments(self) -> Moments:
        """Return what was gathered."""
        assert self._grid is not None
        parts = []
        for _, of in sorted(self._batches.items()):
            unit, origin, mean, scatter = (np.asarray(leaf, np.float64) for leaf in of)
            parts.append((origin[:, None] + mean * unit, scatter * unit**2))
        means, scatter = map(np.concatenate, zip(*parts, strict=True))
        count = np.clip(self._made[:, None] - self._size * np.arange(self._num_batches), 0, self._size)
        return Moments(
            count,
            means,
            scatter,
            self._size,
            None if self._products is None else self._products.sums / self._products.count,
            self._grid.middle,
            self._grid.width,
            self._grid.counts,
        )
