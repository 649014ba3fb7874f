"""What a regression expects of rows, and outcomes drawn for them: averages over draws of its parameters.

Draws are thinned to a few hundred, and rows come in blocks. An array of all draws and all rows is made only for
outcomes that are to be kept.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.functions import Function, program
from tallchain.keys import fold_in, single_key
from tallchain.models.design import check_frame
from tallchain.models.layout import COEFFICIENTS, Layout
from tallchain.models.likelihood import RegressionLogLikelihood
from tallchain.models.new_rows import Model, Rows, new_rows, own_rows
from tallchain.models.prior_draws import check_proper, draw_positions
from tallchain.models.priors import log_prior_of
from tallchain.names import in_order_of
from tallchain.parts import part, static
from tallchain.types import Array, PyTree
from tallchain.validation import brief, check_switch, is_positive, is_whole

if TYPE_CHECKING:
    from pandas import DataFrame

_BLOCK = 2**22  # numbers of a block, over draws and rows
_MOST_ROWS = 2**13  # of a block
_MOST_KEPT = 2**31  # outcomes
_TOGETHER = 128  # rows whose outcomes are drawn together


class Interval(NamedTuple):
    """Between two of the draws, in order: no interpolation."""

    lower: np.ndarray
    upper: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """What a regression expects of rows."""

    mean: np.ndarray
    """E[y], the mean over draws, by row: what `family.mean` says. For outcomes of several levels the probabilities,
    (row, level); for trials the share of successes; for times those that are not cut off."""
    interval: Interval
    """Of E[y], over draws."""
    outcome_interval: Interval | None
    """Of an outcome, over draws: of successes, of times, of levels if they have an order; None without a key."""
    draws: np.ndarray | None
    """Outcomes drawn, in the form of y: (draw, row), or (draw, row, 2) for trials and times; None unless asked for."""
    position: PyTree
    """The draws of the parameters that were used, (draw, ...)."""
    new_levels: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    """Labels of groups that the regression does not have, by factor: their effects were drawn."""

    @property
    def num_draws(self) -> int:
        """Draws of the parameters."""
        return num_draws_of(self.position)

    def to_pandas(self) -> DataFrame:
        """Return a frame, a line for each row: mean and interval, and the interval of an outcome if there is one.

        For outcomes of several levels every column comes once for each, as "mean[0]", "mean[1]" and so on.
        """
        from pandas import DataFrame

        named = {"mean": self.mean, "lower": self.interval.lower, "upper": self.interval.upper}
        columns = {
            label: values if values.ndim == 1 else values[:, at]
            for name, values in named.items()
            for at, label in enumerate([name] if values.ndim == 1 else [f"{name}[{k}]" for k in range(values.shape[1])])
        }
        if self.outcome_interval is not None:
            columns |= {f"outcome_{name}": values for name, values in self.outcome_interval._asdict().items()}
        return DataFrame(columns)


class Ask(NamedTuple):
    """Which rows: the arguments of a call."""

    x: Any = None
    groups: Any = None
    offset: Any = None
    data: Any = None
    rows: Any = None
    size: Any = None
    new_levels: Any = "refuse"

    @property
    def is_new(self) -> bool:
        """Whether rows are given."""
        return any(given is not None for given in (self.x, self.groups, self.offset, self.data))


def predict(model: Model, trace: Any, ask: Ask, *, key: Any, draws: Any, interval: Any, max_draws: Any) -> Prediction:
    """See `Regression.predict`."""
    call = "predict"
    if not is_whole(max_draws, least=1):
        raise ValueError(f"`{call}(max_draws=...)` must be a whole number, at least 1; got {brief(max_draws)}.")
    if check_switch(call, "draws", draws) and key is None:
        raise ValueError(f"`{call}(draws=True)` needs a key, such as `key=jax.random.key(0)`.")
    _check_interval(call, interval)
    rows = _rows(call, model, ask)
    position = take_draws(call, model.layout, trace, int(max_draws))
    _check_kept(call, model, rows, num_draws_of(position) if draws else 0)
    key = None if key is None else single_key(f"{call}(key=...)", key)
    return predicted(call, model, position, rows, key, draws=draws, interval=interval)


def prior_predict(model: Model, key: Any, count: Any, ask: Ask, *, draws: Any, interval: Any) -> Prediction:
    """See `Regression.prior_predict`."""
    call = "prior_predict"
    if not is_whole(count, least=1):
        raise ValueError(f"`{call}(count=...)` must be a whole number, at least 1; got {brief(count)}.")
    check_switch(call, "draws", draws)
    _check_interval(call, interval)
    check_proper(call, log_prior_of(model.posterior))
    rows = _rows(call, model, ask)
    _check_kept(call, model, rows, int(count) if draws else 0)
    of_position, of_rows = fold_in(single_key(f"{call}(key=...)", key), np.arange(2))
    position = jax.tree.map(np.asarray, draw_positions(model.posterior, of_position, int(count)))
    position = in_order_of(position, model.start)
    return predicted(call, model, position, rows, of_rows, draws=draws, interval=interval)


def _rows(call: str, model: Model, ask: Ask) -> Rows:
    check_frame(call, ask.data)
    if ask.new_levels not in ("refuse", "draw"):
        raise ValueError(f'`{call}(new_levels=...)` must be "refuse" or "draw"; got {brief(ask.new_levels)}.')
    if not ask.is_new:
        return own_rows(call, model, ask.rows, ask.size)
    if ask.rows is not None:
        raise ValueError(f"`{call}(rows=...)` picks rows of the regression itself; leave it out for new rows.")
    may_be_new = ask.new_levels == "draw"
    return new_rows(call, model, ask.x, ask.groups, ask.offset, ask.data, ask.size, may_be_new=may_be_new)


# ---- draws of the parameters -------------------------------------------------------------------


def take_draws(call: str, layout: Layout, trace: Any, most: int) -> PyTree:
    """Return at most so many draws, (draw, ...), evenly spaced over all chains."""
    position = getattr(trace, "position", trace)
    shapes = layout.shapes()
    named, wanted = ({"": position}, {"": shapes}) if layout.is_vector else (position, shapes)
    try:
        leaves = {name: np.asarray(named[name]) for name in wanted}
    except (TypeError, KeyError, IndexError):
        leaves = {}
    leads = {leaf.shape[: leaf.ndim - len(wanted[name])] for name, leaf in leaves.items()}
    fits = all(leaf.shape[leaf.ndim - len(wanted[name]) :] == wanted[name] for name, leaf in leaves.items())
    if not (leaves and fits and len(leads) == 1 and len(next(iter(leads))) <= 2):
        got = jax.tree.map(np.shape, position) if isinstance(position, dict) else brief(position)
        raise ValueError(
            f"`{call}(trace=...)` must be a trace of this regression, or draws of its position: arrays of shapes "
            f"{shapes} after (chain, draw) or (draw,); got {got}."
        )
    total = int(np.prod(next(iter(leads)), dtype=np.int64))
    if not total:
        raise ValueError(f"`{call}(trace=...)` must have at least one draw; got shape {next(iter(leads))}.")
    which = np.linspace(0, total - 1, min(total, most)).round().astype(np.int64)
    thinned = {
        name: leaf.reshape(total, *wanted[name])[which].astype(np.float32, copy=False) for name, leaf in leaves.items()
    }
    return thinned[""] if layout.is_vector else thinned


def _with_new_levels(call: str, layout: Layout, position: PyTree, rows: Rows, key: Any) -> PyTree:
    """Return what predictors depend on, with effects of unknown levels drawn from N(0, sd^2)."""
    if layout.is_vector:
        return position
    names = (*layout.shared, *(term.name for term in layout.terms))
    found = {name: position[name] for name in (COEFFICIENTS, *names)}
    counts = [len(labels) for labels in rows.unknown]
    if any(counts) and key is None:
        raise ValueError(f'`{call}(new_levels="draw")` needs a key, such as `key=jax.random.key(0)`.')
    for at, term in enumerate(layout.terms):
        count = counts[term.factor] if counts else 0
        if count:
            room = 1 << (count - 1).bit_length()  # other numbers of labels seldom compile again
            noise = np.asarray(jr.normal(fold_in(key, at), (len(found[term.name]), room)))
            effects = np.exp(position[term.log_sd])[:, None] * noise
            found[term.name] = np.concatenate([found[term.name], effects], axis=1)
    return found


# ---- rows --------------------------------------------------------------------------------------


@part
class _Predictor:
    """What a program depends on: equal families and layouts share it."""

    log_likelihood: Function = static()

    @property
    def regression(self) -> RegressionLogLikelihood:
        """Family and layout."""
        assert isinstance(self.log_likelihood.function, RegressionLogLikelihood)
        return self.log_likelihood.function


@program()
def _expected(of: _Predictor, position: PyTree, rows: PyTree) -> Array:
    """E[y], (row, draw, ...)."""
    model = of.regression
    mean = lambda row, position: model.family.mean(model.layout.predictors(position, row))  # noqa: E731
    return jax.vmap(lambda row: jax.vmap(lambda at: mean(row, at))(position))(rows)


@program()
def _outcomes(of: _Predictor, position: PyTree, rows: PyTree, size: Array, keys: Array) -> Array:
    """Outcomes, (row, draw, ...)."""
    model = of.regression
    numbers = jnp.arange(num_draws_of(position))

    def draw(row: PyTree, size: Array, key: Array) -> Array:
        one = lambda at, number: model.family.draw(  # noqa: E731
            jr.fold_in(key, number), model.layout.predictors(at, row), size
        )
        return jax.vmap(one)(position, numbers)

    # The loop of a sampler ends with its last number: some rows at a time wait less for each other.
    return jax.lax.map(lambda of: draw(*of), (rows, size, keys), batch_size=_TOGETHER)


def predicted(
    call: str, model: Model, position: PyTree, rows: Rows, key: Array | None, *, draws: bool, interval: float
) -> Prediction:
    """Return what is expected of rows, and outcomes with a key, for draws of the position; block by block."""
    count, num_draws = rows.num_rows, num_draws_of(position)
    expected, outcomes = _Gathered(count, num_draws, interval), _Gathered(count, num_draws, interval, keeps=draws)
    of_effects, of_outcomes = (None, None) if key is None else fold_in(key, np.arange(2))
    used = jax.tree.map(jnp.asarray, _with_new_levels(call, model.layout, position, rows, of_effects))
    log_likelihood = model.posterior.log_likelihood
    assert isinstance(log_likelihood, Function)
    of, width = _Predictor(log_likelihood), _width(model, count, num_draws)
    has_outcomes = of_outcomes is not None and rows.size is not None
    for start in range(0, count, width):
        at, some, size = _block(rows, start, width)
        expected.add(start, _expected(of, used, some))
        if has_outcomes:
            outcomes.add(start, _outcomes(of, used, some, size, fold_in(of_outcomes, at)))
    of_outcome = outcomes.of_first if has_outcomes and model.family.num_linear == 1 else None
    by_factor = zip(model.levels, rows.unknown, strict=False)
    new = {name: tuple(labels.tolist()) for name, labels in by_factor if len(labels)}
    return Prediction(expected.mean, expected.interval, of_outcome, outcomes.kept, position, new)


def num_draws_of(position: PyTree) -> int:
    """Length of the leading axis."""
    return len(jax.tree.leaves(position)[0])


def _check_interval(call: str, interval: Any) -> None:
    if not (is_positive(interval) and interval < 1):
        raise ValueError(f"`{call}(interval=...)` must be a probability, between 0 and 1; got {brief(interval)}.")


def _check_kept(call: str, model: Model, rows: Rows, num_draws: int) -> None:
    """Refuse outcomes that cannot be drawn, or not be kept."""
    if num_draws and rows.size is None:
        raise ValueError(f"`{call}(size=...)`: to draw outcomes of {model.family!r}, give the numbers of trials.")
    numbers = rows.num_rows * num_draws * np.size(model.data["y"][0])
    if numbers > _MOST_KEPT:
        raise ValueError(
            f"`{call}(draws=True)` would keep {numbers:,} numbers, {numbers / 2**28:,.0f} GiB, for {rows.num_rows:,} "
            f"rows and {num_draws:,} draws. Ask for some of the rows, for fewer draws, or leave `draws` out: intervals "
            "take no room."
        )


def _width(model: Model, count: int, num_draws: int) -> int:
    """Rows of a block: a power of 2, so that other numbers of rows seldom compile again."""
    most = max(_BLOCK // (num_draws * max(model.family.num_predictors, 1)), 1)
    least = min(count, most, _MOST_ROWS)
    return 1 << (least - 1).bit_length()


def _block(rows: Rows, start: int, width: int) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Numbers, data and sizes of some rows; the last row again where there are no more."""
    at = np.minimum(np.arange(start, start + width), rows.num_rows - 1)
    size = np.ones(width, np.float32) if rows.size is None else rows.size[at]
    at = at if rows.index is None else rows.index[at]
    return at, {name: leaf[at] for name, leaf in rows.data.items()}, size


class _Gathered:
    """Means and intervals over draws, block by block."""

    def __init__(self, count: int, num_draws: int, interval: float, keeps: bool = False) -> None:
        self.count, self.num_draws, self.keeps = count, num_draws, keeps
        tail = (1 - interval) / 2 * (num_draws - 1)
        self._at = int(np.floor(tail)), int(np.ceil(num_draws - 1 - tail))
        self.mean, self.kept = np.empty(0), None
        self.interval = Interval(np.empty(0), np.empty(0))

    @property
    def of_first(self) -> Interval:
        """The interval of the first of the numbers that make up an outcome."""
        return Interval(*(of[:, 0] if of.ndim > 1 else of for of in self.interval))

    def add(self, start: int, block: Array) -> None:
        """Take the next rows, (row, draw, ...)."""
        found = np.asarray(block)[: self.count - start]
        if not start:
            shape = found.shape[2:]
            self.mean = np.empty((self.count, *shape), np.float32)
            self.interval = Interval(np.empty_like(self.mean), np.empty_like(self.mean))
            self.kept = np.empty((self.num_draws, self.count, *shape), np.float32) if self.keeps else None
        rows = slice(start, start + len(found))
        with np.errstate(invalid="ignore", over="ignore"):
            self.mean[rows] = found.mean(1, dtype=np.float64)
        if self.kept is not None:
            self.kept[:, rows] = np.moveaxis(found, 1, 0)
        in_order = np.sort(found, axis=1)
        for of, at in zip(self.interval, self._at, strict=True):
            of[rows] = in_order[:, at]
