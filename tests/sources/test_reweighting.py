"""Rows read always or more often: the same source, however it is made, and what it refuses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

from conftest import SEED
from registry import SOURCES
from tallchain.acceptance.evidence import Moments
from tallchain.sources import Shuffled, WithReplacement
from tallchain.types import Ask

DATA = np.arange(60, dtype=np.float32)
EXACT, COPIES = np.array([40, 3, 11]), 1 + np.arange(60) % 3


@pytest.mark.parametrize("windows", [True, False])
@pytest.mark.parametrize("weights", [{"exact": EXACT}, {"copies": COPIES}, {"exact": EXACT, "copies": COPIES}], ids=str)
def test_a_source_is_the_same_by_either_way(weights: dict[str, Any], windows: bool) -> None:
    made = Shuffled(DATA, 5, seed=7, windows=windows, **weights)
    again = Shuffled(DATA, 5, seed=7, windows=windows).reweighted(**weights)
    assert jax.tree.structure(made) == jax.tree.structure(again)
    jax.tree.map(np.testing.assert_array_equal, made, again)


def test_another_batch_size_shares_the_rows() -> None:
    source = Shuffled(DATA, 5)
    other = source.reweighted(batch_size=9)
    assert other.population.batch_size == 9
    assert other.data is source.data
    assert source.reweighted(exact=EXACT, batch_size=9).population == source.reweighted(
        exact=EXACT
    ).population._replace(batch_size=9)


REFUSED = {
    "rows twice": ({"exact": [3, 3]}, "`reweighted(exact=...)` must be indices of rows, each once, between 0 and 59"),
    "no such row": ({"exact": [60]}, "between 0 and 59; got [60]"),
    "too many": ({"exact": np.arange(57)}, "leaves 3 of 60 rows to sample from, fewer than a batch of 5"),
    "no copy": ({"copies": np.zeros(60, int)}, "`reweighted(copies=...)` must be whole numbers, at least 1"),
    "some copies": ({"copies": [1, 2]}, "one for each of the 60 rows"),
    "batch": ({"batch_size": 61}, "`reweighted(batch_size=...)` must be a whole number between 1 and 60"),
    "batch of copies": (
        {"batch_size": 121, "copies": COPIES},
        "`reweighted(batch_size=...)` must be a whole number between 1 and 120, the number of copies of rows; got 121",
    ),
    "batch of what is left": (
        {"batch_size": 115, "copies": COPIES, "exact": EXACT},
        "leaves 114 of 120 copies of rows to sample from, fewer than a batch of 115",
    ),
    "no batch": (
        {"batch_size": 0, "exact": EXACT},
        "`reweighted(batch_size=...)` must be a whole number between 1 and",
    ),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(("weights", "fragment"), REFUSED.values(), ids=REFUSED)
def test_refusals(name: str, weights: dict[str, Any], fragment: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        SOURCES[name](DATA, 5).reweighted(**weights)
    assert fragment in str(caught.value)


@pytest.mark.parametrize("name", SOURCES)
def test_a_batch_may_be_as_large_as_all_copies(name: str) -> None:
    assert SOURCES[name](DATA, 5).reweighted(copies=COPIES, batch_size=np.int8(120)).population[:2] == (120, 120)
    assert SOURCES[name](DATA, 5).reweighted(EXACT, COPIES, 114).population[:2] == (114, 114)
    assert Shuffled(DATA, 114, exact=EXACT, copies=COPIES).population[:2] == (114, 114)


def test_reweighted_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="already reweighted"):
        WithReplacement(DATA, 5).reweighted(copies=COPIES).reweighted(exact=EXACT)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("copies", [None, COPIES], ids=["once", "copies"])
def test_what_is_known_and_the_mean_of_the_rest_are_unbiased(name: str, copies: Any) -> None:
    """Rows as numbers per row of N to sample from: known + mean over the asked-for rows is the mean of all, times."""
    source = SOURCES[name](DATA, 5).reweighted(EXACT, copies)
    size, width = source.population.num_rows, 8
    assert source.population.total == 60

    @jax.jit
    @jax.vmap
    def estimate(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        cursor, evidence, known = source.start(source.draw(key)), Moments.empty(), jnp.zeros(())
        left, read = jnp.int32(16), jnp.int32(0)
        for _ in range(4):  # one look for the rows read always, two or three for the others
            cursor, seen = source.look(cursor, Ask(left), width, lambda row: size * row, Moments.of)
            evidence, known = evidence.merge(seen.evidence), known + seen.known
            left, read = left - seen.taken, read + seen.read
        return known + evidence.mean, read

    estimates, read = estimate(jr.split(jr.key(SEED), 20_000))
    assert np.all(np.asarray(read) == 16 + len(EXACT))
    values = np.asarray(estimates, np.float64)
    z = (values.mean() - DATA.sum()) / (values.std() / np.sqrt(len(values)))
    assert abs(z) < 4.5
    assert abs((values.mean() - DATA.sum() + DATA[EXACT].sum()) / (values.std() / np.sqrt(len(values)))) > 4.5


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int64"])
def test_copies_are_of_any_whole_type(dtype: str) -> None:
    source = Shuffled(np.arange(10, dtype=np.float32), 2).reweighted(copies=np.full(10, 3, dtype))
    assert source.population.num_rows == 30
