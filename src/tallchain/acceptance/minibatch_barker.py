"""The paper's test: Barker's, with the minibatch's own noise as part of the test's randomness.

Seita, Pan, Chen, Canny: "An Efficient Minibatch Acceptance Test for Metropolis-Hastings" (UAI 2017), Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tallchain.acceptance import correction as corrections
from tallchain.acceptance.bound import BoundMoments, error_bound, rows_for_bound
from tallchain.acceptance.correction import Correction
from tallchain.acceptance.evidence import (
    Moments,
    SkewMoments,
    add_rows,
    batch_rows,
    check_batch,
    choose_ask,
    first_rows,
    has_read_all,
    row_variance,
    share_left,
    variance_of_mean,
    whole_rows,
)
from tallchain.acceptance.stopping import (
    SMALL_SKEW,
    Pilot,
    ask_fresh,
    pilot_rows,
    rows_for,
    rows_for_skew,
    third_cumulant,
)
from tallchain.acceptance.tables import LADDER, NU, Noise, Reading, Tables, logistic
from tallchain.types import Array, Ask, Judgement, Population, is_positive, part, set_fields, static

STOPPING = ("fresh", "pilot", "stein", "growth")
_FAR_OFF = 2.0
_MARGIN = 1.1  # rows are added a little beyond what the last look says is needed, so that one addition is enough


class _Memory(NamedTuple):
    offset: Array
    noise: Noise
    pilot: Pilot


@part
class MinibatchBarker:
    """Read rows until the variance s2 of Delta* is about sigma^2, then accept iff Delta* + X_nc + X_corr > 0.

    Delta* is the log ratio estimated from the b rows read and s2 its estimated variance. X_nc pads the noise of Delta*
    with normal noise to a variance for which there is a correction variable X_corr, such that noise + X_corr is
    logistic. When every row has been read Delta is exact and Barker's own test decides. Assumes that the mean of b rows
    is nearly normal; `skew` takes its skewness into account as well.

    How many rows (`stopping`):

    - "fresh": a pilot of m rows only says how many fresh rows are needed; these give Delta* and s2.
    - "pilot": a pilot gives the variance, fresh rows give Delta* only; the correction is Student's instead of normal.
    - "stein": Stein's two stages: a pilot, fresh rows, and a weighted mean of both whose noise is exactly Student's if
      the rows are normal. For comparison: with skewed rows it is shifted as "growth" is.
    - "growth": the paper's. Add m rows at a time while s2 >= sigma^2. This feeds the skewness of the rows back into the
      decision: Delta* is shifted by about -gamma sqrt(s2/b), gamma the skewness of the rows.

    Args:
        sigma: standard deviation of the noise the test absorbs. The rows read go as 1/sigma^2.
        correction: "minimax" (ours: least worst error in log-odds); for stopping "growth" without `skew` also "ridge"
            (the paper's table, n=4000, lambda=10) or a `Correction` made for this sigma.
        batch: m, the rows of the pilot, or to add between judgements; None for the source's `batch_size`.
        shortcut: for stopping "growth": decide by the sign of Delta* as soon as |Delta*| > shortcut * sqrt(s2); None
            (as in the paper): never.
        stopping: how many rows to read; see above.
        skew: True corrects for the third cumulant of the noise (as estimated from the rows), which leaves an error of
            order 1/b where there was one of order 1/sqrt(b). None: True for "fresh" and "pilot". "printed" does what
            the paper's appendix A.5 says, for study.
        delta: read rows until the paper's bound on the error of the decision, (6.4 E|X|^3 + 2 E|X|)/sqrt(b) with X the
            standardised log ratios per row, is at most delta, as in Algorithm 1. The bound of every decision is in
            `trace.extras["error_bound"]`; `math.inf` asks for nothing else. It is large: 0.1 takes some 10^4 rows.
    """

    sigma: float = static()
    batch: int | None = static()
    shortcut: float | None = static()
    stopping: str = static()
    skew: bool | str = static()
    delta: float | None = static()
    tables: Tables

    def __init__(
        self,
        sigma: float = 1.0,
        correction: str | Correction = "minimax",
        batch: int | None = None,
        shortcut: float | None = None,
        stopping: str = "fresh",
        skew: bool | str | None = None,
        delta: float | None = None,
    ) -> None:
        skew = stopping in {"fresh", "pilot"} if skew is None else skew
        check_batch("MinibatchBarker", batch)
        _check_stopping(stopping, skew, shortcut)
        _check_delta(delta, stopping)
        set_fields(
            self,
            sigma=float(sigma) if is_positive(sigma) else sigma,
            batch=None if batch is None else int(batch),
            shortcut=None if shortcut is None else float(shortcut),
            stopping=stopping,
            skew=skew,
            delta=None if delta is None else float(delta),
            tables=_tables(sigma, correction, stopping, skew),
        )

    @classmethod
    def paper(cls, batch: int | None = None) -> MinibatchBarker:
        """As printed: sigma 1, the ridge table with n = 4000, lambda = 10, and a batch that grows."""
        return cls(sigma=1.0, correction="ridge", batch=batch, stopping="growth", skew=False)

    @classmethod
    def as_published_code(cls, batch: int | None = None) -> MinibatchBarker:
        """As run for the paper's Table 1: sigma 0.9, the ridge table with n = 2000, and a shortcut at 5 sigma.

        That experiment also left the prior out of the test: give the posterior a flat log prior to repeat it.
        """
        table = corrections.ridge(0.9, 2000, 10.0)
        return cls(sigma=0.9, correction=table, batch=batch, shortcut=5.0, stopping="growth", skew=False)

    @property
    def Evidence(self) -> Any:  # noqa: N802 (a class, as the protocol has it)
        """Third moments where they matter, absolute ones where the bound is wanted."""
        if self.delta is not None:
            return BoundMoments
        return SkewMoments if self.skew else Moments

    def appetite(self, population: Population) -> int:
        """m, the rows of the pilot or between two judgements."""
        batch = batch_rows(self.batch, population)
        return batch if self.stopping == "growth" else pilot_rows(batch, population)

    def draw(self, key: Array) -> Noise:
        """All the randomness of the decision, once."""
        return self.tables.draw(key)

    def open(self, noise: Noise, offset: Array, bound: Array | None, population: Population) -> tuple[_Memory, Ask]:
        """Ask for m rows."""
        return _Memory(offset, noise, Pilot.to_come(offset.dtype)), first_rows(self.appetite(population), population)

    def judge(self, memory: _Memory, evidence: Any, population: Population) -> Judgement:
        """Decide if the rows are enough or all there are; else ask for more."""
        reading = self.read(memory, evidence, population)
        exact = has_read_all(evidence, population)
        noise = jnp.where(exact, logistic(memory.noise.bits), self.tables.total(memory.noise, reading))
        is_enough = self._is_enough(memory.pilot, reading) & self._is_within_bound(evidence, population)
        is_decided = exact | (is_enough & jnp.isfinite(evidence.squares))
        if self.stopping == "growth":
            pilot, ask = memory.pilot, add_rows(self.appetite(population), evidence, population)
        else:
            is_over = memory.pilot.is_over
            first = Pilot.of(evidence)
            pilot = jax.tree.map(lambda old, new: jnp.where(is_over, old, new), memory.pilot, first)
            fresh = self._fresh_rows(first, population)
            missing = self._missing_rows(reading, evidence, population)
            if self.delta is not None:
                needed = rows_for_bound(evidence, self.delta / _MARGIN, population)
                fresh, missing = jnp.maximum(fresh, needed), jnp.maximum(missing, needed - evidence.count)
            more = add_rows(missing, evidence, population)
            ask = choose_ask(is_over, more, ask_fresh(fresh, first, population))
        if self.shortcut is not None:
            is_clear = ~exact & (jnp.abs(reading.estimate) > self.shortcut * jnp.sqrt(reading.s2))
            noise = jnp.where(is_clear, 0, noise)
            is_decided |= is_clear
        return Judgement(_Memory(memory.offset, memory.noise, pilot), ask, is_decided, reading.estimate + noise > 0)

    def chance(self, memory: _Memory, evidence: Any, population: Population) -> Array:
        """P(accept) given the rows on which the decision falls, the test's own randomness integrated out."""
        reading = self.read(memory, evidence, population)
        chance = jnp.where(
            has_read_all(evidence, population), jax.nn.sigmoid(reading.estimate), self.tables.chance(reading)
        )
        if self.shortcut is None:
            return chance
        is_clear = jnp.abs(reading.estimate) > self.shortcut * jnp.sqrt(reading.s2)
        return jnp.where(is_clear & ~has_read_all(evidence, population), reading.estimate > 0, chance)

    def report(self, memory: _Memory, evidence: Any, population: Population) -> dict[str, Array]:
        """Return the bound on the error of a decision, where it is asked for."""
        return {} if self.delta is None else {"error_bound": error_bound(evidence, population)}

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) of the test on all rows: Barker's."""
        return jax.nn.sigmoid(log_ratio)

    def read(self, memory: _Memory, evidence: Any, population: Population) -> Reading:
        """Say what the rows read say of Delta* and its noise."""
        estimate = evidence.mean + memory.offset
        pilot, b = memory.pilot, evidence.count
        if self.stopping == "pilot":
            s2 = pilot.variance / jnp.maximum(b, 1) * share_left(b, population)
            skew = third_cumulant(pilot.skewness, pilot.variance, b, population, of_same_rows=False)
            # Only the share s2 of the noise has an estimated scale; its fourth cumulant goes as the square.
            return Reading(estimate, s2, skew, (s2 / self.sigma**2) ** 2 / jnp.maximum(pilot.count - 1, 1))
        if self.stopping == "stein":
            return self._read_stein(memory, evidence, population)
        s2 = variance_of_mean(evidence, population)
        if not self.skew:
            return Reading(estimate, s2)
        if self.skew == "printed":
            return Reading(estimate, s2, evidence.skewness / (6 * jnp.sqrt(jnp.maximum(b, 1.0))))
        variance = row_variance(evidence)
        return Reading(estimate, s2, third_cumulant(evidence.skewness, variance, b, population, of_same_rows=True))

    def _read_stein(self, memory: _Memory, evidence: Moments, population: Population) -> Reading:
        """Stein's weighted mean: w M1 + (1-w) M2, with S0^2 (w^2/n0 + (1-w)^2/n1) = sigma^2 =: z.

        w = n0/n - sqrt((n0 n1/n)(z/S0^2 - 1/n)). Stein, "A two-sample test for a linear hypothesis whose power is
        independent of the variance" (1945). A pilot that is enough by itself is padded as usual.
        """
        pilot = memory.pilot
        n0, n1 = pilot.count.astype(evidence.mean.dtype), jnp.maximum(evidence.count, 1)
        n, z = n0 + n1, self.sigma**2
        missing = z / jnp.maximum(pilot.variance, 1e-30) - 1 / n
        w = n0 / n - jnp.sqrt(jnp.maximum(n0 * n1 / n * missing, 0))
        weighted = w * pilot.mean + (1 - w) * evidence.mean
        s2 = jnp.where(pilot.is_over, z, variance_of_mean(evidence, population))
        mean = jnp.where(pilot.is_over & ~has_read_all(evidence, population), weighted, evidence.mean)
        return Reading(mean + memory.offset, s2, 0.0, jnp.where(pilot.is_over, 1 / jnp.maximum(n0 - 1, 1), 0.0))

    def _is_enough(self, pilot: Pilot, reading: Reading) -> Array:
        """Whether the rows read are enough to decide on."""
        match self.stopping:
            case "growth":
                return (reading.s2 < self.sigma**2) & (jnp.abs(reading.skew) <= self.tables.most_skew)
            case "fresh":
                # Fresh rows whose s2 is a little large decide all the same, with no padding: to add rows there would
                # select by s2 again, and bring the shift back. Only a pilot that was far off makes it worth it.
                return pilot.is_over & (reading.s2 < _FAR_OFF * self.tables.most_s2)
            case "stein":
                return pilot.is_over | (reading.s2 < self.sigma**2)
            case _:
                return pilot.is_over

    def _is_within_bound(self, evidence: Any, population: Population) -> Array | bool:
        return True if self.delta is None else error_bound(evidence, population) <= self.delta

    def _fresh_rows(self, pilot: Pilot, population: Population) -> Array:
        """n1, by the pilot."""
        if self.stopping == "stein":  # at least half the pilot again, else most of the weight could fall on one row
            rows = rows_for(pilot.variance, self.sigma**2, population)
            fresh = jnp.maximum(rows + 1 - pilot.count, (pilot.count + 1) // 2)
            return jnp.where(rows >= population.num_rows, population.num_rows, fresh)
        rows = rows_for(pilot.variance, self.sigma**2, population)
        if not self.skew:
            return rows
        # The skewness of a few rows is estimated too poorly to correct for much of it: where it matters, read more.
        is_same = self.stopping == "fresh"
        return jnp.maximum(rows, rows_for_skew(pilot, SMALL_SKEW, population, of_same_rows=is_same))

    def _missing_rows(self, reading: Reading, evidence: Any, population: Population) -> Array:
        """Rows to add to fresh ones that turned out far too few: s2 goes as 1/b."""
        factor = reading.s2 / self.sigma**2
        grown = jnp.clip(_MARGIN * factor - 1, 0.1, 4.0) * evidence.count
        return whole_rows(grown, population)


def _tables(sigma: Any, correction: Any, stopping: str, skew: bool | str) -> Tables:
    if not (isinstance(correction, Correction) or correction in ("minimax", "ridge")):
        raise ValueError(
            '`MinibatchBarker(correction=...)` must be "minimax", "ridge" or a Correction '
            f"(see `tallchain.acceptance.correction`); got {correction!r}."
        )
    if stopping == "growth" and not skew:
        return Tables.single(_correction_for(sigma, correction))
    if correction != "minimax":
        raise ValueError(
            f"`MinibatchBarker(correction={correction!r}, stopping={stopping!r}, skew={skew!r})`: another correction "
            'than "minimax" goes with stopping="growth" and skew=False, the rule of the paper.'
        )
    sigma = corrections.check_sigma(f"MinibatchBarker(sigma={sigma!r})", sigma)
    if stopping == "growth":
        return Tables.of_laws([sigma], skew=skew)
    if stopping == "fresh":
        return Tables.of_laws(LADDER, skew=skew)
    return Tables.of_laws([sigma], nus=NU, skew=skew)


def _correction_for(sigma: Any, correction: str | Correction) -> Correction:
    if correction == "minimax":
        return corrections.minimax(sigma)
    if not isinstance(correction, Correction):
        return corrections.ridge(sigma)
    if correction.sigma != sigma:
        raise ValueError(
            f"`MinibatchBarker(sigma={sigma!r}, correction=...)` received a correction made for sigma = "
            f"{correction.sigma}. Make one for {sigma!r}, or set sigma={correction.sigma}."
        )
    return correction


def _check_delta(delta: Any, stopping: str) -> None:
    if delta is None:
        return
    if not (is_positive(delta) or delta == math.inf):
        raise ValueError(
            f"`MinibatchBarker(delta=...)` must be positive, None for no bound, or math.inf to record it only; got "
            f"{delta!r}."
        )
    if stopping == "stein":
        raise ValueError(
            '`MinibatchBarker(stopping="stein", delta=...)`: Stein\'s scheme fixes how many rows it reads.'
        )


def _check_stopping(stopping: Any, skew: Any, shortcut: Any) -> None:
    if stopping not in STOPPING:
        raise ValueError(f"`MinibatchBarker(stopping=...)` must be one of {', '.join(STOPPING)}; got {stopping!r}.")
    if not (isinstance(skew, bool) or skew == "printed"):
        raise ValueError(f'`MinibatchBarker(skew=...)` must be True, False or "printed"; got {skew!r}.')
    if skew and stopping == "stein":
        raise ValueError('`MinibatchBarker(stopping="stein", skew=...)`: Stein\'s scheme has no skew correction.')
    if skew == "printed" and stopping != "growth":
        raise ValueError(
            f'`MinibatchBarker(stopping={stopping!r}, skew="printed")`: the printed correction goes with the printed '
            'stopping rule, "growth".'
        )
    if shortcut is None:
        return
    if not is_positive(shortcut):
        raise ValueError(f"`MinibatchBarker(shortcut=...)` must be positive or None; got {shortcut!r}.")
    if stopping != "growth":
        raise ValueError(
            f'`MinibatchBarker(shortcut={shortcut!r})` goes with stopping="growth" only; got {stopping!r}.'
        )
