"""Rows that come later: the posterior of all rows, known exactly; drift; room; what is refused."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tallchain as tc
from conftest import SEED
from tallchain import growth, room
from tallchain.bounds import regression_bound
from tallchain.fitting.arriving import arrived
from tallchain.fitting.drifting import score_p_value
from tallchain.fitting.fit import _Given
from tallchain.fitting.gathering import Asked
from tallchain.models import Regression, families
from tallchain.surrogates import Predictors
from tallchain.surrogates.passes import Terms

pd = pytest.importorskip("pandas")
pytest.importorskip("formulaic")
N, MORE, TRUTH = 4_000, 300, np.array([0.7, -1.3])
QUIET: dict[str, Any] = {"progress": False, "num_draws": 2000}


def rows_of(count: int, seed: int, truth: np.ndarray = TRUTH) -> np.ndarray:
    return (truth + np.random.default_rng([SEED, seed]).normal(size=(count, 2))).astype(np.float32)


def empty_of(fit: tc.Fit) -> int:
    return room.num_empty(fit.prepared.posterior, fit.prepared.source)


def log_likelihood(mean: Any, row: Any) -> Any:

    return -0.5 * jnp.sum((row - mean) ** 2)


@pytest.fixture(scope="module")
def means() -> tc.Fit:
    posterior = tc.Posterior(lambda mean: -0.5 * jnp.sum(mean**2), log_likelihood)
    return tc.fit(posterior, rows_of(N, 0), initial=np.zeros(2, np.float32), room=0.2, **QUIET)


def z_scores(fit: tc.Fit, rows: np.ndarray) -> np.ndarray:
    """Of mean and variance, against the normal posterior of these rows, with a prior N(0, 1)."""
    precision = 1 + len(rows)
    draws = np.asarray(fit.trace.position, np.float64).reshape(-1, 2)
    ess = np.array([each.ess_bulk for each in fit.facts.parameters])
    of_mean = (draws.mean(0) - rows.sum(0, dtype=np.float64) / precision) * np.sqrt(precision * ess)
    return np.concatenate([of_mean, (draws.var(0) * precision - 1) / np.sqrt(2 / ess)])


def test_updates_give_the_posterior_of_all_rows(means: tc.Fit) -> None:
    fit, rows = means, [rows_of(N, 0)]
    assert np.abs(z_scores(fit, rows[0])).max() < 4.5
    for number in (1, 2):
        rows.append(rows_of(MORE, number))
        fit = fit.update(rows[-1], progress=False)
        assert np.abs(z_scores(fit, np.concatenate(rows))).max() < 4.5
        assert fit.facts.num_rows == fit.trace.num_rows == sum(map(len, rows))
        assert not fit.facts.is_grave
    assert fit.num_updates == 2
    assert fit.facts.call == f"{means.facts.call}.update(...), 2 updates in all"
    assert empty_of(fit) == round(0.2 * N) - 2 * MORE
    assert means.facts.num_rows == N  # the fit before stays as it is
    assert empty_of(means) == round(0.2 * N)
    far = np.concatenate([rows_of(N, 0), np.full((MORE, 2), 1.0)])
    assert np.abs(z_scores(fit, far)).max() > 4.5  # the test tells them apart


def test_sums_that_do_not_grow_are_noticed(means: tc.Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_with_terms", lambda reference, terms: reference)
    rows = rows_of(MORE, 1, TRUTH + 0.1)
    fit = means.update(rows, progress=False)
    assert np.abs(z_scores(fit, np.concatenate([rows_of(N, 0), rows]))).max() > 4.5


def test_rows_that_drift_are_noticed_and_may_be_refused(means: tc.Fit) -> None:
    drifted = rows_of(MORE, 1, TRUTH + 0.5)
    with pytest.raises(ValueError, match="the rows were not added: 300 new rows against the posterior"):
        means.update(drifted, drift="refuse", progress=False)
    fit = means.update(drifted, progress=False)
    assert [each.code for each in fit.facts.advice if each.is_grave] == ["drift"]
    assert np.abs(z_scores(fit, np.concatenate([rows_of(N, 0), drifted]))).max() < 4.5  # they are in it all the same


def test_without_room_all_rows_are_prepared_again(means: tc.Fit) -> None:
    more = rows_of(N // 4, 3)
    fit = means.update(more, room=0.1, progress=False)
    assert np.abs(z_scores(fit, np.concatenate([rows_of(N, 0), more]))).max() < 4.5
    assert empty_of(fit) == N // 8
    assert fit.trace.scan is not None  # as after a new fit, since all rows were read


def test_no_room_is_no_room() -> None:
    posterior = tc.Posterior(lambda b: 0.0 * b, lambda b, row: -((b - row) ** 2))
    assert room.with_room(posterior, np.arange(3.0), 0)[1].weight.tolist() == [1, 1, 1]
    assert room.with_room(posterior, np.arange(3.0), 2)[1].weight.tolist() == [1, 1, 1, 0, 0]


def test_the_score_test_keeps_its_level_and_finds_a_shift() -> None:
    random, size, repetitions = np.random.default_rng(SEED), 200, 400
    covariance = np.eye(3) / 500

    def p_value(shift: float) -> float:
        truth = random.normal(size=3)
        draws = truth + random.multivariate_normal(np.zeros(3), covariance, 2000)
        draws += random.multivariate_normal(np.zeros(3), covariance) - draws.mean(0) + truth
        x = random.normal(size=(size, 3))
        residuals = x @ (np.array([shift, 0, 0]) + truth) + random.normal(size=size)
        terms = Terms(np.zeros(()), x.T @ residuals, -x.T @ x)
        return score_p_value(terms, np.zeros(3), draws)

    assert stats.kstest([p_value(0.0) for _ in range(repetitions)], "uniform").pvalue > 1e-4
    assert np.median([p_value(0.5) for _ in range(20)]) < 1e-6


# ---- formulas ------------------------------------------------------------------------------------


def frame_of(count: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng([SEED, seed])
    frame = pd.DataFrame({"age": random.normal(50, 10, count), "site": random.choice(list("abcd"), count)})
    z = 0.4 * (frame.age - 50) / 10 + frame.site.map({"a": 0.4, "b": -0.4, "c": 0.1, "d": 0.0})
    return frame.assign(better=np.where(random.random(count) < 1 / (1 + np.exp(-z)), "yes", "no"))


@pytest.fixture(scope="module")
def mixed() -> tc.Fit:
    return tc.fit("better ~ scale(age) + (1 | site)", frame_of(N, 0), family="bernoulli", room=0.2, **QUIET)


def test_sums_and_rows_are_those_of_all_rows(mixed: tc.Fit) -> None:
    new = frame_of(MORE, 1)
    fit = mixed.update(new, progress=False)
    surrogate, source = fit.prepared.surrogate, fit.prepared.source
    assert isinstance(surrogate, Predictors)
    held = room.rows_of(fit.prepared.posterior, source)
    assert len(held["x"]) == N + MORE
    age = np.concatenate([frame_of(N, 0).age, new.age])
    scaled = (age - frame_of(N, 0).age.mean()) / frame_of(N, 0).age.std(ddof=0)  # by what was learned before
    np.testing.assert_allclose(np.sort(held["x"][:, 1]), np.sort(scaled), rtol=2e-3, atol=1e-4)
    assert (
        np.bincount(held["groups"][:, 0]).tolist()
        == pd.concat([frame_of(N, 0), new]).site.value_counts()[list("abcd")].tolist()
    )
    again = Predictors(fit.prepared.posterior, tc.WithReplacement(held, 1), surrogate.position, reach=surrogate.reach)
    for mine, its in zip(jax.tree.leaves(surrogate.sums), jax.tree.leaves(again.sums), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-4, atol=1e-3 * (1 + np.abs(its).max()))
    ends = source.num_rows  # what is repeated at the end, so that no window wraps around, has the new rows too
    for leaf in jax.tree.leaves(source.data):
        np.testing.assert_array_equal(leaf[ends:], leaf[: len(leaf) - ends])
    assert "Rows are weighted" not in fit.facts.words
    assert len(fit.predict(new.head(3)).mean) == 3


@pytest.mark.slow
def test_an_exact_test_stays_exact() -> None:
    """New rows have bounds, and are drawn as often as the share that they count for says."""
    frames = [frame_of(N, 0), *(frame_of(MORE, k).assign(age=lambda of, k=k: (1 + 0.1 * k) * of.age) for k in (1, 2))]
    fit = tc.fit("better ~ scale(age)", frames[0], family="bernoulli", room=0.2, **QUIET)
    for more in frames[1:]:
        fit = fit.update(more, progress=False)
    kernel, held = fit.trace.kernel, fit.prepared.exact.bound
    assert fit.facts.trust.is_exact
    source = kernel.source
    rows = {name: np.asarray(of)[: source.num_rows] for name, of in source.data.items()}
    is_there, share = rows["weight"] > 0, np.asarray(source.share)
    assert is_there.sum() == N + 2 * MORE
    around = tc.surrogates.Laplace.of_precision(held.position, np.asarray(held.inverse).T @ np.asarray(held.inverse))
    again = regression_bound(fit.prepared.posterior, tc.WithReplacement(rows, 1), around)
    np.testing.assert_allclose(held.constants[is_there], again.constants[is_there], rtol=1e-3)
    assert float(kernel.bound.inside) >= np.max((share * held.constants)[is_there]) * (1 - 1e-6)
    mean, sd = frames[0].age.mean(), frames[0].age.std(ddof=0)
    whole = pd.concat(frames).assign(z=lambda of: (of.age - mean) / sd)
    mine, its = fit.summary(), tc.fit("better ~ z", whole, family="bernoulli", **QUIET).summary()
    mine, its = (of[["mean", "mcse"]].to_numpy() for of in (mine, its))
    assert np.abs((mine[:, 0] - its[:, 0]) / np.hypot(mine[:, 1], its[:, 1])).max() < 4.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda of: of.drop(columns="age"), "has no column 'age'"),
        (lambda of: of.assign(age=of.age.where(of.age > 30)), "missing values in 1 of the 3 columns"),
        (lambda of: of.assign(site="e"), "column 'site' has labels that the fit has no parameter for: 'e'"),
        (lambda of: of.assign(better="perhaps"), "column 'better' has labels that the fit has no parameter for"),
        (lambda of: of.assign(age="old"), "column 'age' of the frame holds text"),
        (lambda of: of.head(0), "the frame has no rows"),
        (lambda of: 3, "must be a frame of pandas or polars, a dict of arrays"),
    ],
)
def test_bad_tables_are_refused(mixed: tc.Fit, change: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        mixed.update(change(frame_of(200, 2)), progress=False)
    assert "`fit.update(new_rows)`" in str(caught.value)


def test_incomplete_rows_may_be_left_out(mixed: tc.Fit) -> None:
    new = frame_of(200, 2)
    new.loc[:9, "age"] = np.nan
    fit = mixed.update(new, missing="drop", progress=False)
    assert (fit.facts.num_rows, fit.facts.num_dropped, fit.facts.dropped) == (N + 190, 10, {"age": 10})


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        (np.zeros((5, 3), np.float32), {}, "must be rows like those of the fit, an array: float32"),
        ({"x": np.zeros((5, 2))}, {}, "must be rows like those of the fit"),
        (np.full((5, 2), np.nan), {}, "must have no missing values"),
        (np.full((5, 2), np.inf), {}, "the log likelihood of a new row, or a derivative, is not finite"),
        (np.full((400, 2), np.inf), {}, "the log likelihood of a new row, or a derivative, is not finite"),
        (np.zeros((5, 2)), {"room": -1}, "must be a positive share of the rows"),
        (np.zeros((5, 2)), {"drift": "no"}, 'must be "warn" or "refuse"'),
        (np.zeros((5, 2)), {"missing": "drop"}, "goes with a formula"),
        (np.zeros((5, 2)), {"num_draws": 0}, "must be a whole number, at least 1"),
    ],
)
def test_bad_calls_are_refused(means: tc.Fit, rows: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        means.update(rows, progress=False, **options)


def test_a_column_weight_of_own_functions_is_a_number_like_any_other() -> None:
    posterior = tc.Posterior(lambda b: 0.0 * b, lambda b, row: -row["weight"] * (b - row["y"]) ** 2)
    rows = {"y": np.arange(3, dtype=np.float32), "weight": np.array([0, 1, 2], np.float32)}
    assert room.num_empty(posterior, tc.WithReplacement(rows, 1)) == 0
    made, slots = room.with_room(posterior, rows, 2)
    assert isinstance(slots, room.Slot)
    np.testing.assert_array_equal(slots.row["weight"], [0, 1, 2, 0, 1])
    np.testing.assert_array_equal(slots.weight, [1, 1, 1, 0, 0])
    assert room.has_weights(made, slots)


def regression_fit(**options: Any) -> Any:
    """As much of a fit of a regression as new rows are compared with."""
    x, y = np.random.default_rng(SEED).normal(size=(2, 50)).astype(np.float32)
    model = Regression(families.Gaussian(), y=y, x=x[:, None], **options)
    source = tc.WithReplacement(model.data | {"weight": model.data.get("weight", np.ones(50, np.float32))}, 1)
    return SimpleNamespace(spec=None, model=model, prepared=SimpleNamespace(posterior=model.posterior, source=source))


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {}, None),  # one row, whose outcome does not differ from itself
        ({"weight": [2.0]}, {"weights": np.full(50, 2.0)}, None),
        ({}, {"weights": np.full(50, 2.0)}, "must be rows like those of the fit"),
        ({"weight": [2.0]}, {}, "must be rows like those of the fit"),
        ({"x": [[2.0, 0.5]]}, {}, "must have 1 in the first column of `x`"),
        ({"x": [[1.0, np.inf]]}, {}, "must hold finite numbers; got others in 'x'"),
        ({"groups": [[2]]}, {"groups": {"g": np.arange(50) % 2}}, "must be numbers from 0 to 1; got 2 to 2"),
    ],
)
@pytest.mark.parametrize("is_by_prepared", [False, True])
def test_rows_of_a_regression_are_checked(
    change: dict[str, Any], options: dict[str, Any], words: str | None, is_by_prepared: bool
) -> None:
    fit = regression_fit(**options)
    if is_by_prepared:
        fit.model = None
        if "weight" in change and not options:
            return  # whether these are weights of the user's or of the room's, nothing tells
    rows = {"x": [[1.0, 0.5]], "y": [0.3]} | change
    rows = {name: np.asarray(leaf) for name, leaf in rows.items()}
    if words is None:
        assert arrived(fit, rows, "refuse").num_rows == 1
    else:
        with pytest.raises(ValueError, match=words):
            arrived(fit, rows, "refuse")


def test_rows_of_a_model_with_rows_are_counted() -> None:
    posterior = tc.Posterior(lambda b: 0.0 * b, lambda b, row: -((b - row) ** 2))
    model = SimpleNamespace(posterior=posterior, data=np.zeros(7), start=np.zeros(()))
    assert _Given(None, (model, None, None), Asked()).num_rows == 7


def test_integers_are_not_wrapped() -> None:
    posterior = tc.Posterior(lambda b: 0.0 * b, lambda b, row: -((b - row) ** 2))
    source = tc.WithReplacement(np.arange(5, dtype=np.int8), 1)
    fit: Any = SimpleNamespace(spec=None, model=None, prepared=SimpleNamespace(posterior=posterior, source=source))
    assert arrived(fit, np.array([7]), "refuse").rows.dtype == np.int8
    with pytest.raises(ValueError, match="must hold numbers as those of the fit, int8; got 300"):
        arrived(fit, np.array([7, 300]), "refuse")


def test_few_rows_are_not_said_to_drift(means: tc.Fit) -> None:
    fit = means.update(rows_of(10, 4, TRUTH + 3), progress=False)
    assert (
        "10 new rows against the posterior before them: not compared yet, being fewer than 300"
        in fit.facts.findings[-1]
    )
    audit = fit.audit(num_decisions=4, num_trials=4, progress=False)  # the kernel has room for more rows than there are
    assert audit.num_rows == fit.facts.num_rows == N + 10
    assert not fit.facts.is_grave
    fit = fit.update(rows_of(290, 5, TRUTH + 0.4), progress=False)  # with the ten before, of a posterior without them
    assert "300 new rows against the posterior before them: p = " in fit.facts.findings[-1]
    assert [each.code for each in fit.facts.advice if each.is_grave] == ["drift"]
    assert fit.pending is None


def test_a_fit_without_rows_is_refused(means: tc.Fit) -> None:
    with pytest.raises(ValueError, match="a fit that was loaded has no rows"):
        dataclasses.replace(means, prepared=None).update(rows_of(5, 0))


def test_room_must_be_a_share() -> None:
    with pytest.raises(ValueError, match=r"`fit\(room=...\)` must be a share of the rows"):
        tc.fit("y ~ x", {"y": [0, 1]}, family="bernoulli", room=-0.1)
