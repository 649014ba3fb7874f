"""Regressions from formulas: `y ~ x1 + C(hour) * x2 + poly(z, 2) + offset(e) + (1 + x1 | airport)`."""

from tallchain.formulas.building import Built, build
from tallchain.formulas.reading import FormulaError
from tallchain.formulas.spec import Spec

__all__ = ["Built", "FormulaError", "Spec", "build"]
