"""Families of outcomes: what a regression says of an outcome, given its predictors."""

from tallchain.models.families.bernoulli import Bernoulli
from tallchain.models.families.binomial import Binomial
from tallchain.models.families.categorical import Categorical
from tallchain.models.families.family import Bounds, Derivatives, Family
from tallchain.models.families.gamma import Gamma
from tallchain.models.families.gaussian import Gaussian
from tallchain.models.families.negative_binomial import NegativeBinomial
from tallchain.models.families.ordinal import Ordinal
from tallchain.models.families.poisson import Poisson
from tallchain.models.families.student_t import StudentT
from tallchain.models.families.weibull import Weibull

__all__ = [
    "Bernoulli",
    "Binomial",
    "Bounds",
    "Categorical",
    "Derivatives",
    "Family",
    "Gamma",
    "Gaussian",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "StudentT",
    "Weibull",
]
