"""Refusals of transitions: each quotes the call, says what was received, and what to do."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from refusals import refuse, table
from scenarios import normal_vector
from skewed import AFFINE, DENSE, HMC, NUTS, SKEWED, Bent, Skewless, target_of
from tallchain.parts import part
from tallchain.proposals import Transition, Whitened, adapt_transition, sample_surrogate
from tallchain.types import Array

LINEAR = normal_vector(1001)


@part
class Placeless:
    """A surrogate without a position."""

    def check(self, position: Any) -> None:
        pass

    def total(self, position: Any, candidate: Any) -> float:
        return 0.0

    def row_difference(self, position: Any, candidate: Any) -> Any:
        return lambda row: 0.0


@part
class Odd(Bent):
    """Coordinates whose maps are not inverse to each other."""

    def back(self, w: Array) -> Any:
        return jnp.sinh(w) + 1


@part
class Square(Bent):
    """Coordinates that are no vector."""

    def to(self, position: Any) -> Array:
        return jnp.outer(position, position)


def sample_with(surrogate: Any) -> Any:
    proposal = Transition("nuts", NUTS)
    kernel = tc.MetropolisHastings(
        LINEAR.posterior, tc.Shuffled(LINEAR.data, 100), proposal=proposal, surrogate=surrogate
    )
    return lambda: tc.sample(jr.key(0), kernel, {"a": 0.1, "b": 0.1}, 2, num_chains=1, scan=0, progress=False)


def checked(position: Any, *arguments: Any) -> Any:
    return lambda: Transition(*arguments).check(position)


def adapt(**options: Any) -> Any:
    options = {"target": SKEWED, "positions": jnp.zeros(2), "progress": False} | options
    return lambda: adapt_transition(jr.key(0), **options)


def draw(**options: Any) -> Any:
    given = {"target": SKEWED, "transition": Transition("nuts", NUTS), "positions": jnp.zeros(2), "num_draws": 2}
    return lambda: sample_surrogate(jr.key(0), **given | options)


REFUSALS = {
    "ghmc": (lambda: Transition("ghmc", NUTS), ValueError, "`Transition(algorithm=...)`", "got 'ghmc'", "momentum"),
    "mclmc": (lambda: Transition("mclmc", NUTS), ValueError, "do not follow", "not reversible"),
    "walk": (lambda: Transition("rmh", NUTS), ValueError, "use `RandomWalk`"),
    "unknown": (lambda: Transition("magic", NUTS), ValueError, "not tested to be reversible"),
    "no name": (lambda: Transition(3, NUTS), ValueError, "must be one of", "got 3"),
    "no dict": (lambda: Transition("nuts", 0.3), TypeError, "must be a dict"),
    "missing": (lambda: Transition("nuts", {"step_size": 1.0}), ValueError, "needs step_size, inverse_mass_matrix"),
    "hmc": (lambda: Transition("hmc", NUTS), ValueError, "needs step_size, inverse_mass_matrix, num_integration_steps"),
    "too many": (lambda: Transition("mala", NUTS), ValueError, "needs step_size; got step_size, inverse_mass_matrix"),
    "size": (lambda: Transition("hmc", HMC | {"num_integration_steps": 2.5}), ValueError, "whole number", "2.5"),
    "step": (lambda: Transition("mala", {"step_size": -1}), ValueError, "step_size must be a positive number; got -1"),
    "mass": (lambda: Transition("nuts", NUTS | {"inverse_mass_matrix": [1.0, 0.0]}), ValueError, "least entry is 0"),
    "matrix": (lambda: Transition("nuts", NUTS | {"inverse_mass_matrix": -DENSE}), ValueError, "eigenvalue is -"),
    "words": (lambda: Transition("nuts", NUTS | {"inverse_mass_matrix": "a"}), TypeError, "must hold numbers; got 'a'"),
    "shape": (lambda: Transition("nuts", NUTS | {"inverse_mass_matrix": np.ones((2, 3))}), ValueError, "square matrix"),
    "repeats": (lambda: Transition("nuts", NUTS, repeats=0), ValueError, "`Transition(repeats=...)`", "got 0"),
    "coordinates": (lambda: Transition("nuts", NUTS, Bent), TypeError, "with `to`, `back` and `log_det`"),
    "no part": (lambda: Transition("nuts", NUTS, SimpleNamespace(to=0, back=0, log_det=0)), TypeError, "be a part"),
    "whitened": (lambda: Whitened(DENSE), TypeError, "`Whitened(laplace=...)`"),
    "position": (checked(jnp.zeros(3), "nuts", NUTS), ValueError, "shape (3,) or (3, 3)", "got shape (2,)"),
    "not inverse": (checked(jnp.zeros(2), "nuts", NUTS, Odd()), ValueError, "`back` must be the inverse of `to`"),
    "no vector": (checked(jnp.ones(2), "nuts", NUTS, Square()), ValueError, "must be a flat vector; got shape (2, 2)"),
    "shapes": (checked({"a": 0.1, "b": 0.1}, "mala", {"step_size": 1.0}, AFFINE), ValueError, "shapes of the position"),
    "no surrogate": (sample_with(None), ValueError, "`Transition(...)` needs a surrogate", "the kernel has none"),
    "no place": (sample_with(Placeless()), ValueError, "the kernel has a Placeless, which has no position"),
    "adapt: target": (adapt(target=SKEWED._replace(surrogate=None)), ValueError, "`adapt_transition(target=...)`"),
    "adapt: algorithm": (adapt(algorithm="ghmc"), ValueError, "`adapt_transition(algorithm=...)`"),
    "adapt: hmc": (adapt(algorithm="hmc"), ValueError, "needs num_integration_steps; got nothing"),
    "adapt: steps": (adapt(num_steps=3), ValueError, "`adapt_transition(num_steps=...)`", "at least 20; got 3"),
    "adapt: rate": (adapt(acceptance=1.5), ValueError, "`adapt_transition(acceptance=...)`", "got 1.5"),
    "adapt: dense": (adapt(algorithm="mala", is_dense=True), ValueError, "has no mass matrix"),
    "adapt: position": (adapt(positions=jnp.zeros(3)), ValueError, "one position of shapes (2,)", "got shapes (3,)"),
    "draws: transition": (draw(transition=tc.RandomWalk(1.0)), TypeError, "must be a Transition(...)"),
    "draws: count": (draw(num_draws=0), ValueError, "`sample_surrogate(num_draws=...)`", "got 0"),
}  # fmt: skip


@table(REFUSALS)
def test_refuses(call: Any, error: Any, fragments: Any) -> None:
    refuse(call, error, *fragments)


def test_refuses_a_density_that_is_none() -> None:
    target = target_of(lambda t: jnp.sum(t**2) * jnp.nan, Skewless(jnp.zeros(2)))
    call = partial(adapt_transition, jr.key(0), target, jnp.zeros(2), "mala", num_steps=30, progress=False)
    refuse(call, ValueError, "`adapt_transition(positions=...)`", "is nan at the start of chain 0")
    transition = Transition("mala", {"step_size": 1.0})
    call = partial(sample_surrogate, jr.key(0), target, transition, jnp.zeros((3, 2)), 2)
    refuse(call, ValueError, "`sample_surrogate(positions=...)`", "is nan at the start of chain 0")


def test_says_how_to_install_blackjax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blackjax", None)
    refuse(lambda: Transition("nuts", NUTS), ImportError, "needs BlackJAX", "pip install 'tallchain[all]'")
