"""Outcomes as values at a few places: means of groups of rows, and shares of the values that outcomes have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_GROUPS, _LEAST_ROWS = 12, 20
_BINS, _MOST_COUNTS = 20, 25
_EDGES = (0.005, 0.995)
_MOST_LEVELS = 4  # that have a panel
_FAR_APART = 50.0  # ends of the bins of positive numbers, from which on bins are equal on a log scale


class Compared(NamedTuple):
    """Values of one panel, place by place."""

    title: str
    across: str
    along: str
    labels: tuple[str, ...]
    place: np.ndarray
    rows: np.ndarray
    observed: np.ndarray
    drawn: np.ndarray
    """(draw, place)."""
    is_log: bool = False


def groups(
    mean: np.ndarray,
    observed: np.ndarray,
    drawn: np.ndarray,
    size: np.ndarray | None = None,
    along: str = "mean outcome",
    across: str = "predicted mean",
) -> Compared:
    """Compare means of groups of rows with about the same predicted mean; with `size`, ratios of sums."""
    count = int(np.clip(len(mean) // _LEAST_ROWS, 1, _GROUPS))
    edges = np.unique(np.quantile(mean, np.linspace(0, 1, count + 1)[1:-1]))
    group = np.unique(np.searchsorted(edges, mean, side="right"), return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    rows = np.bincount(group)
    starts = np.concatenate([[0], np.cumsum(rows)[:-1]])
    total = lambda values: np.add.reduceat(np.asarray(values, np.float64)[..., order], starts, axis=-1)  # noqa: E731
    over = rows if size is None else np.maximum(total(size), 1.0)
    title = f"{along}, by {across}"
    return Compared(title, across, along, (), total(mean) / rows, rows, total(observed) / over, total(drawn) / over)


def levels_shown(observed: np.ndarray, levels: int) -> list[int]:
    """Return the levels that have a panel: the most frequent; of two levels, the second."""
    if levels == 2:
        return [1]
    counts = np.bincount(observed.astype(np.int64), minlength=levels)
    return sorted(int(at) for at in np.argsort(-counts, kind="stable")[:_MOST_LEVELS])


def bins(observed: np.ndarray, drawn: np.ndarray, across: str = "outcome") -> list[Compared]:
    """Compare how many outcomes have which value; nothing if there are two values, whose mean says it all."""
    low, high = (float(np.quantile(_some(observed, drawn), at)) for at in _EDGES)
    is_whole = bool(np.all(observed == np.floor(observed))) and bool(np.all(drawn == np.floor(drawn)))
    if is_whole and high - low < _MOST_COUNTS:
        first, last = int(low), int(high)
        if last - first < 2 and observed.max() <= last:
            return []
        values = np.arange(first, last + 1)
        labels = [str(value) for value in values]
        labels[0] = f"≤{first}" if min(observed.min(), drawn.min()) < first else labels[0]
        labels[-1] = f"≥{last}" if max(observed.max(), drawn.max()) > last else labels[-1]
        return [_counted(values[1:] - 0.5, values, tuple(labels), observed, drawn, across)]
    if low == high:
        return []
    is_log = low > 0 and high / low > _FAR_APART
    edges = np.geomspace(low, high, _BINS - 1) if is_log else np.linspace(low, high, _BINS - 1)
    middle = np.sqrt(edges[1:] * edges[:-1]) if is_log else (edges[1:] + edges[:-1]) / 2
    place = np.concatenate([[edges[0]], middle, [edges[-1]]])
    return [_counted(edges, place, (), observed, drawn, across)._replace(is_log=is_log)]


def _some(observed: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Observed outcomes, and about as many drawn ones."""
    return np.concatenate([observed.ravel(), drawn.ravel()[:: len(drawn)]])


def _counted(
    edges: np.ndarray, place: np.ndarray, labels: tuple[str, ...], observed: np.ndarray, drawn: np.ndarray, across: str
) -> Compared:
    """Shares of outcomes between the edges, and beyond the first and the last."""
    count = lambda values: np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(place))  # noqa: E731
    rows = count(observed)
    shares = np.array([count(each) for each in drawn]) / len(observed)
    title = f"share of rows, by {across}"
    return Compared(title, across, "share of rows", labels, place, rows, rows / len(observed), shares)
