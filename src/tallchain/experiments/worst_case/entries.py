"""What is measured for one test at one N, and for the minibatch test at one temperature and step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from tallchain.experiments.worst_case.contenders import CONTENDERS, LEMMA


@dataclass(frozen=True)
class Entry:
    """One test at one N."""

    test: str
    num_rows: int
    batch: int
    epsilon: float | None
    """Of AustereMH."""
    num_decisions: int
    num_full: int
    """Decisions that read all N rows (N of them, where rows repeat)."""
    mean_share: float
    """Mean rows read by the test, over N."""
    mean_share_error: float
    """Its standard error."""
    mean_scanned: float
    """Mean rows scanned to set the test up, over N; not part of `mean_share`."""
    acceptance: float
    expected_full: float | None
    """The expected full share; for AustereMH without replacement an upper limit. None: no formula."""
    expected_mean: float | None
    """The expected mean share. None: no formula."""

    @property
    def label(self) -> str:
        """The test, for a table."""
        return CONTENDERS[self.test].label

    @property
    def full_share(self) -> float:
        """Share of decisions that read all N rows."""
        return self.num_full / self.num_decisions

    @property
    def full_share_limits(self) -> tuple[float, float]:
        """95 per cent confidence limits of the full share."""
        return wilson_limits(self.num_full, self.num_decisions)

    @property
    def verdict(self) -> str | None:
        """How the limits of the full share compare with the lemma's bound; None if the lemma does not cover it."""
        if not CONTENDERS[self.test].is_rival:
            return None
        low, high = self.full_share_limits
        return "above" if low > LEMMA else "below" if high < LEMMA else "either"


@dataclass(frozen=True)
class Point:
    """The minibatch test at one temperature and step."""

    series: str
    """"temperature", "step", or "both": the temperature, with the step that suits it."""
    factor: float
    temperature: float
    step: float
    """Standard deviation of the proposals, in units of 1/sqrt(N)."""
    num_rows: int
    num_decisions: int
    mean_share: float
    mean_share_error: float
    expected_mean: float
    expected_with_replacement: float
    """Mean of Var(Lambda_i) / sigma^2, over N: what it would need with replacement, where N is not a limit."""


SERIES = {
    "temperature": "temperature K, step 1/sqrt(N)",
    "step": "temperature 1, step 1/(factor sqrt(N))",
    "both": "temperature K, step sqrt(K/N)",
}
"""The three studies in words; K is the factor."""


def wilson_limits(count: int, total: int) -> tuple[float, float]:
    """95 per cent limits of the probability of an event seen in `count` of `total` independent cases (Wilson 1927)."""
    z = float(ndtri(0.975))
    share = count / total
    centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return centre - half if count else 0.0, centre + half if count < total else 1.0
