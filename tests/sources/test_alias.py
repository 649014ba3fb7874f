"""Rows drawn by weight: the law of the table, and of the rows that a source gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from conftest import SEED
from tallchain import Shuffled, WithReplacement
from tallchain.parts import part
from tallchain.sources.alias import _high_product, make_alias
from tallchain.types import Ask, Block

WEIGHTS = {
    "alike": np.ones,
    "spread": lambda n: np.random.default_rng(1).exponential(size=n) ** 3 + 1e-6,
    "one": lambda n: np.where(np.arange(n) == n // 2, 1e6, 1.0),
    "falling": lambda n: 1.0 / (1 + np.arange(n)),
}


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, 70_001])
@pytest.mark.parametrize("name", WEIGHTS)
def test_law_of_the_table(name: str, count: int) -> None:
    """Near the weights asked for, and a law: what the integers of the table give, added up."""
    weights = WEIGHTS[name](count)
    table, law = make_alias(weights)
    assert law.sum() == pytest.approx(1, abs=1e-10)
    assert law.min() > 0
    np.testing.assert_allclose(law, weights / weights.sum(), rtol=0, atol=2e-7 + 2e-5 / count)
    assert table.min() >= 0
    assert table[:, 0].max() <= 2**24
    assert table[:, 1].max() < count


@pytest.mark.parametrize("is_shuffled", [True, False])
def test_law_of_tables_by_block(is_shuffled: bool) -> None:
    """Of rows in random order each block has its own, and the law is still that of the integers; else one has all."""
    count = 300_000
    weights = np.random.default_rng(2).gamma(2.0, size=count).astype(np.float32)
    weights = weights if is_shuffled else np.sort(weights)
    table, law = make_alias(weights)
    assert (np.abs(table[:, 1] - np.arange(count)).max() < 2**17) == is_shuffled
    np.testing.assert_allclose(law * weights.sum(dtype=float) / weights, 1, atol=0.03 if is_shuffled else 2e-2)
    ends = [-(-(k << 32) // count) for k in range(count + 1)]
    words, share = np.diff(ends) / 2**32, table[:, 0] / 2**24
    expected = words * share
    np.add.at(expected, table[:, 1], words * (1 - share))
    np.testing.assert_allclose(law, expected, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 7, 65_537, 1_000_003, 2**31 - 20_000])
def test_products_of_words(count: int) -> None:
    words = np.random.default_rng(SEED).integers(0, 2**32, 1000, dtype=np.uint32)
    words[:3] = 0, 1, 2**32 - 1
    found = np.asarray(_high_product(jnp.asarray(words), count))
    np.testing.assert_array_equal(found, [int(word) * count >> 32 for word in words])


def rows_of(source: WithReplacement, looks: int, width: int) -> np.ndarray:
    """Values of rows, each its number, times N p_i: what `share` takes away."""

    def look(key: jax.Array) -> jax.Array:
        cursor = source.start(source.draw(key))
        return source.look(cursor, Ask(jnp.int32(width)), width, lambda row: row, lambda values, _: values)[1].evidence

    return np.asarray(jax.vmap(look)(jax.random.split(jax.random.key(SEED), looks)))


def test_rows_come_by_their_weights() -> None:
    """Each as 1/(N p_i) of a row; by a chi-square test."""
    weights = WEIGHTS["falling"](50)
    source = WithReplacement(np.ones(50, np.float32), 4, weights=weights)
    shares = np.asarray(source.share)
    found = rows_of(source, 20_000, 4).ravel()
    counts = np.array([np.sum(np.isclose(found, share, rtol=1e-5)) for share in shares])
    assert counts.sum() == len(found)
    assert stats.chisquare(counts, len(found) * weights / weights.sum()).pvalue > 1e-4
    assert found.mean() == pytest.approx(1, abs=4.5 * float(found.std()) / len(found) ** 0.5)
    wrong = np.roll(weights, 1)
    assert stats.chisquare(counts, len(found) * wrong / wrong.sum()).pvalue < 1e-9


def _both(values: jax.Array, is_valid: jax.Array) -> tuple[jax.Array, jax.Array]:
    return values, is_valid


@part
class _Total:
    """The sum of a block."""

    def __call__(self, block: Block) -> jax.Array:
        return jnp.sum(jnp.where(block.is_valid, block.share * block.rows, 0))


def test_a_census_has_every_row_once_and_whole() -> None:
    source = WithReplacement(np.arange(10, dtype=np.float32), 4, weights=1 + np.arange(10))
    cursor, seen = source.start(source.draw(jax.random.key(0))), []
    for left in (10, 6, 2):
        ask = Ask(jnp.int32(left), census=jnp.array(True))
        cursor, look = source.look(cursor, ask, 4, lambda row: row, _both)
        values, is_valid = map(np.asarray, look.evidence)
        seen += values[is_valid].tolist()
    assert seen == list(range(10))
    _, wide = source.look_widely(source.start(jax.random.key(0)), Ask(jnp.int32(10)), lambda row: row, _both)
    assert np.asarray(wide.evidence[0])[:10].tolist() == list(range(10))
    assert source.sweep(_Total()) == 45


def test_rows_of_a_shuffled_source_know_their_order() -> None:
    data = np.arange(100, dtype=np.float32)
    shuffled = Shuffled(data, 5, seed=3)
    source = WithReplacement.of_stored(shuffled, 4, 1 + np.arange(100))
    assert source.data is shuffled.data
    np.testing.assert_array_equal(source.order(), shuffled.order())
    with pytest.raises(ValueError, match="have weights"):
        source.reweighted(exact=[3])
