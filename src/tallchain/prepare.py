"""Everything that temperature 1 needs, in one call: mode, surrogate, influential rows and proposal, if they pay."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

from tallchain.acceptance import Confidence, Penalty
from tallchain.acceptance.stopping import LEAST_ROWS
from tallchain.kernel import MetropolisHastings
from tallchain.keys import single_key
from tallchain.progress import shown
from tallchain.proposals import PCN, RandomWalk
from tallchain.sources import as_shuffled, check_plain
from tallchain.surrogates import Influence, Laplace, Reference, Taylor, find_reference, influence
from tallchain.types import (
    AcceptanceTest,
    Array,
    Posterior,
    Proposal,
    PyTree,
    Source,
)
from tallchain.validation import brief, check_switch, is_whole

_BATCH = 50  # rows between two judgements, if more than the least are needed
_MOST_SHARE = 0.25  # of all rows that a decision may take, for a surrogate to be useful
_SMALL_SHARE = 0.01  # of all rows: a surrogate that needs fewer is better than none
_FEW = 1.2  # times the least batch: no other order would need many fewer
_METHODS = {
    "none": "every row alike",
    "copies": "rows that matter come more often, and count for less each time",
    "exact": "every decision reads the rows that matter most, and samples the others",
}
_LEAST_ACCEPTANCE = 0.3  # of independent proposals, for them to be useful
# Share of random-walk steps among independent proposals, which get stuck in tails that are heavier than theirs. The
# further the posterior is from normal, the larger; a share w costs 2 w of the effective draws.
_LEAST_WALK, _MOST_WALK = 0.02, 0.5


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A posterior prepared for sampling at its own temperature (`print` it to see what was chosen, and why).

    It can be pickled, rows included, if the functions of the posterior can: those of a module, not lambdas.
    """

    posterior: Posterior
    source: Source
    """All rows, each once; `kernel` reads them as `influence` says."""
    reference: Reference
    laplace: Laplace
    surrogate: Taylor | None
    """None if no surrogate pays."""
    influence: Influence
    proposal: Proposal
    findings: tuple[str, ...]
    """What was found, in words."""
    rows_swept: int
    """Rows swept, in all."""
    seconds: float

    def kernel(
        self,
        acceptance: AcceptanceTest | None = None,
        proposal: Proposal | None = None,
        *,
        bound: Callable[[PyTree, PyTree], Array] | None = None,
    ) -> MetropolisHastings:
        """Make the sampler.

        Args:
            acceptance: how to decide; by default `Penalty()`, which accepts twice as often as Barker's test if the
                noise of Delta* is small, as with a surrogate that pays; with a bound, `Confidence()`.
            proposal: to use in place of the one chosen.
            bound: a range bound for `Confidence`, as `MetropolisHastings(bound=...)` takes it. It holds for the log
                ratios and not for the residuals of a surrogate, so the kernel then has NO surrogate, and every row is
                sampled alike; decisions read more rows.
        """
        rows, default, surrogate = self.influence, Penalty(), self.surrogate
        if bound is None:
            source = self.source.reweighted(rows.exact, rows.copies, rows.batch_size)
        else:
            source, default, surrogate = self.source.reweighted(batch_size=rows.batch_size), Confidence(), None
        return MetropolisHastings(
            self.posterior,
            source,
            proposal=proposal or self.proposal,
            acceptance=acceptance or default,
            surrogate=surrogate,
            bound=bound,
        )

    def starts(self, key: Array, num_chains: int) -> PyTree:
        """Draw a start for every chain from the Laplace approximation."""
        if not is_whole(num_chains, least=1):
            raise ValueError(f"`starts(num_chains=...)` must be a whole number, at least 1; got {brief(num_chains)}.")
        return self.laplace.draw_many(single_key("starts(key=...)", key), int(num_chains))

    @property
    def recentre(self) -> Callable[[PyTree], Taylor] | None:
        """For `sample(recentre=...)`: the same surrogate at another position, by a sweep over all rows."""
        if self.surrogate is None:
            return None
        order = self.surrogate.order
        return lambda position: Taylor(self.posterior, self.source, position, order)

    @property
    def rows_per_decision(self) -> int:
        """About how many rows a decision of `kernel()` will read: a pilot, and fresh rows for the estimate."""
        rows, pilot = self.influence.chosen, max(self.influence.batch_size, LEAST_ROWS)
        reads = rows.num_exact + pilot + math.ceil(max(rows.rows, LEAST_ROWS))
        return min(reads, self.reference.num_rows)

    def __str__(self) -> str:
        reference, rows = self.reference, self.influence.chosen
        pilot = max(self.influence.batch_size, LEAST_ROWS)
        always = f", {rows.num_exact:,} rows that every decision reads" if rows.num_exact else ""
        how = "Penalty" if self.surrogate is None else f"Penalty with control variates of order {self.surrogate.order}"
        return "\n".join(
            [
                f"Prepared in {self.seconds:.2g} s, {self.rows_swept:,} rows swept",
                f"mode                 of {reference.gradient.size} parameters over {reference.num_rows:,} rows, "
                f"to within {reference.decrement:.1g} posterior standard deviations",
                *self.findings,
                f"sampling             {_METHODS[rows.method]}",
                f"cost                 about {self.rows_per_decision:,} of {reference.num_rows:,} rows a decision with "
                f"`kernel()`: a pilot of {pilot:,}, fresh rows for the estimate{always}",
                f"to report            {how}, {type(self.proposal).__name__} proposals; and what "
                "`audit(trace.kernel, trace)` finds",
            ]
        )


def prepare(
    posterior: Posterior,
    data: PyTree | Source,
    initial: PyTree,
    *,
    orders: tuple[int, ...] = (2, 1),
    batch_size: int | None = None,
    num_draws: int = 8,
    seed: int = 0,
    progress: bool = True,
) -> Prepared:
    """Find the mode, expand there, score the rows, and choose what reads the fewest of them.

    If no surrogate pays, it says so and what to do, and leaves the surrogate out.

    Args:
        posterior: log prior, log likelihood of one row, temperature.
        data: all rows, as for a source: an array, a pytree of arrays with the rows along the first axis, or a frame.
            One shuffled copy is made. Or a source, e.g. `Shuffled(data, 50, seed=3)`, which is not copied.
        initial: a position to start the search for the mode from.
        orders: of the expansions to try, until one needs only about the least batch.
        batch_size: m, the rows between two judgements, at least; None for 20 if these are enough for a variance of 1,
            and 50 otherwise.
        num_draws: proposals to score rows with, and as many to judge by; each reads every row.
        seed: of these.
        progress: show what is going on (needs `rich`); without a terminal, a line every ten seconds or more.
    """
    begun = time.perf_counter()
    _check_numbers(orders, num_draws, seed)
    progress = check_switch("prepare", "progress", progress)
    with shown(progress, "copying the rows in random order", is_step=True):
        source = as_shuffled("prepare", data, batch_size)
    check_plain("prepare", source)
    reference = find_reference(posterior, source, initial, progress=progress)
    laplace = reference.laplace

    least = min(LEAST_ROWS, reference.num_rows) if batch_size is None else batch_size

    def score(surrogate: Taylor | None) -> Influence:
        options: dict[str, Any] = {"batch_size": least, "num_draws": num_draws, "seed": seed, "progress": progress}
        return influence(posterior, source, surrogate, laplace, **options)

    tried: dict[int, tuple[Taylor | None, Influence]] = {}
    costs: dict[int, float] = {}
    for order in (*orders, 0):
        # If a decision needs this few rows, reading every row again to find a better order is not worth it.
        if costs and min(costs.values()) <= (_FEW * least if order else _SMALL_SHARE * reference.num_rows):
            continue
        surrogate = Taylor(posterior, source, reference, order) if order else None
        tried[order] = (surrogate, score(surrogate))
        costs[order] = tried[order][1].chosen.cost(least)
    best = min(costs, key=lambda order: costs[order])
    findings = [_words(costs, best)]
    if best and costs[best] > _MOST_SHARE * reference.num_rows:
        findings.append(_does_not_pay(costs, reference))
        best = 0
    surrogate, found = tried[best]
    if batch_size is None and found.chosen.rows > least:
        most = reference.num_rows - found.chosen.num_exact
        found = dataclasses.replace(found, batch_size=min(max(found.batch_size, _BATCH), most))
    proposal = _proposal(laplace, found, surrogate, findings)
    rows_swept = reference.rows_swept + sum(each.rows_swept for _, each in tried.values())
    return Prepared(
        posterior,
        source,
        reference,
        laplace,
        surrogate,
        found,
        proposal,
        tuple(findings),
        rows_swept,
        time.perf_counter() - begun,
    )


def _check_numbers(orders: Any, num_draws: Any, seed: Any) -> None:
    if not isinstance(orders, tuple | list) or any(order not in (1, 2) for order in orders):
        raise ValueError(f"`prepare(orders=...)` must be a tuple of 1 and 2; got {brief(orders)}.")
    for name, value, least in (("num_draws", num_draws, 2), ("seed", seed, 0)):
        if not is_whole(value, least):
            raise ValueError(f"`prepare({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")


def _name(order: int) -> str:
    return f"order {order}" if order else "no surrogate"


def _words(costs: dict[int, float], best: int) -> str:
    each = ", ".join(f"{cost:,.0f} with {_name(order)}" for order, cost in sorted(costs.items()))
    return f"surrogate            chosen: {_name(best)}; rows needed to estimate a log ratio: {each}"


def _does_not_pay(costs: dict[int, float], reference: Reference) -> str:
    least = min(cost for order, cost in costs.items() if order)
    return (
        f"NO SURROGATE PAYS    the best would read {least:,.0f} of {reference.num_rows:,} rows a decision, so there is "
        "none, and decisions read as many rows as they need. The posterior is far from normal around its mode: "
        "reparametrise, give rare dummies a proper prior instead of standardising them, or accept a higher "
        "temperature or shorter steps"
    )


def _proposal(laplace: Laplace, found: Influence, surrogate: Taylor | None, findings: list[str]) -> Proposal:
    if surrogate is None:
        findings.append("steps                a random walk with the covariance of the Laplace approximation")
        return RandomWalk.preconditioned(laplace)
    acceptance = f"an exact test would accept {found.acceptance:.0%} of independent proposals"
    if found.acceptance >= _LEAST_ACCEPTANCE:
        walk = round(min(max(2 * (1 - found.acceptance), _LEAST_WALK), _MOST_WALK), 2)
        findings.append(
            "steps                PCN with beta = 1: independent proposals from the Laplace approximation, and "
            f"{walk:.0%} steps of a random walk; {acceptance}"
        )
        return PCN(laplace, walk=walk)
    findings.append(
        f"steps                a random walk with the covariance of the Laplace approximation; {acceptance}"
    )
    return RandomWalk.preconditioned(laplace)
