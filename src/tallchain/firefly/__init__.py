"""Firefly Monte Carlo: exact draws of a logistic regression from the few rows that are bright."""

from tallchain.firefly.kernel import CapacityError, Fireflies, FireflyMC
from tallchain.firefly.langevin import Langevin

__all__ = ["CapacityError", "Fireflies", "FireflyMC", "Langevin"]
