"""The scale of a proposal, adapted in rounds of the warm-up by the acceptance and the rows of all chains together.

If the log ratio of a proposal is about N(-s^2/2, s^2), as it is in many dimensions, the acceptance A(s) of a test
follows, and so does the s at which the chain moves fastest: s grows as scale^order, and the speed as scale^2 A (a walk,
Langevin steps, trajectories of a fixed number of steps) or scale A (trajectories of a fixed length). For Metropolis'
test the best acceptance is then 0.234, 0.574 and 0.651 for a walk, Langevin steps and trajectories of a fixed length
(Roberts, Gelman and Gilks 1997; Roberts and Rosenthal 1998; Beskos et al. 2013), for Barker's 0.159, 0.347 and 0.381
(Agrawal et al. 2022 for the walk); noise in the log ratio, as `Penalty` has it, lowers it further.

A minibatch test reads more rows for longer steps: about a + b scale^2 in all, gradients of rows included, with a and b
by the rounds. The scale that is aimed at is that with the most speed per row. Where b = 0 it has the acceptance above;
where rows are what limits the chain its steps are shorter, and accepted more often.

After each round s is found from the acceptance, and the scale changes at most 8 times; the order is taken from two
rounds of different scale if it is lower than in theory, as it is where the gradient is noisy. A round in which nearly
nothing was accepted says that the scale was too long, and no later one comes nearer to it than half the way (on a
logarithmic scale). Once a round asks for less than 1.5 times more or less, the scale is the geometric mean of what the
rounds from there on ask for: the noise of their acceptance averages out. The last round leaves no
scale that is longer than those that were tried, and if it went wrong, that of the best round.

Theory may be wrong about the speed. Trajectories turn back: they get no longer than a quarter turn, by how far the
accepted ones lead. Between modes longer steps gain more than theory says, and noise may do other things. So the
effective draws per row of the rounds are compared (see `tallchain.mixing`). A round that is clearly worse than one
before it ends the search by theory; the last rounds try a scale above and one below the best; and where these show a
scale that is clearly better than the one of theory, it is taken, by a parabola through the rounds near it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from tallchain.abilities import Tuning
from tallchain.acceptance import Barker, Combined, Metropolis, MinibatchBarker, NormalBarker, Penalty
from tallchain.mixing import Moves
from tallchain.types import AcceptanceTest

_ROUNDS = 8
_MOST_CHANGE, _SETTLED = 8.0, 1.5  # of the scale in a round; what counts as a small one
_LEAST_ORDER = 0.5
_FAILED = 0.15  # acceptance over the best one, at which a scale is far too long
_CERTAIN = 0.99  # acceptance over that of the shortest steps, from which on it says no more
_BELIEF = 0.1  # weight of what is assumed of rows, against rounds
_APART, _NEAR = 1.2, 3.0  # rounds whose scales differ so much show how s, and rows, depend on the scale
_TRIALS = 2  # rounds before the last one that try another scale than that of theory
_STEP = math.log(1.4)  # to that scale
_QUARTER, _CLEAR_TURN = 0.5 * math.pi, 2.0  # a turn of less is not that of a longer trajectory
_LEAST_TURN, _SLIGHT_TURN = 1e-6, 0.4  # less is lost in the rounding of positions; is not yet that of a trajectory
_CLEARLY = math.log(1.2)  # better, at least, and by two standard errors
_SPREADS = np.geomspace(1e-3, 1e2, 8001)  # s
_CHANGES = np.linspace(-math.log(_MOST_CHANGE), math.log(_MOST_CHANGE), 801)  # of the log of the scale
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(61)


def acceptance_curve(test: AcceptanceTest) -> np.ndarray:
    """A(s) at `_SPREADS`: the mean acceptance of a test where log ratios are N(-s^2/2, s^2)."""
    s = _SPREADS
    if isinstance(test, MinibatchBarker | Barker | NormalBarker | Combined):
        chances = expit(-0.5 * s[:, None] ** 2 + s[:, None] * _NODES)
        return np.minimum.accumulate(chances @ _WEIGHTS / math.sqrt(2 * math.pi))  # quadrature has ripples far out
    noise = float(test.max_sd) if isinstance(test, Penalty) else 0.0
    return 2 * ndtr(-0.5 * np.hypot(s, noise))


def best_acceptance(test: AcceptanceTest, tuning: Tuning) -> float:
    """Return the acceptance at which the chain moves fastest, if a decision reads the same number of rows always."""
    curve = acceptance_curve(test)
    return float(curve[np.argmax(np.log(_SPREADS) * tuning.speed / tuning.order + _log(curve))])


class Round(NamedTuple):
    """What a round has shown."""

    log_factor: float
    acceptance: float
    rows: float
    """Of a decision, gradients of rows included."""
    least: float
    """Of them, those that the shortest steps would read too."""
    log_s: float
    """NaN if the acceptance says no more than whether the scale is too small or too large."""
    moves: Moves | None = None


class Points(NamedTuple):
    """Effective draws per row against the scale, both as logarithms."""

    at: np.ndarray
    gain: np.ndarray
    error: np.ndarray

    @property
    def best(self) -> int:
        """Which has the most."""
        return int(np.argmax(self.gain))

    def nearest(self, at: float) -> int:
        """Which is nearest to a scale; the latest of several."""
        return len(self.at) - 1 - int(np.argmin(np.abs(self.at - at)[::-1]))

    def is_clearly_better(self, one: int, other: int) -> bool:
        """Whether one is better by more than chance, and enough to matter."""
        noise = 2 * math.hypot(self.error[one], self.error[other])
        return bool(self.gain[one] - self.gain[other] > max(_CLEARLY, noise))

    def middle_gain(self, at: float) -> float:
        """The median of the rounds at about a scale: a chain that sticks spoils single ones, and their errors."""
        return float(np.median(self.gain[np.abs(self.at - at) < 0.25 * _STEP]))

    def top(self) -> float:
        """The best scale by a parabola through the points near the best one; that point itself if they lie on none."""
        middle = float(self.at[self.best])
        near = np.abs(self.at - middle) < 2.5 * _STEP
        at, gain, error = self.at[near] - middle, self.gain[near], np.hypot(self.error[near], 0.05)
        if len(set(np.round(at, 2))) < 3:
            return middle
        parabola = np.polyfit(at, gain, 2, w=1 / error)
        if parabola[0] >= 0 or np.any(np.abs(np.polyval(parabola, at) - gain) > 3 * error):
            return middle
        return middle + float(np.clip(-0.5 * parabola[1] / parabola[0], at.min(), at.max()))


@dataclasses.dataclass
class Tuner:
    """Finds a scale from one round after another."""

    test: AcceptanceTest
    tuning: Tuning
    num_warmup: int
    factor: float = 1.0
    """Of the scale now, over the one given."""
    rounds: list[Round] = dataclasses.field(default_factory=list)
    _asked: list[float] = dataclasses.field(default_factory=list)
    """Logarithms of the factors that the rounds since the last large change ask for."""
    _is_measured: bool = False
    """Whether the rounds have shown that another scale than that of theory is better."""
    _is_turning: bool = False
    """Whether trajectories would turn back at the scale of theory."""

    @property
    def ends(self) -> list[int]:
        """The draws at which rounds end; the last rounds are longer."""
        shares = np.cumsum(np.linspace(1, 3, _ROUNDS))
        return sorted({max(int(self.num_warmup * share / shares[-1]), 1) for share in shares})

    def update(
        self, acceptance: float, rows: float = 1.0, least: float = math.inf, moves: Moves | None = None
    ) -> float:
        """End a round; return the factor for the next."""
        curve, here = self._curve(acceptance), math.log(self.factor)
        is_telling = self._failure < acceptance < _CERTAIN * curve[0]
        log_s = float(np.interp(-acceptance, -curve, np.log(_SPREADS))) if is_telling else math.nan
        self.rounds.append(Round(here, acceptance, rows, min(rows, least), log_s, moves))
        if acceptance <= self._failure:
            change = _CHANGES[0]
            shorter = [
                each.log_factor for each in self.rounds if each.acceptance > self._failure and each.log_factor < here
            ]
            if shorter:
                change = 0.5 * (max(shorter) - here)
        elif is_telling:
            change = self._change(curve, log_s)
        else:
            change = _CHANGES[-1]
        self._asked = [*self._asked, here + change] if is_telling and abs(change) <= math.log(_SETTLED) else []
        log_factor = self._checked(float(np.mean(self._asked)) if self._asked else here + change)
        self.factor = math.exp(self._within(log_factor, here, is_last=len(self.rounds) == len(self.ends)))
        return self.factor

    @property
    def _failure(self) -> float:
        """The acceptance of a scale that is far too long."""
        return _FAILED * best_acceptance(self.test, self.tuning)

    @property
    def _tried(self) -> list[Round]:
        """Rounds in which enough was accepted."""
        return [each for each in self.rounds if each.acceptance > self._failure]

    def _curve(self, acceptance: float) -> np.ndarray:
        """A(s); without the noise of the test if more was accepted than it would allow: a surrogate leaves none."""
        curve = acceptance_curve(self.test)
        most = max([acceptance, *(each.acceptance for each in self.rounds)])
        return (
            acceptance_curve(Metropolis()) if most > _CERTAIN * curve[0] and isinstance(self.test, Penalty) else curve
        )

    def _change(self, curve: np.ndarray, log_s: float) -> float:
        """To the most speed per row."""
        chances = np.interp(log_s + self.tuning.order * _CHANGES, np.log(_SPREADS), _log(curve))
        wanted = _CHANGES[np.argmax(self.tuning.speed * _CHANGES + chances - np.log(self._rows_after_changes))]
        return float(np.clip(wanted * self.tuning.order / self._order, _CHANGES[0], _CHANGES[-1]))

    # ---- what the rounds have shown -------------------------------------------------------------

    def _checked(self, by_theory: float) -> float:
        """Return the scale to try next, or to end with: that of theory, unless the rounds contradict it."""
        by_theory = min(self._before_turning(by_theory), math.log(self.tuning.most))
        points = self._points()
        left = len(self.ends) - len(self.rounds)
        if points is None or self._tried[-1] is not self.rounds[-1]:
            return by_theory
        best = points.best
        self._is_measured = points.is_clearly_better(best, points.nearest(by_theory))
        if left <= 1:
            return points.top() if self._is_measured else self._if_it_pays(points, by_theory)
        if self._is_measured or left <= _TRIALS + 1:
            return self._beside(points, by_theory)
        return by_theory

    def _if_it_pays(self, points: Points, by_theory: float) -> float:
        """The longest scale there is only if it is clearly better than the next: it is the first to stick in tails."""
        if by_theory < math.log(self.tuning.most):
            return by_theory
        gaps = by_theory - points.at
        shorter = np.flatnonzero(gaps > 0.25 * _STEP)
        if not len(shorter):
            return by_theory
        next_one = float(points.at[shorter[np.argmin(gaps[shorter])]])
        is_better = points.middle_gain(by_theory) - points.middle_gain(next_one) > _CLEARLY
        return by_theory if is_better else next_one

    def _before_turning(self, by_theory: float) -> float:
        """At most the scale at which trajectories make a quarter turn.

        A turn looks the same as that and a full one, so the shortest trajectories say how far longer ones turn; and if
        no shorter ones than those of the last round were tried, they are. If longer ones seem to turn less, the
        shorter ones have made more than half a turn.
        """
        turns = self._turns() if self.tuning.turns and math.isinf(self.tuning.most) else []
        if not turns:
            return by_theory
        angle = 0.0  # of trajectories of factor 1
        for log_factor, seen in turns:
            expected = angle * math.exp(log_factor)
            if seen < 0.7 * expected < 0.7 * _CLEAR_TURN:
                angle = (2 * math.pi - expected) / math.exp(log_factor)
                break
            if expected < _CLEAR_TURN:
                angle = seen / math.exp(log_factor)
        here = self.rounds[-1].log_factor
        if len(turns) == 1 and angle * math.exp(here) < 0.5 * _QUARTER:
            return here - math.log(_NEAR)
        longest = math.log(_QUARTER / angle)
        # Chains that still spread from where they started look as if they turned, a little.
        self._is_turning = longest < by_theory and any(seen > _SLIGHT_TURN for at, seen in turns if at == here)
        return min(by_theory, longest)

    def _turns(self) -> list[tuple[float, float]]:
        """Scales that were tried, the shortest first, and how far their trajectories turned, if it can be told."""
        rounds = [(each, each.moves) for each in self._tried if each.moves is not None]
        found = [(each.log_factor, moves.turn(each.acceptance, rounds[-1][1].variance)) for each, moves in rounds]
        return sorted((log_factor, seen) for log_factor, seen in found if seen > _LEAST_TURN)

    def _beside(self, points: Points, by_theory: float) -> float:
        """A scale above or below the best one, whichever was not tried yet, or the top of the parabola."""
        middle = float(points.at[points.best]) if self._is_measured else by_theory
        failed = [each.log_factor for each in self.rounds if each.acceptance <= self._failure]
        highest = min([math.log(self.tuning.most), *(0.5 * (middle + each) for each in failed if each > middle)])
        for way in (_STEP, -_STEP):
            steps = (points.at - middle) / way
            is_tried = np.any((steps > 0.25) & (steps < 2))
            if not is_tried and middle + way <= highest:
                return middle + way
        return points.top() if self._is_measured else middle

    def _points(self) -> Points | None:
        """Effective draws per row of the rounds in which enough was accepted, all by the variances of the last one."""
        rounds = [(each, each.moves) for each in self._tried if each.moves is not None]
        variance = rounds[-1][1].variance if rounds else np.zeros(0)
        if len(rounds) < 2 or not np.any(variance > 0):
            return None
        found = [moves.log_effective(variance) for _, moves in rounds]
        return Points(
            np.array([each.log_factor for each, _ in rounds]),
            np.array([of - math.log(each.rows) for (of, _), (each, _) in zip(found, rounds, strict=True)]),
            np.array([error for _, error in found]),
        )

    def _within(self, log_factor: float, here: float, *, is_last: bool) -> float:
        """Keep away from scales at which nothing was accepted, and from those that the proposal cannot have."""
        failed = [
            each.log_factor for each in self.rounds if each.acceptance <= self._failure and each.log_factor > here
        ]
        log_factor = min([log_factor, *(0.5 * (here + each) for each in failed)])
        tried = [each for each in self.rounds if each.acceptance > self._failure]
        if is_last and tried and self.rounds[-1].acceptance <= self._failure:
            log_factor = max(tried, key=self._gain).log_factor
        elif is_last and tried:
            least = -math.inf if self._is_measured else here - math.log(_SETTLED)
            log_factor = min(max(log_factor, least), max(each.log_factor for each in tried))
        return min(log_factor, math.log(self.tuning.most))

    def _gain(self, each: Round) -> float:
        """The log of the speed per row in a round."""
        return self.tuning.speed * each.log_factor + math.log(max(each.acceptance, 1e-9)) - math.log(each.rows)

    @property
    def _order(self) -> float:
        """How log s changes with the log of the scale: by the last two rounds that show it, or by theory."""
        shown = [each for each in self.rounds if not math.isnan(each.log_s)]
        for before, after in zip(reversed(shown[:-1]), reversed(shown[1:]), strict=True):
            way = after.log_factor - before.log_factor
            if abs(way) > math.log(_APART):
                return min(max((after.log_s - before.log_s) / way, _LEAST_ORDER), self.tuning.order)
        return self.tuning.order

    @property
    def _rows_after_changes(self) -> np.ndarray:
        """a + b scale^2 at `_CHANGES` of the scale: through the last round, b by rounds of about its scale.

        As long as these are of the same scale, all rows but the least are taken to grow with it.
        """
        last = self.rounds[-1]
        near = [each for each in self.rounds if abs(each.log_factor - last.log_factor) < math.log(_NEAR)]
        squares = np.array([math.exp(2 * (each.log_factor - last.log_factor)) for each in near]) - 1
        more = np.array([each.rows - last.rows for each in near])
        most = last.rows - last.least
        curved = float((np.sum(squares * more) + _BELIEF * most) / (np.sum(squares**2) + _BELIEF))
        b = min(max(curved, 0.0), most)
        return last.rows + b * (np.exp(2 * _CHANGES) - 1)

    @property
    def is_lost(self) -> bool:
        """Whether nearly nothing was accepted in any round, or all in the last, though the scale could grow."""
        if self._is_measured or self._is_turning:
            return False
        was_longest = any(each.log_factor >= math.log(self.tuning.most) - 1e-6 for each in self.rounds)
        return all(each.acceptance <= self._failure for each in self.rounds) or (
            self.rounds[-1].acceptance > 0.98 and not was_longest
        )

    @property
    def words(self) -> str:
        """What was done, for a summary."""
        last, best = self.rounds[-1], best_acceptance(self.test, self.tuning)
        of_theory = f"{best:.3f} would be best if rows were free"
        if self._is_measured:
            of_theory = "the draws of the rounds showed that this scale is better than the one of theory"
        elif self._is_turning:
            of_theory = "longer trajectories would turn back"
        at_most = ", the longest there is" if self.factor >= self.tuning.most * 0.999 else ""
        return (
            f"the scale was adapted in {len(self.rounds)} rounds of the warm-up, to {self.factor:.3g} times the one "
            f"given{at_most}; acceptance {last.acceptance:.3f} in the last ({of_theory})"
        )


def _log(chances: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(chances, 1e-300))
