"""Rows per decision against N, by order of the surrogate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.peers.ours import draw_ours
from benchmarks.peers.problem import Problem
from benchmarks.peers.targets import SEED, simulated
from tallchain.plots.style import BLUE, GREEN, GREY, VERMILION, panels
from tallchain.surrogates import Taylor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 50  # rows per look
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
MOST_WITHOUT = 100_000  # largest N for a test without a surrogate, which reads most rows


def rows_at(problem: Problem, order: int | None, chains: int, draws: int, warmup: int = 20) -> dict[str, Any]:
    """Rows per decision of the random walk with `MinibatchBarker(1.2, batch=50)`, from the Laplace approximation."""
    model = problem.target.model
    surrogate = None if order is None else Taylor(model.posterior, model.data, problem.reference, order=order)
    kernel = tc.MetropolisHastings(
        model.posterior,
        tc.Shuffled(model.data, BATCH),
        proposal=tc.RandomWalk.preconditioned(problem.laplace),
        acceptance=tc.MinibatchBarker(1.2, batch=BATCH),
        surrogate=surrogate,
    )
    starts = np.asarray(problem.starts(jr.key(SEED), chains))
    trace = draw_ours(jr.key(SEED + 1), kernel, starts, draws, warmup)
    return {
        "rows": problem.target.num_rows,
        "order": order or 0,
        "rows_per_decision": float(trace.rows_read.mean()),
        "standard_error": float(trace.rows_read.mean(1).std(ddof=1) / np.sqrt(chains)),
        "acceptance": float(trace.is_accepted.mean()),
        "decisions": trace.rows_read.size,
    }


def rows_against_n(sizes: Iterable[int] = SIZES, chains: int = 64, draws: int = 200) -> Iterator[dict[str, Any]]:
    """Measure every size and order, the small ones first."""
    for size in sizes:
        problem = Problem.of(simulated(size))
        for order in (None, 1, 2) if size <= MOST_WITHOUT else (1, 2):
            found = rows_at(problem, order, 4, 8, 2) if order is None else rows_at(problem, order, chains, draws)
            print(found, flush=True)
            yield found


def rows_figure(records: list[dict[str, Any]]) -> Figure:
    """Draw rows per decision against N, by order."""
    figure, [[axes]] = panels((6.5, 4.2), dpi=120)
    sizes = sorted({record["rows"] for record in records})
    axes.plot(sizes, sizes, color=GREY, lw=1, ls=":", label="all rows")
    for order, color, marker in ((0, VERMILION, "s"), (1, BLUE, "o"), (2, GREEN, "^")):
        points = [(record["rows"], record["rows_per_decision"]) for record in records if record["order"] == order]
        label = f"Taylor, order {order}" if order else "no surrogate"
        axes.plot(*zip(*points, strict=True), color=color, marker=marker, lw=1.5, label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows in the data, N", ylabel="rows per decision")
    axes.set_title("Logistic regression, d = 20, temperature 1", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    return figure
