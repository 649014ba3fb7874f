"""Hand-made chunks of draws, packed as the lockstep engine records them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallchain.lockstep import Drawn
from tallchain.packing import Chunk, pack
from tallchain.types import Verdict


def chunk_of(position: Any, groups: int = 1, **fields: np.ndarray) -> Chunk:
    """Pack draws (chain, slot, ...) and fields of their verdicts, as of chains in equal groups; zeros by default."""
    shape = np.shape(jax.tree.leaves(position)[0])[:2]
    kinds = {"is_accepted": bool, "rows_read": np.int32, "rows_scanned": np.int32, "log_ratio": np.float32}
    zeros = {name: np.zeros(shape, kind) for name, kind in (kinds | {"is_invalid": bool}).items()}
    drawn = Drawn(position, Verdict(**(zeros | fields), extras={}))
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), drawn)
    flat = jax.tree.map(lambda leaf: jnp.asarray(leaf.reshape(-1, *leaf.shape[2:])), drawn)
    words = np.asarray(pack(flat)).reshape(*shape, -1)
    return Chunk([jnp.asarray(part) for part in np.split(words, groups)], like)


def chunks_of(
    draws: Any, slots: int, steps: np.random.Generator | None = None, groups: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray, Chunk]]:
    """Divide draws (chain, draw, ...) into chunks; yield the draws finished before and after, and the chunk.

    With `steps`, every chain has a random number of draws in a chunk, perhaps none.
    """
    chains, length = np.shape(jax.tree.leaves(draws)[0])[:2]
    before = np.zeros(chains, np.int64)
    while before.min() < length:
        made = np.full(chains, slots) if steps is None else steps.integers(0, slots + 1, chains)
        after = np.minimum(before + made, length)
        at = before[:, None] + np.arange(slots)
        rest = at >= after[:, None]  # slots that were not used are 0

        def cut(leaf: np.ndarray, at: np.ndarray = at, rest: np.ndarray = rest) -> np.ndarray:
            found = leaf[np.arange(chains)[:, None], np.minimum(at, length - 1)]
            found[rest] = 0
            return found

        yield before, after, chunk_of(jax.tree.map(cut, draws), groups)
        before = after
