"""A regression of arrays that are ready: the same one, without a copy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tallchain.models import Regression, families
from tallchain.models.design import INTERCEPT, Design
from tallchain.models.families import Bernoulli, Ordinal
from tallchain.models.groups import Coded, code_groups
from tallchain.models.regression import from_design

NONE = Coded(None, None, (), {})
RANDOM = np.random.default_rng(0)
X = np.concatenate([np.ones((200, 1)), RANDOM.normal(size=(200, 2))], axis=1).astype(np.float32)
Y = (RANDOM.random(200) < 0.5).astype(np.float32)


def test_it_is_the_one_that_the_constructor_makes() -> None:
    clinic, weights = RANDOM.integers(0, 5, 200), RANDOM.integers(1, 3, 200)
    coded = code_groups("fit", {"clinic": clinic}, 200, None)
    extra = {"offset": np.ones(200, np.float32), "weight": weights.astype(np.float32)}
    made = from_design("fit", Bernoulli(), Design({"x": X, "y": Y}, (INTERCEPT, "a", "b")), coded, extra)
    expected = Regression(
        families.Bernoulli(), y=Y, x=X[:, 1:], groups={"clinic": clinic}, offset=np.ones(200), weights=weights
    )
    assert made.layout == expected.layout
    assert made.names == (INTERCEPT, "a", "b")
    assert jax.tree.all(jax.tree.map(np.array_equal, made.start, expected.start))
    assert jax.tree.all(jax.tree.map(np.array_equal, made.data, expected.data))


def test_nothing_is_copied() -> None:
    offset = np.zeros(200, np.float32)
    made = from_design("fit", Bernoulli(), Design({"x": X, "y": Y}, None), NONE, {"offset": offset})
    for name, given in (("x", X), ("y", Y), ("offset", offset)):
        assert np.shares_memory(made.data[name], given)


def test_the_checks_are_the_same() -> None:
    for changed, said in (
        ({"y": Y + 1}, r"`fit\(y=\.\.\.\)` must be 0 or 1"),
        ({"x": X[:, :0]}, "without an intercept there must be a feature"),
    ):
        with pytest.raises(ValueError, match=said):
            from_design("fit", Bernoulli(), Design({"x": X, "y": Y} | changed, None), NONE, {})
    with pytest.raises(ValueError, match=r"`fit\(weights=\.\.\.\)` must be at least 0"):
        from_design("fit", Bernoulli(), Design({"x": X, "y": Y}, None), NONE, {"weight": -np.ones(200)})
    with pytest.raises(ValueError, match="has numbers in place of an intercept"):
        from_design("fit", Ordinal(2), Design({"x": X, "y": Y}, None), NONE, {}, intercept=True)
