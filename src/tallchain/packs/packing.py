"""Pack what users have: arrays, files of arrays, tables, or the design of a formula."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from tallchain import progress as bars
from tallchain.models.families import Family
from tallchain.packs import arrays, columns, designs
from tallchain.packs.contents import Contents
from tallchain.sources.manifest import NUMBERS, Manifest, PackError
from tallchain.sources.out_of_core import check_output, pack_blocks
from tallchain.sources.packed import bytes_of
from tallchain.sources.unfinished import unfinished
from tallchain.validation import brief, check_switch, is_whole

_PASSES = 2  # over the rows: to distribute, and to shuffle


def pack(
    data: Any,
    output: str | os.PathLike[str],
    *,
    columns: Any = None,
    formula: str | None = None,
    family: Family | type[Family] | str | None = None,
    weights: str | None = None,
    offset: str | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    shards: int | None = None,
    memory: str | float = "1GB",
    seed: int = 0,
    progress: bool = True,
) -> Manifest:
    """Write the rows of a table into a folder, in random order, for `sources.Packed` and for `fit`.

        pack("rows.parquet", "packed", formula="late ~ distance + (1 | carrier)", family="bernoulli")
        fit("late ~ distance + (1 | carrier)", "packed", family="bernoulli")

    Memory holds a block and a shard. With a formula it holds labels as small codes, too; the design is made on the
    disk. Labels become numbers, in the order of `Manifest.columns[name].levels`; floats of 64 bits become 32 bits
    unless JAX has 64. If the process is killed nothing is left that looks whole; the next call begins anew.

    Args:
        data: an array or a dict of arrays, with the rows along the first axis; a .npy or .npz file; a frame; or a CSV,
            Parquet or Arrow file, or a folder of Parquet files.
        output: the folder to write; it must not exist, or be empty.
        columns: names of the columns to pack, without a formula; None for all.
        formula: pack its design, which `fit` then takes from the folder.
        family: of the outcomes, for a formula.
        weights: a column that says how often each row counts, for a formula.
        offset: a column that is added to the linear predictor, for a formula.
        missing: "refuse" missing values in the columns used, or "drop" such rows, counted.
        shards: how many files to divide each column into; None for as few as the memory allows.
        memory: how much to use, about: "1GB", or a number of bytes.
        seed: of the order.
        progress: show what is going on (needs `rich`).
    """
    if missing not in ("refuse", "drop"):
        raise ValueError(f'`pack(missing=...)` must be "refuse" or "drop"; got {brief(missing)}.')
    for name, value, least in (("seed", seed, 0), ("shards", 1 if shards is None else shards, 1)):
        if not is_whole(value, least):
            raise ValueError(f"`pack({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")
    num_bytes = max(int(bytes_of("pack(memory=...)", memory)), 1)
    progress = check_switch("pack", "progress", progress)
    output = Path(os.path.realpath(output))
    check_output(output)
    with unfinished(output) as work:
        if formula is not None:
            if columns is not None:
                raise TypeError("`pack(columns=..., formula=...)`: a formula says which columns; leave `columns` out.")
            options: dict[str, Any] = {"weights": weights, "offset": offset, "missing": missing}
            contents = designs.contents(formula, data, family, work / "design", progress=progress, **options)
        else:
            for name, value in (("family", family), ("weights", weights), ("offset", offset)):
                if value is not None:
                    raise TypeError(f"`pack({name}=...)` goes with a formula; got {brief(value)}.")
            contents = _contents(data, columns, missing, progress=progress)
        with bars.shown(progress, "packing rows", _PASSES * contents.num_rows) as show:

            def report(what: str, rows: int) -> None:
                show(rows + (contents.num_rows if what.startswith("shuffling") else 0), what)

            return pack_blocks(
                contents.blocks,
                output,
                num_rows=contents.num_rows,
                levels=contents.levels,
                num_shards=shards,
                memory=num_bytes,
                seed=seed,
                design=contents.design,
                report=report,
                work=work,
            )


def _contents(data: Any, names: Any, missing: str, *, progress: bool) -> Contents:
    """Find out what kind of table this is."""
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        if path.suffix.lower() in (".npy", ".npz"):
            return arrays.of_file(path, names, missing)
    elif isinstance(data, np.ndarray | jax.Array):
        return arrays.of_arrays({"data": _plain("data", data)}, names, missing)
    elif isinstance(data, Mapping) and all(getattr(of, "dtype", None) is not None for of in data.values()):
        held = {str(name): _plain(name, of) for name, of in data.items()}
        if len(held) < len(data):
            raise PackError(f"`pack(...)`: two columns have the same name, as text; got {brief(list(data))}.")
        if all(of.dtype.kind in NUMBERS for of in held.values()):
            return arrays.of_arrays(held, names, missing)
    return columns.of_table(data, names, missing, progress=progress)


def _plain(name: Any, values: Any) -> np.ndarray:
    """Return an array without a mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.count_masked(values):
        raise PackError(f"`pack(...)`: column {str(name)!r} has masked values. Fill them with NaN, or leave them out.")
    return np.asarray(values)
