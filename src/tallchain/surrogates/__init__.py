"""Closed-form approximations of a posterior: its mode, control variates, and which rows matter."""

from tallchain.proposals.laplace import Laplace
from tallchain.surrogates.influence import Influence, influence
from tallchain.surrogates.predictors import Predictors
from tallchain.surrogates.reference import NoReferenceError, Reference, find_reference
from tallchain.surrogates.taylor import Taylor

__all__ = [
    "Influence",
    "Laplace",
    "NoReferenceError",
    "Predictors",
    "Reference",
    "Taylor",
    "find_reference",
    "influence",
]
