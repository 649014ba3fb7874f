"""The section on the mixture of Gaussians."""

from __future__ import annotations

from tallchain.experiments import gaussian_mixture
from tallchain.experiments.document import Picture, Section, Table
from tallchain.experiments.report.words import (
    PLUS_MINUS,
    ROW_HEADER,
    comparison,
    printed_beside,
    printed_cell,
    verdict_on,
)
from tallchain.experiments.trials import spread
from tallchain.pictures.mixture import mixture_rows, mixture_scatter


def table_1(result: gaussian_mixture.Result) -> Table:
    """The paper's Table 1, next to ours."""
    rows = [
        [
            found.method.name,
            *printed_beside(found.method.rows, found.rows),
            f"{len(found.example['rows_read']):,}",
            f"{found.acceptance:.3f}",
        ]
        for found in result.found
    ]
    title = f"Table 1. Mixture of Gaussians: rows per decision, {result.config.trials} repetitions"
    return Table([*ROW_HEADER, "draws of a repetition", "acceptance"], rows, title, PLUS_MINUS)


def mixture_section(result: gaussian_mixture.Result) -> Section:
    """Rows, draws and distances of every method."""
    config = result.config
    ours, paper = result.of(gaussian_mixture.OURS), result.of(gaussian_mixture.PAPERS)
    exact, worth = result.of("Barker()"), result.of("Barker()").soundness.effective / config.trials
    return Section(
        "Mixture of Gaussians (section 5.1)",
        [
            f"{config.rows:,} rows, temperature {config.rows / 100:,.0f}; every repetition starts from its own draw of "
            "the exact posterior.",
            table_1(result),
            verdict_on([(found.method.name, found.method.rows, found.rows) for found in result.found]),
            "MinibatchBarker.as_published_code() has no prior, like the runs behind the paper's numbers. The "
            f"paper does not print the batch of AustereMH(c) here; it is {config.batch} rows, as for the others.",
            Picture(
                "mixture-draws",
                "Draws of one repetition of every method on contours of its target. The paper's figure shows its "
                "own test, AustereMH(c) and MHSubLhd, in its words with no obvious differences. A repetition is worth "
                f"few independent draws (one of Barker()'s about {worth:.0f}), so the panels differ by chance, most of "
                "all in how far the draws have moved along the ridge.",
                mixture_scatter(result),
            ),
            Picture(
                "mixture-rows",
                "Rows per decision in one repetition, on the same log-log axes. The paper's figure also has a short "
                "tail for its own test and long ones for the other two.",
                mixture_rows(result),
            ),
            "The appendix's two distances between draws and posterior, over bins 0.1 wide, as the authors computed "
            "them and in a sound version; and the total variation between draws and posterior over the same bins.",
            _authors_table(result),
            "As the authors computed them: counts of the draws are rescaled to 5000, and only bins with at least one "
            "draw, observed and expected, are summed over. This statistic is not chi-squared distributed. The draws of "
            "a random walk are correlated and worth a fraction of their number, the rescaling pretends that there are "
            "even more of them, and leaving out bins by their counts leaves out those that disagree most. A few "
            "thousand, as printed, says nothing: the exact test has as much.",
            _sound_table(result),
            "The sound version takes all bins and all repetitions and rescales nothing. Chi-squared is over pools of "
            "neighbouring bins that expect 5 draws or more, with an effective number of draws that makes its mean its "
            "degrees of freedom (Rao and Scott's first-order correction for correlated draws). The ratio is then 1 on "
            "average for draws of the posterior, but varies more than for independent draws: much of it is one "
            "slow number, the spread of the draws along the ridge. It is left out where there are too few effective "
            "draws. The sound log likelihood is for this effective number of draws, so lines with different numbers "
            "cannot be compared.",
            "MinibatchBarker.as_published_code() draws from the posterior without its prior. Its total variation and "
            "sound distances are from that; the authors' two are from the posterior with the prior, as in the paper.",
            comparison(
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
                printed_cell(found.method.poisson),
                f"{found.mean('chi_squared'):,.1f} ± {sd['chi_squared']:,.1f}",
                printed_cell(found.method.chi_squared),
            ]
        )
    return Table(header, rows, "Distances from the posterior as the authors computed them", PLUS_MINUS)


def _sound_table(result: gaussian_mixture.Result) -> Table:
    header = [
        *("test", "total variation (± s.e.)", "effective draws", "effective draws for bins"),
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
    caption = (
        "Effective draws: effective sample size of all repetitions together, of the slower parameter and of bin counts."
    )
    return Table(header, rows, "Sound distances from the posterior", caption)
