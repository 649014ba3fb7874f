"""The paper's worst case (section 2.2): a Gaussian mean at temperature 1, and how often a test needs every row.

Seita, Pan, Chen and Canny, "An Efficient Minibatch Acceptance Test for Metropolis-Hastings": N rows x_i ~ N(0.5, 1), a
flat prior, so that the posterior is N(mean x, 1/N), and proposals N(t, 1/N). Its lemma says that AustereMH and
MHSubLhd then consume all N rows with probability at least

    c = 2 (Phi(1) - Phi(1/2)) (Phi(1) - Phi(1/2)) (exp(-1.125) - exp(-2)) = 0.0085     over (t, t', u),  for every N,

because log u comes close to Delta that often. Here that share is measured, and with it the mean share of rows read.
Every decision starts from its own draw of the exact posterior, so decisions are independent and the limits valid.

The proof omits the finite-population factor of AustereMH. In units of the posterior's standard deviation
(y = (t - mean x) sqrt N, z = (t' - t) sqrt N), Delta = -z (y + z/2), and the t-test with n of N rows read sees

    mu_std sqrt(n / (N - n)) + (nearly standard normal noise),     mu_std = (Delta - log u) / |z|.

Before the last look m rows are left, and only decisions with about |mu_std| < G sqrt(m/N) read them, Phi(G) = 1 -
epsilon. So the share of decisions that read literally all rows is at most about

    2 G f(0) sqrt(m/N),     f(0) = E[|z| Phi(-|z|/2)] = 1/sqrt(2 pi) - 1/sqrt(10 pi),  the density of mu_std at 0,

and falls below c for N large enough. The mean share of rows falls far more slowly, if at all; and with rows drawn with
replacement, the case that the proof covers, there is no such factor.

The minibatch test is not better off at temperature 1 with this step: V = Var(Lambda_i) = (N/K)^2 (t' - t)^2 Var(x) is
N z^2, and its variance V/b (1 - b/N) must fall below sigma^2, which takes b = V / (sigma^2 + V/N) rows (V / sigma^2
with replacement): a share of N that does not fall with N. A second study shows what makes it small: a higher
temperature or shorter steps.
"""

from __future__ import annotations

from tallchain.experiments.worst_case.config import Config
from tallchain.experiments.worst_case.contenders import (
    BATCH,
    CONTENDERS,
    DESIGN_ERROR,
    EPSILON,
    LEMMA,
    SIGMA,
    Contender,
)
from tallchain.experiments.worst_case.entries import SERIES, Entry, Point, wilson_limits
from tallchain.experiments.worst_case.expected import austere_ceiling, expected_austere, expected_minibatch
from tallchain.experiments.worst_case.model import LogRatioRange, WorstCase, log_likelihood, log_prior
from tallchain.experiments.worst_case.result import Result
from tallchain.experiments.worst_case.runs import run

__all__ = [
    "BATCH",
    "CONTENDERS",
    "DESIGN_ERROR",
    "EPSILON",
    "LEMMA",
    "SERIES",
    "SIGMA",
    "Config",
    "Contender",
    "Entry",
    "LogRatioRange",
    "Point",
    "Result",
    "WorstCase",
    "austere_ceiling",
    "expected_austere",
    "expected_minibatch",
    "log_likelihood",
    "log_prior",
    "run",
    "wilson_limits",
]
