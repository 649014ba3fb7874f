"""Stochastic-gradient MCMC: updates along gradients of minibatches, without an acceptance test. Biased baselines."""

from tallchain.stochastic.dynamics import Dynamics, Moving
from tallchain.stochastic.kernel import StochasticGradient
from tallchain.stochastic.sgfs import SGFS
from tallchain.stochastic.sghmc import SGHMC
from tallchain.stochastic.sgld import SGLD
from tallchain.stochastic.sgnht import SGNHT

__all__ = ["SGFS", "SGHMC", "SGLD", "SGNHT", "Dynamics", "Moving", "StochasticGradient"]
