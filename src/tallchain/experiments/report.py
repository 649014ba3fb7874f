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
from tallchain.datasets import mnist_1_7
from tallchain.datasets.mnist import deform_each
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
    """Run every experiment, quick or as the paper has it; finished draws in `folder` are not made again."""
    kept = folder / "trials" / ("paper" if is_paper else "quick")

    def size(module: Any, *args: Any) -> Any:
        return module.Config.paper(*args) if is_paper else module.Config.quick(*args)

    def named(name: str) -> Progress:
        return lambda done, total, what: progress(done, total, f"{name}: {what}") if progress else None

    def trials(module: Any, name: str) -> Any:
        return module.run(size(module, seed), folder=kept / name, progress=named(name))

    # Those that keep nothing come last: an interruption before them does not make them run twice.
    mixture = trials(gaussian_mixture, "mixture")
    logistic = trials(logistic_regression, "logistic regression")
    disagree = trials(disagreements, "disagreements")
    corrected = correction.run(size(correction), progress=named("correction"))
    worst = worst_case.run(size(worst_case, seed), progress=named("worst case"))
    return Results(corrected, mixture, logistic, worst, disagree)


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
        _logistic(results.logistic, is_paper, seed),
        *([_rivals(results.logistic)] if results.logistic.repeated else []),
        _worst_case(results.worst_case),
        _disagreements(results.disagreements),
    ]
    return Document("The experiments of the minibatch acceptance test", sections).save(folder)


def main_tables(results: Results) -> list[Table]:
    """The paper's two tables."""
    return [_table_1(results.mixture), *(_table_2(task, found) for task, found in results.logistic.tables.items())]


def _table_1(result: gaussian_mixture.Result) -> Table:
    rows = [
        [
            found.method.name,
            *printed_beside(found.method.rows, found.rows),
            f"{len(found.example['num_rows']):,}",
            f"{found.acceptance:.3f}",
        ]
        for found in result.found
    ]
    title = f"Table 1. Mixture of Gaussians: rows per decision, {result.config.trials} trials"
    return Table([*ROW_HEADER, "draws of a trial", "acceptance"], rows, title, _PLUS_MINUS)


def _table_2(task: str, found: Sequence[logistic_regression.Found]) -> Table:
    rows = [
        [
            each.name,
            *printed_beside(each.printed, each.rows),
            f"{each.read.shape[1]:,}",
            f"{np.mean(each.final):.4f} ± {standard_error(each.final):.4f}",
        ]
        for each in found
    ]
    title = f"Table 2. Logistic regression, {task}: rows per decision, {len(found[0].read)} trials"
    header = [*ROW_HEADER, "draws of a trial", "accuracy at the end (± s.e.)"]
    return Table(header, rows, title, _PLUS_MINUS + " At the end: over the last fifth of the draws.")


# ---- sections ----------------------------------------------------------------------------------


def _about(results: Results, is_paper: bool, seed: int) -> Section:
    size = "as the paper has it" if is_paper else "quick, with shorter trials than the paper's"
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
    exact, worth = result.of("Barker()"), result.of("Barker()").soundness.effective / config.trials
    return Section(
        "Mixture of Gaussians (section 5.1)",
        [
            f"{config.rows:,} rows, temperature {config.rows / 100:,.0f}; every trial starts from its own draw of the "
            "exact posterior.",
            _table_1(result),
            _verdict([(found.method.name, found.method.rows, found.rows) for found in result.found]),
            "MinibatchBarker.as_published_code() has no prior, as the runs behind the paper's numbers had none. The "
            f"paper does not print the batch of AustereMH(c) here; it is {config.batch} rows, as for the others.",
            Picture(
                "mixture-draws",
                "Draws of one trial of every method on contours of what it draws from. The paper's figure shows its "
                "own test, AustereMH(c) and MHSubLhd, in its words with no obvious differences. A trial is worth few "
                f"independent draws (one of Barker()'s about {worth:.0f}), so the panels differ by chance, most of all "
                "in how far the draws have come along the ridge.",
                pictures.mixture_scatter(result),
            ),
            Picture(
                "mixture-rows",
                "Rows per decision in one trial, on the same log-log axes. The paper's figure, too, has a short tail "
                "for its own test and long ones for the other two.",
                pictures.mixture_rows(result),
            ),
            "The appendix's two distances between draws and posterior, over bins 0.1 wide, as the authors computed "
            "them and in a sound version; and the total variation between draws and posterior over the same bins.",
            _authors_table(result),
            "As the authors computed them: counts of the draws are rescaled to 5000, and only bins with at least one "
            "draw, observed and expected, are summed over. Such a chi-squared is not one. The draws of a random walk "
            "are correlated and worth a fraction of their number, the rescaling pretends that there are even more of "
            "them, and leaving out bins by their counts leaves out those that disagree most: a few thousand, as "
            "printed, says nothing. Also the exact test has as much.",
            _sound_table(result),
            "The sound version takes all bins and all trials and rescales nothing. Chi-squared is over pools of "
            "neighbouring bins that expect 5 draws or more, and counts the draws as so many that its mean is its "
            "degrees of freedom (Rao and Scott's first-order correction for correlated draws). The ratio is then 1 on "
            "average for draws of the posterior, but scatters more than that of independent draws: much of it is one "
            "slow number, how the draws spread along the ridge. It is left out where the draws are worth too few. The "
            "sound log likelihood is that of as many draws, so lines of different worth do not compare.",
            "MinibatchBarker.as_published_code() draws from the posterior without its prior. Its total variation and "
            "sound distances are from that; the authors' two are from the posterior with the prior, as theirs were.",
            _comparison(
                "Total variation",
                (ours.mean("total_variation"), ours.error("total_variation")),
                (paper.mean("total_variation"), paper.error("total_variation")),
                ours.rows,
                paper.rows,
                is_less_better=True,
            )
            + " Most of it is Monte Carlo error, which hides a bias of some per cent in the variances (see the last "
            "section): the exact test, Barker(), has "
            f"{exact.mean('total_variation'):.4f} ± {exact.error('total_variation'):.4f} on as many draws or fewer.",
        ],
    )


def _authors_table(result: gaussian_mixture.Result) -> Table:
    header = ["test", "log Poisson likelihood", "printed", "chi-squared", "printed"]
    rows = []
    for found in result.found:
        sd = {name: spread([getattr(d, name) for d in found.distances]) for name in ("poisson", "chi_squared")}
        rows.append(
            [
                found.method.name,
                f"{found.mean('poisson'):,.1f} ± {sd['poisson']:,.1f}",
                _printed(found.method.poisson),
                f"{found.mean('chi_squared'):,.1f} ± {sd['chi_squared']:,.1f}",
                _printed(found.method.chi_squared),
            ]
        )
    return Table(header, rows, "Distances from the posterior as the authors computed them", _PLUS_MINUS)


def _sound_table(result: gaussian_mixture.Result) -> Table:
    header = [
        *("test", "total variation (± s.e.)", "draws worth", "draws worth for bins"),
        *("log Poisson likelihood", "chi-squared / d.f."),
    ]
    rows = [
        [
            found.method.name,
            f"{found.mean('total_variation'):.3f} ± {found.error('total_variation'):.3f}",
            f"{found.soundness.effective:,.0f}",
            f"{found.soundness.of_bins:,.0f}",
            f"{found.soundness.poisson:,.1f}",
            "" if found.soundness.chi_squared is None else f"{found.soundness.chi_squared:.2f}",
        ]
        for found in result.found
    ]
    caption = "Draws worth: effective sample size of all trials together, of the slower parameter and of bin counts."
    return Table(header, rows, "Sound distances from the posterior", caption)


def _logistic(result: logistic_regression.Result, is_paper: bool, seed: int) -> Section:
    parts: list[Any] = []
    if not is_paper:
        parts.append(
            "The trials here are shorter than the paper's, and all start from 0. Over its first draws the paper's "
            "test reads more rows than later, and the others fewer, most of all on MNIST-100k."
        )
    for task, found in result.tables.items():
        config = result.config.small if task == result.config.small.name else result.config.large
        ours, paper = (result.of(task, name) for name in (logistic_regression.OURS, logistic_regression.PAPERS))
        parts += [
            f"{task}: steps of standard deviation {config.step:g}, temperature {logistic_regression.TEMPERATURE:g}, "
            "every trial from 0.",
            _table_2(task, found),
            _verdict([(each.name, each.printed, each.rows) for each in found]),
            _comparison(
                "Accuracy at the end",
                (float(np.mean(ours.final)), standard_error(ours.final)),
                (float(np.mean(paper.final)), standard_error(paper.final)),
                ours.rows,
                paper.rows,
                is_less_better=False,
            )
            + " It reads more, since a pilot batch gives it the variance, and fresh rows the estimate.",
        ]
    originals = mnist_1_7().train_images[:_SHOWN]
    deformed = deform_each(originals, np.random.default_rng(seed))
    parts += [
        Picture(
            "accuracy",
            "Accuracy on the test images against rows read, and, right, by draw where the temperature falls from 100 "
            "to 1 after 400 draws (dashed) and steps are shorter by as much. The paper's figure has its own test ahead "
            "of the others, and an accuracy that changes little after the temperature has fallen.",
            pictures.accuracy_curves(result),
        ),
        _accuracy_table(result),
        "The paper says: more than an order of magnitude fewer rows than AustereMH(nc), and several than AustereMH(c) "
        "and MHSubLhd.",
        *(
            Picture(
                f"rows-{task.lower()}",
                f"{task}, rows per decision in one trial, on the same log-log axes. The paper's figure has the tests "
                "in the same order, its own short-tailed.",
                pictures.logistic_rows(result, task),
            )
            for task in result.tables
        ),
        "The step-size study on MNIST-100k (one trial each). The variance of the log ratio grows with the square of "
        "the step; the rows follow it well above m = 100, of which there is always one batch.",
        Table(
            ["step", "printed", "ours", "ratio"],
            [
                [f"{step:g}", f"{printed:,.1f}", f"{found.rows.mean:,.1f}", f"{found.rows.mean / printed:.2f}"]
                for (step, found), printed in zip(result.study.items(), logistic_regression.STEPS.values(), strict=True)
            ],
        ),
        Picture(
            "steps",
            "Rows per decision by step, on the same log-log axes. The paper's figure, too, moves to the right and "
            "widens with the step.",
            pictures.step_study(result),
        ),
        "MNIST-100k is not the paper's: its 87,000 further images are made in the style of infinite MNIST, whose file "
        "of displacement fields is not public.",
        Picture(
            "digits",
            "Training images of MNIST, and below each what a deformation in the style of infinite MNIST makes of it.",
            pictures.deformed_digits(deformed, originals),
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
    caption = "Median over trials of the rows read until a draw first reaches it; inf: most trials do not."
    return Table(["images", "test", *(f"accuracy {a:g}" for a in wanted)], rows, "Rows read to an accuracy", caption)


def _rivals(result: logistic_regression.Result) -> Section:
    """Why the other tests read more rows of MNIST-100k here than the paper prints."""
    small, large = result.config.small, result.config.large
    names = logistic_regression.REPEATED_METHODS
    parts = [draws for draws in logistic_regression.PARTS if draws <= large.draws]
    cells = {each.name: each for each in result.repeated}
    first, growth, again, ratios = [], [], [], []
    for name in names:
        before, after = result.of(small.name, name), result.of(large.name, name)
        assert before.printed is not None
        assert after.printed is not None
        first.append([name, f"{after.printed.mean:,.1f}", *(_over(after, draws) for draws in parts)])
        growth.append(
            [
                name,
                f"{after.printed.mean / before.printed.mean:.2f}",
                f"{after.rows.mean / before.rows.mean:.2f}",
            ]
        )
        count = cells[name].read.shape[1]
        deformed = float(after.read[:, :count].mean())
        ratios.append(cells[name].rows.mean / deformed)
        again.append([name, f"{cells[name].rows.mean:,.1f}", f"{deformed:,.1f}", f"{count:,}"])
    paper = result.of(small.name, names[0]).printed, result.of(large.name, names[0]).printed
    assert paper[0] is not None
    assert paper[1] is not None
    law = math.sqrt(paper[1].mean / paper[0].mean * 100_000 / 13_000)
    return Section(
        "Rows of the other tests on MNIST-100k",
        [
            "The paper's test reads about as many rows here as it prints, on both data sets, and on MNIST-13k so do "
            "the others. On MNIST-100k AustereMH and MHSubLhd read several times more than it prints.",
            "It is not the images: with MNIST's own, each seven or eight times, 100,007 in all, the rows per decision "
            f"are {min(ratios):.2f} to {max(ratios):.2f} times those with deformed ones.",
            Table(["test", "MNIST's own, repeated", "infinite-MNIST style", "first draws of a trial"], again),
            "Nor do the paper's own numbers lead one to expect so few. To see on which side of the threshold a log "
            "ratio lies, at a distance g, with a variance v of the estimate from one row, takes about v/g^2 rows up to "
            "a factor, and at most N. The density of g near 0 depends on neither, so the mean over decisions grows as "
            "sqrt(v N). The minibatch test reads about v; by the paper's own rows for "
            f"it, the others should read sqrt(216.5/125.4 * 100,000/13,000) = {law:.1f} times as many on MNIST-100k "
            "as on MNIST-13k (MHSubLhd, which reads most of MNIST-13k, up to that):",
            Table(["test", "printed, 100k over 13k", "ours, 100k over 13k"], growth),
            "What comes near the printed numbers is the very beginning of a trial, where the chain is far from the "
            "posterior and most decisions are easy. Rows per decision over the first draws:",
            Table(["test", "printed", *(f"{draws:,} draws" for draws in parts)], first),
            "What the chains behind the printed numbers did, the paper does not let us tell.",
        ],
    )


def _over(found: logistic_regression.Found, draws: int) -> str:
    return f"{found.over_first[draws]:,.1f}" if draws in found.over_first else ""


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
    bound = of["growth"].bound
    assert bound is not None
    return Section(
        "Where the paper's text and its numbers disagree",
        [
            f"Measured on the mixture ({config.rows:,} rows), {config.chains} chains of {config.draws:,} draws, each "
            "from its own draw of the exact posterior, none left out; variances of theta_1 and theta_2 over those of "
            "what each reading draws from, with standard errors from the spread between chains:",
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
            f"text does not say. So standardised, its median over decisions is {bound:.2f}; an error of a probability "
            f"is never above 1, so it says {'nothing' if bound >= 1 else 'next to nothing'} here.",
            "The growth rule's bias. A batch that grows until its variance is small is a batch chosen for a small "
            "variance; with skewed rows that shifts the estimate. Variances with the growth rule, and a table for the "
            f"correction that is right to six digits: {_told(of['growth'])}. With fresh rows for the estimate: "
            f"{_told(of['fresh'])}; with the skewness that is left corrected, too: {_told(of['default'])}.",
            "The correction for skewness in appendix A.5 is that of a mean over its own standard error; the decision "
            "takes the mean itself, for which the expansion is another one. As printed, with the growth rule that it "
            f"was made for: {_told(of['growth, A.5'])}.",
        ],
    )


def _variances(of: disagreements.Found) -> str:
    pairs = zip(of.variances, of.errors, strict=True)
    return " and ".join(f"{value:.3f} ± {error:.3f}" for value, error in pairs)


def _told(of: disagreements.Found) -> str:
    """The variances, and whether they are the exact ones."""
    away = max(abs(value - 1) / error for value, error in zip(of.variances, of.errors, strict=True))
    is_off = away > _SIGMAS
    return f"{_variances(of)}, " + (
        f"{away:.0f} standard errors from 1" if is_off else "no difference from 1 to be seen"
    )


# ---- words -------------------------------------------------------------------------------------

ROW_HEADER = ["test", "printed", "ours", "ratio", "rows scanned beside"]
_PLUS_MINUS = "± is the standard deviation over trials, where not said otherwise."
_SHOWN = 10  # digits
_FAR = 1.5  # of a ratio to the printed number
_SIGMAS = 3.0  # beyond which a difference is told


def _printed(printed: Printed | None) -> str:
    return "" if printed is None else f"{printed.mean:,.1f} ± {printed.sd:,.1f}"


def printed_beside(printed: Printed | None, rows: Rows) -> list[str]:
    """The cells under `ROW_HEADER`, but for the test's name."""
    ours = f"{rows.mean:,.1f} ± {rows.sd:,.1f}"
    ratio = "" if printed is None else f"{rows.mean / printed.mean:.2f}"
    return [_printed(printed), ours, ratio, f"{rows.scanned:,.0f}"]


def _verdict(found: Sequence[tuple[str, Printed | None, Rows]]) -> str:
    """Say how far ours are from the printed numbers."""
    ratios = {name: rows.mean / printed.mean for name, printed, rows in found if printed is not None}
    far = [name for name, ratio in ratios.items() if not 1 / _FAR < ratio < _FAR]
    return f"Ours over the printed: {min(ratios.values()):.2f} to {max(ratios.values()):.2f}. " + (
        f"Beyond a factor of {_FAR:g}: {', '.join(far)}." if far else f"None is beyond a factor of {_FAR:g}."
    )


def _comparison(
    what: str,
    ours: tuple[float, float],
    paper: tuple[float, float],
    our_rows: Rows,
    its_rows: Rows,
    *,
    is_less_better: bool,
) -> str:
    """Hold the default against the printed test: value and standard error of each, and rows."""
    worse = (ours[0] - paper[0]) * (1 if is_less_better else -1)
    error = math.hypot(ours[1], paper[1])
    away = abs(worse) / error if error else math.inf
    verdict = f"the default is {'worse' if worse > 0 else 'better'}"
    if away <= 2:
        verdict = "no difference to be seen"
    rows = [f"{of.mean:,.1f} ± {standard_error(of.trials):,.1f}" for of in (our_rows, its_rows)]
    return (
        f"The default, MinibatchBarker(), beside the printed test, MinibatchBarker.paper() (± standard errors over "
        f"trials). {what}: {ours[0]:.4f} ± {ours[1]:.4f} and {paper[0]:.4f} ± {paper[1]:.4f}: {verdict} "
        f"({away:.1f} standard errors of the difference). "
        f"Rows per decision: {rows[0]} and {rows[1]}."
    )
