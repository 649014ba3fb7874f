"""Whether rows that come later look like those before: a stream that drifts is noticed.

Two comparisons with the posterior before the new rows, neither of which reads another row. Outcomes of a regression are
compared with outcomes drawn for the new rows (`predictive_check`). And the gradient s of their log likelihood, at the
posterior mean m: if the model is right and nothing has changed, s has mean 0 and over rows and posterior the variance
V = J + J S J, where J is their information, the negative Hessian at m, and S the posterior's covariance. So s'V^-1 s
is chi-squared, with a degree of freedom for each parameter (a score test; Rao 1948).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallchain.checking.predictive import FALSE_ALARM, PredictiveCheck
from tallchain.report import Advice
from tallchain.surrogates.passes import Terms

FEWEST = 300  # rows to compare: sums over fewer, such as ten with a rare outcome, are not normal enough for a p-value
_LEAST = 1e-8  # of an eigenvalue of V, over the largest: below, rows say nothing of that direction


class Drift(NamedTuple):
    """How far new rows are from what the posterior expects."""

    num_rows: int
    p_value: float | None
    """Of the score test; None if there is no mode to expand at, or too few rows."""
    predictive: PredictiveCheck | None
    """Of the new rows alone; None for functions of your own, or too few rows."""

    @property
    def is_found(self) -> bool:
        """Whether they differ by more than chance: so do rows like those before, once in a thousand updates."""
        is_score_off = self.p_value is not None and not self.p_value >= FALSE_ALARM / 2
        return is_score_off or (self.predictive is not None and self._least_p_value < FALSE_ALARM / 2)

    @property
    def _least_p_value(self) -> float:
        panels = () if self.predictive is None else self.predictive.panels
        return min((panel.p_value * len(panels) for panel in panels), default=1.0)

    @property
    def words(self) -> str:
        """What was found, in a line."""
        said = [f"p = {self.p_value:.2g} by the gradient of their likelihood"] if self.p_value is not None else []
        if self.predictive is not None:
            said.append(f"p = {min(self._least_p_value, 1.0):.2g} by outcomes drawn for them")
        none = "not compared" + f" yet, being fewer than {FEWEST}" * (self.num_rows < FEWEST)
        return f"{self.num_rows:,} new rows against the posterior before them: {' and '.join(said) or none}"

    @property
    def advice(self) -> Advice | None:
        """What to do; None if nothing was found."""
        if not self.is_found:
            return None
        return Advice(
            "drift",
            f"The new rows are not like those before: {self.words}.",
            "Both are in the fit now. See what has changed (`fit.facts.predictive` has the new rows), and fit the rows "
            'that go together; `fit.update(..., drift="refuse")` leaves such rows out.',
            is_grave=True,
        )


def score_p_value(terms: Terms, reference: np.ndarray, draws: np.ndarray) -> float:
    """Return the p-value of the score test.

    Args:
        terms: sums over the new rows at the reference.
        reference: where, flat.
        draws: from the posterior before, (draw, d).
    """
    from scipy.special import chdtrc

    mean, covariance = draws.mean(0), np.atleast_2d(np.cov(draws.T))
    hessian = np.asarray(terms.products, np.float64)
    information = -(hessian + hessian.T) / 2
    score = np.asarray(terms.gradient, np.float64) - information @ (mean - reference)
    values, vectors = np.linalg.eigh(information + information @ covariance @ information)
    is_known = values > _LEAST * max(values[-1], 0.0)
    if not is_known.any():
        return 1.0
    return float(chdtrc(is_known.sum(), np.sum((vectors.T @ score)[is_known] ** 2 / values[is_known])))
