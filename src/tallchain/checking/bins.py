"""What moments are made of, chunk by chunk: products of deviations, and bins that grow."""

from __future__ import annotations

import numpy as np

from tallchain import digest
from tallchain.digest import power_of_two

_BINS, _COUNTS = 1024, 2**22  # of a coordinate; of all coordinates, about


class Products:
    """Sums of products of deviations from the mean."""

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.sums = 0, np.zeros(size), np.zeros((size, size))

    def add(self, count: int, spread: digest.Spread, unit: np.ndarray) -> None:
        """Add those of a chunk."""
        origin, mean, products, unit = (np.asarray(of, np.float64) for of in (*spread[:3], unit))
        self.join(count, origin + mean * unit, products * np.outer(unit, unit))

    def join(self, count: int, mean: np.ndarray, sums: np.ndarray) -> None:
        """Add those of other draws (Chan, Golub and LeVeque 1979)."""
        apart, share = mean - self.mean, count / max(self.count + count, 1)
        self.sums += sums + self.count * share * np.outer(apart, apart)
        self.mean += share * apart
        self.count += count


class Bins:
    """Bins of equal width about the middle of the first draws, by coordinate, and the draws in each."""

    def __init__(self, least: np.ndarray, most: np.ndarray) -> None:
        bins, dtype = max(min(_BINS, power_of_two(_COUNTS // len(least) + 1) // 2), 64), least.dtype
        # In float64: differences may overflow. A coordinate without a finite draw has its least above its greatest.
        low, high = (np.where(least > most, 0, of).astype(np.float64) for of in (least, most))
        self.middle = (low / 2 + high / 2).astype(dtype)
        finest = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(dtype))
        width = np.maximum((high - low) / (bins // 4), np.maximum(finest, np.finfo(dtype).tiny))
        self.width = width.astype(dtype)
        self.counts = np.zeros((len(least), bins), np.int64)

    def widen(self, least: np.ndarray, most: np.ndarray) -> None:
        """Double the width of the bins, more than once if need be, until they hold these numbers."""
        bins = self.counts.shape[1]
        middle, width = (of.astype(np.float64) for of in (self.middle, self.width))
        reach = np.maximum(most - middle, middle - least)
        doublings = np.ceil(np.log2(np.maximum(reach / (width * (bins // 2)), 1))).astype(int)
        for i in np.flatnonzero(doublings):
            place = ((np.arange(bins) - bins // 2) >> min(doublings[i], 62)) + bins // 2
            self.counts[i] = np.bincount(place, self.counts[i], bins)
        self.width = np.ldexp(self.width, doublings)
