"""What the rows of each level alone would give for its effect."""

from __future__ import annotations

import numpy as np
import pytest

from tallchain.models import Regression, families
from tallchain.models.alone import own_estimates
from tallchain.models.groups import Group


@pytest.mark.parametrize("chunk", [2**17, 64])
def test_of_gaussian_outcomes_it_is_the_mean_residual(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("tallchain.models.alone._BLOCK", chunk)
    random = np.random.default_rng(0)
    x, slope, weights = random.normal(size=(150, 2)), random.normal(size=150), random.integers(1, 4, 150)
    index, y = np.arange(150) % 4, random.normal(size=150)
    groups = {"g": Group(index, {"s": slope})}
    model = Regression(families.Gaussian(0.5), y=y, x=x, groups=groups, weights=weights)
    effects, slopes = random.normal(size=(2, 4)).astype(np.float32)
    at = {"coefficients": np.float32([0.1, 0.2, 0.3]), "g": effects, "log_sd(g)": 0, "g:s": slopes, "log_sd(g:s)": 0}
    draws = {name: np.stack([np.asarray(value, np.float32)] * 2) for name, value in at.items()}

    rest = y - 0.1 - x @ [0.2, 0.3]
    of_means, of_slopes = rest - slopes[index] * slope, rest - effects[index]
    total = lambda values: np.bincount(index, weights * values)  # noqa: E731
    np.testing.assert_allclose(own_estimates(model, draws, "g"), total(of_means) / total(np.ones(150)), atol=1e-5)
    of = total(slope * of_slopes) / total(slope**2)
    np.testing.assert_allclose(own_estimates(model, draws, "g:s"), of, atol=1e-5)


def test_outcomes_that_are_all_alike_give_a_finite_number() -> None:
    y, index = np.array([0, 0, 0, 1, 0, 1]), np.array([0, 0, 0, 1, 1, 1])
    model = Regression(families.Bernoulli(), y=y, groups={"g": index})
    draws = {"coefficients": np.zeros((1, 1)), "g": np.zeros((1, 2)), "log_sd(g)": np.zeros(1)}
    np.testing.assert_allclose(own_estimates(model, draws, "g"), [-2, 2 / 3], rtol=1e-5)
