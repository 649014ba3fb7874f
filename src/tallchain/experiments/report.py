"""The paper's experiments, one after the other, and the report that holds them against the printed numbers."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tallchain import figures
from tallchain.datasets import infinite_mnist_style
from tallchain.experiments import (
    correction,
    disagreements,
    gaussian_mixture,
    logistic_regression,
    pictures,
    worst_case,
)
from tallchain.experiments.common import Progress
from tallchain.experiments.document import Document, Picture, Section, Table
from tallchain.experiments.trials import Printed, Rows, spread, standard_error

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


def run_all(is_paper: bool, folder: Path, *, seed: int = 0, progress: Progress | None = None) -> Results:
    """Run every experiment, quick or as the paper has it; finished trials in `folder` are not run again."""
    kept = folder / "trials" / ("paper" if is_paper else "quick")

    def size(module: Any, *args: Any) -> Any:
        return module.Config.paper(*args) if is_paper else module.Config.quick(*args)

    def named(name: str) -> Progress:
        return lambda done, total, what: progress(done, total, f"{name}: {what}") if progress else None

    def trials(module: Any, name: str) -> Any:
        return module.run(size(module, seed), folder=kept / name, progress=named(name))

    return Results(
        correction.run(size(correction), progress=named("correction")),
        trials(gaussian_mixture, "mixture"),
        trials(logistic_regression, "logistic regression"),
        worst_case.run(size(worst_case, seed), progress=named("worst case")),
        trials(disagreements, "disagreements"),
    )


def write(results: Results, folder: Path, *, is_paper: bool, seed: int = 0) -> tuple[Path, Path]:
    """Write report.html, report.md, the pictures and the numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for field in dataclasses.fields(results):
        numbers = getattr(results, field.name).to_json()
        (folder / f"{field.name}.json").write_text(json.dumps(numbers, indent=2) + "\n")
    sections = [
        _about(results, is_paper, seed),
        _correction(results.correction),
        _mixture(results.mixture),
        _logistic(results.logistic, seed),
        _worst_case(results.worst_case),
        _disagreements(results.disagreements),
    ]
    return Document("The experiments of the minibatch acceptance test", sections).save(folder)


def main_tables(results: Results) -> dict[str, Table]:
    """The paper's two tables, by title."""
    tables = {"Table 1, mixture of Gaussians: rows per decision": _table_1(results.mixture)}
    for task, found in results.logistic.tables.items():
        tables[f"Table 2, {task}: rows per decision"] = _table_2(found)
    return tables


def _table_1(result: gaussian_mixture.Result) -> Table:
    rows = [
        [found.method.name, *printed_beside(found.method.rows, found.rows), f"{found.acceptance:.3f}"]
        for found in result.found
    ]
    return Table([*ROW_HEADER, "acceptance"], rows)


def _table_2(found: Sequence[logistic_regression.Found]) -> Table:
    rows = [
        [
            each.name,
            *printed_beside(each.printed, each.rows),
            f"{np.mean(each.final):.4f} ± {standard_error(each.final):.4f}",
        ]
        for each in found
    ]
    return Table([*ROW_HEADER, "accuracy at the end"], rows)


# ---- sections ----------------------------------------------------------------------------------


def _about(results: Results, is_paper: bool, seed: int) -> Section:
    size = "as the paper has it" if is_paper else "quick: fewer and shorter trials than the paper's"
    seconds = sum(getattr(results, field.name).seconds for field in dataclasses.fields(results))
    found = ", ".join(f"{name} {version}" for name, version in results.mixture.versions.items())
    return Section(
        "What this is",
        [
            f"The experiments of {PAPER}, run with tallchain, beside the numbers that the paper prints. Size: {size}. "
            f"Seed {seed}; {seconds:,.0f} s of work on {jax.default_backend()}; {found}.",
            "Rows are counted as the paper counts them: those a test looks at. Rows scanned beside them, for bounds or "
            "for the design of a test, have a column of their own; the paper leaves them out.",
        ],
    )


def _correction(result: correction.Result) -> Section:
    within = sum(entry.is_within for entry in result.entries)
    return Section(
        "The correction distribution (appendix)",
        [
            f"The largest error of normal noise plus the correction against logistic. {within} of "
            f"{len(result.entries)} entries are as printed, to within one unit of the last digit. The last lines are "
            "the tables that tallchain uses by default, found by a linear program.",
            Table.of(result.to_table()),
        ],
    )


def _mixture(result: gaussian_mixture.Result) -> Section:
    config = result.config
    ours, paper = result.of(gaussian_mixture.OURS), result.of(gaussian_mixture.PAPERS)
    return Section(
        "Mixture of Gaussians (section 5.1)",
        [
            f"{config.rows:,} rows, temperature {config.rows / 100:,.0f}, {config.trials} trials of {config.draws:,} "
            "draws. Table 1, rows per decision (mean over trials, plus or minus the standard deviation over trials):",
            _table_1(result),
            "MinibatchBarker.as_published_code() has no prior, as the runs behind the paper's numbers had none.",
            Picture(
                "mixture-draws",
                "Draws of one trial of every method on contours of the exact posterior. The paper's figure shows its "
                "own test, AustereMH(c) and MHSubLhd beside the log posterior, with no visible difference; nor is "
                "there one here.",
                pictures.mixture_scatter(result),
            ),
            Picture(
                "mixture-rows",
                "Rows per decision in one trial, on the same log-log axes. In the paper's figure, too, its test is "
                "short-tailed and two to three orders of magnitude to the left of the others.",
                pictures.mixture_rows(result),
            ),
            "The appendix's two distances between draws and posterior, over bins 0.1 wide:",
            _distance_table(result),
            "The first two columns follow the authors' code: counts of the draws are rescaled to 5000, and only bins "
            "with at least one draw, observed and expected, are summed over. Such a chi-squared is not one. The draws "
            "of a random walk are correlated and worth a fraction of their number (last column), the rescaling "
            "pretends that there are even more of them, and leaving out bins by their counts leaves out those that "
            "disagree most: a few thousand, as printed, says nothing. The sound version takes all bins, pools "
            "neighbours until each pool expects 5 draws, and counts as many draws as the trial is worth: then the "
            "ratio of chi-squared to its degrees of freedom is about 1 for draws of the posterior.",
            _comparison(
                "Total variation",
                ours.mean("total_variation"),
                ours.error("total_variation"),
                paper.mean("total_variation"),
                paper.error("total_variation"),
                "below",
            )
            + f" Rows per decision: {ours.rows.mean:,.1f} and {paper.rows.mean:,.1f}.",
        ],
    )


def _distance_table(result: gaussian_mixture.Result) -> Table:
    header = [
        *("test", "log Poisson likelihood", "printed", "chi-squared", "printed", "total variation"),
        *("draws worth, all trials", "sound log Poisson likelihood", "sound chi-squared / d.f.", "p"),
    ]
    rows = []
    for found in result.found:
        sd = {name: spread([getattr(d, name) for d in found.distances]) for name in ("poisson", "chi_squared")}
        sound = found.soundness
        rows.append(
            [
                found.method.name,
                f"{found.mean('poisson'):,.1f} ± {sd['poisson']:,.1f}",
                _printed(found.method.poisson),
                f"{found.mean('chi_squared'):,.1f} ± {sd['chi_squared']:,.1f}",
                _printed(found.method.chi_squared),
                f"{found.mean('total_variation'):.3f} ± {found.error('total_variation'):.3f}",
                f"{sound.effective:,.0f}",
                f"{sound.poisson:,.1f}",
                "" if sound.chi_squared is None else f"{sound.chi_squared:.2f}",
                "" if sound.p_value is None else f"{sound.p_value:.2g}",
            ]
        )
    return Table(header, rows)


def _logistic(result: logistic_regression.Result, seed: int) -> Section:
    parts: list[Any] = []
    for task, found in result.tables.items():
        config = result.config.small if task == result.config.small.name else result.config.large
        parts.append(
            f"{task}: {config.trials} trials of {config.draws:,} draws, steps of standard deviation {config.step:g}, "
            f"temperature {logistic_regression.TEMPERATURE:g}. Table 2, rows per decision:"
        )
        parts.append(_table_2(found))
        ours = result.of(task, logistic_regression.OURS).final
        paper = result.of(task, logistic_regression.PAPERS).final
        parts.append(
            _comparison(
                "Accuracy at the end",
                float(np.mean(ours)),
                standard_error(ours),
                float(np.mean(paper)),
                standard_error(paper),
                "above",
            )
        )
    digits = infinite_mnist_style(result.config.large.further, seed=seed)
    parts += [
        Picture(
            "accuracy",
            "Accuracy on the test images against rows read. As in the paper, the minibatch test gets there with one to "
            "two orders of magnitude fewer rows than the others; right, the temperature falls from 100 to 1 after 400 "
            "draws, and the shorter steps that this takes change the accuracy little.",
            pictures.accuracy_curves(result),
        ),
        *(
            Picture(
                f"rows-{task.lower()}",
                f"{task}, rows per decision in one trial, on the same log-log axes. The paper shows the same order.",
                pictures.logistic_rows(result, task),
            )
            for task in result.tables
        ),
        "The step-size study on MNIST-100k (one trial each): rows per decision grow with the square of the step.",
        Table(
            ["step", "printed", "ours", "ratio"],
            [
                [f"{step:g}", f"{printed:,.1f}", f"{found.rows.mean:,.1f}", f"{found.rows.mean / printed:.2f}"]
                for (step, found), printed in zip(result.study.items(), logistic_regression.STEPS.values(), strict=True)
            ],
        ),
        Picture("steps", "Rows per decision by step, on the same log-log axes.", pictures.step_study(result)),
        "MNIST-100k is not the paper's: its 87,000 further images are made in the style of infinite MNIST, whose file "
        "of displacement fields is not public.",
        Picture(
            "digits",
            "Training images of MNIST, and some made in the style of infinite MNIST.",
            pictures.deformed_digits(digits.train_images[-10:], digits.train_images[:10]),
        ),
    ]
    return Section("Logistic regression (section 5.2)", parts)


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
                "Share of decisions that read every row, mean share of rows, and what temperature and step do to it.",
                figures.worst_case_figure(result),
            ),
        ],
    )


def _disagreements(result: disagreements.Result) -> Section:
    header = ["reading", "rows per decision", "acceptance", "variances, over the exact ones", "error bound, median"]
    of = result.found
    rows = [
        [
            found.name,
            f"{found.rows:,.1f}",
            f"{found.acceptance:.3f}",
            _variances(found),
            "" if found.bound is None else f"{found.bound:.2f}",
        ]
        for found in of.values()
    ]
    config = result.config
    first, second = result.without_prior
    return Section(
        "Where the paper's text and its numbers disagree",
        [
            f"Measured on the mixture ({config.rows:,} rows), {config.chains} chains of {config.draws:,} draws, each "
            "from its own draw of the exact posterior; variances of theta_1 and theta_2, with standard errors from the "
            "spread between chains:",
            Table(header, rows),
            "Standard deviations are called covariances. The text has steps of covariance 0.15 I. Steps of standard "
            f"deviation 0.15 read {of['printed'].rows:,.1f} rows per decision, steps of variance 0.15 "
            f"{of['variance'].rows:,.1f}; the paper prints 182.3.",
            "Sigma 0.9 and the shortcut. The printed sigma is 1. The published code has 0.9, and decides at once if "
            "the estimate is more than 5 of its standard errors from the threshold. With the prior, it reads "
            f"{of['code, prior'].rows:,.1f} rows, without the shortcut {of['no shortcut'].rows:,.1f}, and the test as "
            f"printed {of['printed'].rows:,.1f}.",
            "The prior is printed in the model, and has no part in the published code's test: what it draws from has "
            f"{first:.2f} and {second:.2f} times the variances of the posterior that it is compared with.",
            "The error bound (6.4 E|X|^3 + 2 E|X|)/sqrt(b) of the first corollary holds for X of variance 1, which the "
            "text does not say. So standardised, at the rows in use, its median is "
            f"{of['growth'].bound or math.nan:.2f}, and an error of a probability is never above 1: it says nothing "
            "there.",
            "The growth rule's bias. A batch that grows until its variance is small is a batch chosen for a small "
            "variance; with skewed rows that shifts the estimate, and the posterior's variances come out too small: "
            f"{_variances(of['growth'])} of the exact ones, also with a correction that is exact to six digits. With "
            f"fresh rows for the estimate they are {_variances(of['fresh'])}, with the skewness that is left corrected "
            f"{_variances(of['default'])}.",
            "The correction for skewness in appendix A.5 is that of a mean over its own standard error; the decision "
            "takes the mean itself, for which the expansion is another one. As printed, variances come out at "
            f"{_variances(of['growth, A.5'])}.",
        ],
    )


def _variances(of: disagreements.Found) -> str:
    pairs = zip(of.variances, of.errors, strict=True)
    return " and ".join(f"{value:.3f} ± {error:.3f}" for value, error in pairs)


# ---- words -------------------------------------------------------------------------------------

ROW_HEADER = ["test", "printed", "ours", "ratio", "rows scanned beside"]


def _printed(printed: Printed | None) -> str:
    return "" if printed is None else f"{printed.mean:,.1f} ± {printed.sd:,.1f}"


def printed_beside(printed: Printed | None, rows: Rows) -> list[str]:
    """The cells under `ROW_HEADER`, but for the test's name."""
    ours = f"{rows.mean:,.1f} ± {rows.sd:,.1f}"
    ratio = "" if printed is None else f"{rows.mean / printed.mean:.2f}"
    return [_printed(printed), ours, ratio, f"{rows.scanned:,.0f}"]


def _comparison(what: str, ours: float, our_error: float, paper: float, its_error: float, better: str) -> str:
    """Say whether the default is as good as the printed test, in standard errors of the difference."""
    error = float(np.hypot(our_error, its_error))
    worse = (ours - paper if better == "below" else paper - ours) / error if error else 0.0
    verdict = "not worse" if worse <= 2 else "WORSE"
    return (
        f"{what} of the default, MinibatchBarker(), beside the printed test, MinibatchBarker.paper(): {ours:.4f} ± "
        f"{our_error:.4f} and {paper:.4f} ± {its_error:.4f} (standard errors over trials); {verdict}, by "
        f"{-worse:+.1f} standard errors of the difference."
    )
