"""The section on logistic regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallchain.datasets import mnist_1_7
from tallchain.datasets.mnist import deform_each
from tallchain.experiments import logistic_regression
from tallchain.experiments.document import Picture, Section, Table
from tallchain.experiments.report.words import PLUS_MINUS, ROW_HEADER, comparison, printed_beside, verdict_on
from tallchain.experiments.trials import standard_error
from tallchain.pictures.logistic import accuracy_curves, deformed_digits, logistic_rows, step_study

_SHOWN = 10  # digits


def table_2(task: str, found: Sequence[logistic_regression.Found]) -> Table:
    """The paper's Table 2 for one data set, next to ours."""
    rows = [
        [
            each.name,
            *printed_beside(each.printed, each.rows),
            f"{each.read.shape[1]:,}",
            f"{np.mean(each.final):.4f} ± {standard_error(each.final):.4f}",
        ]
        for each in found
    ]
    title = f"Table 2. Logistic regression, {task}: rows per decision, {len(found[0].read)} repetitions"
    header = [*ROW_HEADER, "draws of a repetition", "accuracy at the end (± s.e.)"]
    return Table(header, rows, title, PLUS_MINUS + " At the end: over the last fifth of the draws.")


def logistic_section(result: logistic_regression.Result, is_paper: bool, seed: int) -> Section:
    """Rows and accuracy of every method, and the study of the step."""
    parts: list[Any] = []
    if not is_paper:
        parts.append(
            "The repetitions here are shorter than the paper's, and all start from 0. Over its first draws the paper's "
            "test reads more rows than later, and the others fewer, most of all on MNIST-100k."
        )
    for task, found in result.tables.items():
        config = result.config.small if task == result.config.small.name else result.config.large
        ours, paper = (result.of(task, name) for name in (logistic_regression.OURS, logistic_regression.PAPERS))
        parts += [
            f"{task}: steps of standard deviation {config.step:g}, temperature {logistic_regression.TEMPERATURE:g}, "
            "every repetition from 0.",
            table_2(task, found),
            verdict_on([(each.name, each.printed, each.rows) for each in found]),
            comparison(
                "Accuracy at the end",
                (float(np.mean(ours.final)), standard_error(ours.final)),
                (float(np.mean(paper.final)), standard_error(paper.final)),
                ours.rows,
                paper.rows,
                is_less_better=False,
            )
            + " It reads more rows: a pilot batch gives the variance, and fresh rows the estimate.",
        ]
    originals = mnist_1_7().train_images[:_SHOWN]
    deformed = deform_each(originals, np.random.default_rng(seed))
    parts += [
        Picture(
            "accuracy",
            "Accuracy on the test images against rows read. Right: by draw, where the temperature falls from 100 "
            "to 1 after 400 draws (dashed) and steps get shorter by the same factor. The paper's figure has its own "
            "test ahead of the others, and an accuracy that changes little after the temperature has fallen.",
            accuracy_curves(result),
        ),
        _accuracy_table(result),
        "The paper claims more than an order of magnitude fewer rows than AustereMH(nc), and several than AustereMH(c) "
        "and MHSubLhd.",
        *(
            Picture(
                f"rows-{task.lower()}",
                f"{task}, rows per decision in one repetition, on the same log-log axes. The paper's figure has the "
                "tests in the same order, its own short-tailed.",
                logistic_rows(result, task),
            )
            for task in result.tables
        ),
        "The step-size study on MNIST-100k (one repetition each). The variance of the log ratio grows with the square "
        "of the step. The rows follow it when they are well above m = 100, since at least one batch is always read.",
        Table(
            ["step", "printed", "ours", "ratio"],
            [
                [f"{step:g}", f"{printed:,.1f}", f"{found.rows.mean:,.1f}", f"{found.rows.mean / printed:.2f}"]
                for (step, found), printed in zip(result.study.items(), logistic_regression.STEPS.values(), strict=True)
            ],
        ),
        Picture(
            "steps",
            "Rows per decision by step, on the same log-log axes. The paper's figure also moves to the right and "
            "widens with the step.",
            step_study(result),
        ),
        "MNIST-100k is not the paper's: its 87,000 additional images are made in the style of infinite MNIST, whose "
        "file of displacement fields is not public.",
        Picture(
            "digits",
            "Training images of MNIST, and below each a deformation of it in the style of infinite MNIST.",
            deformed_digits(deformed, originals),
        ),
    ]
    return Section("Logistic regression (section 5.2)", parts)


def _accuracy_table(result: logistic_regression.Result) -> Table:
    wanted = logistic_regression.ACCURACIES
    rows = [
        [task, each.name, *(f"{each.rows_to_accuracy[a]:,.0f}" for a in wanted)]
        for task, found in result.tables.items()
        for each in found
    ]
    caption = "Median over repetitions of the rows read until a draw first reaches it; inf: most repetitions do not."
    return Table(["images", "test", *(f"accuracy {a:g}" for a in wanted)], rows, "Rows read to an accuracy", caption)
