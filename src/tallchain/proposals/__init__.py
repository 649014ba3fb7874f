"""Proposals: each draws its noise, proposes a candidate, and states its log correction."""

from tallchain.proposals.adapting import Adapted, adapt_transition, sample_surrogate
from tallchain.proposals.amagold import Amagold
from tallchain.proposals.coordinates import Coordinates, Whitened
from tallchain.proposals.fixed import Fixed
from tallchain.proposals.hamiltonian import Hamiltonian
from tallchain.proposals.langevin import Langevin
from tallchain.proposals.laplace import Laplace
from tallchain.proposals.pcn import PCN
from tallchain.proposals.random_walk import RandomWalk
from tallchain.proposals.transition import Transition

__all__ = [
    "PCN",
    "Adapted",
    "Amagold",
    "Coordinates",
    "Fixed",
    "Hamiltonian",
    "Langevin",
    "Laplace",
    "RandomWalk",
    "Transition",
    "Whitened",
    "adapt_transition",
    "sample_surrogate",
]
