"""A posterior that is prepared for sampling, and what was chosen for it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tallchain.acceptance import MHSS, Confidence, Penalty
from tallchain.acceptance.exact.base import PoissonTest
from tallchain.acceptance.stopping import LEAST_ROWS
from tallchain.coordinates import parameters_of
from tallchain.kernel import MetropolisHastings
from tallchain.keys import single_key
from tallchain.parts import replace
from tallchain.surrogates import Influence, Laplace, Predictors, Reference, Taylor
from tallchain.surrogates.settling import Settled
from tallchain.types import AcceptanceTest, Array, BoundedTest, Posterior, Proposal, PyTree, Source
from tallchain.validation import brief, is_whole
from tallchain.weighing import Exact

_FAR, _FEW = 50, 1000  # times the rows that an exact test expects on average, and rows: then it reads all
_METHODS = {
    "none": "every row alike",
    "copies": "rows that matter come more often, and count for less each time",
    "exact": "every decision reads the rows that matter most, and samples the others",
}


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A posterior prepared for sampling at its own temperature (`print` it to see what was chosen, and why).

    It can be pickled, rows included, if the functions of the posterior can: those of a module, not lambdas.
    """

    posterior: Posterior
    source: Source
    """All rows, each once; `kernel` reads them as `influence` says."""
    reference: Reference | Settled
    """Where the surrogate was expanded: the mode, or a place in the bulk of a posterior that has none.

    In the coordinates of the sampler, as the surrogate and the proposal; `posterior.constrain` has its parameters.
    """
    normal: Laplace | None
    """The normal distribution with the mode and curvature of the posterior; None where there is no mode."""
    surrogate: Taylor | Predictors | None
    """None if no surrogate pays."""
    scored: Influence | Callable[[], Influence]
    """What `influence` returns, or what finds it."""
    exact: Exact | None
    """Bound and rows for an exact test; None if there is no bound."""
    proposal: Proposal
    findings: tuple[str, ...]
    """What was found, in words."""
    rows_swept: int
    """Rows swept, in all."""
    seconds: float

    @cached_property
    def influence(self) -> Influence:
        """How much each row matters; two sweeps over all rows, the first time, if an exact test was chosen."""
        return self.scored if isinstance(self.scored, Influence) else self.scored()

    @property
    def is_exact(self) -> bool:
        """Whether `kernel()` has an exact test: there is a bound, and it reads no more rows than others would."""
        if self.exact is None:
            return False
        return not isinstance(self.scored, Influence) or self.exact.rows <= self._penalty_rows

    def kernel(
        self,
        acceptance: AcceptanceTest | None = None,
        proposal: Proposal | None = None,
        *,
        bound: Callable[[PyTree, PyTree], Array] | None = None,
    ) -> MetropolisHastings:
        """Make the sampler.

        Args:
            acceptance: how to decide. By default `MHSS()`, which is exact, if the rows have a bound and it pays; else
                `Penalty()`, which accepts twice as often as Barker's test if the noise of Delta* is small, as with a
                surrogate that pays; with a range bound, `Confidence()`. An exact test without a `limit` reads all rows
                where it expects 50 times as many as on average.
            proposal: to use in place of the one chosen.
            bound: a range bound for `Confidence`, as `MetropolisHastings(bound=...)` takes it. It holds for the log
                ratios and not for the residuals of a surrogate, so the kernel then has NO surrogate, and every row is
                sampled alike; decisions read more rows.
        """
        proposal = proposal or self.proposal
        if bound is not None:
            source = self.source.reweighted(batch_size=self.influence.batch_size)
            acceptance = acceptance or Confidence()
            return MetropolisHastings(self.posterior, source, proposal=proposal, acceptance=acceptance, bound=bound)
        acceptance = acceptance or (MHSS() if self.is_exact else Penalty())
        parts: dict[str, Any] = {"proposal": proposal, "acceptance": acceptance, "surrogate": self.surrogate}
        if isinstance(acceptance, BoundedTest) and self.exact is not None:
            if isinstance(acceptance, PoissonTest) and acceptance.limit is None:
                parts["acceptance"] = replace(acceptance, limit=self._limit)
            return MetropolisHastings(self.posterior, self.exact.source, **parts, bound=self.exact.bound)
        rows = self.influence
        source = self.source.reweighted(rows.exact, rows.copies, rows.batch_size)
        return MetropolisHastings(self.posterior, source, **parts)

    @property
    def _limit(self) -> int:
        """Rows from which on an exact test reads all: in a tail, where all chains would wait for one to read on.

        To read a tenth of the rows at random takes longer than all of them in order.
        """
        assert self.exact is not None
        num_rows = self.source.population.total
        return int(min(max(min(_FAR * self.exact.rows, num_rows / 10), _FEW), num_rows))

    def starts(self, key: Array, num_chains: int) -> PyTree:
        """Draw a start for every chain from the Laplace approximation, or from draws of the surrogate posterior."""
        return parameters_of(self.posterior, self.positions(key, num_chains))

    def positions(self, key: Array, num_chains: int) -> PyTree:
        """As `starts`, in the coordinates of the sampler: the same for a posterior without constraints."""
        if not is_whole(num_chains, least=1):
            raise ValueError(f"`starts(num_chains=...)` must be a whole number, at least 1; got {brief(num_chains)}.")
        key = single_key("starts(key=...)", key)
        if self.normal is not None:
            return self.normal.draw_many(key, int(num_chains))
        assert isinstance(self.reference, Settled)
        return self.reference.some_draws(key, int(num_chains))

    @property
    def laplace(self) -> Laplace:
        """The normal distribution with the mode and curvature of the posterior."""
        if self.normal is None:
            raise ValueError(
                "`prepared.laplace`: this posterior has no mode, and no Laplace approximation. Its proposals are "
                "transitions of the surrogate posterior; `prepared.reference.draws` has draws of that."
            )
        return self.normal

    @property
    def recentre(self) -> Callable[[PyTree], Taylor | Predictors] | None:
        """For `sample(recentre=...)`: the same surrogate at another position, by a sweep over all rows."""
        surrogate = self.surrogate
        if surrogate is None:
            return None
        if isinstance(surrogate, Taylor):
            return lambda position: Taylor(self.posterior, self.source, position, surrogate.order)
        order, reach = surrogate.order, surrogate.reach
        return lambda position: Predictors(self.posterior, self.source, position, order=order, reach=reach)

    @property
    def rows_per_decision(self) -> int:
        """About how many rows a decision of `kernel()` will read."""
        if self.is_exact:
            assert self.exact is not None
            return min(math.ceil(self.exact.rows), self.reference.num_rows)
        return self._penalty_rows

    @property
    def _penalty_rows(self) -> int:
        """A pilot, and fresh rows for the estimate."""
        rows, pilot = self.influence.chosen, max(self.influence.batch_size, LEAST_ROWS)
        reads = rows.num_exact + pilot + math.ceil(max(rows.rows, LEAST_ROWS))
        return min(reads, self.reference.num_rows)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"Prepared in {self.seconds:.2g} s, {self.rows_swept:,} rows swept",
                self.reference.words,
                *self.findings,
                *(self._words_if_exact() if self.is_exact else self._words_otherwise()),
            ]
        )

    def _words_if_exact(self) -> list[str]:
        assert self.exact is not None
        rows = f"{self.exact.rows:.2g} of {self.reference.num_rows:,} rows a decision"
        return [
            "test                 MHSS, which is exact: every row has a bound, and it reads fewer rows than others",
            f"cost                 about {rows} with `kernel()`, drawn in proportion to their bounds",
            f"to report            MHSS (exact) with control variates of order {self.exact.bound.order}, "
            f"{type(self.proposal).__name__} proposals",
        ]

    def _words_otherwise(self) -> list[str]:
        rows, pilot = self.influence.chosen, max(self.influence.batch_size, LEAST_ROWS)
        always = f", {rows.num_exact:,} rows that every decision reads" if rows.num_exact else ""
        how = "Penalty" if self.surrogate is None else f"Penalty with control variates of order {self.surrogate.order}"
        lines = [
            f"sampling             {_METHODS[rows.method]}",
            f"cost                 about {self.rows_per_decision:,} of {self.reference.num_rows:,} rows a decision "
            f"with `kernel()`: a pilot of {pilot:,}, fresh rows for the estimate{always}",
            f"to report            {how}, {type(self.proposal).__name__} proposals; and what "
            "`audit(trace.kernel, trace)` finds",
        ]
        if self.exact is not None:
            said = f"`kernel(acceptance.MHSS())` would be exact, and read about {self.exact.rows:,.0f} rows a decision"
            lines.insert(1, f"exact test           {said}: more than `Penalty`")
        return lines
