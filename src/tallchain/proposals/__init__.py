"""Ways to a candidate: each draws its noise, proposes, and states its log correction."""

from tallchain.proposals.random_walk import RandomWalk

__all__ = ["RandomWalk"]
