"""The minibatch test, stopped early by a t-test at every look, as the paper's last section proposes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import scipy

from tallchain.acceptance.evidence import Moments, SkewMoments, add_rows, choose_ask, has_read_all
from tallchain.acceptance.minibatch_barker import MinibatchBarker
from tallchain.acceptance.stopping import quoted
from tallchain.acceptance.tables import Noise, logistic
from tallchain.parts import part, set_fields, static
from tallchain.types import Array, Ask, Judgement, Population
from tallchain.validation import is_positive, is_whole


class _Memory(NamedTuple):
    barker: Any
    """What the minibatch test remembers."""
    plan: Array
    """Rows that the minibatch test will use."""


@part
class Combined:
    """Let a pilot plan the minibatch test; read the planned rows in parts; stop when the rest could not change it.

    After a pilot the minibatch test knows how many fresh rows n it will use, and its own randomness is drawn
    beforehand. It will accept iff

        mean over the n rows + offset + X > 0,    X = X_nc + X_corr.

    After k of the n rows the rest can still move the mean by a nearly normal variable of variance v (1/k - 1/n), v the
    variance of a row. So, as AustereMH does with a threshold of its own, stop and decide by the sign when

        |mean over the k rows + offset + X| > t sqrt(v (1/k - 1/n)),    P(T > t) = epsilon, T Student's of the pilot,

    with v from the pilot, and X as it will be if the rest is like the rows read. Every look predicts the same decision,
    with the same X. Two tests with separate noise, the second used where the first was not sure, would accept too often
    where Delta > 0 and too seldom where Delta < 0. The only error added to that of the minibatch test is the chance
    that the rest would have changed the decision. In the log-odds of acceptance, for normal rows, this is about

        -tanh(Delta/2) sigma^2 h(t) sum over looks of (n/k - 1),    h(t) = (1 + t^2) Phi(-t) - t phi(t),

    which is at most 0.003 with the settings below, 0.02 with epsilon = 0.005 and 0.4 with 0.05. Where the plan takes
    all rows, Barker's own test is predicted in the same way. Measured in `studies/results/combined.json`.

    Seita, Pan, Chen, Canny (2017) for the test; Korattikara, Chen, Welling (2014) for the t-test. Stopping when a
    planned test is almost decided is called stochastic curtailment (Lan, Simon, Halperin 1982).

    Args:
        epsilon: chance, at each look, that the rest would change the decision; in (0, 1/2).
        barker: the minibatch test, with stopping "fresh" or "pilot"; None for `MinibatchBarker()`.
        looks: parts in which the planned rows are read, each at least half a pilot.
    """

    epsilon: float = static()
    looks: int = static()
    barker: MinibatchBarker

    def __init__(self, epsilon: float = 0.001, barker: MinibatchBarker | None = None, looks: int = 8) -> None:
        barker = MinibatchBarker() if barker is None else barker
        if not is_positive(epsilon) or epsilon >= 0.5:
            raise ValueError(f"`Combined(epsilon=...)` must be between 0 and 1/2; got {epsilon!r}.")
        is_barker = isinstance(barker, MinibatchBarker)
        if not (is_barker and barker.stopping.terms.plans):
            raise ValueError(
                '`Combined(barker=...)` must be a MinibatchBarker(...) with stopping="fresh" or "pilot", which know '
                "beforehand how many rows they will judge on; got "
                + (f"one with stopping={quoted(barker.stopping)}." if is_barker else f"{barker!r}.")
            )
        if barker.delta is not None:
            raise ValueError(f"`Combined(barker=...)` must have no bound on its error; got delta={barker.delta!r}.")
        if not is_whole(looks, least=1):
            raise ValueError(f"`Combined(looks=...)` must be a whole number, at least 1; got {looks!r}.")
        set_fields(self, epsilon=float(epsilon), looks=int(looks), barker=barker)

    def appetite(self, population: Population) -> int:
        """Half a pilot: the least rows between two looks."""
        return -(-self.barker.appetite(population) // 2)

    def draw(self, key: Array) -> Noise:
        """All the randomness of the minibatch test; the t-test has none."""
        return self.barker.draw(key)

    def open(self, noise: Noise, bound: Array | None, population: Population) -> tuple[_Memory, Any, Ask]:
        """Ask for the pilot."""
        memory, evidence, ask = self.barker.open(noise, bound, population)
        return _Memory(memory, jnp.asarray(ask.rows, jnp.int32)), evidence, ask

    def judge(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> Judgement:
        """Let the minibatch test judge once its rows are read; before that, decide if it is predictable, or read on."""
        due = self.barker.judge(memory.barker, offset, evidence, population)
        is_due = evidence.count >= memory.plan
        margin, is_sure = self._foresee(memory, offset, evidence, population)
        is_decided = jnp.where(is_due, due.is_decided, is_sure)
        is_fresh = is_due & jnp.asarray(due.ask.fresh)
        read = jnp.where(is_fresh, 0, evidence.count)
        plan = jnp.where(is_due & ~is_decided, read + due.ask.rows, memory.plan)
        rows = jnp.minimum(jnp.maximum(-(-plan // self.looks), self.appetite(population)), plan - read)
        if population.repeats:  # a census is not read in parts: random rows predict other random rows
            rows = jnp.where(plan >= population.num_rows, population.num_rows, rows)
        known = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), due.memory, memory.barker)
        fresh = Ask(rows, census=population.repeats & (rows >= population.num_rows), fresh=True)
        ask = choose_ask(is_fresh, fresh, add_rows(rows, evidence, population))
        return Judgement(_Memory(known, plan), ask, is_decided, margin > 0)

    def exact_chance(self, log_ratio: Array) -> Array:
        """P(accept) of the test on all rows: Barker's."""
        return self.barker.exact_chance(log_ratio)

    def _foresee(self, memory: _Memory, offset: Array, evidence: Any, population: Population) -> tuple[Array, Array]:
        """Return what the minibatch test will compare with 0 once it has all its rows, and whether its sign is sure."""
        barker = memory.barker
        ahead = _extrapolated(evidence, memory.plan)
        reading = self.barker.read(barker, offset, ahead, population)
        noise = barker.noise
        x = jnp.where(has_read_all(ahead, population), logistic(noise.bits), self.barker.tables.total(noise, reading))
        margin = reading.estimate + x
        t = float(scipy.special.stdtrit(max(self.barker.appetite(population) - 1, 1), 1 - self.epsilon))
        # The variance of other rows: that of the same rows would stop where it is small, which is not symmetric for
        # skewed rows.
        rest = barker.pilot.variance * _gap(evidence.count, memory.plan)
        return margin, (jnp.abs(margin) > t * jnp.sqrt(rest)) & jnp.isfinite(evidence.squares)


def _extrapolated(evidence: Moments | SkewMoments, plan: Array) -> Moments | SkewMoments:
    """Return the evidence of `count` rows like those read: the same mean, variance and third moment."""
    count = jnp.maximum(evidence.count, 2)
    squares = evidence.squares * ((plan - 1) / (count - 1))
    if isinstance(evidence, SkewMoments):
        return SkewMoments(plan, evidence.mean, squares, evidence.cubes * (plan / count))
    return Moments(plan, evidence.mean, squares)


def _gap(count: Array, plan: Array) -> Array:
    """1/k - 1/n, without the difference of two nearly equal numbers."""
    k, n = jnp.maximum(count, 1) * 1.0, jnp.maximum(plan, 1) * 1.0
    return jnp.maximum(n - k, 0) / k / n
