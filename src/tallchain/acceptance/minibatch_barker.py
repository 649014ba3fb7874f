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
from tallchain.acceptance.evidence import Moments, SkewMoments, batch_rows, check_batch, first_rows, has_read_all
from tallchain.acceptance.stopping import Aim, PilotBatch, StoppingRule, as_rule, quoted
from tallchain.acceptance.stopping.rows import MARGIN
from tallchain.acceptance.tables import LADDER, NU, Noise, Reading, Tables, logistic
from tallchain.parts import part, set_fields, static
from tallchain.types import Array, Ask, Judgement, Population
from tallchain.validation import is_positive

_SMALL_SKEW = 0.2  # |kappa3| for which to size a batch whose skewness is estimated and corrected


class _Memory(NamedTuple):
    noise: Noise
    pilot: PilotBatch


@part
class MinibatchBarker:
    """Read rows until the variance s2 of Delta* is about sigma^2, then accept iff Delta* + X_nc + X_corr > 0.

    Delta* is the log ratio estimated from the b rows read and s2 its estimated variance. X_nc pads the noise of Delta*
    with normal noise to a variance for which there is a correction variable X_corr, such that noise + X_corr is
    logistic. When every row has been read, Delta is exact and Barker's own test decides. Assumes that the mean of b
    rows is nearly normal; `skew` takes its skewness into account as well.

    How many rows (`stopping`), by a word or by a part of `tallchain.acceptance.stopping`:

    - "fresh", `Fresh()`: a pilot of m rows only determines how many fresh rows are needed; these give Delta* and s2.
    - "pilot", `Pilot()`: a pilot gives the variance, fresh rows give Delta* only; the correction is Student's instead
      of normal.
    - "stein", `Stein()`: Stein's two stages: a pilot, fresh rows, and a weighted mean of both whose noise is exactly
      Student's if the rows are normal. For comparison only: with skewed rows it is shifted like "growth".
    - "growth", `Growth()`: the paper's. Add m rows at a time while s2 >= sigma^2. This feeds the skewness of the rows
      back into the decision: Delta* is shifted by about -gamma sqrt(s2/b), gamma the skewness of the rows.

    Args:
        sigma: standard deviation of the noise the test absorbs. The number of rows read is proportional to 1/sigma^2.
        correction: "minimax" (ours: least worst error in log-odds); for stopping "growth" without `skew` also "ridge"
            (the paper's table, n=4000, lambda=10) or a `Correction` made for this sigma.
        batch: m, the rows of the pilot, or to add between judgements; None for the source's `batch_size`.
        shortcut: for stopping "growth": decide by the sign of Delta* as soon as |Delta*| > shortcut * sqrt(s2); None
            (as in the paper): never.
        stopping: how many rows to read; see above.
        skew: True corrects for the third cumulant of the noise (as estimated from the rows), which reduces the error
            from order 1/sqrt(b) to order 1/b. None: the default of the rule, True for "fresh" and "pilot". "printed"
            follows the paper's appendix A.5, for study.
        delta: read rows until the paper's error bound, (6.4 E|X|^3 + 2 E|X|)/sqrt(b) with X the
            standardised log ratios per row, is at most delta, as in Algorithm 1. The bound of every decision is in
            `trace.extras["error_bound"]`; `math.inf` only records it. The bound is large: 0.1 takes some 10^4 rows.
    """

    sigma: float = static()
    batch: int | None = static()
    shortcut: float | None = static()
    stopping: StoppingRule
    skew: bool | str = static()
    delta: float | None = static()
    tables: Tables

    def __init__(
        self,
        sigma: float = 1.0,
        correction: str | Correction = "minimax",
        batch: int | None = None,
        shortcut: float | None = None,
        stopping: str | StoppingRule = "fresh",
        skew: bool | str | None = None,
        delta: float | None = None,
    ) -> None:
        check_batch("MinibatchBarker", batch)
        rule = as_rule("MinibatchBarker", stopping)
        skew = rule.terms.skew if skew is None else skew
        _check_skew(skew, rule)
        _check_shortcut(shortcut, rule)
        _check_delta(delta, rule)
        set_fields(
            self,
            sigma=float(sigma) if is_positive(sigma) else sigma,
            batch=None if batch is None else int(batch),
            shortcut=None if shortcut is None else float(shortcut),
            stopping=rule,
            skew=skew,
            delta=None if delta is None else float(delta),
            tables=_tables(sigma, correction, rule, skew),
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

    def appetite(self, population: Population) -> int:
        """The rows of the pilot or between two judgements."""
        return self.stopping.first(self._aim(population), population)

    def draw(self, key: Array) -> Noise:
        """All the randomness of the decision, once."""
        return self.tables.draw(key)

    def open(self, noise: Noise, bound: Array | None, population: Population) -> tuple[_Memory, Any, Ask]:
        """Ask for m rows, with third moments if skewness matters and absolute moments if the bound is wanted."""
        moments = BoundMoments if self.delta is not None else SkewMoments if self.skew else Moments
        return _Memory(noise, PilotBatch.to_come()), moments.empty(), first_rows(self.appetite(population), population)

    def judge(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> Judgement:
        """Decide if the rows are enough, or if all were read; else ask for more."""
        reading = self.read(memory, offset, evidence, population)
        aim, is_within_bound = self._aim(population), True
        if self.delta is not None:
            aim = aim._replace(rows=rows_for_bound(evidence, self.delta / MARGIN, population))
            is_within_bound = error_bound(evidence, population) <= self.delta
        advice = self.stopping.advise(aim, memory.pilot, reading, evidence, population)
        exact = has_read_all(evidence, population)
        is_decided = exact | (advice.is_enough & is_within_bound & jnp.isfinite(evidence.squares))
        noise = jnp.where(exact, logistic(memory.noise.bits), self.tables.total(memory.noise, reading))
        is_clear = self._is_clear(reading, exact)
        is_accepted = reading.estimate + jnp.where(is_clear, 0, noise) > 0
        return Judgement(memory._replace(pilot=advice.pilot), advice.ask, is_decided | is_clear, is_accepted)

    def chance(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> Array:
        """P(accept) given the rows that decide, with the test's own randomness integrated out."""
        reading = self.read(memory, offset, evidence, population)
        exact = has_read_all(evidence, population)
        chance = jnp.where(exact, jax.nn.sigmoid(reading.estimate), self.tables.chance(reading))
        return jnp.where(self._is_clear(reading, exact), reading.estimate > 0, chance)

    def report(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> dict[str, Array]:
        """Return the error bound, if it is asked for."""
        return {} if self.delta is None else {"error_bound": error_bound(evidence, population)}

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) of the test on all rows: Barker's."""
        return jax.nn.sigmoid(log_ratio)

    def read(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> Reading:
        """Estimate Delta* and its noise from the rows read."""
        reading = self.stopping.read(self._aim(population), memory.pilot, evidence, population)
        if self.skew == "printed":
            reading = reading._replace(skew=evidence.skewness / (6 * jnp.sqrt(jnp.maximum(evidence.count, 1.0))))
        return reading._replace(estimate=reading.estimate + offset)

    def _aim(self, population: Population) -> Aim:
        return Aim(
            batch_rows(self.batch, population),
            self.sigma**2,
            skew=_SMALL_SKEW if self.skew else None,
            most_variance=self.tables.most_s2,
            most_skew=self.tables.most_skew,
        )

    def _is_clear(self, reading: Reading, exact: Array) -> Array | bool:
        """Whether the shortcut decides."""
        if self.shortcut is None:
            return False
        return ~exact & (jnp.abs(reading.estimate) > self.shortcut * jnp.sqrt(reading.s2))


def _tables(sigma: Any, correction: Any, rule: StoppingRule, skew: bool | str) -> Tables:
    if not (isinstance(correction, Correction) or correction in ("minimax", "ridge")):
        raise ValueError(
            '`MinibatchBarker(correction=...)` must be "minimax", "ridge" or a Correction '
            f"(see `tallchain.acceptance.correction`); got {correction!r}."
        )
    if rule.terms.grows and not skew:
        return Tables.single(_correction_for(sigma, correction))
    if correction != "minimax":
        raise ValueError(
            f"`MinibatchBarker(correction={correction!r}, stopping={quoted(rule)}, skew={skew!r})`: a correction other "
            'than "minimax" needs stopping="growth" and skew=False, the rule of the paper.'
        )
    sigma = corrections.check_sigma(f"MinibatchBarker(sigma={sigma!r})", sigma)
    if rule.terms.is_student:
        return Tables.of_laws([sigma], nus=NU, skew=skew)
    # If rows are not added until s2 < sigma^2, s2 may be larger.
    return Tables.of_laws([sigma] if rule.terms.grows else LADDER, skew=skew)


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


def _check_skew(skew: Any, rule: StoppingRule) -> None:
    if not (isinstance(skew, bool) or skew == "printed"):
        raise ValueError(f'`MinibatchBarker(skew=...)` must be True, False or "printed"; got {skew!r}.')
    if skew and rule.terms.weighs:
        raise ValueError(
            f"`MinibatchBarker(stopping={quoted(rule)}, skew={skew!r})`: {type(rule).__name__}'s scheme has no skew "
            "correction. Leave `skew` out."
        )
    if skew == "printed" and not rule.terms.grows:
        raise ValueError(
            f'`MinibatchBarker(stopping={quoted(rule)}, skew="printed")`: the printed correction needs the printed '
            'stopping rule, "growth".'
        )


def _check_shortcut(shortcut: Any, rule: StoppingRule) -> None:
    if shortcut is None:
        return
    if not is_positive(shortcut):
        raise ValueError(f"`MinibatchBarker(shortcut=...)` must be positive or None; got {shortcut!r}.")
    if not rule.terms.grows:
        raise ValueError(f'`MinibatchBarker(shortcut={shortcut!r})` needs stopping="growth"; got {quoted(rule)}.')


def _check_delta(delta: Any, rule: StoppingRule) -> None:
    if delta is None:
        return
    if not (is_positive(delta) or delta == math.inf):
        raise ValueError(
            f"`MinibatchBarker(delta=...)` must be positive, None for no bound, or math.inf to record it only; got "
            f"{delta!r}."
        )
    if rule.terms.weighs:
        raise ValueError(
            f"`MinibatchBarker(stopping={quoted(rule)}, delta={delta!r})`: {type(rule).__name__}'s scheme fixes how "
            "many rows it reads. Leave `delta` out, or choose another rule."
        )
