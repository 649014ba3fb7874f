"""Tests that decide whether to accept a proposal; each sees only numbers per row."""

from tallchain.acceptance.austere import Austere
from tallchain.acceptance.combined import Combined
from tallchain.acceptance.confidence import Confidence
from tallchain.acceptance.correction import Correction
from tallchain.acceptance.exact import MHSS, BinomialMHSS, ScalableMH, TunaMH
from tallchain.acceptance.full_data import Barker, Metropolis
from tallchain.acceptance.minibatch_barker import MinibatchBarker
from tallchain.acceptance.normal_barker import NormalBarker
from tallchain.acceptance.penalty import Penalty

__all__ = [
    "MHSS",
    "Austere",
    "Barker",
    "BinomialMHSS",
    "Combined",
    "Confidence",
    "Correction",
    "Metropolis",
    "MinibatchBarker",
    "NormalBarker",
    "Penalty",
    "ScalableMH",
    "TunaMH",
]
