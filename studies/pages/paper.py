"""Pieces from the report at the paper's sizes, which `tallchain reproduce --paper` writes into results/paper/.

`tallchain reproduce gradients --output results/paper/gradients.json` alone writes that of the gradients.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks.records import table
from studies.study import ROOT
from tallchain.experiments.logistic_regression import ACCURACIES
from tallchain.experiments.report.words import ROW_HEADER, printed_beside
from tallchain.experiments.trials import Printed, Rows, standard_error


def pieces() -> dict[str, str]:
    """The paper's tables, its worst case, and gradient proposals on its two experiments."""
    return {
        "table_1": table_1(reproduced("mixture")),
        "table_2": table_2(reproduced("logistic")),
        "worst_case": worst_case(reproduced("worst_case")),
        "gradients_steps": gradients_steps(reproduced("gradients")),
        "gradients_digits": gradients_digits(reproduced("gradients")),
    }


def reproduced(name: str) -> dict[str, Any]:
    """Read what an experiment found."""
    return json.loads((ROOT / "results" / "paper" / f"{name}.json").read_text())


def table_1(record: dict[str, Any]) -> str:
    """Rows per decision on the paper's mixture, next to the printed ones."""
    rows = [
        _cells(
            name,
            found["printed"]["rows"],
            found["rows"],
            [each["total_variation"] for each in found["distances"]],
            3,
        )
        for name, found in record["methods"].items()
    ]
    config = record["config"]
    return (
        table([*ROW_HEADER, "total variation (± s.e.)"], rows)
        + f"\n\n{config['rows']:,} rows, {config['trials']} repetitions of {config['draws']:,} draws, seed "
        f"{config['seed']}."
    )


def table_2(record: dict[str, Any]) -> str:
    """Rows per decision on MNIST, next to the printed ones."""
    return "\n\n".join(
        f"{task['name']}, {task['trials']} repetitions of {task['draws']:,} draws:\n\n"
        + table(
            [*ROW_HEADER, "accuracy at the end (± s.e.)"],
            [
                _cells(name, found["printed"], found["rows"], found["final_accuracy"], 4)
                for name, found in record["tables"][task["name"]].items()
            ],
        )
        for task in (record["config"]["small"], record["config"]["large"])
    )


def _cells(
    name: str, printed: list[float] | None, rows: dict[str, Any], of_trials: list[float], digits: int
) -> list[str]:
    last = f"{np.mean(of_trials):.{digits}f} ± {standard_error(of_trials):.{digits}f}"
    return [f"`{name}`", *printed_beside(Printed(*printed) if printed else None, Rows(**rows)), last]


def worst_case(record: dict[str, Any]) -> str:
    """Shares of full reads and of rows, by test and N."""
    sizes = sorted({entry["num_rows"] for entry in record["entries"]})
    cells = {(entry["test"], entry["num_rows"]): entry for entry in record["entries"]}
    rows = []
    for test in dict.fromkeys(entry["test"] for entry in record["entries"]):
        label = cells[test, sizes[0]]["label"]
        full = [f"{cells[test, n]['full_share']:.4f}" for n in sizes]
        mean = [f"{cells[test, n]['mean_share']:.2f}" for n in sizes]
        rows.append([label, *(f"{a}; {b}" for a, b in zip(full, mean, strict=True))])
    header = ["share of decisions that read all N rows; mean share of rows", *(f"N = {n:,}" for n in sizes)]
    return table(header, rows)


def gradients_steps(record: dict[str, Any]) -> str:
    """Variances and total variation on the mixture, by sampler and step."""
    header = ["sampler", "step", "rows of a draw", "variance, narrow", "by formula", "variance, wide"]
    rows = [
        [
            *(f"`{entry['name']}`", f"{entry['step']:g}", _rows(entry["rows"])),
            f"{entry['variance_narrow']['value']:.3f} ± {entry['variance_narrow']['error']:.3f}",
            "" if (formula := entry["variance_narrow_expected"]) is None else f"{formula:.3f}",
            f"{entry['variance_wide']['value']:.3f} ± {entry['variance_wide']['error']:.3f}",
            f"{entry['total_variation']:.3f}, {entry['total_variation_by_chance']:.3f}",
        ]
        for entry in record["mixture"]
    ]
    return table([*header, "total variation, by chance"], rows)


def gradients_digits(record: dict[str, Any]) -> str:
    """Rows in all to an accuracy on MNIST-13k, by sampler and step."""
    wanted = [f"{accuracy:g}" for accuracy in ACCURACIES]
    rows = [
        [
            *(f"`{entry['name']}`", f"{entry['step']:g}", _rows(entry["rows"])),
            *(f"{entry['rows_to_accuracy'].get(accuracy, float('inf')):,.0f}" for accuracy in wanted),
            f"{np.mean(entry['final_accuracy']):.4f} ± {standard_error(entry['final_accuracy']):.4f}",
        ]
        for entry in record["digits"]
    ]
    header = ["sampler", "step", "rows of a draw", *(f"rows to {accuracy}" for accuracy in wanted)]
    return table([*header, "accuracy at the end"], rows)


def _rows(cost: dict[str, float]) -> str:
    """Of the test, and gradients."""
    return f"{cost['test']:,.0f} + {cost['gradients']:,.0f}"
