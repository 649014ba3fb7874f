"""Posterior predictive check of a regression: observed outcomes against outcomes drawn for the same rows.

For every draw of the parameters an outcome is drawn for each row. Two kinds of panels compare them with those observed:
means in groups of rows with about the same predicted mean, and how many outcomes have which value. The deviation of a
panel is D = sum over places of (value - m)^2/s^2, m and s the mean and the standard deviation of the drawn values. D of
the observed values is compared with D of each draw. Its cube root is about normal for the draws (as Wilson and Hilferty
found for chi-squared), which gives small p-values from a few hundred draws.

The rows were fitted too. With few rows for each parameter the observed values are closer to the drawn ones than chance
would have them, and a regression that is wrong is suspected less often.

Effects of groups are another matter. A prior draws them together, so that among the rows whose effects come out largest
the outcomes are larger still than the effects say, in a regression that is right as well. So means are predicted
without these effects before rows are put in groups; outcomes are drawn with them.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tallchain.checking.predictive import Panel, PredictiveCheck
from tallchain.checking.rearranging import Compared, bins, groups, levels_shown
from tallchain.keys import fold_in, single_key
from tallchain.models.families import Categorical, Ordinal, Weibull
from tallchain.models.new_rows import Rows
from tallchain.models.prediction import num_draws_of, predicted, take_draws
from tallchain.models.regression import Regression
from tallchain.validation import brief, is_positive, is_whole

_CALL = "predictive_check"
LEAST_DRAWS = 20
_FAR = 10.0  # standard deviations: a deviation is at most counted as this
_ALIKE = "Rows were picked in proportion to their weights, and each that was picked counts once."
_WITHOUT = "Rows with about the same predicted mean are those that have it without the effects of groups."
_CUT = (
    "Where an event was seen, its row has no cut-off: one is drawn from the later cut-offs of all rows (Kaplan-Meier), "
    "as if cut-offs did not depend on the features."
)


def predictive_check(
    model: Regression, trace: Any, key: jax.Array, *, rows: int = 10_000, draws: int = 200, interval: float = 0.9
) -> PredictiveCheck:
    """Compare observed outcomes with outcomes drawn from the posterior, for some of the rows of a regression.

    A regression that is right is suspected once in a thousand checks. One that is wrong is suspected if it shows in so
    many rows: more rows see smaller differences, which may not matter.

    Args:
        model: the regression.
        trace: of it, or draws of its position, as `model.predict` takes them.
        key: for the choice of rows, and for the outcomes.
        rows: how many to compare, picked at random; with weights, in proportion to them.
        draws: of the trace to use, evenly spaced.
        interval: probability between the ends of the intervals.
    """
    if not isinstance(model, Regression):
        raise TypeError(f"`{_CALL}(model=...)` must be a Regression; got {brief(model)}.")
    for name, value, least in (("rows", rows, 1), ("draws", draws, LEAST_DRAWS)):
        if not is_whole(value, least=least):
            raise ValueError(f"`{_CALL}({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")
    if not (is_positive(interval) and interval < 1):
        raise ValueError(f"`{_CALL}(interval=...)` must be a probability, between 0 and 1; got {brief(interval)}.")
    of_rows, of_outcomes = fold_in(single_key(f"{_CALL}(key=...)", key), np.arange(2))
    random = np.random.default_rng(np.asarray(jax.random.key_data(of_rows)).ravel())
    position = take_draws(_CALL, model.layout, trace, int(draws))
    if num_draws_of(position) < LEAST_DRAWS:
        raise ValueError(f"`{_CALL}(trace=...)` must have at least {LEAST_DRAWS} draws; got {num_draws_of(position)}.")
    index = _picked(model, int(rows), random)
    drawn, mean = _drawn(model, position, index, of_outcomes, interval)
    observed = model.data["y"][index]
    compared = _compared(model, observed, drawn, mean, random)
    panels = tuple(_panel(each, interval) for each in compared)
    notes = (_ALIKE,) * ("weight" in model.data) + (_CUT,) * _is_cut(model, observed)
    notes += (_WITHOUT,) * bool(model.layout.terms)
    return PredictiveCheck(
        repr(model.family), len(index), len(model.data["x"]), num_draws_of(position), interval, panels, notes
    )


# ---- rows and outcomes -------------------------------------------------------------------------


def _picked(model: Regression, most: int, random: np.random.Generator) -> np.ndarray:
    """Numbers of rows, in order; a row that stands for several may be picked as often."""
    weight = model.data.get("weight")
    if weight is None:
        num_rows = len(model.data["x"])
        return np.sort(random.choice(num_rows, min(most, num_rows), replace=False))
    ends = np.cumsum(weight, dtype=np.float64)
    count = max(min(most, int(ends[-1])), 1)
    if np.all(weight == np.floor(weight)):
        units = np.sort(random.choice(int(ends[-1]), count, replace=False)).astype(np.float64)
    else:
        units = (np.arange(count) + random.random()) * (ends[-1] / count)
    return np.minimum(np.searchsorted(ends, units, side="right"), len(ends) - 1)


def _drawn(
    model: Regression, position: Any, index: np.ndarray, key: jax.Array, interval: float
) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes (draw, row, ...) and what is expected of rows, without effects of groups."""
    data = {name: model.data[name][index] for name in ("x", "groups", "slopes", "offset") if name in model.data}
    size = model.data["y"][index, 1] if model.family.has_trials else np.ones(len(index), np.float32)
    rows = Rows(data, size)
    found = predicted(_CALL, model, position, rows, key, draws=True, interval=interval)
    assert found.draws is not None
    if not model.layout.terms:
        return found.draws, found.mean
    without = position | {term.name: np.zeros_like(position[term.name]) for term in model.layout.terms}
    return found.draws, predicted(_CALL, model, without, rows, None, draws=False, interval=interval).mean


def _is_cut(model: Regression, observed: np.ndarray) -> bool:
    return isinstance(model.family, Weibull) and not np.all(observed[:, 1])


def _cut(observed: np.ndarray, drawn: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Cut drawn times off as the observed ones were: (draw, row)."""
    time, is_event = observed[:, 0].astype(np.float64), observed[:, 1] > 0
    order = np.lexsort((~is_event, time))  # an event at a time shows that its cut-off is later
    at_risk = np.arange(len(time), 0, -1)
    left = np.cumprod(1 - ~is_event[order] / at_risk)  # share of cut-offs that are later
    later = np.empty(len(time))
    later[order] = left
    ends = np.append(time[order], np.inf)
    found = np.empty(drawn.shape, np.float64)
    for at, times in enumerate(drawn):
        places = np.searchsorted(-left, -(random.random(len(time)) * later), side="left")
        found[at] = np.minimum(times, np.where(is_event, ends[places], time))
    return found


# ---- what is compared --------------------------------------------------------------------------


def _compared(
    model: Regression, observed: np.ndarray, drawn: np.ndarray, mean: np.ndarray, random: np.random.Generator
) -> list[Compared]:
    """Statistics of observed and drawn outcomes, panel by panel."""
    family = model.family
    if isinstance(family, Categorical):
        shown = levels_shown(observed, family.levels)
        found = [
            groups(mean[:, k], observed == k, drawn == k, None, f"outcome {k}", f"predicted share of outcome {k}")
            for k in shown
        ]
        return [*found, *bins(observed, drawn)]
    if isinstance(family, Ordinal):
        mean = mean @ np.arange(family.levels)
    if family.has_trials:
        size = observed[:, 1]
        shares = [each / np.maximum(size, 1) for each in (observed[:, 0], drawn[..., 0])]
        first = groups(mean, observed[:, 0], drawn[..., 0], size, "share of successes", "predicted share of successes")
        return [first, *bins(shares[0][size > 0], shares[1][:, size > 0], "share of successes of a row")]
    if observed.ndim > 1:
        is_cut, times = _is_cut(model, observed), drawn[..., 0]
        times = _cut(observed, times, random) if is_cut else times
        words = "mean time, cut off or not" if is_cut else "mean time"
        first = groups(mean, observed[:, 0], times, None, words, "predicted mean time")
        return [first, *bins(observed[:, 0], times, "time, cut off or not" if is_cut else "time")]
    return [groups(mean, observed, drawn), *bins(observed, drawn)]


def _panel(of: Compared, interval: float) -> Panel:
    low, high = np.quantile(of.drawn, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    values = {"observed": of.observed, "low": low, "middle": of.drawn.mean(0), "high": high, "place": of.place}
    return Panel(
        title=of.title,
        across=of.across,
        along=of.along,
        labels=of.labels,
        rows=tuple(of.rows.tolist()),
        p_value=_p_value(of.observed, of.drawn),
        is_log=of.is_log,
        **{name: tuple(np.asarray(each, np.float64).tolist()) for name, each in values.items()},
    )


def _p_value(observed: np.ndarray, drawn: np.ndarray) -> float:
    """Chance of a deviation as large as the observed one; drawn values are (draw, place)."""
    from scipy.stats import t  # heavy

    count, away = len(drawn), drawn - drawn.mean(0)
    squares = np.sum(away**2, axis=0)
    # Each draw is compared with the others alone, as the observed values are with draws that they are not among.
    without = np.maximum(squares - away**2 * count / (count - 1), 0.0)
    ours = _size((observed - drawn.mean(0)) ** 2, squares / (count - 1))
    theirs = _size((away * count / (count - 1)) ** 2, without / (count - 2))
    spread = theirs.std(ddof=1)
    if spread == 0:
        return 1.0 if ours <= theirs[0] else 0.0
    return float(t.sf((ours - theirs.mean()) / (spread * np.sqrt(1 + 1 / count)), count - 1))


def _size(square: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Cube root of the sum over places of squared deviations, in units of their variance."""
    ratio = square / np.where(variance > 0, variance, np.finfo(float).tiny)
    return np.cbrt(np.sum(np.where(square > 0, np.minimum(ratio, _FAR**2), 0.0), axis=-1))
