"""Posteriors: your own, and ready-made ones."""

from tallchain.models.gaussian_mixture import GaussianMixture, gaussian_mixture
from tallchain.models.posterior import Posterior
from tallchain.models.regression import (
    Regression,
    linear_regression,
    logistic_regression,
    poisson_regression,
    probit_regression,
)

__all__ = [
    "GaussianMixture",
    "Posterior",
    "Regression",
    "gaussian_mixture",
    "linear_regression",
    "logistic_regression",
    "poisson_regression",
    "probit_regression",
]
