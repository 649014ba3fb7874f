"""Rows of packed tables: every row in sweeps, a part at a time in decisions, and draws from the right posterior."""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from conftest import SEED
from tallchain import chunks, runner
from tallchain.checkpoints import container
from tallchain.checkpoints.folder import STATE
from tallchain.parts import part
from tallchain.rounds import Rounds
from tallchain.sources import Packed
from tallchain.sources.columns import Columns
from tallchain.sources.manifest import MANIFEST, Manifest, PackError
from tallchain.sources.out_of_core import pack_blocks
from tallchain.sources.packed import bytes_of
from tallchain.types import Block

ROWS, PARTS, TEMPERATURE = 20_003, 4, 100.0


def numbers() -> np.ndarray:
    """Outcomes of a normal distribution, sorted: the worst order there is."""
    return np.sort(np.random.default_rng(SEED).normal(1, 2, ROWS)).astype(np.float32)


def blocks() -> Iterator[Mapping[str, np.ndarray]]:
    y, number = numbers(), np.arange(ROWS, dtype=np.int32)
    for first in range(0, ROWS, 3000):
        some = slice(first, first + 3000)
        yield {"y": y[some], "number": number[some], "wide": np.stack([y[some], -y[some]], 1).astype(float)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "rows"
    pack_blocks(blocks, path, num_rows=ROWS, num_shards=3, seed=SEED)
    return path


def posterior() -> tc.Posterior:
    return tc.Posterior(
        log_prior=lambda mean: jnp.zeros(()),
        log_likelihood=lambda mean, y: -((y - mean) ** 2) / 8,
        temperature=TEMPERATURE,
    )


def kernel(source: Any) -> tc.MetropolisHastings:
    walk = tc.RandomWalk(1.5 * np.sqrt(4 * TEMPERATURE / ROWS))
    return tc.MetropolisHastings(posterior(), source, proposal=walk, acceptance=tc.acceptance.Penalty())


def drawn(source: Any, **options: Any) -> tc.Trace:
    options = {"num_chains": 32, "num_warmup": 50, "scan": 0, "progress": False} | options
    return tc.sample(jr.key(SEED), kernel(source), jnp.float32(1.0), 800, **options)


def z_of(trace: tc.Trace) -> tuple[float, float]:
    """How far mean and variance are from the closed form, in Monte Carlo errors."""
    draws, variance = np.asarray(trace.position, np.float64), 4 * TEMPERATURE / ROWS
    mean = numbers().mean(dtype=np.float64)
    found = []
    for of, right in ((draws, mean), ((draws - mean) ** 2, variance)):
        by_chain = of.mean(1)
        found.append(float((by_chain.mean() - right) / (by_chain.std(ddof=1) / np.sqrt(len(by_chain)))))
    return found[0], found[1]


@part
class Collected:
    """Numbers of the rows of a block, and what says which of them count."""

    def __call__(self, block: Block) -> Any:
        return block.index, block.is_valid, block.rows


@pytest.mark.parametrize("parts", [1, 4, 7])
def test_a_sweep_has_every_row_once_and_in_order(folder: Path, parts: int) -> None:
    source, seen = Packed(folder, parts=parts), []

    def keep(_: Any, found: Any) -> None:
        index, is_valid, rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), found)
        seen.append((index[is_valid], rows["number"][is_valid], rows["wide"][is_valid]))

    source.sweep(Collected(), keep)
    index, number, wide = (np.concatenate(each) for each in zip(*seen, strict=True))
    np.testing.assert_array_equal(index, np.arange(ROWS))
    np.testing.assert_array_equal(np.sort(number), np.arange(ROWS))
    np.testing.assert_array_equal(wide[:, 0], numbers()[number])
    assert source.population.is_part == (parts > 1)


def test_draws_from_parts_in_turn_are_from_the_posterior(folder: Path) -> None:
    trace = drawn(Packed(folder, columns="y", parts=PARTS))
    assert trace.num_draws == 800
    assert trace.num_rows == ROWS
    assert max(map(abs, z_of(trace))) < 4
    assert "4 parts" in " ".join(trace.notes)


def test_negative_controls_fail(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are not random, and a part's own number of rows in place of all."""
    ordered = tmp_path / "ordered"
    pack_blocks(blocks, ordered, num_rows=ROWS, num_shards=1)
    path = ordered / "00000" / "y.npy"
    np.save(path, np.sort(np.load(path)))
    monkeypatch.setattr(Columns, "_check", lambda *_: None)
    assert max(map(abs, z_of(drawn(Packed(ordered, columns="y", parts=PARTS))))) > 8
    source = Packed(folder, columns="y", parts=PARTS)
    population = source.rows.population._replace(num_data=ROWS, is_part=False)
    wrong = type("Wrong", (Packed,), {"population": property(lambda _: population)})
    assert abs(z_of(drawn(part(wrong)(folder, columns="y", parts=PARTS)))[1]) > 8


def test_draws_do_not_depend_on_chunks_and_go_on_from_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    source = Packed(folder, columns="y", parts=PARTS)
    options: dict[str, Any] = {"num_chains": 8, "num_warmup": 30}
    first = drawn(source, **options)
    np.testing.assert_array_equal(first.position, drawn(source, chunk_size=37, **options).position)

    def stop(done: int, total: int) -> None:
        if done > 0.4 * total:
            raise KeyboardInterrupt

    cut = drawn(source, checkpoint=tmp_path / "run", progress=stop, chunk_size=16, **options)
    assert cut.is_interrupted
    assert "within a tour" in " ".join(cut.notes)
    again = drawn(Packed(folder, columns="y", parts=PARTS), checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(again.position, first.position)


def test_a_run_goes_on_where_some_chains_have_just_begun_a_round(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chains that are a draw ahead do not begin the round again."""
    for module, name in ((runner, "FEWEST_TURNS"), (chunks, "FEWEST_TURNS"), (chunks, "_MOST_TURNS")):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr("tallchain.checkpoints.run._SHARE", 0.0)  # a state after every chunk
    source, place = Packed(folder, columns="y", parts=PARTS), tmp_path / "run"

    def stop(done: int, total: int) -> None:
        if done > 8 * 20:
            raise KeyboardInterrupt

    def run(**more: Any) -> tc.Trace:
        more = {"num_chains": 8, "num_warmup": 10, "scan": 0, "progress": False} | more
        return tc.sample(jr.key(SEED), kernel(source), jnp.float32(1.0), 40, **more)

    run(checkpoint=place, progress=stop, chunk_size=1)
    drawn = container.read(place / STATE)[1]["draw"]
    assert drawn.min() == 20
    assert drawn.max() == 21
    np.testing.assert_array_equal(run(checkpoint=place).position, run().position)


@pytest.mark.slow
def test_prepare_says_how_far_parts_are_apart_and_refuses_small_ones(folder: Path) -> None:
    def robust(mean: Any, y: Any) -> Any:
        return -2.5 * jnp.log1p((y - mean) ** 2 / 16)

    own = tc.Posterior(lambda mean: -(mean**2) / 200, robust)
    prepared = tc.prepare(own, Packed(folder, columns="y", parts=PARTS), jnp.float32(1), progress=False)
    assert "4 in turn" in str(prepared)
    trace = tc.sample(jr.key(1), prepared.kernel(), prepared.starts(jr.key(2), 16), 100, num_chains=16, progress=False)
    assert trace.scan is not None
    assert 0 < trace.scan.part_error < 0.05
    assert "error of parts" in str(trace.summary())
    with pytest.raises(ValueError, match="rows of a part are too few"):
        tc.prepare(own, Packed(folder, columns="y", parts=100, most_error=1e-5), jnp.float32(1), progress=False)


def test_rounds_are_whole_tours(folder: Path) -> None:
    source = Packed(folder, columns="y", parts=PARTS)
    rounds = Rounds.of(kernel(source), 1001, 32, 30)
    assert rounds is not None
    assert rounds.num_samples >= 1001
    assert rounds.num_samples % (rounds.length * PARTS) == 0
    numbers = [int(rounds.divided(kernel(source), draw)[0].source.number) for draw in (30, 30 + rounds.length)]
    assert numbers == [0, 1]
    assert Rounds.of(kernel(tc.Shuffled(numbers_of(100), 10)), 100, 4, 0) is None


def numbers_of(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def changed(folder: Path, to: Path, change: Any) -> Path:
    shutil.copytree(folder, to)
    change(to / "00001" / "y.npy")
    return to


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def flipped(path: Path) -> None:
    held = bytearray(path.read_bytes())
    held[-5] ^= 4
    path.write_bytes(bytes(held))


def of_other_type(path: Path) -> None:
    np.save(path, np.load(path).astype(np.float64))


def missing(path: Path) -> None:
    values = np.load(path)
    values[17] = np.nan
    np.save(path, values)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut_short, "cut short"),
        (flipped, "checksum differs"),
        (of_other_type, "manifest says"),
        (missing, "NaN in column 'y'"),
        (Path.unlink, "cannot be read"),
        (piped, "cannot be read"),
    ],
)
def test_a_table_that_was_changed_is_refused(folder: Path, tmp_path: Path, change: Any, words: str) -> None:
    path = changed(folder, tmp_path / "rows", change)
    with pytest.raises(PackError, match=words):
        Packed(path, columns="y", parts=4).sweep(Collected(), lambda *_: None)


def test_parts_that_are_read_out_of_order_are_checked_too(folder: Path, tmp_path: Path) -> None:
    path = changed(folder, tmp_path / "rows", missing)
    source = Packed(path, columns="y", parts=PARTS)
    with pytest.raises(PackError, match="NaN in column 'y'"):
        source.at_part(2).at_part(1)


def test_a_table_that_goes_away_while_chains_run_costs_no_draws(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    shutil.copytree(folder, path)

    def remove(done: int, total: int) -> None:
        if done > 0.3 * total and path.exists():
            shutil.rmtree(path)

    with pytest.raises(tc.SamplingError, match="cannot be read as a column") as raised:
        drawn(Packed(path, columns="y", parts=8), progress=remove, chunk_size=16)
    assert raised.value.trace.num_draws >= 200


@part
class Stuck(Packed):
    """Chains never leave the first part."""

    def at_part(self, number: int) -> Stuck:
        return self


def test_an_audit_repeats_decisions_in_all_parts(folder: Path) -> None:
    """In one part alone it finds an error that cancels over whole tours."""
    target = tc.Posterior(lambda mean: jnp.zeros(()), lambda mean, y: -((y - mean) ** 2) / 8, temperature=1e4)
    for kind, is_sound in ((Packed, True), (Stuck, False)):
        source = kind(folder, columns="y", parts=PARTS)
        one = tc.MetropolisHastings(target, source, proposal=tc.RandomWalk(2.0), acceptance=tc.Metropolis())
        trace = tc.sample(jr.key(SEED), one, jnp.float32(1.0), 100, num_chains=16, num_warmup=20, progress=False)
        found = tc.audit(trace.kernel, trace, num_decisions=40, num_trials=16, progress=False)
        assert found.is_sound == is_sound
        assert found.num_trials == 16


@pytest.mark.filterwarnings("ignore::tallchain.SamplingWarning")
def test_a_test_that_reads_all_rows_of_a_part_is_not_called_exact(folder: Path) -> None:
    """And is scanned for how far the parts are apart."""
    for parts, is_exact in ((1, True), (PARTS, False)):
        source = Packed(folder, columns="y", parts=parts)
        walk = tc.RandomWalk(1.5 * np.sqrt(4 * TEMPERATURE / ROWS))
        metropolis = tc.MetropolisHastings(posterior(), source, proposal=walk, acceptance=tc.Metropolis())
        trace = tc.sample(jr.key(SEED), metropolis, jnp.float32(1.0), 8, num_chains=4, progress=False)
        assert trace.settings is not None
        assert trace.settings.is_exact == is_exact
        assert (trace.scan is None) == is_exact
    assert trace.scan is not None
    assert trace.scan.part_error > 0.1


def test_rows_go_when_their_source_does(folder: Path) -> None:
    """The programs compiled for it are kept, and must not keep the rows."""
    source = Packed(folder, columns="y", parts=PARTS)
    held = weakref.ref(source.held)
    tc.sample(jr.key(0), kernel(source), jnp.float32(1.0), 4, num_chains=2, scan=0, progress=False)
    del source
    gc.collect()
    assert held() is None


def test_bad_arguments_are_refused(folder: Path, tmp_path: Path) -> None:
    for options, words in (
        ({"columns": "z"}, "no column 'z'; there are 'y', 'number', 'wide'"),
        ({"parts": 0}, "parts=...)` must be a whole number from 1"),
        ({"memory": "lots"}, "4GB"),
        ({"batch_size": 10**6}, "rows of a part"),
        ({"most_error": 0}, "positive number"),
    ):
        with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")):
            Packed(folder, **options)
    with pytest.raises(PackError, match="no packed table"):
        Packed(tmp_path)
    with pytest.raises(ValueError, match="cannot be reweighted"):
        Packed(folder, columns="y").reweighted(exact=[1])


@pytest.mark.parametrize("source", [Packed, tc.sources.Sharded])
def test_more_rows_than_can_be_numbered_are_refused(source: Any, folder: Path, tmp_path: Path) -> None:
    """Before any of them is read."""
    manifest = Manifest.read(folder)
    more = manifest._replace(num_rows=2**31, shards=(manifest.shards[0]._replace(num_rows=2**31),))
    (tmp_path / MANIFEST).write_text(more.to_json())
    with pytest.raises(PackError, match="fewer than 2\\^31 rows, all parts together"):
        source(tmp_path, parts=4)


def test_amounts_of_memory() -> None:
    for text, value in (("4GB", 4e9), ("1.5 GiB", 1.5 * 2**30), ("200mb", 2e8), (1000, 1000), ("77", 77)):
        assert bytes_of("f", text) == value
