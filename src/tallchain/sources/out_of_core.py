"""Tables larger than memory as a directory of columns, in random order: shuffled once, out of core.

A decision reads rows of one shard, so shards must be random parts of all rows. Rows come in blocks, in the order of
the file. Of a block of n rows shard p gets a number that is multivariate hypergeometric in what the shards still lack,
and which of the rows is random: so every division of all rows into shards of these sizes is equally likely. Rows go to
a file of their shard as they come; each of these is then read, shuffled and written column by column. Twice the bytes
of the table are written and read, and memory holds a block and a shard.

    manifest.json                what there is, with checksums; written last
    00000/x.npy, 00000/y.npy     the columns of the first shard
"""

from __future__ import annotations

import contextlib
import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tallchain.sources.manifest import MANIFEST, NUMBERS, Column, Manifest, PackError, Shard, column_file
from tallchain.sources.unfinished import unfinished
from tallchain.validation import brief, is_whole

_SHARE = 4  # of memory for one shard: it is there twice while it is shuffled
_MOST_SHARDS = 1000  # files that are open at a time: systems allow 1024
_ODD = np.uint64(0x9E3779B97F4A7C15)

Blocks = Callable[[], Iterable[Mapping[str, np.ndarray]]]
"""Makes the blocks of a table: columns by name, of equal lengths; all blocks have the same columns and types."""


def pack_blocks(
    blocks: Blocks,
    output: str | os.PathLike[str],
    *,
    num_rows: int,
    levels: Mapping[str, Iterable[Any]] | None = None,
    num_shards: int | None = None,
    memory: int = 2**30,
    seed: int = 0,
    design: Mapping[str, Any] | None = None,
    report: Callable[[str, int], None] = lambda *_: None,
    work: Path | None = None,
) -> Manifest:
    """Write the rows of a table into a folder, in random order.

    Args:
        blocks: makes the blocks.
        output: a folder that does not exist yet, or is empty.
        num_rows: rows of all blocks.
        levels: labels of factors, by column: the column holds their numbers.
        num_shards: parts to divide the rows into; None for as few as the memory allows.
        memory: bytes to use, about.
        seed: of the order.
        design: what the columns are the design of, as plain values for JSON.
        report: called with what is being done, and the rows done so far.
        work: a folder on the same disk to work in; None for one next to the output.
    """
    output = Path(os.path.realpath(output))
    for name, value, least in (("num_rows", num_rows, 1), ("memory", memory, 1), ("seed", seed, 0)):
        if not is_whole(value, least):
            raise ValueError(f"`pack({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")
    check_output(output)
    with contextlib.nullcontext(work) if work else unfinished(output) as folder:
        try:
            table = folder / "table"
            table.mkdir()
            packer = _Packer(table, num_rows, memory, num_shards, seed, report)
            packer.scatter(blocks())
            manifest = packer.gather({name: tuple(of) for name, of in (levels or {}).items()})
            manifest = manifest._replace(design=None if design is None else dict(design))
            (table / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
            with contextlib.suppress(OSError):
                output.rmdir()
            os.replace(table, output)
            return manifest
        except OSError as error:
            raise PackError(f"`pack(output=...)`: {output} cannot be written: {error.strerror or error}.") from error


def check_output(output: Path) -> None:
    """Refuse a folder that something is in."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise PackError(f"`pack(output=...)`: {output} exists already. Choose a folder that does not, or remove it.")
    if output.exists() and (output.is_mount() or output.samefile(os.curdir)):
        raise PackError(f"`pack(output=...)`: {output} is a disk or the current folder. Name a folder in it.")


class _Packer:
    """Writes the shards of one table."""

    def __init__(
        self,
        folder: Path,
        num_rows: int,
        memory: int,
        num_shards: int | None,
        seed: int,
        report: Callable[[str, int], None],
    ) -> None:
        self._folder, self._num_rows, self._memory, self._given = folder, num_rows, memory, num_shards
        self._seed, self._random, self._report = int(seed), np.random.default_rng(seed), report
        self._record: np.dtype | None = None
        self._sizes = np.zeros(0, np.int64)
        self._checksum = 0

    def scatter(self, blocks: Iterable[Mapping[str, np.ndarray]]) -> None:
        """Append every row to the file of its shard."""
        done = 0
        left = np.zeros(0, np.int64)
        with contextlib.ExitStack() as open_files:
            files: list[Any] = []
            for block in blocks:
                rows = self._rows_of(block)
                if not files:
                    left = self._sizes.copy()
                    paths = [self._folder / f"{number:05}.rows" for number in range(len(left))]
                    files = [open_files.enter_context(path.open("wb")) for path in paths]
                if done + len(rows) > self._num_rows:
                    raise PackError(f"`pack(num_rows={self._num_rows:,})`: the blocks have more rows than that.")
                counts = self._random.multivariate_hypergeometric(left, len(rows), method="marginals")
                left -= counts
                # The first of these go to the first shard.
                ordered = _in_order(rows, self._random.permutation(len(rows)))
                for file, some in zip(files, np.split(ordered, np.cumsum(counts)[:-1]), strict=True):
                    file.write(some.view(np.uint8).data)
                self._checksum = (self._checksum + _sum_of(rows)) % 2**64
                done += len(rows)
                self._report("distributing rows", done)
        if done != self._num_rows:
            raise PackError(f"`pack(num_rows={self._num_rows:,})`: the blocks have {done:,} rows.")

    def _rows_of(self, block: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return a block as an array of records."""
        fields = [(name, column.dtype, column.shape[1:]) for name, column in block.items()]
        if any(dtype.kind not in NUMBERS for _, dtype, _ in fields):
            wrong = next(name for name, dtype, _ in fields if dtype.kind not in NUMBERS)
            raise PackError(f"`pack(...)`: column {wrong!r} must hold numbers; got {block[wrong].dtype}.")
        record = _padded(np.dtype(fields))
        if self._record is None:
            self._record = record
            per_shard = max(self._memory // (_SHARE * max(record.itemsize, 1)), 1)
            count = min(self._given or math.ceil(self._num_rows / per_shard), self._num_rows)
            if count > _MOST_SHARDS:
                least = math.ceil(self._num_rows / _MOST_SHARDS) * _SHARE * record.itemsize
                raise PackError(
                    f"`pack(memory=..., shards=...)`: {count:,} shards are too many; there may be {_MOST_SHARDS:,}, "
                    f"for which {least:,} bytes of memory do."
                )
            self._sizes = np.full(count, self._num_rows // count)
            self._sizes[: self._num_rows % count] += 1
        elif record != self._record:
            raise PackError(f"`pack(...)`: a block has columns {record}, and those before had {self._record}.")
        rows: Any = np.zeros(len(next(iter(block.values()))), record)
        for name, column in block.items():
            rows[name] = column
        return rows

    def gather(self, levels: dict[str, tuple[Any, ...]]) -> Manifest:
        """Shuffle every shard, and write its columns."""
        assert self._record is not None
        shards, done, checksum = [], 0, 0
        for number, size in enumerate(self._sizes.tolist()):
            path = self._folder / f"{number:05}.rows"
            rows = np.fromfile(path, self._record)
            if len(rows) != size:
                raise PackError(f"`pack(...)`: {path.name} has {len(rows):,} rows in place of {size:,}.")
            checksum = (checksum + _sum_of(rows)) % 2**64
            rows = _in_order(rows, self._random.permutation(size))
            shards.append(self._write(f"{number:05}", rows))
            path.unlink()
            done += size
            self._report("shuffling shards", done)
        if checksum != self._checksum:
            raise PackError("`pack(...)`: rows were lost or changed on the way to the disk: their checksum differs.")
        columns = {
            name: Column(self._record[name].base.str, self._record[name].shape, levels.get(name))
            for name in self._record.names or ()
        }
        return Manifest(self._num_rows, columns, tuple(shards), self._seed, f"sum64:{checksum:016x}")

    def _write(self, name: str, rows: np.ndarray) -> Shard:
        folder, checksums = self._folder / name, {}
        folder.mkdir()
        for column in rows.dtype.names or ():
            values = np.ascontiguousarray(rows[column])
            np.save(folder / column_file(column), values)
            checksums[column] = checksum_of(values)
        return Shard(name, len(rows), checksums)


def checksum_of(values: np.ndarray) -> str:
    """Checksum of the numbers of a column."""
    return f"crc32:{zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data):08x}"


def _padded(record: np.dtype) -> np.dtype:
    """Return records of whole words of 8 bytes; the bytes at the end are 0."""
    fields = dict(record.fields or {})
    formats, offsets = [of[0] for of in fields.values()], [of[1] for of in fields.values()]
    size = -(-record.itemsize // 8) * 8
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})


def _in_order(rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return records in another order: as bytes, which NumPy copies in a seventh of the time."""
    found = np.empty_like(rows)
    plain = f"V{rows.dtype.itemsize}"
    np.take(rows.view(plain), order, out=found.view(plain), mode="clip")
    return found


def _sum_of(rows: np.ndarray) -> int:
    """Add up a hash of every row: the sum of a table does not depend on the order of its rows.

    Words are multiplied in pairs, each after a number of its own was added (Black et al. 1999), so that numbers which
    change places between rows, or between columns, change the sum.
    """
    words = rows.view(np.uint64).reshape(len(rows), -1)
    with np.errstate(over="ignore"):
        keys = _ODD * np.arange(1, words.shape[1] + 1, dtype=np.uint64)
        found = np.ones(len(rows), np.uint64)
        for at in range(0, words.shape[1] - 1, 2):
            found += (words[:, at] + keys[at]) * (words[:, at + 1] + keys[at + 1])
        if words.shape[1] % 2:
            found += words[:, -1] * keys[-1]
        found ^= found >> np.uint64(29)
        found *= _ODD
        found ^= found >> np.uint64(32)
        return int(np.sum(found, dtype=np.uint64))
