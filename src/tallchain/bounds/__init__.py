"""Bounds on the log ratios of rows, for the tests that are exact because of them."""

from tallchain.bounds.bound import Bound, Fitted
from tallchain.bounds.regression import regression_bound

__all__ = ["Bound", "Fitted", "regression_bound"]
