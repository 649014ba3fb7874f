"""The command `tallchain pack`."""

from __future__ import annotations

import contextlib
import json as numbers
from pathlib import Path
from typing import Annotated, Any

from tallchain.command import one_line_errors, require

with contextlib.suppress(ModuleNotFoundError):  # needed only once the application is built, which says so
    import typer

    from tallchain.command import NoProgress, Seed


def pack(
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            readable=False,  # what cannot be read is refused in a line
            help="CSV, Parquet (a file or a folder), Arrow, .npy or .npz.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The folder to write.", show_default=False)],
    *,
    columns: Annotated[
        str | None, typer.Option(help="Names of the columns to pack, separated by commas.", show_default="all")
    ] = None,
    formula: Annotated[
        str | None, typer.Option(help="Pack the design of this formula, for tallchain fit.", show_default="columns")
    ] = None,
    family: Annotated[str | None, typer.Option(help="Of the outcomes, for a formula: see tallchain fit.")] = None,
    weights: Annotated[str | None, typer.Option(help="A column: how often each row counts, for a formula.")] = None,
    offset: Annotated[
        str | None, typer.Option(help="A column that is added to the linear predictor, for a formula.")
    ] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows with missing values in the columns used.")
    ] = False,
    shards: Annotated[int | None, typer.Option(min=1, help="Files of each column.", show_default="by memory")] = None,
    memory: Annotated[str, typer.Option(help="How much to use, about.")] = "1GB",
    seed: Seed = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON, and nothing else.")] = False,
    no_progress: NoProgress = False,
) -> None:
    """Shuffle a table once into columns on disk, from which fits read a random part of the rows at a time.

    A run that was ended leaves nothing that looks whole; the same command begins anew.

    Examples:
        tallchain pack rows.parquet packed --formula "late ~ distance + (1 | carrier)" --family bernoulli

        tallchain fit packed "late ~ distance + (1 | carrier)" --family bernoulli --memory 2GB
    """
    require("pandas", "pyarrow", *(() if formula is None else ("formulaic",)))
    import tallchain

    with one_line_errors():
        options: dict[str, Any] = {"formula": formula, "family": family, "weights": weights, "offset": offset}
        options |= {"missing": "drop" if drop_missing else "refuse", "shards": shards, "memory": memory, "seed": seed}
        wanted = None if columns is None else [each.strip() for each in columns.split(",")]
        found = tallchain.pack(rows, output, columns=wanted, progress=not no_progress, **options)
    if json:
        print(numbers.dumps(numbers.loads(found.to_json())))
        return
    print(
        f"written    {output}: {found.num_rows:,} rows in {len(found.shards):,} shards, columns "
        f"{', '.join(found.columns)}; {found.checksum}"
    )
