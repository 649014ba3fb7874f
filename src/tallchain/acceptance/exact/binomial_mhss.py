"""MH-SS without replacement: a row decides by whether it comes, not by how often."""

from __future__ import annotations

from tallchain.acceptance.exact.drawing import Distinct
from tallchain.acceptance.exact.mhss import MHSS
from tallchain.parts import part


@part
class BinomialMHSS(MHSS):
    """Draw B ~ Binomial(N, 1 - exp(-A)) rows without replacement, A = L/N, and accept with min(1, e^(offset + P)).

    With a = A (1 - max(0, rho)) and a' = A (1 - max(0, -rho)), a row is kept with probability
    (1 - exp(-a))/(1 - exp(-A)), and P is the sum over the rows kept of log((exp(a') - 1)/(exp(a) - 1)). `MHSS` of
    uniform rows keeps s_i ~ Poisson(a_i) times row i (Prado, Nemeth, Sherlock 2024); this test knows of s_i only
    whether it is 0. The probability of that for all rows is exp(-sum a_i) prod (exp(a_i) - 1), the product over those
    with s_i > 0. exp(-sum (a_i' - a_i)) = exp(-sum d_i) cancels the likelihood ratio, so detailed balance is exact, and
    since less is known of s, it accepts at least as often as `MHSS` of uniform rows.

    The source must be row by row, `Shuffled(data, batch_size, windows=False)`: it has no weights, so that L is N times
    the largest bound. No decision reads a row twice, and none more than N.

    Args:
        limit: L above which the test reads every row instead; None for N.
        batch: rows of one look; None for the source's `batch_size`. The number read does not depend on it.
        two_stages: accept with probability min(1, e^offset) min(1, e^P).
    """

    drawing = Distinct()
