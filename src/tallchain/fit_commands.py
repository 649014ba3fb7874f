"""The commands of a fit: `tallchain fit`, `predict`, `summary` and `check`.

Exit codes: 0; 2 for bad input, with one line that says what is wrong, and nothing written; 3 for a fit that was written
but should not be used as it is; 130 for one that was interrupted, whose draws so far were written.
"""

from __future__ import annotations

import contextlib
import json as numbers
import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tallchain.checking.faults import SamplingError
from tallchain.command import INTERRUPTED, one_line_errors, require, writing
from tallchain.interrupts import catch_interrupt
from tallchain.surrogates.no_reference import NoReferenceError

if TYPE_CHECKING:
    from tallchain.fitting import Fit

with contextlib.suppress(ModuleNotFoundError):  # needed only once the application is built, which says so
    import typer

    from tallchain.command import Memory, NoProgress, Seed

    _Folder = Annotated[
        Path, typer.Argument(metavar="FIT", readable=False, help="The folder of a fit.", show_default=False)
    ]
    _Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs, and nothing else.")]

NOT_TO_BE_USED = 3
_NEEDS = ("pandas", "pyarrow", "formulaic", "matplotlib", "arviz_base", "xarray", "h5netcdf")


class TestChoice(StrEnum):
    """What decides."""

    AUTO = "auto"
    EXACT = "mhss"
    PENALTY = "penalty"
    METROPOLIS = "metropolis"


class NewLevels(StrEnum):
    """What to do about groups that a fit does not have."""

    REFUSE = "refuse"
    DRAW = "draw"


def fit(
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS",
            readable=False,  # what cannot be read is refused by `open_table`, in a line
            help="CSV, Parquet (a file or a folder), Arrow or .npz; or what tallchain pack has made.",
            show_default=False,
        ),
    ],
    formula: Annotated[
        str, typer.Argument(metavar="FORMULA", help='Such as "late ~ distance + (1 | carrier)".', show_default=False)
    ],
    *,
    family: Annotated[
        str,
        typer.Option(
            help="Of the outcomes: bernoulli, binomial, poisson, negative_binomial, gaussian, student_t, gamma, "
            "weibull, categorical, ordinal; bernoulli-probit and bernoulli-cloglog have another link.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option(help="The folder to write.")] = Path("fit"),
    weights: Annotated[str | None, typer.Option(help="A column: how often each row counts.")] = None,
    offset: Annotated[str | None, typer.Option(help="A column that is added to the linear predictor.")] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows with missing values in the columns used.")
    ] = False,
    prior_sd: Annotated[
        float | None,
        typer.Option(help="Of a normal prior of the coefficients.", show_default="2.5, scaled by the family"),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Effective draws of the worst parameter to ask for.")] = 4000,
    chains: Annotated[int | None, typer.Option(min=1, help="Chains.", show_default="64, or 16 if costly")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Of sampling, at most.", show_default="no limit")] = None,
    test: Annotated[
        TestChoice, typer.Option(help="What decides; auto takes an exact test where it reads fewer rows.")
    ] = TestChoice.AUTO,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a fit that is there already.")] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="A folder to keep draws in: the same command goes on from there."),
    ] = None,
    memory: Memory = "4GB",
    json: _Json = False,
    no_progress: NoProgress = False,
) -> None:
    """Fit a regression to a table of any length, and write summary.csv, draws.nc, report.html and fit.json.

    Ctrl-C ends the sampling early, and writes the draws so far.

    Examples:
        tallchain fit flights.parquet "late ~ distance + hour + (1 | carrier)" --family bernoulli

        tallchain fit visits.csv "visits ~ age * sex + offset(log(days))" --family poisson --output visits-fit
    """
    require(*_NEEDS)
    import tallchain
    from tallchain.models.priors import Normal, Prior

    with one_line_errors(SamplingError, NoReferenceError):
        _check_folder(output, overwrite=overwrite)
        prior = None if prior_sd is None else Prior(Normal(prior_sd))
        options: dict[str, Any] = {"weights": weights, "offset": offset, "prior": prior, "seed": seed}
        options |= {"missing": "drop" if drop_missing else "refuse", "num_draws": draws, "num_chains": chains}
        options |= {"max_seconds": math.inf if max_seconds is None else max_seconds, "progress": not no_progress}
        options |= {"checkpoint": checkpoint, "memory": memory}
        try:
            found = tallchain.fit(formula, rows, family=family, acceptance=_acceptance(test), **options)
        except SamplingError as error:
            _save_draws(error, output)
            raise
        with catch_interrupt(), writing(output):  # from here on there is something to lose
            found.save(output)
    print(found.facts.to_json() if json else f"{found}\n\nwritten    {output}: {', '.join(_files(output))}")
    raise typer.Exit(_code(found))


def predict(
    fit: _Folder,
    rows: Annotated[
        Path, typer.Argument(metavar="ROWS", readable=False, help="New rows, as for fit.", show_default=False)
    ],
    *,
    output: Annotated[Path, typer.Option(help="Where to write: .csv or .parquet.")] = Path("predictions.csv"),
    interval: Annotated[float, typer.Option(min=0.0, max=1.0, help="Probability between the ends of intervals.")] = 0.9,
    new_levels: Annotated[
        NewLevels, typer.Option(help="Groups that the fit does not have: refuse them, or draw their effects.")
    ] = NewLevels.REFUSE,
    max_draws: Annotated[int, typer.Option(min=1, help="Draws of the parameters to use.")] = 400,
    seed: Annotated[int | None, typer.Option(min=0, help="Of outcomes.", show_default="that of the fit")] = None,
) -> None:
    """Predict outcomes of new rows: mean and interval of the expectation, and of an outcome.

    Example:
        tallchain predict fit/ tomorrow.parquet --output tomorrow-predicted.csv
    """
    require(*_NEEDS)
    from tallchain.fitting import Fit
    from tallchain.fitting.saving import written
    from tallchain.report.advice import unseen_levels

    with one_line_errors(SamplingError, NoReferenceError):
        if output.suffix not in (".csv", ".parquet"):
            raise ValueError(f"--output must end in .csv or .parquet; got {output}.")
        options: dict[str, Any] = {"new_levels": new_levels.value, "max_draws": max_draws, "seed": seed}
        prediction = Fit.load(fit).predict(rows, interval, **options)
        found = prediction.to_pandas()
        with writing(output):
            if output.suffix == ".csv":
                written(output, lambda path: found.to_csv(path, index=False))
            else:
                written(output, lambda path: found.to_parquet(path, index=False))
    print(f"written    {output}: {len(found):,} rows")
    for factor, labels in prediction.new_levels.items():
        print(f"note       {unseen_levels(factor, labels)}")


def summary(
    fit: _Folder,
    *,
    effects: Annotated[bool, typer.Option("--effects", help="List the effects of all groups.")] = False,
    json: _Json = False,
) -> None:
    """Print the summary of a fit again.

    Example:
        tallchain summary fit/ --effects
    """
    require(*_NEEDS)
    from tallchain.fitting import Fit

    with one_line_errors(SamplingError, NoReferenceError):
        found = Fit.load(fit)
    print(found.facts.to_json() if json else found.summary(effects=effects or None))


def check(
    fit: _Folder,
    rows: Annotated[
        Path, typer.Argument(metavar="ROWS", readable=False, help="The rows that were fitted.", show_default=False)
    ],
    *,
    decisions: Annotated[int, typer.Option(min=2, help="Decisions to audit; each costs a sweep over all rows.")] = 100,
    test: Annotated[TestChoice, typer.Option(help="What decided, if the fit was given one.")] = TestChoice.AUTO,
    memory: Memory = "4GB",
    json: _Json = False,
    no_progress: NoProgress = False,
) -> None:
    """Audit a fit: repeat decisions of its chains, and compare them with those that all rows would give.

    What is found goes into fit.json and report.html too.

    Example: `tallchain check fit/ flights.parquet`
    """
    require(*_NEEDS)
    from tallchain.fitting import Fit
    from tallchain.fitting.checking import checked

    with one_line_errors(SamplingError, NoReferenceError):
        options: dict[str, Any] = {"num_decisions": decisions, "acceptance": _acceptance(test), "memory": memory}
        found, result = checked(Fit.load(fit), rows, **options, progress=not no_progress)
        with writing(fit):
            found.save(fit)
    print(numbers.dumps(result.to_json(), indent=1) if json else f"{result}\n\nwritten    {fit}")
    raise typer.Exit(0 if result.is_sound else NOT_TO_BE_USED)


# ---- what they share ---------------------------------------------------------------------------


def _check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that has a fit, or cannot be written, before the work is done."""
    from tallchain.fitting.saving import FACTS, new_folders, remove, written

    if (folder / FACTS).exists() and not overwrite:
        raise ValueError(f"--output {folder} has a fit already. Choose another folder, or give --overwrite.")
    with writing(folder), new_folders(folder) as made:
        written(folder / ".check", lambda path: path.write_text(""))
        (folder / ".check").unlink()
    remove(made)


def _acceptance(test: TestChoice) -> Any:
    from tallchain import MHSS, Metropolis, Penalty

    return {"auto": None, "mhss": MHSS(), "penalty": Penalty(), "metropolis": Metropolis()}[test.value]


def _save_draws(error: SamplingError, folder: Path) -> None:
    from tallchain.fitting.saving import DRAWS, write_draws, written

    tree = error.trace.to_datatree()
    written(folder / DRAWS, lambda path: write_draws(tree, path))
    print(f"The draws that were finished are in {folder / DRAWS}.", file=sys.stderr)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def _code(found: Fit) -> int:
    if found.trace.is_interrupted or any(each.code == "scan-interrupted" for each in found.facts.advice):
        return INTERRUPTED
    return NOT_TO_BE_USED if found.facts.is_grave else 0
