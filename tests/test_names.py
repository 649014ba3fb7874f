"""Names of parameters."""

from __future__ import annotations

import numpy as np

from tallchain.names import all_coordinates, named_leaves


def test_names_that_collide_are_told_apart() -> None:
    draws = {"a": {"b": np.zeros((2, 3))}, "a.b": np.ones((2, 3))}
    assert list(named_leaves(draws)) == ["['a']['b']", "['a.b']"]
    assert len(all_coordinates(draws, {})[0]) == 2
    assert list(named_leaves({"b": np.zeros((2, 3)), "a": {"c": np.zeros((2, 3))}})) == ["b", "a.c"]
