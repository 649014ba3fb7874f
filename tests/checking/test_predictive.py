"""The posterior predictive check: right regressions pass, wrong ones do not, for every family."""

from __future__ import annotations

import json
import math
from typing import Any

import jax
import numpy as np
import pytest
from jax import random as jr

from models.families.family_cases import COSTLY_SLOW, FAMILIES
from tallchain.checking import PredictiveCheck, predictive_check
from tallchain.checking.predictive import Panel
from tallchain.checking.replicas import _cut, _p_value, _picked
from tallchain.models import Regression, families

N = 1000


def regression_at(name: str) -> tuple[Regression, Any]:
    """Outcomes drawn at a position, and draws that are all there."""
    case, random = FAMILIES[name], np.random.default_rng(3)
    x, made = random.normal(size=(N, 2)).astype(np.float32), case.outcomes(random, N)
    blank = Regression(case.family, y=made, x=x)
    layout = blank.layout
    beta = np.zeros((layout.num_linear, layout.num_features), np.float32)
    beta[:, -2:] = 0.5, -0.3
    if layout.has_intercept:
        beta[:, 0] = case.centre[: layout.num_linear]
    at = layout.with_dense(np.concatenate([beta.ravel(), case.centre[layout.num_linear :]]).astype(np.float32))
    at = beta[0] if layout.is_vector else at
    draws = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (1, 100, *np.shape(leaf))), at)
    size = made[:, 1] if case.family.has_trials else None
    y = blank.predict(draws, key=jr.key(8), draws=True, max_draws=1, size=size).draws[0]
    if isinstance(case.family, families.Weibull):
        cut = random.exponential(3, N)
        y = np.stack([np.minimum(y[:, 0], cut), y[:, 0] < cut], 1)
    return Regression(case.family, y=y, x=x), draws


def moved(draws: Any, by: float) -> Any:
    """Draws with another slope of the last feature."""
    of = draws["coefficients"] if isinstance(draws, dict) else draws
    wrong = of.copy()
    wrong[..., -1] += by
    return draws | {"coefficients": wrong} if isinstance(draws, dict) else wrong


@pytest.mark.parametrize("name", COSTLY_SLOW)
def test_a_right_regression_passes_and_a_wrong_one_does_not(name: str) -> None:
    model, draws = regression_at(name)
    right = predictive_check(model, draws, jr.key(1), draws=100)
    assert not right.is_suspect, str(right)
    assert sum(panel.num_within for panel in right.panels) > 0.7 * sum(panel.size for panel in right.panels)
    assert all(sum(panel.rows) == N for panel in right.panels if model.family.num_linear == 1 or not panel.labels)
    wrong = predictive_check(model, moved(draws, 1.5), jr.key(1), draws=100)
    assert wrong.is_suspect, str(wrong)
    assert "beyond chance" in wrong.verdict


def test_effects_that_the_prior_draws_together_are_no_deviation() -> None:
    """Four rows to a group, and draws from the exact posterior of the effects."""
    random, count, sd = np.random.default_rng(4), 2000, 0.5
    index, x = np.arange(4 * count) % count, random.normal(size=(4 * count, 1)).astype(np.float32)
    effects = random.normal(0, sd, count)
    y = 0.5 * x[:, 0] + effects[index] + random.normal(size=4 * count)
    model = Regression(families.Gaussian(1.0), y=y, x=x, groups={"g": index})
    variance = 1 / (1 / sd**2 + 4)
    mean = variance * np.bincount(index, y - 0.5 * x[:, 0])
    draws = {
        "coefficients": np.tile(np.float32([0.0, 0.5]), (1, 100, 1)),
        "g": (mean + np.sqrt(variance) * random.normal(size=(1, 100, count))).astype(np.float32),
        "log_sd(g)": np.full((1, 100), np.log(sd), np.float32),
    }
    right = predictive_check(model, draws, jr.key(1), draws=100)
    assert not right.is_suspect, str(right)
    assert min(panel.p_value for panel in right.panels) > 0.01
    assert "without the effects of groups" in right.notes[-1]
    assert predictive_check(model, moved(draws, 0.5), jr.key(1), draws=100).is_suspect


def test_tails_that_are_too_heavy_show_in_the_outcomes_alone() -> None:
    random = np.random.default_rng(0)
    y = random.standard_t(2, N)
    model = Regression(families.Gaussian(float(y.std())), y=y)
    found = predictive_check(model, np.full((1, 100, 1), y.mean()), jr.key(0))
    means, outcomes = found.panels
    assert not found.is_off(means)
    assert found.is_off(outcomes)


def test_counts_have_names_and_the_last_is_open() -> None:
    y = np.random.default_rng(0).poisson(1.5, N)
    found = predictive_check(Regression(families.Poisson(), y=y), np.full((1, 100, 1), np.log(1.5)), jr.key(0))
    labels = found.panels[1].labels
    assert labels[:3] == ("0", "1", "2")
    assert labels[-1].startswith("≥")
    assert found.panels[1].observed[0] == pytest.approx(np.mean(y == 0))


class TestRows:
    def test_some_are_picked_at_random(self) -> None:
        model = Regression(families.Poisson(), y=np.arange(1000) % 3)
        picked = _picked(model, 100, np.random.default_rng(0))
        assert len(set(picked)) == 100
        assert predictive_check(model, np.zeros((1, 50, 1)), jr.key(0), rows=100).num_rows == 100

    def test_weights_that_count_rows_give_each_row_as_often(self) -> None:
        model = Regression(families.Poisson(), y=np.arange(50) % 3, weights=np.arange(50))
        np.testing.assert_array_equal(
            np.bincount(_picked(model, 10_000, np.random.default_rng(0)), minlength=50), np.arange(50)
        )
        assert "in proportion to their weights" in str(predictive_check(model, np.zeros((50, 1)), jr.key(0)))

    def test_other_weights_give_rows_in_proportion(self) -> None:
        weights = np.linspace(0.1, 3.9, 50)
        model = Regression(families.Poisson(), y=np.arange(50) % 3, weights=weights)
        counts = np.bincount(_picked(model, 10_000, np.random.default_rng(0)), minlength=50)
        assert counts.sum() in (99, 100)
        np.testing.assert_allclose(counts, weights, atol=1.2)

    def test_a_row_picked_twice_gets_two_outcomes(self) -> None:
        """Or else drawn means would vary more than observed ones."""
        y = np.repeat([0, 1], [400, 600])
        draws = np.full((1, 200, 1), math.log(1.5))
        once, grouped = (
            predictive_check(model, draws, jr.key(0)).panels[0]
            for model in (
                Regression(families.Bernoulli(), y=y),
                Regression(families.Bernoulli(), y=[0, 1], weights=[400, 600]),
            )
        )
        assert grouped.observed == once.observed
        width = lambda panel: panel.high[0] - panel.low[0]  # noqa: E731
        assert width(grouped) == pytest.approx(width(once), rel=0.3)


def test_times_are_cut_off_as_those_observed() -> None:
    observed = np.array([[1.0, 0], [2, 1], [3, 0], [4, 1], [5, 0]])
    found = _cut(observed, np.full((2000, 5), 10.0), np.random.default_rng(0))
    np.testing.assert_array_equal(found[:, [0, 2, 4]], np.broadcast_to([1, 3, 5], (2000, 3)))
    assert np.mean(found[:, 1] == 3) == pytest.approx(1 / 3, abs=0.04)  # three cut-offs could be: at 3, and twice later
    assert np.all((found[:, 1] == 3) | (found[:, 1] == 5))
    assert np.all(found[:, 3] == 5)


def test_p_values_are_spread_evenly() -> None:
    random = np.random.default_rng(0)
    found = [_p_value(values[0], values[1:]) for values in random.normal(size=(400, 201, 12))]
    assert np.mean(found) == pytest.approx(0.5, abs=0.06)
    assert np.mean(np.array(found) < 0.1) == pytest.approx(0.1, abs=0.05)


def test_it_comes_back_from_json() -> None:
    panel = Panel("a", "b", "c", ("x",), (math.inf,), (3,), (0.5,), (0.0,), (0.4,), (1.0,), 0.4)
    check = PredictiveCheck("Poisson()", 3, 5, 100, 0.9, (panel,), ("note",))
    found = json.loads(json.dumps(check.to_json(), allow_nan=False))
    assert found["verdict"] == "a: 1 of 1 within their 90 % interval; expected 0.9."
    assert not found["is_suspect"]
    back = PredictiveCheck.from_json(found)
    assert (back.notes, back.panels[0].observed, back.num_data) == (("note",), (0.5,), 5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": 0}, "rows=...)` must be a whole number, at least 1; got 0"),
        ({"draws": 5}, "draws=...)` must be a whole number, at least 20; got 5"),
        ({"interval": 90}, "interval=...)` must be a probability, between 0 and 1; got 90"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    model = Regression(families.Poisson(), y=[0, 1, 2])
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        predictive_check(model, np.zeros((50, 1)), jr.key(0), **given)
    assert words in str(raised.value)


def test_too_few_draws_and_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="must have at least 20 draws; got 7"):
        predictive_check(Regression(families.Poisson(), y=[0, 1, 2]), np.zeros((7, 1)), jr.key(0))
    with pytest.raises(TypeError, match="must be a Regression; got 3"):
        predictive_check(3, np.zeros((7, 1)), jr.key(0))  # ty: ignore
