"""Tests that decide whether to accept a proposal; each sees only numbers per row."""

from tallchain.acceptance.correction import Correction
from tallchain.acceptance.full_data import Barker, Metropolis
from tallchain.acceptance.minibatch_barker import MinibatchBarker

__all__ = ["Barker", "Correction", "Metropolis", "MinibatchBarker"]
