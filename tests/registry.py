"""The lists whose product is the contract test: a new part joins the tests by one line here."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from tallchain.acceptance import (
    MHSS,
    Austere,
    Barker,
    BinomialMHSS,
    Combined,
    Confidence,
    Metropolis,
    MinibatchBarker,
    NormalBarker,
    Penalty,
    ScalableMH,
    TunaMH,
)
from tallchain.proposals import PCN, Amagold, Hamiltonian, Langevin, Laplace, RandomWalk
from tallchain.sources import Shuffled, WithReplacement

ACCEPTANCE = {
    "metropolis": Metropolis,
    "barker": Barker,
    "minibatch": MinibatchBarker,
    "published code": MinibatchBarker.as_published_code,
    "penalty": Penalty,
    "combined": Combined,
    "normal barker": NormalBarker,
    "confidence": Confidence,
    "austere": partial(Austere, 0.005),
    "austere designed": lambda: Austere.nonconservative(FEW_ROWS, 0.05),
}

# These need a bound, and rows that are independent; or, by name below, that come once, row by row.
EXACT = {
    "mh-ss": MHSS,
    "mh-ss in two stages": partial(MHSS, two_stages=True),
    "scalable": ScalableMH,
    "tuna": partial(TunaMH, 0.01),
    "all rows": partial(MHSS, limit=0.5),
    "mh-ss without replacement": BinomialMHSS,
}
ROW_BY_ROW = ("mh-ss without replacement",)

# Settings of a test above, with nothing of their own for the engine to trip over.
SETTINGS = {
    "minibatch growth": partial(MinibatchBarker, stopping="growth"),
    "minibatch pilot": partial(MinibatchBarker, stopping="pilot"),
    "minibatch stein": partial(MinibatchBarker, stopping="stein"),
    "minibatch sigma 1.2": partial(MinibatchBarker, sigma=1.2),
    "penalty growth": partial(Penalty, stopping="growth"),
    "penalty pilot": partial(Penalty, stopping="pilot"),
    "paper": MinibatchBarker.paper,
    "confidence serfling": partial(Confidence, bound="bernstein-serfling"),
}

SOURCES = {
    "windows": partial(Shuffled, windows=True),
    "row by row": partial(Shuffled, windows=False),
    "with replacement": WithReplacement,
}


# Made from the data of a target: the first rows are read always, and every third comes more often.
def _exact(data: Any, batch_size: int, **options: Any) -> Shuffled:
    return Shuffled(data, batch_size, **options).reweighted(exact=np.arange(7))


def _copies(data: Any, batch_size: int) -> Shuffled:
    count = len(jax.tree.leaves(data)[0])
    return Shuffled(data, batch_size, windows=True).reweighted(copies=1 + 2 * (np.arange(count) % 3 == 0))


def _both(data: Any, batch_size: int) -> WithReplacement:
    count = len(jax.tree.leaves(data)[0])
    weights = {"exact": np.arange(150), "copies": 1 + 2 * (np.arange(count) % 3 == 0)}
    return WithReplacement(data, batch_size).reweighted(**weights)


REWEIGHTED = {
    "exact, windows": partial(_exact, windows=True),
    "exact, row by row": partial(_exact, windows=False),
    "copies": _copies,
    "with replacement, exact and copies": _both,
}

# For positions of two numbers, about as wide as the targets of the contract are.
LAPLACE = Laplace({"a": 0.3, "b": -0.2}, 0.1 * np.eye(2))
PROPOSALS = {
    "random walk": partial(RandomWalk, 0.3),
    "walk by coordinate": partial(RandomWalk, {"a": 0.2, "b": 0.4}),
    "preconditioned walk": partial(RandomWalk.preconditioned, LAPLACE),
    "independent": partial(PCN, LAPLACE),
    "pcn and walk": partial(PCN, LAPLACE, 0.5, walk=0.3),
    "langevin": partial(Langevin, 0.2, 20),
    "hamiltonian": partial(Hamiltonian, 0.2, 2, 300),
    "around a normal": partial(Hamiltonian, 0.4, 2, 300, LAPLACE),
    "amagold": partial(Amagold, 0.1, 2, 300),
}

SCANNING = ("confidence", "austere designed")
READS_ALL = ("metropolis", "barker", "confidence serfling", *SCANNING)
FEW_ROWS = 1001  # for the tests that read all rows at every decision

# A shortcut that decides by sign, and a normal variable for a logistic one, are known to be wrong.
UNSOUND = ("published code", "normal barker")
SOUND = [name for name in ACCEPTANCE if name not in UNSOUND]
