"""Arrays to pack: in memory, or in a .npy or .npz file, which is read block by block and never as a whole."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from tallchain.packs.contents import BLOCK, Contents, check_finite_after, chosen, kept, lacking, refuse_missing
from tallchain.sources.manifest import NUMBERS, PackError

_WHOLE = "data"  # the name of the column of a file with a single array


def of_arrays(held: Mapping[str, np.ndarray], names: Any, missing: str) -> Contents:
    """Return arrays in memory."""
    wanted = chosen(names, held, "the dict")
    found = {name: held[name] for name in wanted}
    num_rows = _check({name: (of.shape, of.dtype) for name, of in found.items()})

    def blocks() -> Iterator[dict[str, np.ndarray]]:
        for first in range(0, num_rows, BLOCK):
            yield {name: of[first : first + BLOCK] for name, of in found.items()}

    return _contents(blocks, num_rows, missing)


def of_file(path: Path, names: Any, missing: str) -> Contents:
    """Return the arrays of a file."""
    if not path.is_file():
        raise PackError(f"`pack({str(path)!r})`: there is no such file.")
    with _reading(path), contextlib.ExitStack() as open_files:
        streams = _streams(path, None, open_files)
        headers = {name: _header(stream) for name, stream in streams.items()}
    wanted = chosen(names, headers, str(path))
    num_rows = _check({name: headers[name] for name in wanted})

    def blocks() -> Iterator[dict[str, np.ndarray]]:
        with contextlib.ExitStack() as open_files:
            with _reading(path):
                streams = _streams(path, wanted, open_files)
                shapes = {name: _header(stream) for name, stream in streams.items()}
            for first in range(0, num_rows, BLOCK):
                count = min(BLOCK, num_rows - first)
                with _reading(path):
                    block = {name: _read(path, streams[name], *shapes[name], count) for name in wanted}
                yield block

    return _contents(blocks, num_rows, missing)


@contextlib.contextmanager
def _reading(path: Path) -> Generator[None]:
    """Say in one line what is wrong with a file."""
    try:
        yield
    except PackError:
        raise
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise PackError(f"`pack({str(path)!r})`: it is not a whole file of plain arrays ({error}).") from None


def _streams(path: Path, names: list[str] | None, open_files: contextlib.ExitStack) -> dict[str, IO[bytes]]:
    """Open the arrays of a file, each as a stream of its own."""
    if path.suffix.lower() == ".npy":
        return {_WHOLE: open_files.enter_context(path.open("rb"))}
    held = open_files.enter_context(zipfile.ZipFile(path))
    members = {each.removesuffix(".npy"): each for each in held.namelist()}
    some = members if names is None else {name: members[name] for name in names}
    return {name: open_files.enter_context(held.open(member)) for name, member in some.items()}


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if is_fortran and len(shape) > 1:
        raise ValueError("an array is in Fortran's order, column after column; save `np.ascontiguousarray(array)`")
    if dtype.hasobject:
        raise ValueError("an array holds Python objects")
    return shape, dtype


def _read(path: Path, stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype, count: int) -> np.ndarray:
    size = count * dtype.itemsize * int(np.prod(shape[1:], dtype=int))
    found = stream.read(size)
    if len(found) != size:
        raise PackError(f"`pack({str(path)!r})`: the file was cut short.")
    return np.frombuffer(found, dtype).reshape(count, *shape[1:])


def _check(shapes: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> int:
    """Return the number of rows, or say why these are no columns of one table."""
    for name, (shape, dtype) in shapes.items():
        if dtype.kind not in NUMBERS:
            raise PackError(f"`pack(...)`: column {name!r} must hold numbers; got {dtype}.")
        if not shape or not shape[0] or 0 in shape:
            raise PackError(f"`pack(...)`: column {name!r} must have rows along its first axis; got shape {shape}.")
    counts = {name: shape[0] for name, (shape, _) in shapes.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name!r} {count:,}" for name, count in counts.items())
        raise PackError(f"`pack(...)`: all columns must have as many rows; got {said}.")
    return next(iter(counts.values()))


def _contents(blocks: Any, num_rows: int, missing: str) -> Contents:
    """Convert numbers, and refuse missing ones or leave their rows out."""
    if missing == "drop":
        num_rows = sum(int(np.count_nonzero(~lacking(block)[0])) for block in blocks())
        if not num_rows:
            raise PackError("`pack(missing='drop')`: every row lacks a value.")

    def found() -> Iterator[dict[str, np.ndarray]]:
        first = 0
        for block in blocks():
            lacks, name = lacking(block)
            if name and missing == "refuse":
                raise refuse_missing(name, first + int(np.argmax(lacks)))
            held = {each: values[~lacks] for each, values in block.items()} if name else block
            made = {each: kept(values) for each, values in held.items()}
            for each, values in made.items():
                check_finite_after(each, held[each], values, first)
            first += len(lacks)
            yield made

    return Contents(found, num_rows, {})
