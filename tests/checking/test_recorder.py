"""What an interrupted run hands back: which chains, how many draws of each, and what is said of the others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallchain.checking.recorder import Recorder, largest
from tallchain.checking.trace import Trace
from tallchain.lockstep import Drawn
from tallchain.packing import Chunk, pack
from tallchain.types import Verdict


@pytest.mark.parametrize(
    ("finished", "chains", "count"),
    [
        ([7, 7, 7], [0, 1, 2], 7),
        ([0, 5, 5], [1, 2], 5),
        ([0, 0, 0], [0, 1, 2], 0),
        ([9, 8, 10, 9], [0, 1, 2, 3], 8),  # four times 8: nobody is left out to gain a few
        ([5, 10, 10], [0, 1, 2], 5),
        ([4, 10, 10, 10], [0, 1, 2, 3], 4),
        ([3, 10, 10, 10], [1, 2, 3], 10),
        ([1] + [1000] * 63, list(range(1, 64)), 1000),
        ([1, 2, 1000], [2], 1000),
        ([0, 1], [1], 1),
    ],
)
def test_chains_and_draws_to_keep(finished: list[int], chains: list[int], count: int) -> None:
    found, draws = largest(np.array(finished))
    assert found.tolist() == chains
    assert draws == count


def recorded(finished: list[int], warmup: int = 2, samples: int = 1000) -> Recorder:
    """Chain c is at 100 c + its draw."""
    recorder = Recorder(1000, len(finished), samples, warmup)
    shape = (len(finished), max(finished) + warmup)
    draws = 100.0 * np.arange(len(finished))[:, None] + np.arange(-warmup, shape[1] - warmup)
    no = np.zeros(shape, bool)
    verdict = Verdict(no, no + 50, no * 0, no * 0.0, no, {})
    drawn = jax.tree.map(jnp.asarray, Drawn(draws, verdict))
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((), leaf.dtype), drawn)
    words = np.asarray(pack(jax.tree.map(jnp.ravel, drawn))).reshape(*shape, -1)
    recorder.add(np.array(finished) + warmup, Chunk([words], like))()
    return recorder


def test_a_chain_far_behind_does_not_cost_the_others_their_draws() -> None:
    trace = recorded([60, 1, 50, 0]).trace(0.0, is_interrupted=True)
    assert trace.left_out == {1: 1, 3: 0}
    np.testing.assert_array_equal(trace.position, np.array([[0], [200]]) + np.arange(50))
    assert trace.is_accepted.shape == (2, 50)
    (said,) = trace.complaints()
    assert said.startswith(
        "chain 3 had no finished draw and is left out; chain 1 had 1 draw, far fewer than the others, and is left out"
    )


def test_all_chains_where_lanes_must_stay_in_place() -> None:
    assert recorded([60, 1, 50]).draws_of_every_chain().position.shape == (3, 1)


def test_many_chains_are_named_briefly() -> None:
    fields = {"is_accepted": np.zeros((1, 1), bool), "rows_read": np.full((1, 1), 50)}
    fields |= dict.fromkeys(("rows_scanned", "log_ratio", "is_invalid"), np.zeros((1, 1)))
    words = Trace(np.zeros((1, 1)), num_rows=99, left_out=dict.fromkeys(range(3, 40), 0), **fields).complaints()[0]
    assert words.startswith("37 chains (the first is chain 3) had no finished draw and are left out")
