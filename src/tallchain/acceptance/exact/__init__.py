"""Exact tests that read few rows: TunaMH, Scalable Metropolis-Hastings, MH-SS.

With d_i the part of row i in the log ratio, |d_i| <= b_i, choose a_i >= 0 with a_i' - a_i = d_i (a' is a with both
positions exchanged), draw s_i ~ Poisson(a_i), and accept with probability min(1, exp(offset) prod (a_i'/a_i)^s_i). In
pi(t) q(t'|t) prod Poisson(s_i; a_i) the factor exp(-sum (a_i' - a_i)) = exp(-sum d_i) cancels the likelihood ratio, so
that detailed balance holds exactly. The three tests choose a_i as

    MH-SS   b_i (1 - max(0, rho)),      Scalable MH   b_i max(0, -rho),      TunaMH   b_i (chi L + (1 - rho)/2),

rho = d_i/b_i, L = sum b_i. (They need |d_i| <= b_i, and nothing else.) BinomialMHSS is MH-SS without replacement, with
1[s_i > 0] in place of s_i; see `drawing`.
"""

from tallchain.acceptance.exact.binomial_mhss import BinomialMHSS
from tallchain.acceptance.exact.mhss import MHSS
from tallchain.acceptance.exact.scalable_mh import ScalableMH
from tallchain.acceptance.exact.tuna_mh import TunaMH

__all__ = ["MHSS", "BinomialMHSS", "ScalableMH", "TunaMH"]
