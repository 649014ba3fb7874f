"""What each way to sample rows would cost, and which to choose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallchain.validation import brief

_SMALL_KURTOSIS = 0.5  # of the mean of a batch: half the value at which `sample` warns
_MOST = 0.75  # of the proposals at which it must be this small; the longest are mostly rejected
_GAIN = 1.2  # reading fewer rows by this factor is worth a second copy of the data


class Plan(NamedTuple):
    """What a way to sample rows would cost, measured at proposals that were not used for the scores."""

    method: str
    num_exact: int
    """Rows to read at every decision."""
    copies: float
    """Rows of the shuffled copy, divided by those of the data."""
    rows: float
    """Rows to sample at which the variance of Delta* is 1: mean over proposals."""
    most_rows: float
    """The same at the worst proposal."""
    batch: float
    """Rows at which their mean is nearly normal, at most of the proposals (see `Scan`)."""

    def cost(self, batch_size: int) -> float:
        """About how many rows a decision reads."""
        return self.num_exact + max(self.rows, self.batch, batch_size)

    def __str__(self) -> str:
        words = {
            "none": "every row alike",
            "copies": f"rows that matter more often ({self.copies:.2g} copies of the data)",
            "exact": f"{self.num_exact:,} rows at every decision",
        }
        need, most = (int(np.ceil(max(rows, self.batch, 1))) for rows in (self.rows, self.most_rows))
        return f"{words[self.method]}: {need:,} sampled at a decision, {most:,} at the longest step"


def make_plans(sums: np.ndarray, counts: list[int], num_rows: int, slots: int) -> tuple[Plan, ...]:
    """Make plans from sums over rows by (proposal, way to sample, power 1, 2, 4), in units of Delta.

    The numbers per row of a way to sample from M rows are W = M r_i/c_i, row i with probability c_i/M: then the mean of
    W^k is M^(k-1) times the sum of r_i^k/c_i^(k-1). The fourth moment is not centred, since means are small in
    comparison.
    """
    kinds = [("none", 0, num_rows), ("copies", 0, slots), *(("exact", count, num_rows - count) for count in counts)]
    kinds, plans = kinds[: sums.shape[1]], []  # of rows in parts there is the first alone
    for at, (method, num_exact, size) in enumerate(kinds):
        first, second, fourth = sums[:, at].T
        variance = np.maximum(size * second - first**2, 1e-30)
        excess = np.maximum(size**3 * fourth - 3 * variance**2, 0)
        # Of the mean of b rows: excess/variance^2/b, times s2^2 where s2 = variance/b is below 1.
        batch = np.minimum(np.cbrt(excess / _SMALL_KURTOSIS), excess / variance**2 / _SMALL_KURTOSIS)
        most = float(np.quantile(batch, _MOST))
        multiple = slots / num_rows if method == "copies" else 1.0
        rows = variance / (1 + variance / size)  # without repeats: all rows leave no variance
        plans.append(Plan(method, num_exact, multiple, float(rows.mean()), float(rows.max()), min(most, size)))
    return tuple(plans)


def choose_plan(plans: tuple[Plan, ...], method: str | None, batch_size: int) -> Plan:
    """Choose the plan that reads the fewest rows, but every row alike unless that is clearly worse."""
    allowed = [plan for plan in plans if method in (None, plan.method)]
    if not allowed:
        raise ValueError(f"`influence(method={brief(method)})`: there are too few rows to read some of them always.")
    best = min(allowed, key=lambda plan: plan.cost(batch_size))
    return allowed[0] if allowed[0].cost(batch_size) <= _GAIN * best.cost(batch_size) else best
