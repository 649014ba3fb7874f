"""The design of a formula as a packed table, and the regression that it is the design of."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tallchain.formulas import Built, Spec, build
from tallchain.models import Prior, Regression
from tallchain.models.families import Family
from tallchain.models.plain import model_from_json, model_to_json
from tallchain.models.regression import scaled_by, with_rows
from tallchain.packs.contents import BLOCK, Contents
from tallchain.sources import Packed
from tallchain.sources.manifest import MANIFEST, Manifest, PackError
from tallchain.tables import open_table

_SOME = 2**16  # rows that stand for all, for predictive checks


def contents(
    formula: str, data: Any, family: Any, folder: Path, *, weights: Any, offset: Any, missing: Any, progress: bool
) -> Contents:
    """Make the design of a formula, in files of a folder."""
    if family is None:
        raise TypeError(f'`pack(formula={formula!r})`: say what the outcomes are, e.g. `family="bernoulli"`.')
    made: list[Path] = []

    def allocate(shape: Any, dtype: Any) -> np.ndarray:
        folder.mkdir(exist_ok=True)
        path = folder / f"{len(made)}.bin"
        made.append(path)
        _reserve(path, np.dtype(dtype).itemsize * math.prod(np.atleast_1d(shape).tolist()))
        return np.memmap(path, dtype, "r+", shape=shape)

    table = open_table(data, "pack(...)")
    options: dict[str, Any] = {"weights": weights, "offset": offset, "missing": missing, "progress": progress}
    built = build(formula, table, family, **options, allocate=allocate)
    held = built.model.data
    num_rows = len(held["x"])

    def blocks() -> Iterator[dict[str, np.ndarray]]:
        for first in range(0, num_rows, BLOCK):
            yield {name: np.asarray(of[first : first + BLOCK]) for name, of in held.items()}

    return Contents(blocks, num_rows, {}, _design(built))


def _reserve(path: Path, size: int) -> None:
    """Make a file of zeros, or say that there is no room: what is mapped ends the process when there is none."""
    try:
        with path.open("wb") as file:
            if hasattr(os, "posix_fallocate") and size:
                os.posix_fallocate(file.fileno(), 0, size)
            file.truncate(size)
    except OSError as error:
        raise PackError(f"`pack(...)`: {path.parent} cannot be written: {error.strerror or error}.") from error


def _design(built: Built) -> dict[str, Any]:
    """Return all but the rows, as plain values."""
    best, unit = scaled_by(built.model)
    return {
        "model": model_to_json(built.model),
        "spec": json.loads(built.spec.to_json()),
        "best": best.tolist(),
        "unit": unit,
        "words": list(built.words),
        "num_dropped": built.num_dropped,
        "missing": built.missing,
    }


@dataclasses.dataclass(frozen=True)
class PackedDesign:
    """The design of a formula, packed."""

    path: Path
    manifest: Manifest
    spec: Spec
    facts: dict[str, Any]

    @property
    def checksum(self) -> str:
        """Of the rows."""
        return self.manifest.checksum

    def source(self, memory: str | float) -> Packed:
        """Return the rows."""
        return Packed(self.path, memory=memory)

    def model(self, source: Packed, prior: Prior | None) -> Regression:
        """Return the regression, with some of the rows; `prior` is scaled as for `fit`."""
        best = np.asarray(self.facts["best"])
        family = model_from_json(self.facts["model"]).family
        first = float(best[0]) if family.num_linear == 1 else 0.0
        prior = (prior or Prior()).scaled(float(self.facts["unit"]), first)
        model = model_from_json(self.facts["model"], prior=prior, best=best)
        some = {name: np.asarray(of)[:_SOME] for name, of in source.some_rows(_SOME).items()}
        return with_rows(model, some)

    def check(self, formula: str, family: Family | type[Family] | str | None, asked: dict[str, Any]) -> None:
        """Refuse a call that asks for another design."""
        spec = self.spec
        if " ".join(formula.split()) != " ".join(spec.formula.split()):
            raise PackError(
                f"`fit({formula!r}, {str(self.path)!r})`: that folder has the design of {spec.formula!r}. Pack the "
                "table again with the other formula, or fit the table itself."
            )
        for name, mine in (("weights", spec.weights), ("offset", spec.offset)):
            if asked[name] is not None and asked[name] != mine:
                raise PackError(
                    f"`fit({formula!r}, {str(self.path)!r}, {name}={asked[name]!r})`: that folder was packed with "
                    f"{name}={mine!r}."
                )
        if family is not None:
            self._check_family(formula, family)

    def _check_family(self, formula: str, family: Any) -> None:
        from tallchain.formulas.outcomes import family_of

        wanted, mine = family_of(f"`fit({formula!r})`", family), model_from_json(self.facts["model"]).family
        is_same = isinstance(mine, wanted) if isinstance(wanted, type) else repr(wanted) == repr(mine)
        if not is_same:
            raise PackError(
                f"`fit({formula!r}, {str(self.path)!r}, family=...)`: that folder was packed for {mine!r}; got "
                f"{wanted!r}."
            )


def is_packed(data: Any) -> bool:
    """Whether this is the path of a packed table."""
    return isinstance(data, str | os.PathLike) and (Path(data) / MANIFEST).is_file()


def open_design(path: str | os.PathLike[str]) -> PackedDesign:
    """Return the design in a folder."""
    path = Path(path)
    manifest = Manifest.read(path)
    if manifest.design is None:
        raise PackError(
            f"`fit(data={str(path)!r})`: that folder has columns, and no design. Pack the table with the formula, or "
            "fit the table itself."
        )
    try:
        spec = Spec.from_json(json.dumps(manifest.design["spec"]))
        return PackedDesign(path, manifest, spec, manifest.design)
    except (KeyError, TypeError, ValueError) as error:
        raise PackError(f"{path / MANIFEST} has a design that cannot be read: {error!r}.") from error
