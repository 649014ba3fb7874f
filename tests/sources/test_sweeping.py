"""Every row once: the same sums whatever the blocks, the source and the weights of its rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from registry import SOURCES
from tallchain.parts import part
from tallchain.sources import Shuffled, WithReplacement, sweeping
from tallchain.types import Block

NUM_ROWS = 1003
RANDOM = np.random.default_rng(4)
DATA = {"x": RANDOM.normal(size=(NUM_ROWS, 3)).astype(np.float32), "n": np.arange(NUM_ROWS, dtype=np.int32)}
EXACT = np.array([7, 1002, 500, 0])
COPIES = 1 + np.arange(NUM_ROWS) % 4


@part
class Sums:
    """Of a block: sums of the numbers, of x, and how many rows count."""

    factor: Any = 1.0

    def __call__(self, block: Block) -> dict[str, Any]:
        weight = jnp.where(block.is_valid, block.share, 0)
        return {
            "n": jnp.sum(weight * block.rows["n"]),
            "x": self.factor * jnp.sum(weight[:, None] * block.rows["x"], 0),
            "weight": jnp.sum(weight),
            "sampled": jnp.sum(block.is_valid & block.is_sampled),
        }


def sources() -> dict[str, Any]:
    plain = {name: make(DATA, 10) for name, make in SOURCES.items()}
    return plain | {
        f"{name}, {label}": source.reweighted(**weights)
        for name, source in plain.items()
        for label, weights in {
            "exact": {"exact": EXACT},
            "copies": {"copies": COPIES},
            "both": {"exact": EXACT, "copies": COPIES},
        }.items()
    }


@pytest.fixture(params=[None, 128, 250])
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Blocks of these rows, in dispatches of three: the last one is not full, and some are beyond the last row."""
    if request.param:
        monkeypatch.setattr(sweeping, "_WIDEST", {"cpu": request.param})
        monkeypatch.setattr(sweeping, "_BLOCKS", 3)
    return request.param


@pytest.mark.parametrize("name", sources())
def test_adds_up_every_row_once(name: str, narrow: int | None) -> None:
    source = sources()[name]
    found = source.sweep(Sums())
    assert found["n"].dtype == found["x"].dtype == np.float64
    assert found["weight"] == pytest.approx(NUM_ROWS, rel=1e-6)
    assert found["n"] == pytest.approx(DATA["n"].sum(), rel=1e-6)
    np.testing.assert_allclose(found["x"], DATA["x"].sum(0, dtype=np.float64), atol=1e-3)
    assert found["sampled"] == source.population.num_rows


def test_the_check_refuses_rows_that_count_twice(narrow: int | None) -> None:
    @part
    class Unweighted:
        def __call__(self, block: Block) -> Any:
            return jnp.sum(block.rows["n"])

    is_right = Shuffled(DATA, 10).sweep(Unweighted()) == pytest.approx(DATA["n"].sum(), rel=1e-6)
    assert is_right == (narrow is None)  # one block holds no row twice
    assert Shuffled(DATA, 10).reweighted(copies=COPIES).sweep(Unweighted()) > 1.5 * DATA["n"].sum()


@pytest.mark.parametrize("name", SOURCES)
def test_rows_keep_their_names(name: str, narrow: int | None) -> None:
    """`order` says which row of the data each of the source's rows is."""

    @part
    class Numbers:
        def __call__(self, block: Block) -> Any:
            return block.index, block.rows["n"]

    source = SOURCES[name](DATA, 10)
    held = np.full(NUM_ROWS, -1)

    def keep(_: None, found: tuple[np.ndarray, np.ndarray]) -> None:
        held[found[0].ravel()] = found[1].ravel()

    assert source.sweep(Numbers(), keep) is None
    np.testing.assert_array_equal(held, source.order())
    assert sweeping.row_at(source, 1002)["n"] == held[1002]
    assert source.reweighted(exact=EXACT).order() is None


def test_reports_and_may_be_ended(narrow: int | None) -> None:
    seen: list[int] = []
    WithReplacement(DATA, 10).sweep(Sums(), report=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == NUM_ROWS

    def end(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        WithReplacement(DATA, 10).sweep(Sums(), report=end)


def test_what_is_swept_with_is_an_argument() -> None:
    """Another number of the same shape, or another shuffle, compiles nothing."""
    count = sweeping._summaries._others._cache_size
    Shuffled(DATA, 10).sweep(Sums(jnp.float32(1.0)))
    before = count()
    found = Shuffled(DATA, 10, seed=3).sweep(Sums(jnp.float32(2.0)))
    assert count() == before
    np.testing.assert_allclose(found["x"], 2 * DATA["x"].sum(0, dtype=np.float64), atol=1e-3)


def test_blocks_are_as_wide_as_the_device_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"x": jax.ShapeDtypeStruct((10**7, 20), jnp.float32)}
    assert sweeping.block_width(data, 10**7, lanes=1) == 8192
    assert sweeping.block_width(data, 10**7, lanes=128) == 2**22 // (80 * 128)
    assert sweeping.block_width(data, 100, lanes=1) == 100
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert sweeping.block_width(data, 10**7, lanes=1) == 2**20
    assert sweeping.block_width(data, 10**7, lanes=128) == 2**28 // (80 * 128)
