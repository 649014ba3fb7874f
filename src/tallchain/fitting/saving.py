"""A fit as a folder of plain files: JSON, netCDF, CSV and HTML. Nothing in them is run when they are read.

Files are written elsewhere first, so that no reader sees half of one, and a full disk leaves a fit that was there.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallchain.checking.trace import Tally, Trace
from tallchain.fitting.trees import datatree, file_names
from tallchain.models import Regression
from tallchain.models.layout import COEFFICIENTS
from tallchain.models.plain import model_from_json, model_to_json
from tallchain.report.facts import Facts
from tallchain.settings import Settings

if TYPE_CHECKING:
    from tallchain.formulas import Spec

FORMAT = 1
FACTS, DRAWS, SUMMARY, REPORT = "fit.json", "draws.nc", "summary.csv", "report.html"


class SavedFitError(ValueError):
    """A folder is no fit, or a broken one."""


class Saved(NamedTuple):
    """What a folder holds of a fit."""

    model: Regression | None
    trace: Trace
    facts: Facts
    spec: Spec | None


# ---- writing -----------------------------------------------------------------------------------


def save(fit: Saved, folder: Path) -> Path:
    """Write all files, and put them in place once all are complete."""
    with new_folders(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".") as elsewhere:
        _write(fit, Path(elsewhere))
        _move(Path(elsewhere), folder)
    return folder


@contextlib.contextmanager
def new_folders(folder: Path) -> Generator[list[Path]]:
    """Make a folder, and yield those that were made, the innermost first; they go if what follows fails."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield made
    except BaseException:
        remove(made)
        raise


def remove(folders: list[Path]) -> None:
    """Remove folders that are empty, the innermost first."""
    with contextlib.suppress(OSError):
        for each in folders:
            each.rmdir()


def _write(fit: Saved, folder: Path) -> None:
    from tallchain.fitting.table import SummaryTable

    tree, table = datatree(fit.model, fit.trace, fit.facts), SummaryTable.of(fit.facts, fit.facts.parameters)
    write_draws(tree, folder / DRAWS)
    table.to_csv(folder / SUMMARY, index_label="parameter")
    write_report(fit, folder / REPORT)
    found = {
        "format": FORMAT,
        "facts": json.loads(fit.facts.to_json()),
        "model": None if fit.model is None else model_to_json(fit.model),
        "spec": None if fit.spec is None else json.loads(fit.spec.to_json()),
        "trace": _trace_to_json(fit.trace),
    }
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / FACTS).write_text(text + "\n", encoding="utf-8")


def write_draws(tree: Any, path: Path) -> None:
    """Write a DataTree as netCDF. It is made in memory: HDF5 ends the process if the disk is full."""
    path.write_bytes(tree.to_netcdf(engine="h5netcdf"))


def _move(source: Path, folder: Path) -> None:
    """Replace the files of a fit; the facts go first and come last: without them there is no fit."""
    (folder / FACTS).unlink(missing_ok=True)
    for name in (DRAWS, SUMMARY, REPORT, FACTS):
        os.replace(source / name, folder / name)


def write_report(fit: Saved, path: Path) -> Path:
    """Write the page."""
    from tallchain.fitting.page import page_of

    text = page_of(fit.model, fit.trace, fit.facts)
    written(path, lambda at: at.write_text(text, encoding="utf-8"))
    return path


def written(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file under another name, and rename it once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    os.close(handle)
    try:
        write(Path(temporary))
        os.chmod(temporary, 0o644)  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _trace_to_json(trace: Trace) -> dict[str, Any]:
    settings = None if trace.settings is None else vars(trace.settings)
    return {
        "num_rows": trace.num_rows,
        "variables": list(trace.variables()),
        "warmup": vars(trace.warmup),
        "settings": settings,
        "notes": list(trace.notes),
        "seconds": [trace.seconds, trace.compile_seconds, trace.scan_seconds],
        "is_interrupted": trace.is_interrupted,
    }


# ---- reading -----------------------------------------------------------------------------------


def load(folder: Path) -> Saved:
    """Return what `save` wrote."""
    found = read_facts(folder)
    try:
        model = None if found["model"] is None else model_from_json(found["model"])
        spec = None
        if found["spec"] is not None:
            from tallchain.formulas import Spec

            spec = Spec.from_json(json.dumps(found["spec"]))
        trace = _trace_from_file(folder / DRAWS, model, found["trace"])
        return Saved(model, trace, Facts.from_json(json.dumps(found["facts"])), spec)
    except SavedFitError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SavedFitError(
            f"`Fit.load({str(folder)!r})`: {FACTS} was changed or is not complete: {error!r}."
        ) from error


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what `fit.json` says."""
    call = f"`Fit.load({str(folder)!r})`"
    try:
        found = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SavedFitError(f"{call}: the folder has no {FACTS}: it is no fit, or one that was not finished.") from None
    except (OSError, ValueError) as error:
        raise SavedFitError(f"{call}: {FACTS} cannot be read: {error}.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        got = found.get("format") if isinstance(found, dict) else type(found).__name__
        raise SavedFitError(f"{call}: {FACTS} must have format {FORMAT}; got {got}. Another version has written it.")
    return found


def _trace_from_file(path: Path, model: Regression | None, found: dict[str, Any]) -> Trace:
    import xarray

    try:
        with xarray.open_datatree(path, engine="h5netcdf") as tree:
            posterior = {str(name): np.asarray(of) for name, of in tree["posterior"].data_vars.items()}
            stats = {str(name): np.asarray(of) for name, of in tree["sample_stats"].data_vars.items()}
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise SavedFitError(f"{path} is missing, was cut short, or holds no draws: {error}.") from error
    if model is None:
        names = file_names((), found["variables"], stats)
        position: Any = {name: posterior[names[name]] for name in found["variables"]}
    else:
        position = _position(model, posterior, stats)
    seconds, compiling, scanning = found["seconds"]
    return Trace(
        position,
        is_accepted=stats.pop("accepted"),
        is_invalid=stats.pop("invalid"),
        rows_read=stats.pop("rows_read"),
        rows_scanned=stats.pop("rows_scanned"),
        log_ratio=stats.pop("log_ratio"),
        num_rows=found["num_rows"],
        extras=stats,
        warmup=Tally(**found["warmup"]),
        seconds=seconds,
        compile_seconds=compiling,
        scan_seconds=scanning,
        is_interrupted=found["is_interrupted"],
        notes=tuple(found["notes"]),
        settings=None if found["settings"] is None else Settings(**found["settings"]),
        names={} if model is None else dict(model.posterior.names),
    )


def _position(model: Regression, posterior: dict[str, np.ndarray], stats: Iterable[str]) -> Any:
    """Return the draws of the position; refuse those that do not fit the model."""
    layout = model.layout
    shapes = {COEFFICIENTS: layout.shapes()} if layout.is_vector else layout.shapes()
    names = file_names(model.levels, shapes, stats)
    wrong = [name for name, shape in shapes.items() if np.shape(posterior.get(names[name], 0.0))[2:] != shape]
    if wrong:
        raise SavedFitError(f"The draws of {', '.join(wrong)} in {DRAWS} do not fit the model in {FACTS}.")
    named = {name: posterior[names[name]] for name in shapes}
    return named[COEFFICIENTS] if layout.is_vector else named
