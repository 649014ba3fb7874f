"""Proposals: each draws its noise, proposes a candidate, and states its log correction."""

from tallchain.proposals.fixed import Fixed
from tallchain.proposals.laplace import Laplace
from tallchain.proposals.pcn import PCN
from tallchain.proposals.random_walk import RandomWalk

__all__ = ["PCN", "Fixed", "Laplace", "RandomWalk"]
