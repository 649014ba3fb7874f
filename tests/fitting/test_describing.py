"""A regression in words and as an equation, for every family; nothing is compiled."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import SEED
from models.families.family_cases import FAMILIES
from tallchain.fitting.describing import equation, family_words, model_words, prior_words
from tallchain.fitting.variables import coefficient_names
from tallchain.models import Group, Prior, Regression, families, priors
from tallchain.models.families.by_name import NAMES, family_named, from_json, to_json

N = 60


def model(family: families.Family, y: np.ndarray, **options: object) -> Regression:
    x = np.random.default_rng(SEED).normal(size=(len(y), 2))
    return Regression(family, y=y, x=x, **options)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_words(name: str) -> None:
    family = FAMILIES[name].family
    assert family_words(family) != repr(family)
    assert from_json(to_json(family)) == family


def test_words_equation_and_priors() -> None:
    random = np.random.default_rng(SEED)
    y, clinic = random.normal(size=N), random.integers(0, 3, N)
    groups = {"clinic": Group(clinic, {"dose": random.normal(size=N)})}
    prior = Prior(priors.StudentT(4.0, 1.0), priors.Flat())
    made = model(families.Gaussian(), y, groups=groups, offset=np.ones(N), weights=np.ones(N), prior=prior)
    assert coefficient_names(made) == ("(intercept)", "x0", "x1")
    words = model_words(made, "pain")
    assert "pain on 2 features, an effect for each of 3 levels of clinic and a slope of dose for each" in words
    assert "weighted" in words
    lines = equation(made, "pain")
    assert lines[0] == "pain_i ~ N(z_i, noise_sd²)"
    assert lines[1] == "z_i = a + β[x0]·x0_i + β[x1]·x1_i + u[clinic_i] + w[clinic_i]·dose_i + offset_i"
    assert lines[2:] == ("u[clinic] ~ N(0, sd(clinic)²)", "w[clinic:dose] ~ N(0, sd(clinic:dose)²)")
    said = prior_words(made)
    assert said[:2] == ("coefficients: Student t with 4 degrees of freedom, scale 1", "intercept: flat")
    assert said[-1].startswith("sd(clinic:dose): half-normal, scale ")


def test_long_equations_are_cut() -> None:
    x = np.random.default_rng(SEED).normal(size=(N, 30))
    made = Regression(families.Poisson(), y=np.arange(N) % 3, x=x)
    assert "…" in equation(made, "")[1]


def test_families_by_name() -> None:
    assert [type(family_named(name)).__name__ for name in NAMES if name not in ("categorical", "ordinal")]
    assert family_named("Negative-Binomial") == families.NegativeBinomial()
    assert family_named("probit") == families.Bernoulli("probit")
    assert family_named("bernoulli-cloglog") == families.Bernoulli("cloglog")
    assert family_named("logit") == families.Bernoulli()
    assert family_named("softmax") is families.Categorical
    with pytest.raises(ValueError, match=r"no family 'poison'.*did you mean 'poisson'"):
        family_named("poison")
    with pytest.raises(ValueError, match="no family 'poisson-probit'"):
        family_named("poisson-probit")
