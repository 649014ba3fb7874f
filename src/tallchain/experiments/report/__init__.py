"""The paper's experiments, one after the other, and the report that compares them with the printed numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax

from tallchain.experiments import (
    correction,
    disagreements,
    gaussian_mixture,
    gradients,
    logistic_regression,
    worst_case,
)
from tallchain.experiments.common import Progress
from tallchain.experiments.document import Document, Picture, Section, Table
from tallchain.experiments.report.logistic import logistic_section, table_2
from tallchain.experiments.report.mixture import mixture_section, table_1
from tallchain.experiments.report.proposals import gradients_section
from tallchain.experiments.report.readings import disagreements_section
from tallchain.experiments.report.rivals import rivals_section
from tallchain.pictures.worst_case import worst_case_figure

PAPER = (
    "D. Seita, X. Pan, H. Chen and J. Canny, An Efficient Minibatch Acceptance Test for Metropolis-Hastings, UAI 2017"
)


@dataclasses.dataclass(frozen=True)
class Results:
    """What all experiments found."""

    correction: correction.Result
    mixture: gaussian_mixture.Result
    logistic: logistic_regression.Result
    worst_case: worst_case.Result
    disagreements: disagreements.Result
    gradients: gradients.Result


def run_all(is_paper: bool, folder: Path, *, seed: int = 0, progress: Progress | None = None) -> Results:
    """Run every experiment, quick or as the paper has it; finished draws in `folder` are not made again."""
    kept = folder / "trials" / ("paper" if is_paper else "quick")

    def size(module: Any, *args: Any) -> Any:
        return module.Config.paper(*args) if is_paper else module.Config.quick(*args)

    def named(name: str) -> Progress:
        return lambda done, total, what: progress(done, total, f"{name}: {what}") if progress else None

    def trials(module: Any, name: str) -> Any:
        return module.run(size(module, seed), folder=kept / name, progress=named(name))

    # Experiments that keep nothing come last, so that an interruption before them does not make them run twice.
    mixture = trials(gaussian_mixture, "mixture")
    logistic = trials(logistic_regression, "logistic regression")
    disagree = trials(disagreements, "disagreements")
    along = trials(gradients, "gradients")
    corrected = correction.run(size(correction), progress=named("correction"))
    worst = worst_case.run(size(worst_case, seed), progress=named("worst case"))
    return Results(corrected, mixture, logistic, worst, disagree, along)


def write(results: Results, folder: Path, *, is_paper: bool, seed: int = 0) -> tuple[Path, Path]:
    """Write report.html, report.md, the pictures and the numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for field in dataclasses.fields(results):
        numbers = getattr(results, field.name).to_json()
        (folder / f"{field.name}.json").write_text(json.dumps(numbers, indent=2) + "\n")
    sections = [
        _about(results, is_paper, seed),
        _correction(results.correction),
        mixture_section(results.mixture),
        logistic_section(results.logistic, is_paper, seed),
        *([rivals_section(results.logistic)] if results.logistic.repeated else []),
        _worst_case(results.worst_case),
        disagreements_section(results.disagreements),
        gradients_section(results.gradients),
    ]
    return Document("The experiments of the minibatch acceptance test", sections).save(folder)


def main_tables(results: Results) -> list[Table]:
    """The paper's two tables."""
    return [table_1(results.mixture), *(table_2(task, found) for task, found in results.logistic.tables.items())]


def _about(results: Results, is_paper: bool, seed: int) -> Section:
    size = "as the paper has it" if is_paper else "quick, with shorter repetitions than the paper's"
    seconds = sum(getattr(results, field.name).seconds for field in dataclasses.fields(results))
    found = ", ".join(f"{name} {version}" for name, version in results.mixture.versions.items())
    return Section(
        "What this is",
        [
            f"The experiments of {PAPER}, run with tallchain, next to the numbers that the paper prints. Size: {size}. "
            f"Seed {seed}; {seconds:,.0f} s of work on {jax.default_backend()}; {found}.",
            "Rows are counted as the paper counts them: those a test looks at. Additional rows scanned, for bounds or "
            "for the design of a test, have a column of their own; the paper leaves them out.",
        ],
    )


def _correction(result: correction.Result) -> Section:
    within = sum(entry.is_within for entry in result.entries)
    return Section(
        "The correction distribution (appendix)",
        [
            f"The largest difference between normal noise plus the correction and logistic. {within} of "
            f"{len(result.entries)} entries are as printed, to within one unit of the last digit. The last lines are "
            "the tables that tallchain uses by default, found by a linear program.",
            Table.of(result.to_table()),
        ],
    )


def _worst_case(result: worst_case.Result) -> Section:
    return Section(
        "The worst case (section 2.2)",
        [
            "A Gaussian mean at temperature 1, with steps as wide as the posterior: how often a test needs every row.",
            Table.of(result.to_table()),
            Table.of(result.to_study_table()),
            *result.findings(),
            Picture(
                "worst-case",
                "Share of decisions that read every row, mean share of rows, and how both depend on temperature and "
                "step.",
                worst_case_figure(result),
            ),
        ],
    )
