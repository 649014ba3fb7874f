"""Columns of a table to pack: numbers as they are, labels as numbers from 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain import progress as bars
from tallchain.formulas.labels import Labels, distinct
from tallchain.packs.contents import Contents, check_finite_after, chosen, kept, lacking, refuse_missing
from tallchain.sources.manifest import PackError
from tallchain.tables import open_table
from tallchain.tables.table import Kind, Table
from tallchain.validation import brief

if TYPE_CHECKING:
    import pandas as pd

_LABELS = ("text", "category")


def of_table(data: Any, names: Any, missing: str, *, progress: bool) -> Contents:
    """Return the columns of a table; what is not known of it is learned by reading it once."""
    table = open_table(data, "pack(...)")
    wanted = chosen(names, table.columns, table.name)
    kinds = {name: table.columns[name] for name in wanted}
    for name, kind in kinds.items():
        if kind not in ("number", "truth", *_LABELS):
            raise PackError(
                f"`pack(...)`: column {name!r} of {table.name} holds neither numbers nor labels ({kind}). Name the "
                "columns to pack: `columns=[...]` (`--columns`)."
            )
    labelled = [name for name, kind in kinds.items() if kind in _LABELS]
    num_rows, levels = table.num_rows, {}
    if num_rows is None or labelled or missing == "drop":
        with bars.shown(progress, "reading labels", table.num_rows, is_step=True) as show:
            num_rows, levels = _learned(table, kinds, missing, show)
    labels = {name: Labels(values) for name, values in levels.items()}

    def blocks() -> Iterator[dict[str, np.ndarray]]:
        first = 0
        for block in table.blocks(wanted):
            held = _numbers(block, kinds, labels)
            lacks, name = _lacks(block, held, kinds)
            if name and missing == "refuse":
                raise refuse_missing(name, first + int(np.argmax(lacks)))
            held = {each: values[~lacks] for each, values in held.items()} if name else held
            made = {each: kept(values) for each, values in held.items()}
            for each, values in made.items():
                check_finite_after(each, held[each], values, first)
            first += len(lacks)
            if len(next(iter(made.values()))):
                yield made

    return Contents(blocks, num_rows, levels)


def _learned(table: Table, kinds: dict[str, Kind], missing: str, show: Any) -> tuple[int, dict[str, tuple[Any, ...]]]:
    """Read the table once: count the rows to pack, and find the labels, sorted or in the order of a category."""
    found: dict[str, dict[Any, None]] = {name: {} for name, kind in kinds.items() if kind in _LABELS}
    orders: dict[str, list[Any]] = {}
    count, done = 0, 0
    for block in table.blocks(kinds if missing == "drop" or table.num_rows is None else found):
        for name, values in found.items():
            values.update(dict.fromkeys(distinct(block[name], kinds[name])[1]))
            if kinds[name] == "category" and block[name].cat.ordered:
                orders[name] = list(block[name].cat.categories)
        done += len(block)
        if missing == "drop":
            numbers = {name: block[name].to_numpy() for name, kind in kinds.items() if kind not in _LABELS}
            lacks, _ = _lacks(block, numbers, kinds)
            count += int(np.count_nonzero(~lacks))
        else:
            count = done
        show(done)
    if not count:
        raise PackError(f"`pack(...)`: {table.name} has no rows to pack.")
    levels = {}
    for name, values in found.items():
        order = {label: at for at, label in enumerate(orders.get(name, ()))}
        levels[name] = tuple(sorted(values, key=lambda label, order=order: (order.get(label, -1), str(label))))
        wrong = next((label for label in values if not isinstance(label, str | int | float)), None)
        if wrong is not None:
            raise PackError(
                f"`pack(...)`: the labels of {name!r} must be text, numbers or truth values; got {brief(wrong)}. Make "
                "them text."
            )
    return count, levels


def _numbers(block: pd.DataFrame, kinds: dict[str, Kind], labels: dict[str, Labels]) -> dict[str, np.ndarray]:
    return {
        name: labels[name].codes(block[name], kind) if name in labels else np.asarray(block[name].to_numpy())
        for name, kind in kinds.items()
    }


def _lacks(block: pd.DataFrame, numbers: dict[str, np.ndarray], kinds: dict[str, Kind]) -> tuple[np.ndarray, str]:
    """Return which rows lack a value, and the name of a column that does."""
    floats = {name: values for name, values in numbers.items() if kinds[name] not in _LABELS}
    lacks, first = lacking(floats) if floats else (np.zeros(len(block), bool), "")
    for name, kind in kinds.items():
        if kind in _LABELS:
            here = block[name].isna().to_numpy()
            if here.any():
                lacks, first = lacks | here, first or name
    return lacks, first
