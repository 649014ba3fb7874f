"""Every row once: in blocks on the device, added up on the host.

The width of a block depends on the device. On a CPU its rows, and the numbers made from them, should stay in the cache;
an accelerator needs hundreds of thousands of rows at a time. Numbers per row and their sums over one block are in JAX's
precision (float32 by default); the sums of the blocks are added up in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tallchain.cores import in_order, num_cores
from tallchain.crew import Crew, current
from tallchain.functions import calls_lapack, program
from tallchain.parts import part
from tallchain.sources.rows import row_bytes
from tallchain.types import Array, Block, PyTree, Source

_BYTES, _BYTES_ELSEWHERE = {"cpu": 2**22}, 2**28  # of data in a block, times the lanes that work on it
_WIDEST, _WIDEST_ELSEWHERE = {"cpu": 2**13}, 2**20  # rows of a block
_NARROWEST = 128
_BLOCKS = 64  # in one dispatch, at most
_RESULTS = 2**24  # numbers that one dispatch may return


def add(total: Any, summaries: Any) -> Any:
    """Add up the summaries of some blocks, in float64; if one is not finite, neither is the sum."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).sum(0), summaries)
        return sums if total is None else jax.tree.map(np.add, total, sums)


class Piece(NamedTuple):
    """Some of the rows of a source, all that one of its sweeps has in memory at a time."""

    data: PyTree
    share: Array | None = None
    begin: int = 0
    """Number of the first row."""
    num_before: int = 0
    """How many of the first rows were in the piece before."""
    device: Any = None
    """Where the rows are; None for JAX's default device."""


def sweep(
    summarise: Callable[[Block], PyTree], merge: Callable[[Any, Any], Any], pieces: Iterable[Piece], **options: Any
) -> Any:
    """Summarise the rows of all pieces, and merge the summaries; the options are those of `sweep_pieces`."""
    total = None
    for of_piece in sweep_pieces(summarise, pieces, **options):
        for summaries in of_piece:
            total = merge(total, summaries)
    return total


def sweep_pieces(
    summarise: Callable[[Block], PyTree],
    pieces: Iterable[Piece],
    *,
    num_rows: int,
    num_exact: int = 0,
    lanes: int = 1,
    results: int = 1,
    report: Callable[[int], None] | None = None,
) -> Iterator[Iterator[PyTree]]:
    """Yield the summaries of every piece, of some blocks at a time.

    Args:
        summarise: see `Source.sweep`.
        pieces: of one shape.
        num_rows: of each piece to summarise, its first ones.
        num_exact: how many of these every decision reads.
        lanes: see `Source.sweep`.
        results: see `Source.sweep`.
        report: see `Source.sweep`.
    """
    runs: dict[Any, _Run] = {}
    done = 0
    for piece in pieces:
        if piece.device not in runs:
            runs[piece.device] = _Run(summarise, piece, num_rows, num_exact, lanes, results)

        def summaries(piece: Piece = piece, before: int = done) -> Iterator[PyTree]:
            for rows, found in runs[piece.device](piece):
                yield found
                if report is not None:
                    report(before + rows - piece.num_before)

        yield summaries()
        done += num_rows - piece.num_before
        del piece  # before the next one is made


def merged(pieces: Iterable[tuple[int, Iterable[PyTree]]], merge: Callable[[Any, Any], Any]) -> Any:
    """Merge the summaries of pieces by number, those of other processes too.

    Sums are made piece by piece, and then added up: so they do not depend on who has which piece.
    """
    crew, is_sum = current(), merge is add
    held: dict[int, list[Any]] = {}
    for number, summaries in pieces:
        if is_sum:
            total = None
            for found in summaries:
                total = add(total, found)
            held[number] = [jax.tree.map(lambda leaf: leaf[None], total)]
        else:
            held[number] = list(summaries)
    if crew is not None:
        held = _of_all(crew, held)
    total = None
    for number in sorted(held):
        for found in held[number]:
            total = merge(total, found)
    return total


def _of_all(crew: Crew, held: dict[int, list[Any]]) -> dict[int, list[Any]]:
    """Exchange the summaries of pieces with the other processes."""
    counts = [(number, len(of)) for number, of in held.items()]
    leaves = [np.asarray(leaf) for of in held.values() for each in of for leaf in jax.tree.leaves(each)]
    structure = jax.tree.structure(next(iter(held.values()))[0])
    size = structure.num_leaves
    found: dict[int, list[Any]] = {}
    for places, *arrays in crew.gather_arrays("a sweep", [np.array(counts, np.int64), *leaves]):
        at = 0
        for number, count in places.tolist():
            trees = [jax.tree.unflatten(structure, arrays[at + size * k : at + size * (k + 1)]) for k in range(count)]
            found[number], at = trees, at + size * count
    return found


class _Run:
    """A compiled program, and how to run it on pieces of one shape."""

    def __init__(self, summarise: Any, piece: Piece, num_rows: int, num_exact: int, lanes: int, results: int) -> None:
        self._num_rows, self._width = num_rows, block_width(piece.data, num_rows, lanes)
        self._num_blocks, threads = -(-num_rows // self._width), num_threads()
        most = min(max(_RESULTS // results, 1), _BLOCKS)
        rounds = -(-self._num_blocks // (most * threads))
        # All dispatches have one size, so that they share a program.
        self._blocks = -(-self._num_blocks // (rounds * threads))
        sizes = {"num_rows": num_rows, "num_exact": num_exact, "width": self._width, "blocks": self._blocks}
        # Compiled here: JAX's settings, such as 64 bits, are those of a thread.
        self._summarise = jax.device_put(summarise, piece.device)
        data = jax.device_put((piece.data, piece.share), piece.device)
        traced = _summaries.trace(self._summarise, *data, np.zeros(3, np.int32), **sizes)
        self._compiled, self._threads = traced.lower().compile(), 1 if calls_lapack(traced) else threads

    def __call__(self, piece: Piece) -> Iterator[tuple[int, Any]]:
        """Yield rows done and summaries, dispatch by dispatch; blocks without new rows are left out."""
        data = jax.device_put((piece.data, piece.share), piece.device)

        def found(first: int) -> PyTree:
            places = np.array([first, piece.begin, piece.num_before], np.int32)
            summaries = self._compiled(self._summarise, *data, places)
            return jax.tree.map(lambda leaf: np.asarray(leaf)[: self._num_blocks - first], summaries)

        firsts = range(piece.num_before // self._width, self._num_blocks, self._blocks)
        for first, summaries in zip(firsts, in_order(found, firsts, self._threads), strict=True):
            yield min((first + self._blocks) * self._width, self._num_rows), summaries


def num_threads() -> int:
    """One for each core; on an accelerator two, so that one result is copied while the next is computed."""
    return num_cores() if jax.default_backend() == "cpu" else 2


@part
class _RowAt:
    index: Array

    def __call__(self, block: Block) -> PyTree:
        at = block.is_valid & (block.index == self.index)
        return jnp.any(at), jax.tree.map(lambda leaf: leaf[jnp.argmax(at)], block.rows)


def row_at(source: Source, index: int) -> PyTree:
    """Return the row that a source keeps at an index, by a sweep: for messages."""

    def found(row: Any, blocks: Any) -> Any:
        is_here, rows = blocks
        at = int(np.argmax(is_here))
        return jax.tree.map(lambda leaf: leaf[at], rows) if is_here[at] else row

    return source.sweep(_RowAt(jnp.int32(index)), found)


def block_width(data: PyTree, num_rows: int, lanes: int) -> int:
    """Return the rows of a block."""
    backend = jax.default_backend()
    room = _BYTES.get(backend, _BYTES_ELSEWHERE) // max(row_bytes(data) * lanes, 1)
    return min(num_rows, max(_NARROWEST, min(room, _WIDEST.get(backend, _WIDEST_ELSEWHERE))))


@program(static_argnames=("num_rows", "num_exact", "width", "blocks"))
def _summaries(
    summarise: Callable[[Block], PyTree],
    data: PyTree,
    share: Array | None,
    places: Array,
    *,
    num_rows: int,
    num_exact: int,
    width: int,
    blocks: int,
) -> PyTree:
    """Summarise some blocks, one after another; blocks beyond the last row have no valid entry.

    Places are the number of the first block, that of the first row of the data, and how many rows were summarised
    before.
    """
    first, offset, num_before = places[0], places[1], places[2]

    def one(_: None, at: Array) -> tuple[None, PyTree]:
        # The last block begins early, to be as wide as the others. (Written so as not to exceed 2^31.)
        begin = jnp.minimum(first + at, num_rows // width) * width
        start = jnp.minimum(begin, num_rows - width)
        index = start + jnp.arange(width)
        is_valid = (index >= jnp.maximum(begin, num_before)) & (first + at < -(-num_rows // width))
        rows, shares = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, width), (data, share))
        shares = jnp.ones(width, jnp.result_type(float)) if shares is None else shares
        return None, summarise(Block(rows, offset + index, is_valid, shares, index >= num_exact))

    return lax.scan(one, None, jnp.arange(blocks))[1]
