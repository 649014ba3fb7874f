"""Posteriors: your own, and ready-made ones."""

from tallchain.models.gaussian_mixture import GaussianMixture, gaussian_mixture
from tallchain.models.posterior import Posterior

__all__ = ["GaussianMixture", "Posterior", "gaussian_mixture"]
