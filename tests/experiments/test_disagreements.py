"""Readings of the paper at a tiny size."""

import json

import numpy as np
import pytest

from conftest import SEED
from tallchain.experiments import disagreements as experiment

TINY = experiment.Config(rows=20_000, chains=32, draws=60, seed=SEED)
_TESTED = ("printed", "variance", "growth")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result() -> experiment.Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "SETTINGS", {key: experiment.SETTINGS[key] for key in _TESTED})
        return experiment.run(TINY)


def test_rows_acceptance_and_bound(result: experiment.Result) -> None:
    printed, variance, growth = (result.found[key] for key in _TESTED)
    assert variance.rows > 2 * printed.rows  # steps 2.6 times as long: near 6.7 times as many, with 50 at the least
    assert variance.acceptance < printed.acceptance
    assert printed.bound is None
    assert growth.bound is not None
    assert 0.5 < growth.bound < 3
    numbers = json.loads(json.dumps(result.to_json()))
    assert numbers["settings"]["growth"]["bound"] == growth.bound


def test_variances_start_at_the_exact_ones(result: experiment.Result) -> None:
    """Chains begin in the exact posterior, and have not gone far in 60 draws."""
    for found in result.found.values():
        for variance, error in zip(found.variances, found.errors, strict=True):
            assert 0.05 < error < 0.6
            assert abs(variance - 1) < 4 * error


def test_the_prior_takes_away_variance(result: experiment.Result) -> None:
    target = experiment.Target(TINY.rows, experiment.BATCH, TINY.seed, True)
    flat = np.diag(target.mixture.quadrature(101).covariance)
    exact = np.diag(experiment.Target(TINY.rows, experiment.BATCH, TINY.seed, False).mixture.quadrature(101).covariance)
    np.testing.assert_allclose(result.without_prior, flat / exact, rtol=1e-3)
    assert min(result.without_prior) > 1
