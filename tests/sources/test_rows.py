"""Taking data: what does not survive the conversion to JAX's types, and what is missing, is refused by name."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from tallchain.sources import rows
from tallchain.sources.rows import row_bytes, take_data
from tallchain.surrogates import Taylor, find_reference, influence

POSTERIOR = tc.Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: -0.5 * jnp.sum((row["x"] - t) ** 2))
START = np.zeros(1, np.float32)
LAPLACE = tc.surrogates.Laplace.of_precision(START, np.eye(1))
TAKERS = {
    "Shuffled": lambda data: tc.Shuffled(data, 2),
    "WithReplacement": lambda data: tc.WithReplacement(data, 2),
    "find_reference": lambda data: find_reference(POSTERIOR, data, START, progress=False),
    "Taylor": lambda data: Taylor(POSTERIOR, data, START),
    "influence": lambda data: influence(POSTERIOR, data, None, LAPLACE, batch_size=2),
    "prepare": lambda data: tc.prepare(POSTERIOR, data, START, progress=False),
}


def column(*values: Any, dtype: Any = None) -> dict[str, np.ndarray]:
    return {"x": np.array(values, dtype)}


LOST = {
    "int64": (column(1, 2, 2**40 + 5), ["fit into int32", "got 1099511627781 in data['x'], row 2."]),
    "negative int64": (column(1, -(2**31) - 1), ["got -2147483649 in data['x'], row 1."]),
    "uint64": (column(1, 2**32, dtype=np.uint64), ["fit into uint32", "got 4294967296 in data['x'], row 1."]),
    "float64": (column(1.0, -1e300, np.inf), ["fit into float32", "got -1e+300 in data['x'], row 1. Rescale"]),
    "complex128": (column(1.0, 1e300j), ["fit into complex64", "in data['x'], row 1."]),
    "missing": (
        column(*np.where(np.arange(50) % 7 == 3, np.nan, 0.0)),
        ["have no missing values; got NaN in data['x'], in 7 of 50 rows, the first of them row 3. Fill in or"],
    ),
    "missing in a matrix": (
        {"x": np.array([[1, 2], [3, np.nan], [np.nan, np.nan]], np.float32)},
        ["got NaN in data['x'], in 2 of 3 rows, the first of them row 1."],
    ),
    "missing in JAX": ({"x": jnp.array([1.0, jnp.nan])}, ["in 1 of 2 rows, the first of them row 1."]),
    "text": ({"x": np.zeros(3), "city": np.array(["a", "b", "c"])}, ["hold numbers; got data['city']: <U1."]),
}


def refuse(call: Any, error: Any, *fragments: str) -> None:
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, fragments))):
        call()


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("taker", TAKERS)
def test_every_taker_refuses(taker: str, name: str) -> None:
    data, fragments = LOST[name]
    refuse(lambda: TAKERS[taker](data), (ValueError, TypeError), f"`{taker}(data=...)` must", *fragments)


@pytest.mark.parametrize("taker", ["Shuffled", "WithReplacement"])
def test_what_survives_is_taken(taker: str) -> None:
    """The ends of the range, and infinite floats: a bound of a censored interval may be infinite."""
    data = {
        "int": np.array([-(2**31), 2**31 - 1, 0]),
        "uint": np.array([0, 2**32 - 1, 1], np.uint64),
        "float": np.array([np.inf, -np.inf, 3.4e38]),
    }
    taken = TAKERS[taker](data).some_rows(3)
    for name, kept in (("int", np.int32), ("uint", np.uint32), ("float", np.float32)):
        assert taken[name].dtype == kept
        np.testing.assert_array_equal(np.sort(taken[name]), np.sort(data[name]).astype(kept))


def test_with_64_bits_they_survive() -> None:
    data = {"int": np.array([1, 2**40 + 5]), "float": np.array([1.0, 1e300])}
    with jax.enable_x64(True):
        taken = tc.WithReplacement(data, 1).data
    jax.tree.map(np.testing.assert_array_equal, taken, data)


def test_blocks_count_rows_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BLOCK", 6)
    values = np.zeros((20, 3))
    values[[7, 8, 19]] = np.nan
    refuse(lambda: take_data("Shuffled", values), ValueError, "NaN in data, in 3 of 20 rows, the first of them row 7.")
    values = np.arange(20) + 2**31 - 10
    refuse(lambda: take_data("Shuffled", values), ValueError, "got 2147483648 in data, row 10.")


def test_arrays_on_an_accelerator_are_checked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "on_host", lambda leaf: None)
    values = jnp.zeros((20, 3)).at[7, 1].set(jnp.nan).at[9, 2].set(jnp.nan)
    refuse(lambda: take_data("Shuffled", values), ValueError, "NaN in data, in 2 of 20 rows, the first of them row 7.")
    take_data("Shuffled", jnp.zeros((20, 3)))


def test_inside_jit_shapes_are_checked() -> None:
    def first(values: jax.Array) -> jax.Array:
        return tc.WithReplacement({"x": values}, 1).some_rows(1)["x"]

    assert np.isnan(jax.jit(first)(jnp.array([jnp.nan, 1.0]))[0])
    refuse(lambda: jax.jit(first)(jnp.zeros(())), ValueError, "data['x']: shape ()")
    shuffled = jax.jit(lambda values: tc.Shuffled(values, 1).data)(jnp.arange(50.0))
    np.testing.assert_array_equal(shuffled, tc.Shuffled(np.arange(50.0), 1).data)


@pytest.mark.parametrize("taker", ["influence", "prepare"])
def test_a_batch_is_refused_before_rows_are_read(taker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = column(*np.arange(50.0))
    call = {
        "influence": lambda size: influence(POSTERIOR, data, None, LAPLACE, batch_size=size),
        "prepare": lambda size: tc.prepare(POSTERIOR, data, START, batch_size=size, progress=False),
    }[taker]
    for size, hint in ((10.0, " Write 10."), (51, ""), (True, "")):
        quoted = f"`{taker}(batch_size=...)` must be a whole number between 1 and 50, the number of rows; got {size!r}."
        refuse(lambda size=size: call(size), ValueError, quoted + hint)


def test_row_bytes_are_jaxs() -> None:
    assert row_bytes({"x": np.zeros((5, 3)), "y": np.zeros(5, bool)}) == 13


def test_masked_entries_are_missing_values() -> None:
    values = np.ma.masked_array(np.arange(6.0), mask=[0, 1, 0, 0, 1, 0])
    with pytest.raises(ValueError, match="masked array with 2 entries masked"):
        take_data("Shuffled", {"x": values})
    taken, _ = take_data("Shuffled", np.ma.masked_array(np.arange(6.0)))
    assert type(taken) is np.ndarray


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", np.longdouble])
def test_numbers_in_a_foreign_order_of_bytes_are_taken(dtype: Any) -> None:
    source = tc.WithReplacement(np.arange(6).astype(dtype), 2)
    np.testing.assert_array_equal(source.data, np.arange(6))


def test_a_list_of_many_numbers_is_quoted_in_brief() -> None:
    with pytest.raises(ValueError, match=r"must be an array.*\.\.\.") as caught:
        take_data("Shuffled", [1.0] * 10_000)
    assert len(str(caught.value)) < 500
