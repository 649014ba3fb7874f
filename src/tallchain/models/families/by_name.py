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
_LINKS = ("probit", "cloglog")
NAMES = tuple(_NAMED)
"""Of all families."""
OF_LEVELS = (Categorical, Ordinal)
"""Families that need the number of levels of the outcome."""


def family_named(call: str, name: str, levels: int | None = None) -> Family:
    """Return the family of a name such as "bernoulli"; "bernoulli-probit" and "binomial-cloglog" have a link.

    Args:
        call: for a message.
        name: in any case, with hyphens or underscores.
        levels: of the outcome, for families that need it.
    """
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    base, _, link = (
        plain.rpartition("_") if plain.endswith(tuple(f"_{link}" for link in (*_LINKS, "logit"))) else (plain, "", "")
    )
    kind = _NAMED.get(_ALIASES.get(base, base))
    link = base if base in _LINKS else link
    if kind is None or (link and kind not in (Bernoulli, Binomial)):
        near = difflib.get_close_matches(plain, (*NAMES, *_ALIASES), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"`{call}(family={name!r})` must be one of {', '.join(NAMES)}, or a family such as families.Poisson()."
            f"{hint}"
        )
    if kind in OF_LEVELS:
        if levels is None:
            raise ValueError(
                f"`{call}(family={name!r})`: give the number of levels, as families.{kind.__name__}(levels)."
            )
        return kind(levels)
    return kind(link) if link else kind()


def to_json(family: Family) -> dict[str, Any]:
    """Return the family as plain values."""
    name = next(name for name, kind in _NAMED.items() if type(family) is kind)
    return {"name": name} | dataclasses.asdict(family)


def from_json(found: dict[str, Any]) -> Family:
    """Return the family that `to_json` made plain values of."""
    return _NAMED[found["name"]](**{name: value for name, value in found.items() if name != "name"})
