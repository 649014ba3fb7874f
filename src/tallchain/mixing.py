"""How far the chains get in a round of the warm-up: effective draws per draw of the worst coordinate.

For a coordinate x of variance v half of the mean of (x_(t+L) - x_t)^2 is v (1 - rho(L)), with rho the autocorrelation.
If rho(L) = r^L a draw is worth (1 - r)/(1 + r) effective ones. Lags are 1, 2, 4, ..., as far as rho can be told from
noise; the worst of them counts, since what moves slowly shows at long lags only. So do the squares of deviations from
the mean: a trajectory that ends on the other side of the mode has rho < 0 although it stays where it was, as far as
these are concerned. Chains that now and then stay in a tail for long do not show in this way; they do in the spread of
the chains' means over the round, which are compared with the variance too, on average over coordinates.

Unlike an effective sample size of the round, the mean squares of several rounds can be compared by the same v, that of
the latest round: chains that start together and hardly move have a small v of their own, and seem to mix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from tallchain.packing import Chunk, num_words, unpack

_CHAINS, _NUMBERS = 256, 2**21  # of a round, at most
_LEAST_COORDINATES = 32
_BLOCKS = 8  # of chains, for the error
_LEAST_DRAWS = 4
_TOLD = 0.2  # a smaller autocorrelation says little beyond the first lag


class Moves(NamedTuple):
    """Of a round."""

    half_squares: np.ndarray
    """Half of the mean squared difference, by block of chains, lag and coordinate; squares after the coordinates."""
    of_means: np.ndarray
    """The variance of the chains' means times the number of draws, by block of chains and coordinate."""
    variance: np.ndarray
    """By coordinate."""

    @classmethod
    def of(cls, draws: np.ndarray) -> Moves | None:
        """Summarise draws (chain, draw, coordinate); None if there are too few."""
        num_chains, num_draws, _ = draws.shape
        if num_chains < _BLOCKS or num_draws < _LEAST_DRAWS:
            return None
        deviations = draws - draws.mean((0, 1))
        values = np.concatenate([deviations, deviations**2], 2)
        values -= values.mean((0, 1))
        lags = 2 ** np.arange(int(np.log2(num_draws // 2)) + 1)
        by_chain = np.stack([0.5 * np.mean((values[:, lag:] - values[:, :-lag]) ** 2, 1) for lag in lags], 1)
        of_means = num_draws * values.mean(1) ** 2
        blocks = (np.stack([some.mean(0) for some in np.array_split(each, _BLOCKS)]) for each in (by_chain, of_means))
        return cls(*blocks, values.var((0, 1)))

    def turn(self, acceptance: float, variance: np.ndarray) -> float:
        """Return the angle by which accepted trajectories turn around the mean, of the middle coordinate, up to pi.

        A turn by an angle has the autocorrelation cos(angle).
        """
        count = len(variance) // 2
        moved, variance = self.half_squares[:, 0, :count].mean(0), variance[:count]
        share = np.median(moved[variance > 0] / variance[variance > 0]) if np.any(variance > 0) else 0.0
        return float(np.arccos(np.clip(1 - share / acceptance, -1, 1)))

    def log_effective(self, variance: np.ndarray) -> tuple[float, float]:
        """Return the log of the effective draws per draw, with a standard error by the jackknife."""
        count = len(self.half_squares)

        def found(some: Any) -> float:
            return _log_effective(self.half_squares[some].mean(0), self.of_means[some].mean(0), variance)

        without = [found(np.arange(count) != block) for block in range(count)]
        if not np.all(np.isfinite(without)):
            return -np.inf, 0.0
        error = np.sqrt((count - 1) / count * np.sum((np.array(without) - np.mean(without)) ** 2))
        return found(slice(None)), float(error)


def _log_effective(half_squares: np.ndarray, of_means: np.ndarray, variance: np.ndarray) -> float:
    """Log of the effective draws per draw, by lags and by the means of chains, whichever has fewer."""
    moving = variance > 0
    if not moving.any():
        return -np.inf
    rho = np.minimum(1 - half_squares[:, moving] / variance[moving], 1 - 1e-9)
    lags = 2.0 ** np.arange(len(rho))[:, None]
    r = np.maximum(rho, 0) ** (1 / lags)
    is_told = np.where(lags == 1, True, rho > _TOLD)
    by_lags = np.min(np.where(is_told, (1 - r) / (1 + r), 1.0))
    inflation = np.divide(of_means, variance, out=np.ones_like(variance), where=moving)
    least = min(by_lags, *(1 / max(np.mean(half), 1.0) for half in np.split(inflation, 2)))
    return float(np.log(least)) if least > 0 else -np.inf


class Watch:
    """Keeps the draws of some chains since the last round."""

    def __init__(self, num_chains: int) -> None:
        self.is_on = True
        self._chains = np.unique(np.linspace(0, num_chains - 1, min(num_chains, _CHAINS)).astype(int))
        self._words: list[list[np.ndarray]] = [[] for _ in self._chains]
        self._like: Any = None

    def add(self, chunk: Chunk, before: np.ndarray, after: np.ndarray) -> Callable[[], None]:
        """Take over the draws of one chunk; what is to be done on the device is begun, the function does the rest."""
        if not self.is_on:
            return lambda: None
        self._like = chunk.like.position
        some = [record[rows, :, : num_words(self._like)] for record, rows in self._records(chunk)]

        def take() -> None:
            words = np.concatenate([np.asarray(each) for each in some])
            for kept, drawn, count in zip(self._words, words, (after - before)[self._chains], strict=True):
                kept.append(drawn[:count].copy())

        return take

    def state(self) -> dict[str, np.ndarray]:
        """Return what `restore` goes on from."""
        if self._like is None or not self.is_on:
            return {}
        lengths = [sum(map(len, kept)) for kept in self._words]
        words = [of for kept in self._words for of in kept]
        empty = np.zeros((0, num_words(self._like)), np.uint32)
        return {"lengths": np.array(lengths), "words": np.concatenate([empty, *words])}

    def restore(self, state: dict[str, np.ndarray], like: Any) -> None:
        """Go on from a state; `like` has the shapes of a recorded draw."""
        if state:
            self._like = like.position
            ends = np.cumsum(state["lengths"])[:-1]
            self._words = [[of] for of in np.split(state["words"], ends)]

    def _records(self, chunk: Chunk) -> list[tuple[Any, np.ndarray]]:
        """The records, each with the numbers of the chains in it that are watched."""
        is_on_host = jax.default_backend() == "cpu"
        ends = np.cumsum([0, *map(len, chunk.records)])
        return [
            (
                np.asarray(record) if is_on_host else record,
                self._chains[(self._chains >= begin) & (self._chains < end)] - begin,
            )
            for record, begin, end in zip(chunk.records, ends[:-1], ends[1:], strict=True)
        ]

    def moves(self) -> Moves | None:
        """End a round."""
        words, self._words = self._words, [[] for _ in self._chains]
        if self._like is None or not all(words):
            return None
        rows = [np.concatenate(each) for each in words]
        count = min(map(len, rows))
        leaves = jax.tree.leaves(unpack(np.stack([row[:count] for row in rows]), self._like))
        if not count or not all(np.issubdtype(leaf.dtype, np.floating) for leaf in leaves):
            return None
        draws = np.concatenate([leaf.reshape(*leaf.shape[:2], -1).astype(np.float64) for leaf in leaves], 2)
        most = max(_NUMBERS // draws[..., 0].size, _LEAST_COORDINATES)
        return Moves.of(draws[..., np.unique(np.linspace(0, draws.shape[2] - 1, most).astype(int))])
