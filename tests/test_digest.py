"""What a device makes of the draws of a chunk, against loops over the draws."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import SEED
from records import chunk_of
from tallchain import digest
from tallchain.digest import COUNTED, Shapes, Span, power_of_two

CHAINS, SLOTS, WARMUP = 6, 16, 20
# Some chains are in the warm-up, some leave it in this chunk, some have left it; one has no draw in the chunk.
BEFORE = np.array([0, 12, 20, 31, 15, 9])
AFTER = np.array([16, 28, 25, 47, 15, 21])


def made(chain: int) -> list[tuple[int, int]]:
    """Slot and number after the warm-up of the draws of one chain."""
    return [(slot, int(BEFORE[chain]) + slot - WARMUP) for slot in range(AFTER[chain] - BEFORE[chain])]


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("thin", [1, 2, 3, 5, 16, 40])
def test_every_kth_draw_from_the_first_after_the_warm_up(thin: int, groups: int) -> None:
    numbers = (1000.0 * np.arange(CHAINS)[:, None] + np.arange(SLOTS)).astype(np.float32)
    chunk = chunk_of(numbers, groups)
    kept = power_of_two(-(-SLOTS // thin))
    found = []
    for group in Span.by_record(chunk, BEFORE, AFTER, WARMUP):
        words = digest.thinned(group.record, group.span, np.int32(thin), kept=kept)
        assert words.shape[:2] == (CHAINS // groups, kept)
        found += list(chunk.unpack(np.asarray(words)).position)
    for chain in range(CHAINS):
        wanted = [numbers[chain, slot] for slot, number in made(chain) if number >= 0 and number % thin == 0]
        assert found[chain][: len(wanted)].tolist() == wanted


@pytest.mark.parametrize("most", [2**31 - 1, 2**16, 255, 1])
def test_decisions_are_added_up_by_phase(most: int) -> None:
    random = np.random.default_rng(SEED)
    shape = (CHAINS, SLOTS)
    rows = {name: random.integers(most // 2, most, shape, np.int32, endpoint=True) for name in COUNTED[1:3]}
    truths = {name: random.random(shape) < 0.5 for name in ("is_accepted", "is_invalid", "is_infinite")}
    fields = rows | truths
    log_ratio = np.where(fields["is_infinite"], np.inf, 0).astype(np.float32)
    recorded = {name: values for name, values in fields.items() if name != "is_infinite"}
    chunk = chunk_of(np.zeros(shape, np.float32), log_ratio=log_ratio, **recorded)
    ((record, _, span, _),) = Span.by_record(chunk, BEFORE, AFTER, WARMUP)
    found = np.asarray(digest.sums(record, span, shapes=Shapes.of(chunk.like)), np.int64)
    assert found.shape == (CHAINS, 2, len(COUNTED), 4)
    for chain in range(CHAINS):
        for phase in (0, 1):
            slots = [slot for slot, number in made(chain) if (number >= 0) == bool(phase)]
            for i, name in enumerate(COUNTED):
                wanted = sum(int(fields[name][chain, slot]) for slot in slots)
                assert sum(int(part) << 8 * k for k, part in enumerate(found[chain, phase, i])) == wanted


def test_a_very_long_chunk_does_not_overflow() -> None:
    """Where the lower 16 bits of all numbers, added up, have 33."""
    slots = 2**16 + 2
    chunk = chunk_of(np.zeros((1, slots), np.float32), rows_read=np.full((1, slots), 2**16 - 1, np.int32))
    ((record, _, span, _),) = Span.by_record(chunk, np.zeros(1, int), np.full(1, slots), 0)
    found = np.asarray(digest.sums(record, span, shapes=Shapes.of(chunk.like)), np.int64)
    assert int((found[0, 1, 1] << 8 * np.arange(4)).sum()) == slots * (2**16 - 1)


def test_least_and_greatest_of_the_finite_draws_after_the_warm_up() -> None:
    draws = np.random.default_rng(SEED).normal(size=(CHAINS, SLOTS, 2)).astype(np.float32)
    counted = [draws[chain, slot] for chain in range(CHAINS) for slot, number in made(chain) if number >= 0]
    wild = draws.copy()
    for chain in range(CHAINS):  # what does not count is large
        slots = {slot for slot, number in made(chain) if number >= 0}
        wild[chain, [slot for slot in range(SLOTS) if slot not in slots]] = 1e9 * (-1) ** chain
    wild[3, 5:8, 0] = np.nan, np.inf, -np.inf
    kept = [row for row in np.array(counted)[:, 0] if row not in draws[3, 5:8, 0]]
    chunk = chunk_of(wild)
    ((record, _, span, _),) = Span.by_record(chunk, BEFORE, AFTER, WARMUP)
    least, most = (np.asarray(of) for of in digest.extent(record, span, shapes=Shapes.of(chunk.like)))
    assert (least[0], most[0]) == (min(kept), max(kept))
    assert (least[1], most[1]) == (np.array(counted)[:, 1].min(), np.array(counted)[:, 1].max())
    none = span._replace(after=span.before)
    least, most = (np.asarray(of) for of in digest.extent(record, none, shapes=Shapes.of(chunk.like)))
    assert np.isfinite([least, most]).all()
    assert (least > most).all()


@pytest.mark.parametrize(("number", "power"), [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128)])
def test_powers_of_two(number: int, power: int) -> None:
    assert power_of_two(number) == power
