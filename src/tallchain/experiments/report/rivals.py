"""The section on the other tests on MNIST-100k."""

from __future__ import annotations

import math

from tallchain.experiments import logistic_regression
from tallchain.experiments.document import Section, Table


def rivals_section(result: logistic_regression.Result) -> Section:
    """Explain why the other tests read more rows of MNIST-100k here than the paper prints."""
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
            "The images are not the reason: with MNIST's own, each seven or eight times, 100,007 in all, the rows per "
            f"decision are {min(ratios):.2f} to {max(ratios):.2f} times those with deformed ones.",
            Table(["test", "MNIST's own, repeated", "infinite-MNIST style", "first draws of a repetition"], again),
            "The paper's own numbers do not suggest such small counts either. To see on which side of the threshold a "
            "log ratio lies, at a distance g and with a variance v of the estimate from one row, takes about v/g^2 "
            "rows up to a factor, and at most N. The density of g near 0 depends on neither, so the mean over "
            "decisions grows as sqrt(v N). The minibatch test reads about v; by the paper's own rows for "
            f"it, the others should read sqrt(216.5/125.4 * 100,000/13,000) = {law:.1f} times as many on MNIST-100k "
            "as on MNIST-13k (MHSubLhd, which reads most of MNIST-13k, up to that):",
            Table(["test", "printed, 100k over 13k", "ours, 100k over 13k"], growth),
            "Only the very beginning of a repetition comes near the printed numbers. There the chain is far from the "
            "posterior and most decisions are easy. Rows per decision over the first draws:",
            Table(["test", "printed", *(f"{draws:,} draws" for draws in parts)], first),
            "The paper does not say what the chains behind the printed numbers did.",
        ],
    )


def _over(found: logistic_regression.Found, draws: int) -> str:
    return f"{found.over_first[draws]:,.1f}" if draws in found.over_first else ""
