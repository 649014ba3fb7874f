"""The tests, each with an order, a bound and a proposal."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.peers.problem import effective
from benchmarks.peers.targets import SEED, Target
from tallchain.acceptance import MHSS, Penalty, ScalableMH, TunaMH
from tallchain.bounds import Bound, regression_bound
from tallchain.proposals import PCN
from tallchain.surrogates import Predictors, Taylor

LOOKS = (4, 8, 16, 32, 64, 128)


class Case(NamedTuple):
    """A test as it is measured."""

    name: str
    bound: str
    """Whose."""
    order: int
    make: Callable[[], Any]
    measure: str | None = None
    is_walking: bool = False


def _of(name: str, make: Callable[[], Any]) -> list[Case]:
    return [
        Case(name, "ours", 2, make),
        Case(name, "ours", 2, make, is_walking=True),
        Case(name, "ours", 1, make),
        Case(name, "ours", 1, make, is_walking=True),
    ]


CASES = [
    Case("Penalty()", "none", 2, Penalty),
    *_of("MHSS()", MHSS),
    Case("MHSS(two_stages=True)", "ours", 2, partial(MHSS, two_stages=True), is_walking=True),
    Case("MHSS()", "PyMHSS'", 2, MHSS, "pymhss"),
    Case("MHSS(two_stages=True)", "PyMHSS'", 2, partial(MHSS, two_stages=True), "pymhss", is_walking=True),
    *_of("ScalableMH()", ScalableMH)[:3],
    Case("ScalableMH()", "its paper's", 2, ScalableMH, "scalable"),
    Case("ScalableMH()", "its paper's", 1, ScalableMH, "scalable", is_walking=True),
    Case("TunaMH()", "ours", 2, TunaMH),
    Case("TunaMH()", "its paper's", 0, TunaMH, "pymhss", is_walking=True),
]


class Prepared:
    """A target, prepared once for all cases."""

    def __init__(self, target: Target) -> None:
        self.target, model = target, target.model
        self.prepared = tc.prepare(model.posterior, model.data, np.zeros(target.d, np.float32), progress=False)
        self._bounds: dict[tuple[int, str | None], Bound] = {}

    @cached_property
    def surrogates(self) -> dict[int, Any]:
        """By order."""
        of = self.prepared
        order1 = Taylor(of.posterior, of.source, of.laplace.mean, 1)
        return {0: None, 1: order1, 2: Predictors(of.posterior, of.source, of.laplace.mean, order=2)}

    def bound(self, order: int, measure: str | None) -> Bound:
        """Made once."""
        if (order, measure) not in self._bounds:
            of = self.prepared
            self._bounds[order, measure] = regression_bound(of.posterior, of.source, of.laplace, order, measure=measure)
        return self._bounds[order, measure]

    def kernel(self, case: Case, batch: int) -> tc.MetropolisHastings:
        """The sampler of a case."""
        of = self.prepared
        laplace = of.laplace
        proposal: Any = tc.RandomWalk.preconditioned(laplace) if case.is_walking else PCN(laplace)
        if case.bound == "none":
            return of.kernel(case.make(), proposal)
        bound = self.bound(case.order, case.measure)
        assert isinstance(of.source, tc.Shuffled)
        return tc.MetropolisHastings(
            of.posterior,
            tc.WithReplacement.of_stored(of.source, batch, bound.weights_of(of.source)),
            proposal=proposal,
            acceptance=case.make(),
            surrogate=self.surrogates[case.order],
            bound=bound,
        )

    def expected(self, case: Case) -> float:
        """L, or what the test makes of it, on average over proposals; not cut at N."""
        import jax

        kernel = self.kernel(case, LOOKS[0])
        laplace, bound = self.prepared.laplace, kernel.bound
        assert bound is not None

        def one(key: Any) -> Any:
            here, step = jr.split(key)
            position = laplace.draw(here)
            proposed = kernel.proposal.propose(kernel.proposal.draw(step, position), position, kernel.target)
            return kernel.acceptance.rate(bound(position, proposed.position) / 2 * self.target.num_rows)  # ty: ignore

        return float(np.mean(jax.jit(jax.vmap(one))(jr.split(jr.key(SEED), 256))))


def measured(target: Prepared, case: Case, rows: int) -> dict[str, Any]:
    """Rows and acceptance from a short run that reads about `rows` rows."""
    expects = None if case.bound == "none" else target.expected(case)
    reads = min(expects, target.target.num_rows) if expects is not None else 100
    batch = next((look for look in LOOKS if look >= reads + 1.5 * reads**0.5), LOOKS[-1])
    chains = 64 if reads < 5000 else 8
    draws = int(np.clip(rows / reads / chains, 12, 2000))
    kernel = target.kernel(case, batch)
    starts = target.prepared.starts(jr.key(SEED), chains)
    trace = tc.sample(jr.key(SEED + 1), kernel, starts, draws, num_chains=chains, scan=0, progress=False)
    return {
        "test": case.name,
        "bound": case.bound,
        "order": case.order,
        "proposal": "walk" if case.is_walking else "independent",
        "expects": expects,
        "rows": float(trace.rows_read.mean()),
        "acceptance": float(trace.is_accepted.mean()),
        "effective_per_draw": effective(np.asarray(trace.position)) if chains == 64 else None,
        "decisions": trace.rows_read.size,
    }
