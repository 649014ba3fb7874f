"""The section on gradient proposals and on stochastic gradients without a test."""

from __future__ import annotations

from tallchain.experiments import gradients
from tallchain.experiments.document import Picture, Section
from tallchain.pictures.gradients import bias_figure, rows_figure


def gradients_section(result: gradients.Result) -> Section:
    """Both tasks against rows, and the error against the step."""
    config = result.config
    mixture, digits = result.to_tables()
    left_out = [name for name in gradients.CONTENDERS if name not in config.mixture.steps]
    parts = [
        "The paper has random walks only. Here proposals that follow the gradient of a minibatch run under "
        "MinibatchBarker(), with the paper's walk next to them, and the same gradients without a test: SGLD, SGHMC, "
        f"SGNHT and SGFS. A gradient has {gradients.MINIBATCH} rows. Rows are counted in all: those of the test, and "
        "gradients of rows, one for each step of a trajectory.",
        f"Mixture: {config.mixture.rows:,} rows, temperature {config.mixture.rows / 100:,.0f}, "
        f"{config.mixture.repetitions} repetitions of {config.mixture.chains} chains, each from its own draw of the "
        "exact posterior. MNIST-13k: temperature 100, "
        f"{config.digits.repetitions} repetitions of one chain, from 0. The steps are fixed: for the walk the paper's, "
        "for the others steps around the best ones of a grid, the same for all seeds.",
    ]
    if left_out:
        parts.append(
            f"The quick size leaves out {', '.join(left_out)}: `tallchain reproduce gradients` has them. SGFS is on "
            "the mixture only."
        )
    found = result.findings()
    return Section(
        "Gradient proposals, and stochastic gradients without a test",
        [
            *parts,
            mixture,
            *found[:-1],
            Picture(
                "gradients-bias",
                "Variance in the direction in which the posterior is narrowest, and total variation of all draws, "
                "against the step. Without a test both grow with the step. Dotted: the part of the total variation "
                "that is chance.",
                bias_figure(result),
            ),
            digits,
            found[-1],
            Picture(
                "gradients-rows",
                "Total variation and accuracy against rows read in all, each sampler at its best step; mean over "
                "repetitions and one standard deviation.",
                rows_figure(result),
            ),
        ],
    )
