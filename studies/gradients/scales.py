"""Effective draws per row against the scale of a proposal, and of one whose scale is adapted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import random as jr

import tallchain as tc
from tallchain.abilities import ReadingProposal
from tallchain.plots.style import BLUE, GREEN, ORANGE, VERMILION, panels, shared_legend
from tallchain.proposals import PCN, Hamiltonian, Langevin, Laplace, RandomWalk
from tallchain.tuning import best_acceptance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED, WARMUP, ROWS, NUM_STEPS = 5, 400, 100, 5
WORDS = {
    "mixture": "the paper's mixture, N = 20,000, K = 200, d = 2, MinibatchBarker(), 50 rows a look",
    "logistic, K = 200": "logistic regression, N = 20,000, d = 10, K = 200, MinibatchBarker(), 50 rows a look",
    "logistic, surrogate": "logistic regression, N = 20,000, d = 20, K = 1, Penalty(), order 2",
    "linear, order 1": "linear regression, N = 20,000, d = 10, K = 1, Penalty(), order 1",
}


class Place(NamedTuple):
    """A target, and what proposals are made of."""

    kernel_of: Callable[[Any], tc.MetropolisHastings]
    laplace: Laplace
    starts: Callable[[int, int], Any]
    """Of so many chains, by seed."""


def mixture(share: float) -> Place:
    """Two modes; the covariance is that of all of it."""
    count = int(20_000 * share)
    model = tc.models.gaussian_mixture(count)
    grid, source = model.quadrature(), tc.Shuffled(model.data, 50)
    return Place(
        lambda proposal: tc.MetropolisHastings(model.posterior, source, proposal=proposal),
        Laplace(np.asarray(grid.mean, np.float32), grid.covariance),
        lambda chains, seed: grid.draw(np.random.default_rng(seed), chains),
    )


def _regression(share: float, d: int, temperature: float) -> tuple[Any, Any]:
    rng = np.random.default_rng(SEED)
    count = int(20_000 * share)
    x = rng.normal(size=(count, d)).astype(np.float32)
    t = rng.normal(size=d) / d**0.5
    y = (rng.random(count) < 1 / (1 + np.exp(-x @ t))).astype(np.float32)
    model = tc.models.logistic_regression(x, y, prior_sd=1.0, temperature=temperature, bound=False)
    return model, tc.surrogates.find_reference(model.posterior, model.data, np.zeros(d, np.float32))


def tempered(share: float) -> Place:
    """Without a surrogate, at a temperature at which a minibatch can decide."""
    model, reference = _regression(share, 10, 200.0 * share)
    source = tc.Shuffled(model.data, 50)
    return Place(
        lambda proposal: tc.MetropolisHastings(model.posterior, source, proposal=proposal),
        reference.laplace,
        lambda chains, seed: reference.laplace.draw_many(jr.key(seed), chains),
    )


def expanded(share: float) -> Place:
    """With control variates that leave little."""
    model, reference = _regression(share, 20, 1.0)
    source = tc.Shuffled(model.data, 20)
    surrogate = tc.surrogates.Predictors.of_reference(model.posterior, reference)
    return Place(
        lambda proposal: tc.MetropolisHastings(
            model.posterior, source, proposal=proposal, acceptance=tc.Penalty(), surrogate=surrogate
        ),
        reference.laplace,
        lambda chains, seed: reference.laplace.draw_many(jr.key(seed), chains),
    )


def normal(share: float) -> Place:
    """Rows of different curvature, which an expansion of order 1 leaves to the test."""
    rng = np.random.default_rng(SEED)
    count, d = int(20_000 * share), 10
    x = rng.normal(size=(count, d)).astype(np.float32)
    y = (x @ (rng.normal(size=d) / d**0.5) + rng.normal(size=count)).astype(np.float32)
    model = tc.models.linear_regression(x, y, noise_sd=1.0, prior_sd=10.0)
    reference = tc.surrogates.find_reference(model.posterior, model.data, np.zeros(d, np.float32))
    source = tc.Shuffled(model.data, 20)
    surrogate = tc.surrogates.Taylor(model.posterior, source, reference, 1)
    return Place(
        lambda proposal: tc.MetropolisHastings(
            model.posterior, source, proposal=proposal, acceptance=tc.Penalty(), surrogate=surrogate
        ),
        reference.laplace,
        lambda chains, seed: reference.laplace.draw_many(jr.key(seed), chains),
    )


TARGETS: dict[str, Callable[[float], Place]] = {
    "mixture": mixture,
    "logistic, K = 200": tempered,
    "logistic, surrogate": expanded,
    "linear, order 1": normal,
}


def proposals(laplace: Laplace) -> dict[str, tuple[Any, str]]:
    """Proposals at about their best scale for Metropolis' test without noise, and the name of the scale."""
    d, factor = laplace.d, laplace.factor
    return {
        "RandomWalk": (RandomWalk.preconditioned(laplace), "scale"),
        "PCN": (PCN(laplace, 1.0, walk=0.02), "beta"),
        "Langevin": (Langevin.preconditioned(laplace, ROWS), "scale"),
        "Hamiltonian": (Hamiltonian(d**-0.25 * factor, NUM_STEPS, ROWS), "scale"),
    }


def measured(
    name: str, share: float, chains: int, draws: int, seeds: int, factors: tuple[float, ...]
) -> dict[str, Any]:
    """Every proposal on one target."""
    place = TARGETS[name](share)
    found: dict[str, Any] = {}
    for proposal_name, (proposal, _) in proposals(place.laplace).items():
        # PCN cannot be longer than an independent draw.
        kernels = [place.kernel_of(proposal.stretched(factor)) for factor in factors]
        grid = [
            {"factor": factor} | middle([cost(run(kernel, place, chains, draws, seed)) for seed in range(seeds)])
            for factor, kernel in zip(factors, kernels, strict=True)
        ]
        kernel = place.kernel_of(proposal)
        adapted = middle([cost(run(kernel, place, chains, draws, seed, adapt=True)) for seed in range(seeds)])
        adapted["aim"] = best_acceptance(kernel.acceptance, proposal.tuning)
        found[proposal_name] = {"grid": grid, "adapted": adapted}
        best = max(each["per_row"] for each in grid)
        print(f"{name:20} {proposal_name:12} adapted over best {adapted['per_row'] / best:.2f} {adapted}", flush=True)
    return found


def middle(costs: list[dict[str, float]]) -> dict[str, Any]:
    """Return the median run, by effective draws per row, and those of all runs: a chain may stick in a tail."""
    ordered = sorted(costs, key=lambda each: each["per_row"])
    return {**ordered[len(ordered) // 2], "per_row_of_seeds": [each["per_row"] for each in costs]}


def run(
    kernel: tc.MetropolisHastings, place: Place, chains: int, draws: int, seed: int, *, adapt: bool = False
) -> tc.Trace:
    """Sample from chains that start in the posterior, or nearly, after a warm-up."""
    starts = jax.tree.map(np.asarray, place.starts(chains, seed))
    return tc.sample(
        *(jr.key(seed), kernel, starts, draws),
        num_chains=chains,
        num_warmup=WARMUP,
        adapt=adapt,
        scan=0,
        progress=False,
    )


def cost(trace: tc.Trace) -> dict[str, float]:
    """Acceptance, rows, and effective draws of the worst parameter per row."""
    assert trace.kernel is not None
    proposal = trace.kernel.proposal
    times = proposal.gradients_per_row if isinstance(proposal, ReadingProposal) else 1
    rows, gradients = float(trace.rows_read.mean()), times * float(trace.rows_scanned.mean())
    share = effective_share(np.asarray(trace.position, np.float64))
    return {
        "acceptance": float(trace.is_accepted.mean()),
        "rows": rows,
        "gradients": gradients,
        "effective": share,
        "per_row": share / (rows + gradients),
    }


def effective_share(draws: np.ndarray) -> float:
    """Effective draws per draw for the worst mean or variance, from the spread of the chains' means; at most 1."""
    deviations = draws - draws.mean((0, 1))
    draws = np.concatenate([deviations, deviations**2], 2)
    of_means = draws.mean(1).var(0, ddof=1) * draws.shape[1]
    return float(min(np.min(draws.var((0, 1)) / np.maximum(of_means, 1e-300)), 1.0))


def figure(results: dict[str, Any]) -> Figure:
    """One panel by target."""
    picture, axes = panels((3.2 * len(results), 3.2), 1, len(results))
    colours = dict(zip(("RandomWalk", "PCN", "Langevin", "Hamiltonian"), (BLUE, GREEN, ORANGE, VERMILION), strict=True))
    for panel, (target, of) in zip(np.ravel(axes), results.items(), strict=True):
        for name, found in of.items():
            grid = found["grid"]
            points = [g["acceptance"] for g in grid], [g["per_row"] for g in grid]
            panel.plot(*points, "o-", color=colours[name], label=name)
            panel.plot(found["adapted"]["acceptance"], found["adapted"]["per_row"], "*", ms=13, color=colours[name])
        panel.set(title=target, xlabel="acceptance", yscale="log")
    np.ravel(axes)[0].set_ylabel("effective draws per row")
    shared_legend(picture, axes)
    return picture
