"""Names of parameters."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import tallchain as tc
from tallchain.names import all_coordinates, named_leaves


def test_names_that_collide_are_told_apart() -> None:
    draws = {"a": {"b": np.zeros((2, 3))}, "a.b": np.ones((2, 3))}
    assert list(named_leaves(draws)) == ["['a']['b']", "['a.b']"]
    assert len(all_coordinates(draws, {})[0]) == 2
    assert list(named_leaves({"b": np.zeros((2, 3)), "a": {"c": np.zeros((2, 3))}})) == ["b", "a.c"]


def _regression(**settings: Any) -> tc.models.Regression:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=200), "height": rng.normal(size=200)})
    return tc.models.linear_regression(frame, frame["age"] + rng.normal(size=200), intercept=True, **settings)


@pytest.mark.parametrize(
    ("noise_sd", "names"),
    [
        (1.0, ["(intercept)", "age", "height"]),
        (None, ["coefficients[(intercept)]", "coefficients[age]", "coefficients[height]", "log_noise_sd"]),
    ],
)
def test_the_summary_of_a_regression_names_the_columns_of_the_frame(noise_sd: float | None, names: list[str]) -> None:
    model = _regression(noise_sd=noise_sd)
    kernel = tc.MetropolisHastings(model.posterior, tc.Shuffled(model.data, 50), proposal=tc.RandomWalk(0.05))
    trace = tc.sample(jax.random.key(0), kernel, model.start, 20, progress=False, scan=0)
    assert [parameter.name for parameter in trace.summary().parameters] == names
    leaf = "position" if noise_sd else "coefficients"
    assert trace.to_datatree()["posterior"][leaf].sel({f"{leaf}_dim_0": "age"}).shape == (1, 20)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("age", "height"), r'"position" has 2 labels; got a position with shape \(3,\) there'),
        ({"slopes": ("age",)}, r'"slopes" has 1 labels; got a position of position'),
    ],
)
def test_labels_that_do_not_fit_are_refused(names: Any, message: str) -> None:
    model = _regression(noise_sd=1.0)
    posterior = tc.Posterior(model.posterior.log_prior, model.posterior.log_likelihood, names=names)
    kernel = tc.MetropolisHastings(posterior, tc.Shuffled(model.data, 50), proposal=tc.RandomWalk(0.05))
    with pytest.raises(ValueError, match=message):
        tc.sample(jax.random.key(0), kernel, model.start, 20, progress=False)


@pytest.mark.parametrize("names", ["age", {"slopes": "age"}, (1, 2), 3])
def test_labels_are_texts(names: Any) -> None:
    with pytest.raises(TypeError, match=r"`Posterior\(names=...\)` must be the labels of a vector"):
        tc.Posterior(lambda t: 0.0, lambda t, row: 0.0, names=names)


@pytest.mark.parametrize("names", [["a", "b"], np.array(["a", "b"]), pd.Index(["a", "b"]), {"position": ["a", "b"]}])
def test_labels_come_as_lists_arrays_and_columns(names: Any) -> None:
    posterior = tc.Posterior(lambda t: 0.0, lambda t, row: 0.0, names=names)
    assert posterior.names == (("position", ("a", "b")),)
    assert tc.Posterior(lambda t: 0.0, lambda t, row: 0.0, names=posterior.names).names == posterior.names
