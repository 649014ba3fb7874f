"""The front door: from a table and a formula, or a model, to a posterior with a report."""

from tallchain.fitting.fit import fit
from tallchain.fitting.result import Fit

__all__ = ["Fit", "fit"]
