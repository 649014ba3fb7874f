"""Posteriors: your own, and ready-made ones."""

from tallchain.models import constraints, families, priors
from tallchain.models.gaussian_mixture import GaussianMixture, gaussian_mixture
from tallchain.models.groups import Group
from tallchain.models.posterior import Posterior
from tallchain.models.prediction import Prediction
from tallchain.models.priors import Prior
from tallchain.models.ready import linear_regression, logistic_regression, poisson_regression, probit_regression
from tallchain.models.regression import Regression

__all__ = [
    "GaussianMixture",
    "Group",
    "Posterior",
    "Prediction",
    "Prior",
    "Regression",
    "constraints",
    "families",
    "gaussian_mixture",
    "linear_regression",
    "logistic_regression",
    "poisson_regression",
    "priors",
    "probit_regression",
]
