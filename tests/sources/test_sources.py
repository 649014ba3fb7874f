"""What sources promise: which rows come, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

from conftest import SEED
from registry import SOURCES
from tallchain import Austere, MetropolisHastings, Posterior, RandomWalk
from tallchain.acceptance.evidence import Moments
from tallchain.parts import replace
from tallchain.sources import Shuffled
from tallchain.types import Ask

WITHOUT_REPLACEMENT = [name for name, source in SOURCES.items() if not source(np.zeros(2), 1).population.repeats]
SHAPES = [(1, 1), (7, 7), (10, 3), (50, 1), (100, 10), (101, 10), (101, 60)]  # rows, width

without_replacement = pytest.mark.parametrize("name", WITHOUT_REPLACEMENT)
every_source = pytest.mark.parametrize("name", SOURCES)
shapes = pytest.mark.parametrize(("num_rows", "width"), SHAPES)


def numbered(name: str, num_rows: int, batch_size: int = 1, **options: Any) -> Any:
    """A source whose rows are their own numbers: 0, 1, ..."""
    return SOURCES[name](np.arange(num_rows, dtype=np.int32), batch_size, **options)


@partial(jax.jit, static_argnames="width")
def look(source: Any, cursor: Any, rows: jax.Array, is_census: jax.Array, width: int) -> tuple[Any, Any]:
    """One look at a numbered source that returns the numbers themselves and which of them count."""
    return source.look(cursor, Ask(rows, census=is_census), width, lambda row: row, lambda *window: window)


def begin(source: Any, seed: int) -> Any:
    return source.start(source.draw(jr.key(seed)))


def read(source: Any, cursor: Any, asks: list[int], width: int, *, is_census: bool = False) -> tuple[np.ndarray, Any]:
    """All numbers that come for some asks, one after the other, and the cursor after them."""
    numbers = []
    for ask in asks:
        left = ask
        while left > 0:
            cursor, seen = look(source, cursor, jnp.int32(left), jnp.bool(is_census), width)
            (values, is_valid), taken = seen.evidence, seen.taken
            assert seen.read == taken
            assert seen.known == 0
            assert 0 < taken <= min(left, width)
            np.testing.assert_array_equal(is_valid, np.arange(width) < taken)
            numbers.append(np.asarray(values)[np.asarray(is_valid)])
            left -= int(taken)
    return np.concatenate(numbers), cursor


def uneven(total: int, width: int) -> Iterator[int]:
    """Asks of many sizes that add up to `total`."""
    for size in cycle([1, 7, width, width + 3, 2]):
        yield min(size, total)
        total -= size
        if total <= 0:
            return


def assert_each_once(numbers: np.ndarray, num_rows: int) -> None:
    np.testing.assert_array_equal(np.sort(numbers), np.arange(num_rows))


# ---- which rows come ---------------------------------------------------------------------------


@without_replacement
@shapes
def test_all_rows_come_once_whatever_the_asks(name: str, num_rows: int, width: int) -> None:
    source = numbered(name, num_rows)
    for seed, asks in enumerate([[num_rows], uneven(num_rows, width)]):
        numbers, _ = read(source, begin(source, seed), list(asks), width)
        assert_each_once(numbers, num_rows)


@without_replacement
@shapes
def test_a_pass_can_follow_a_pass(name: str, num_rows: int, width: int) -> None:
    source = numbered(name, num_rows)
    _, cursor = read(source, begin(source, SEED), list(uneven(num_rows, width)), width)
    numbers, _ = read(source, cursor, [num_rows], width)
    assert_each_once(numbers, num_rows)


@without_replacement
@pytest.mark.parametrize("num_rows", [1, 13, 100])
def test_a_batch_may_be_all_rows(name: str, num_rows: int) -> None:
    source = numbered(name, num_rows, batch_size=num_rows)
    width = source.width(source.population.batch_size)
    numbers, _ = read(source, begin(source, SEED), [num_rows], width)
    assert width == num_rows
    assert_each_once(numbers, num_rows)


@without_replacement
def test_a_row_does_not_come_again_before_all_have_come(name: str) -> None:
    source = numbered(name, 101)
    numbers, _ = read(source, begin(source, SEED), [1, 30, 7, 50], 10)
    assert len(np.unique(numbers)) == len(numbers) == 88


@without_replacement
def test_keys_and_seeds_name_orders(name: str) -> None:
    def order(shuffle: int, key: int) -> np.ndarray:
        source = numbered(name, 100, seed=shuffle)
        return read(source, begin(source, key), [100], 10)[0]

    np.testing.assert_array_equal(order(shuffle=0, key=0), order(shuffle=0, key=0))
    assert not np.array_equal(order(shuffle=0, key=0), order(shuffle=0, key=1))
    assert not np.array_equal(order(shuffle=0, key=0), order(shuffle=1, key=0))


@pytest.mark.parametrize("make", [jr.PRNGKey, partial(jr.key, impl="rbg")], ids=["raw", "rbg"])
@every_source
def test_takes_keys_of_other_kinds(name: str, make: Any) -> None:
    source = numbered(name, 100)
    orders = [read(source, source.start(source.draw(make(seed))), [50], 10)[0] for seed in (0, 1)]
    assert not np.array_equal(*orders)


def test_rows_with_replacement_repeat() -> None:
    source = numbered("with replacement", 30)
    numbers, _ = read(source, begin(source, SEED), list(uneven(600, 10)), 10)
    counts = np.bincount(numbers, minlength=30)
    assert len(counts) == 30
    assert counts.min() < 20 < counts.max()  # all 20 only where rows do not repeat
    assert np.sum((counts - 20.0) ** 2 / 20) < 29 + 6 * np.sqrt(2 * 29)


# ---- a census ----------------------------------------------------------------------------------


@every_source
@shapes
def test_a_census_is_the_storage_order(name: str, num_rows: int, width: int) -> None:
    source = numbered(name, num_rows)
    stored = np.asarray(source.some_rows(num_rows))
    assert_each_once(stored, num_rows)
    cursor = begin(source, SEED)
    for asks in [[num_rows], uneven(num_rows, width)]:
        numbers, cursor = read(source, cursor, list(asks), width, is_census=True)
        np.testing.assert_array_equal(numbers, stored)


@without_replacement
@shapes
def test_sampling_after_a_census_is_a_full_pass(name: str, num_rows: int, width: int) -> None:
    source = numbered(name, num_rows)
    direct, _ = read(source, begin(source, SEED), [num_rows], width)
    _, cursor = read(source, begin(source, SEED), [num_rows], width, is_census=True)
    after, _ = read(source, cursor, [num_rows], width)
    np.testing.assert_array_equal(after, direct)


@without_replacement
@pytest.mark.parametrize("before", [1, 10, 37, 100])
def test_a_census_does_not_disturb_the_pass_it_interrupts(name: str, before: int) -> None:
    source = numbered(name, 101)
    first, cursor = read(source, begin(source, SEED), [before], 10)
    census, cursor = read(source, cursor, [101], 10, is_census=True)
    rest, _ = read(source, cursor, [101 - before], 10)
    assert_each_once(census, 101)
    assert_each_once(np.concatenate([first, rest]), 101)


# ---- what is read and what counts --------------------------------------------------------------


@every_source
@pytest.mark.parametrize(("rows", "expected"), [(-3, 0), (0, 0), (1, 1), (9, 9), (10, 10), (11, 10), (1000, 10)])
def test_takes_what_is_asked_for_and_a_window_at_most(name: str, rows: int, expected: int) -> None:
    source = numbered(name, 100)
    _, ((_, is_valid), taken, *_) = look(source, begin(source, SEED), jnp.int32(rows), jnp.bool(False), 10)
    assert taken == is_valid.sum() == expected


@without_replacement
def test_rows_outside_the_window_leave_no_trace(name: str) -> None:
    """Numbers that are not valid do not count, even where they are not numbers."""
    data = np.arange(23, dtype=np.float32)

    @jax.jit
    def absorb(cursor: Any, moments: Moments, rows: jax.Array) -> tuple[Any, Moments, jax.Array]:
        def summarise(values: jax.Array, is_valid: jax.Array) -> Moments:
            return Moments.of(jnp.where(is_valid, values, jnp.nan), is_valid)

        cursor, seen = source.look(cursor, Ask(rows), 10, lambda row: row, summarise)
        return cursor, moments.merge(seen.evidence), seen.taken

    source = SOURCES[name](data, 5)
    cursor, moments, left = begin(source, SEED), Moments.empty(), 23
    while left > 0:
        cursor, moments, taken = absorb(cursor, moments, left)
        left -= int(taken)
    assert moments.count == 23
    np.testing.assert_allclose([moments.mean, moments.squares], [data.mean(), 23 * data.var()], rtol=1e-5)


@every_source
def test_rows_are_pytrees_that_stay_together_under_vmap_and_jit(name: str) -> None:
    number = np.arange(37)
    data = {
        "number": number.astype(np.int32),
        "nested": (np.stack([number, -number, 2 * number], 1).astype(np.float32), number % 2 == 0),
        "image": np.broadcast_to(number[:, None, None], (37, 2, 3)).astype(np.float16),
    }
    source = SOURCES[name](data, 5)

    def number_if_together(row: Any) -> jax.Array:
        (features, is_even), of = row["nested"], row["number"]
        is_one_row = jnp.all(features == jnp.stack([of, -of, 2 * of])) & (is_even == (of % 2 == 0))
        return jnp.where(is_one_row & jnp.all(row["image"] == of), of, -1)

    def first_window(key: jax.Array) -> Any:
        cursor = source.start(source.draw(key))
        return source.look(cursor, Ask(8), 8, number_if_together, lambda values, is_valid: values)

    keys = jr.split(jr.key(SEED), 50)
    (_, (together, taken, *_)), (_, (alone, *_)) = jax.jit(jax.vmap(first_window))(keys), jax.jit(first_window)(keys[3])
    assert together.shape == (50, 8)
    assert np.all(taken == 8)
    assert together.min() >= 0
    np.testing.assert_array_equal(together[3], alone)
    assert source.data["number"].dtype == jnp.int32


@every_source
def test_later_changes_of_the_data_are_not_seen(name: str) -> None:
    memory = np.zeros(2**16 + 64, np.uint8)
    data = memory[-memory.ctypes.data % 64 :][: 2**16].view(np.float32)  # aligned, so JAX could share it
    source = SOURCES[name](data, 5)
    data[:] = 1
    assert not np.any(source.some_rows(2**14))


# ---- which way of reading, and how wide --------------------------------------------------------


@pytest.mark.parametrize(("num_rows", "appetite"), [(1250, 1), (2500, 2), (6250, 5)])
def test_auto_reads_windows_from_1250_rows_per_row_of_a_look_on(num_rows: int, appetite: int) -> None:
    assert Shuffled(np.zeros(num_rows, np.float32), 1).suited(appetite).windows is True
    assert Shuffled(np.zeros(num_rows - 1, np.float32), 1).suited(appetite).windows is False
    assert Shuffled(np.zeros(num_rows, np.float32), 1).suited(num_rows).windows is True
    assert Shuffled(np.zeros(num_rows, np.float32), 1, windows=False).suited(1).windows is False


def test_the_kernel_settles_windows_by_the_batch_of_its_test() -> None:
    """Not by the source's: windows of 500 of 12,500 rows would have variances off by a fifth."""
    source = Shuffled(np.random.default_rng(SEED).standard_normal(12_500).astype(np.float32), 10)
    posterior = Posterior(lambda t: -(t**2) / 2, lambda t, row: t * row)
    for batch, expected in ((500, False), (11, False), (10, True)):
        test = Austere(0.01, batch=batch)
        kernel = MetropolisHastings(posterior, source, proposal=RandomWalk(0.1), acceptance=test)
        assert kernel.width == batch
        assert kernel.source.windows is expected
        source = kernel.source  # the next kernel decides anew


def test_what_windows_need_is_kept_where_they_are_chosen_anew() -> None:
    """The first rows again after the last: a source that one kernel reads row by row, another reads in windows."""
    data = np.arange(12_500, dtype=np.float32)
    settled = Shuffled(data, 10).suited(500).reweighted(exact=[7])
    assert settled.windows is False
    assert settled.suited(1).windows is True
    assert len(settled.data) == len(Shuffled(data, 10).reweighted(exact=[7]).data)
    assert Shuffled(data, 10, windows=False).suited(1).windows is False


@every_source
@pytest.mark.parametrize(("columns", "widest"), [(1, 8192), (8, 8192), (16, 4096), (100, 655), (512, 128), (4000, 128)])
def test_windows_of_wide_rows_are_narrower(name: str, columns: int, widest: int) -> None:
    source = replace(SOURCES[name](np.zeros((2, columns), np.float32), 1), num_rows=20_000)
    for appetite in (1, 5, 100, 128, 5000, 19_999, 20_000):
        width = source.width(appetite)
        looks = -(-appetite // width)
        assert 1 <= width <= min(appetite, widest)
        assert looks == -(-appetite // widest)
        assert looks * width < appetite + looks  # equal parts: hardly a row is read in vain


@without_replacement
def test_the_widest_window_fits_where_64_bit_data_become_narrower(name: str) -> None:
    num_rows = 1000
    source = SOURCES[name](np.arange(num_rows, dtype=np.float64)[:, None] * np.ones(100), 500)
    width = source.width(500)
    plain = replace(source, data=source.data[:, 0].astype(jnp.int32))
    for seed in range(8):
        numbers, _ = read(plain, begin(plain, seed), [num_rows], width)
        assert_each_once(numbers, num_rows)
