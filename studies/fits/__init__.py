"""`fit` beside the same models elsewhere: coefficients of seven tables, six of them real, from a formula.

Needs the packages of the extra `peers`. Without groups the prior is flat and the answer is maximum likelihood
(statsmodels), which the mean of the posterior differs from by a few hundredths of a standard deviation; with groups, or
where the posterior is skewed, it is a run of NumPyro's NUTS on all rows, with the same priors. Some ten minutes on 2
cores.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from benchmarks.records import table
from studies.fits.cases import CASES, Case
from studies.fits.references import Reference, by_maximum_likelihood, by_nuts
from studies.study import Keep, Result, forget


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the comparison."""

    rows: int | None = None
    """Of each table, at most."""
    draws: int = 4000
    """Effective ones to ask for."""
    chains: int = 4
    """Of NUTS."""
    nuts_draws: int = 1000
    """Of each of its chains, after as many of warm-up."""
    settings: tuple[str, ...] = tuple(CASES)

    @classmethod
    def quick(cls) -> Config:
        """Few rows and draws, of two cases."""
        return cls(4_000, 100, 2, 20, ("visits", "flights"))


def run(config: Config, keep: Keep = forget) -> Result:
    """Fit every table here and elsewhere."""
    results: dict[str, Any] = {}
    for name in config.settings:
        case = CASES[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other packages
            results[name] = _compared(case, config)
        keep(Result.of(dataclasses.asdict(config), results))
    return Result.of(dataclasses.asdict(config), results)


def _compared(case: Case, config: Config) -> dict[str, Any]:
    import tallchain as tc
    from tallchain.models.priors import Flat, Prior, log_prior_of

    frame = case.table(config.rows or case.rows)
    flat = None if case.needs_nuts else Prior(Flat(), Flat())
    fit = tc.fit(
        case.formula,
        frame,
        family=case.family,
        weights=case.weights,
        prior=flat,
        num_draws=config.draws,
        progress=False,
    )
    kinds = ("coefficient", "group sd") if case.group else ("coefficient",)
    by_name = {each.name: each for each in fit.facts.of_kind(*kinds)}
    if case.needs_nuts:
        assert fit.model is not None
        of = log_prior_of(fit.model.posterior)
        prior: Any = of.prior
        priors = {
            "slope": prior.coefficients.sd,
            "intercept": (prior.intercept.mean, prior.intercept.sd),
            "group_sd": prior.group_sd,
            "log_noise": of.centres[0] if of.centres else 0.0,
        }
        other = by_nuts(case, frame, priors, config.chains, config.nuts_draws)
    else:
        other = by_maximum_likelihood(case, frame)
    ours = [by_name.pop(name) for name in other.names]
    assert not by_name, by_name
    mean, mcse = (np.array([getattr(each, name) for each in ours]) for name in ("mean", "mcse"))
    return _differences(other, mean, mcse) | {
        "source": case.source,
        "formula": case.formula,
        "family": case.family,
        "rows": fit.facts.num_rows,
        "coefficients": len(ours),
        "test": fit.facts.trust.test.partition("(")[0],
        "rows_per_decision": fit.facts.reading.per_decision,
        "r_hat": fit.facts.convergence.worst_r_hat,
        "ess": fit.facts.convergence.worst_ess,
        "advice": [each.code for each in fit.facts.advice],
        "elsewhere": "NumPyro NUTS" if case.needs_nuts else "statsmodels",
    }


def _differences(other: Reference, mean: np.ndarray, mcse: np.ndarray) -> dict[str, float]:
    apart = np.abs(mean - other.mean)
    errors = np.hypot(mcse, other.mcse)
    return {"in_sd": float(np.max(apart / other.sd)), "in_errors": float(np.max(apart / errors))}


def page(result: Result) -> dict[str, str]:
    """A line for each table."""
    header = [
        "rows from",
        "formula, family",
        "elsewhere",
        "means apart, in sd",
        "in Monte Carlo errors",
        "R-hat",
        "ESS",
    ]
    rows = [
        [
            of["source"],
            f"`{of['formula']}`, {of['family']}".replace("|", "\\|"),
            of["elsewhere"],
            f"{of['in_sd']:.3f}",
            f"{of['in_errors']:.1f}" + ("" if "NUTS" in of["elsewhere"] else " (of ours alone)"),
            f"{of['r_hat']:.3f}",
            f"{of['ess']:,.0f}",
        ]
        for of in result.results.values()
    ]
    return {"fits": table(header, rows)}
