"""What the scan at the end of a run shows."""

from __future__ import annotations

import dataclasses

import numpy as np

from tallchain.types import FAR_PARTS

_FAR_SKEWNESS, _FAR_KURTOSIS = 0.35, 1.0  # of the mean of a batch: where audits find errors (studies/tails.py)
_SHARE = 0.1  # of the proposals that may be so far
_MISSED = 0.01  # chance to miss the rows that make a candidate impossible


@dataclasses.dataclass(frozen=True)
class Scan:
    """What the scan shows about the mean of a batch, at some of a run's own proposals.

    Skewness gamma/sqrt(b) and excess kurtosis kappa/b of the mean of b rows, b the median of the rows read at a
    decision: a normal mean has 0 and 0. Noise that is small compared with the test's own (of standard deviation about
    1) does little harm whatever its distribution: if its standard deviation s is below 1, they are multiplied by s^3
    and s^4.
    """

    num_proposals: int
    rows_swept: int
    """Rows read for the scan, over all proposals."""
    batch: float
    """b."""
    skewness: tuple[float, ...]
    kurtosis: tuple[float, ...]
    chance_to_miss: tuple[float, ...]
    """By proposal: if some rows make the candidate impossible, the chance that a batch misses all of them; else 0."""
    num_invalid: int
    """Proposals at which the log ratio of some row is NaN or +inf."""
    disorder: float
    """Variance of the mean of the first rows that the source gives, over its value for rows in random order."""
    most_disorder: float
    """The largest value to expect by chance."""
    is_shuffled: bool
    """Whether the source is one of the library's, which give rows in random order."""
    part_error: float = 0.0
    """e: about the standard deviation of log pi_p - log pi, if decisions see a part p of the rows at a time."""

    @property
    def is_far(self) -> np.ndarray:
        """By proposal: whether the mean of a batch is far from normal."""
        return (np.asarray(self.skewness) > _FAR_SKEWNESS) | (np.asarray(self.kurtosis) > _FAR_KURTOSIS)

    def complaints(self) -> list[str]:
        """What is wrong, in words; empty if nothing is."""
        found = []
        is_far = self.is_far
        if np.mean(is_far) > _SHARE:
            found.append(
                f"a few rows carry the log ratio: at {is_far.sum()} of {self.num_proposals} proposals of this run the "
                f"mean of {self.batch:,.0f} rows is far from normal (skewness up to {np.max(self.skewness):.2g}, "
                f"excess kurtosis up to {np.max(self.kurtosis):.2g}; all rows were read to see it). A minibatch test "
                "mostly misses these rows, and the draws can be wrong. Look at the rows of largest log ratio; let "
                "`surrogates.influence` have them read more often, take a likelihood with lighter tails or an exact "
                "test, and let `audit(kernel, trace)` "
                "measure the error"
            )
        if self.disorder > self.most_disorder:
            found.append(self._out_of_order())
        missed = np.asarray(self.chance_to_miss) > _MISSED
        if missed.any():
            found.append(
                f"{missed.sum()} of {self.num_proposals} candidates are impossible for a few rows, which "
                f"a batch misses with probability up to {np.max(self.chance_to_miss):.2g}: the chain can go where the "
                "posterior is 0. Put the support into the log prior, or use an exact test"
            )
        if self.part_error > FAR_PARTS:
            found.append(
                f"the parts that the rows are divided into are small: the posterior with the rows of one part in place "
                f"of all differs by {self.part_error:.2g} in its logarithm, so that variances may be off by a share of "
                f"about {self.part_error**2:.2g}. Take fewer, larger parts (more memory), or a better surrogate"
            )
        if self.num_invalid:
            found.append(
                f"at {self.num_invalid} of {self.num_proposals} proposals the log ratio of some rows is NaN or +inf: "
                "the chain is where these rows have likelihood 0, or the likelihood is not a number. Put the support "
                "into the log prior, look for missing values, or use an exact test"
            )
        return found

    def _out_of_order(self) -> str:
        vary = (
            f"the means of the first rows that the source gives vary {self.disorder:.3g} times as much as they should"
        )
        if self.is_shuffled:
            return (
                f"{vary}, although the source permutes the rows: a few heavy rows lie in few of its windows. "
                "`Shuffled(windows=False)` reads row by row, and `surrogates.influence` has such rows read more often"
            )
        return (
            f"the source does not give the rows in random order: {vary}. Use `Shuffled`, which permutes the rows, or "
            "shuffle them where they are stored"
        )
