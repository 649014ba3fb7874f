"""What is known of a posterior in closed form: its mode, and the normal distribution there."""

from tallchain.surrogates.laplace import Laplace
from tallchain.surrogates.reference import NoReferenceError, Reference, find_reference

__all__ = ["Laplace", "NoReferenceError", "Reference", "find_reference"]
