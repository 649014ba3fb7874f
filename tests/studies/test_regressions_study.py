"""The regressions of the study: their posteriors are those of SciPy's distributions, and the reference fits them."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.special import expit, log_expit, logsumexp

from conftest import SEED
from studies.regressions import REFERENCE
from studies.regressions.comparison import differ, worst, z_scores
from studies.regressions.draws import chosen, compared, effective, moments
from studies.regressions.models import SETTINGS, digest, make
from studies.regressions.reference import coordinates_of, log_density, pooled
from studies.study import load
from tallchain.models import Regression

ROWS = 2000

# ---- densities, by SciPy -------------------------------------------------------------------------


def linear(position: Any, data: Any) -> np.ndarray:
    z = data["x"].astype(np.float64) @ np.asarray(position["coefficients"]).T
    for column, name in enumerate(name for name in ("group", "store", "product") if name in position):
        z = z + position[name][data["groups"][:, column]]
    return z


def ordinal(z: np.ndarray, y: np.ndarray, position: Any) -> np.ndarray:
    gaps = np.exp([position[f"log_gap_{k}"] for k in (1, 2, 3)])
    cuts = np.concatenate([[-np.inf], position["cutpoint"] + np.concatenate([[0], np.cumsum(gaps)]), [np.inf]])
    level = y.astype(int)
    return np.log(expit(cuts[level + 1] - z) - expit(cuts[level] - z))


def softmax(z: np.ndarray, y: np.ndarray, position: Any) -> np.ndarray:
    z = np.column_stack([np.zeros(len(z)), z])
    return np.take_along_axis(z, y.astype(int)[:, None], 1)[:, 0] - logsumexp(z, 1)


def negative_binomial(z: np.ndarray, y: np.ndarray, position: Any) -> np.ndarray:
    shape = np.exp(position["log_shape"])
    return stats.nbinom.logpmf(y, shape, shape / (shape + np.exp(z)))


def weibull(z: np.ndarray, y: np.ndarray, position: Any) -> np.ndarray:
    law = stats.weibull_min(np.exp(position["log_shape"]), scale=np.exp(z))
    return np.where(y[:, 1] > 0, law.logpdf(y[:, 0]), law.logsf(y[:, 0]))


def logistic(z: np.ndarray, y: np.ndarray, position: Any) -> np.ndarray:
    return np.where(y > 0, log_expit(z), log_expit(-z))


def poisson(z: np.ndarray, y: np.ndarray, position: Any) -> np.ndarray:
    return stats.poisson.logpmf(y, np.exp(z))


LIKELIHOODS = {
    **dict.fromkeys(("logistic_1000", "logistic_10000", "small_sd", "horseshoe"), logistic),
    "poisson_crossed": poisson,
    "negative_binomial": negative_binomial,
    "weibull": weibull,
    "ordinal": ordinal,
    "softmax": softmax,
}


def log_prior(name: str, position: Any, centre: Any) -> float:
    """Of the parameters themselves, with the Jacobians of the logarithms; `centre` is of what all rows share."""
    coefficients, total = np.asarray(position["coefficients"]), 0.0
    if name != "ordinal":
        total += stats.norm(0, 10).logpdf(coefficients[..., 0]).sum()
        coefficients = coefficients[..., 1:]
    if name == "horseshoe":
        local, of_all, slab = (np.exp(position[at]) for at in ("log_local", "log_global", "log_slab"))
        sd = 1 / np.sqrt(1 / (of_all * local) ** 2 + 1 / slab**2)
        total += stats.norm(0, sd).logpdf(coefficients).sum()
        total += (stats.halfcauchy.logpdf(local) + np.log(local)).sum()
        total += stats.halfcauchy.logpdf(of_all, scale=1e-3) + np.log(of_all)
        total += stats.invgamma.logpdf(slab**2, 2, scale=2 * 2.0**2) + np.log(2 * slab**2)
    else:
        total += stats.norm(0, 2.5).logpdf(coefficients).sum()
    for at in ("log_shape", "cutpoint", "log_gap_1", "log_gap_2", "log_gap_3"):
        total += stats.norm(centre[at], 3).logpdf(position[at]) if at in position else 0.0
    for at in ("group", "store", "product"):
        if at in position:
            sd = np.exp(position[f"log_sd({at})"])
            total += stats.norm(0, sd).logpdf(position[at]).sum() + stats.halfnorm.logpdf(sd) + np.log(sd)
    return float(total)


def positions(model: Regression) -> list[Any]:
    """Two of them, near the start."""
    random = np.random.default_rng(SEED)
    return [
        {at: np.asarray(leaf + 0.3 * random.standard_normal(np.shape(leaf))) for at, leaf in model.start.items()}
        for _ in range(2)
    ]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_posterior_is_that_of_scipys_distributions(name: str) -> None:
    """Prior and likelihood apart, up to a constant: between two positions."""
    model = make(name, ROWS)
    data = {at: of.astype(np.float64) if at != "groups" else of for at, of in model.data.items()}
    some = positions(model)
    with jax.enable_x64(True):
        rows = [jax.vmap(model.posterior.log_likelihood, (None, 0))(t, data) for t in some]
        ours = [float(model.posterior.log_prior(t)) for t in some]
        ours_of_rows = np.asarray(rows[1] - rows[0])
    exact = [log_prior(name, t, model.start) for t in some]
    exact_of_rows = [LIKELIHOODS[name](linear(t, data), data["y"], t) for t in some]
    assert ours[1] - ours[0] == pytest.approx(exact[1] - exact[0], rel=1e-6)
    np.testing.assert_allclose(ours_of_rows, exact_of_rows[1] - exact_of_rows[0], rtol=1e-6, atol=1e-9)


# ---- coordinates of the reference ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["weibull", "horseshoe"])
def test_the_density_of_the_coordinates_has_the_jacobian(name: str) -> None:
    model = make(name, ROWS)
    with jax.enable_x64(True):
        coordinates = coordinates_of(model)
        some = jax.random.normal(jax.random.key(SEED), (2, sum(np.size(leaf) for leaf in model.start.values())))
        rows = {at: jnp.asarray(of[:50]) for at, of in model.data.items()}

        @jax.jit
        def both(w: Any) -> Any:
            """Ours, and log pi(t(w)) + log |det dt/dw| by the matrix itself."""
            t = coordinates.back(w)
            matrix = jax.jacfwd(lambda w: ravel_pytree(coordinates.back(w))[0])(w)
            each = jax.vmap(model.posterior.log_likelihood, (None, 0))(t, rows)
            exact = model.posterior.log_prior(t) + jnp.sum(each) + jnp.linalg.slogdet(matrix)[1]
            return log_density(model, coordinates, rows, w), exact, coordinates.to(t)

        (ours, exact, again), (ours_there, exact_there, _) = map(both, some)
        assert float(ours_there - ours) == pytest.approx(float(exact_there - exact), rel=1e-6)
        np.testing.assert_allclose(again, some[0], atol=1e-6)


# ---- draws and the file --------------------------------------------------------------------------


def test_effective_draws_of_chains_with_memory() -> None:
    random = np.random.default_rng(SEED)
    draws = random.standard_normal((64, 500))
    for at in range(1, 500):
        draws[:, at] = 0.5 * draws[:, at - 1] + np.sqrt(0.75) * draws[:, at]
    assert effective(draws) == pytest.approx(draws.size / 3, rel=0.15)
    assert effective(random.standard_normal((64, 500))) == pytest.approx(draws.size, rel=0.15)
    apart = draws + 3 * random.standard_normal((64, 1))
    assert effective(apart) < 200
    found = moments(draws[..., None])
    assert found["mean_error"][0] == pytest.approx(np.sqrt(3 / draws.size), rel=0.1)
    assert found["sd_error"][0] == pytest.approx(np.sqrt((1.25 / 0.75) / (2 * draws.size)), rel=0.1)


def test_differences_are_in_standard_deviations_with_the_errors_of_both_runs() -> None:
    reference = {
        "place": [3, 7],
        "mean": [1.0, 0.0],
        "sd": [0.1, 2.0],
        "mean_error": [0.03, 0.0],
        "sd_error": [0.0] * 2,
    }
    found = {"mean": [1.02, 0.0], "sd": [0.1, 1.8], "mean_error": [0.04, 0.04], "sd_error": [0.01, 0.01]}
    differences = {"u": differ(found, reference)}
    largest = worst(differences, {"u": slice(None)})
    assert largest["difference"] == {"value": 0.2, "error": 0.05, "parameter": "u[3]", "count": 2}
    assert largest["ratio"] == {"value": 0.9, "error": 0.009, "parameter": "u[7]", "count": 2}
    assert z_scores(differences)["difference"] == pytest.approx(4 / np.sqrt(2))


def test_two_runs_count_by_their_precision() -> None:
    numbers = {"place": [0], "ess": [100.0], "mean": [1.0], "sd": [1.0], "mean_error": [0.1], "sd_error": [0.1]}
    more = numbers | {"ess": [400.0], "mean": [2.0], "mean_error": [0.05]}
    found = pooled({"draws": 1, "moments": {"t": numbers}}, {"draws": 4, "moments": {"t": more}})
    assert found["moments"]["t"]["mean"] == [1.8]
    assert found["moments"]["t"]["mean_error"] == pytest.approx([0.1 / np.sqrt(5)])
    assert found["least_ess"] == 500
    assert found["earlier"] == [{"draws": 1}]


def test_the_smallest_groups_are_compared() -> None:
    model = make("poisson_crossed", ROWS)
    places = compared(model)
    sizes = np.bincount(model.data["groups"][:, 0], minlength=200)
    assert sizes[places["store"][:20]].max() <= sizes[places["store"][20:]].min()
    assert len(set(places["product"])) == 40
    draws = chosen({at: np.ones((3, 5, *np.shape(leaf))) for at, leaf in model.start.items()}, places)
    assert {at: of.shape for at, of in draws.items()}["store"] == (3, 5, 40)


def test_the_reference_is_of_the_same_rows_and_long_enough() -> None:
    kept = json.loads(REFERENCE.read_text())
    assert kept.keys() == SETTINGS.keys()
    for name, found in kept.items():
        model = make(name)
        assert found["digest"] == digest(model)
        assert {at: of["place"] for at, of in found["moments"].items()} == {
            at: of.tolist() for at, of in compared(model).items()
        }
        assert found["least_ess"] > 3000
        assert found["diverging"] == 0


def test_the_draws_on_file_are_those_of_the_reference() -> None:
    """Means within 0.05 standard deviations, and standard deviations within 5 %, beyond twice the Monte Carlo error."""
    results = load("regressions").results
    assert results.keys() == SETTINGS.keys()
    for found in results.values():
        for of in found["worst"].values():
            mean, ratio = of["difference"], of["ratio"]
            assert abs(mean["value"]) < 0.05 + 2 * mean["error"]
            assert abs(ratio["value"] - 1) < 0.05 + 2 * ratio["error"]
        assert max(found["z"].values()) < 1.5
