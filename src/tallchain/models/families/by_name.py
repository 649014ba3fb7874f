"""Families by name, as a formula or a command has them."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from tallchain.models.families.bernoulli import Bernoulli
from tallchain.models.families.binomial import Binomial
from tallchain.models.families.categorical import Categorical
from tallchain.models.families.family import Family
from tallchain.models.families.gamma import Gamma
from tallchain.models.families.gaussian import Gaussian
from tallchain.models.families.negative_binomial import NegativeBinomial
from tallchain.models.families.ordinal import Ordinal
from tallchain.models.families.poisson import Poisson
from tallchain.models.families.student_t import StudentT
from tallchain.models.families.weibull import Weibull

_NAMED: dict[str, type[Any]] = {
    "bernoulli": Bernoulli,
    "binomial": Binomial,
    "categorical": Categorical,
    "gamma": Gamma,
    "gaussian": Gaussian,
    "negative_binomial": NegativeBinomial,
    "ordinal": Ordinal,
    "poisson": Poisson,
    "student_t": StudentT,
    "weibull": Weibull,
}
_ALIASES = {
    "logistic": "bernoulli",
    "logit": "bernoulli",
    "probit": "bernoulli",
    "cloglog": "bernoulli",
    "linear": "gaussian",
    "normal": "gaussian",
    "negbinomial": "negative_binomial",
    "negativebinomial": "negative_binomial",
    "t": "student_t",
    "student": "student_t",
    "studentt": "student_t",
    "softmax": "categorical",
    "multinomial": "categorical",
    "cumulative": "ordinal",
}
_LINKS = ("probit", "cloglog", "logit")
NAMES = tuple(_NAMED)
"""Of all families."""


def family_named(name: str) -> Family | type[Categorical] | type[Ordinal]:
    """Return the family of a name such as "bernoulli"; "bernoulli-probit" and "bernoulli-cloglog" have a link.

    Of families that need the number of levels of the outcome, return the class.
    """
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    base, _, link = plain.rpartition("_") if plain.endswith(tuple(f"_{each}" for each in _LINKS)) else (plain, "", "")
    kind = _NAMED.get(_ALIASES.get(base, base))
    link = base if base in _LINKS else link
    if kind is None or (link and kind is not Bernoulli):
        near = difflib.get_close_matches(plain, (*NAMES, *_ALIASES), 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"there is no family {name!r}. There are {', '.join(NAMES)}{hint}")
    if kind in (Categorical, Ordinal):
        return kind
    return kind(link) if link else kind()


def to_json(family: Family) -> dict[str, Any]:
    """Return the family as plain values."""
    name = next(name for name, kind in _NAMED.items() if type(family) is kind)
    return {"name": name} | dataclasses.asdict(family)


def from_json(found: dict[str, Any]) -> Family:
    """Return the family that `to_json` made plain values of."""
    return _NAMED[found["name"]](**{name: value for name, value in found.items() if name != "name"})
