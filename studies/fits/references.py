"""The same models elsewhere: statsmodels where there are no groups, NumPyro's NUTS on all rows where there are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from studies.fits.cases import SEED, Case

if TYPE_CHECKING:
    import pandas as pd


class Reference(NamedTuple):
    """Coefficients, and the sd of the groups last if there are any."""

    names: list[str]
    mean: np.ndarray
    sd: np.ndarray
    mcse: np.ndarray
    """0 for maximum likelihood."""


def by_maximum_likelihood(case: Case, frame: pd.DataFrame) -> Reference:
    """Estimates and standard errors of statsmodels."""
    import statsmodels.api as sm  # ty: ignore[import-not-found]
    import statsmodels.formula.api as smf  # ty: ignore[import-not-found]

    weights: dict[str, Any] = {} if case.weights is None else {"freq_weights": frame[case.weights].to_numpy()}
    match case.family:
        case "bernoulli":
            found = smf.glm(case.fixed, frame, family=sm.families.Binomial(), **weights).fit(tol=1e-12)
        case "poisson":
            found = smf.glm(case.fixed, frame, family=sm.families.Poisson(), **weights).fit(tol=1e-12)
        case "gaussian":
            found = smf.ols(case.fixed, frame).fit()
        case _:
            found = smf.negativebinomial(case.fixed, frame).fit(disp=0, maxiter=500, gtol=1e-8)
    count = len(found.params) - (case.family == "negative_binomial")  # the last is the dispersion
    mean, sd = np.asarray(found.params)[:count], np.asarray(found.bse)[:count]
    return Reference(list(map(plain, found.params.index[:count])), mean, sd, np.zeros_like(mean))


def plain(name: str) -> str:
    """Return patsy's name of a coefficient as `fit` has it."""
    return re.sub(r"C\((\w+)\)", r"\1", name).replace("[T.", "[").replace("Intercept", "(intercept)")


def by_nuts(case: Case, frame: pd.DataFrame, priors: dict[str, Any], chains: int, draws: int) -> Reference:
    """Means of a run of NumPyro's NUTS on all rows, with these priors; the design is that of patsy."""
    import jax
    import numpyro  # ty: ignore[import-not-found]
    from arviz_stats.base import array_stats
    from numpyro import distributions as dist  # ty: ignore[import-not-found]
    from numpyro.infer import MCMC, NUTS, init_to_value  # ty: ignore[import-not-found]
    from patsy.highlevel import dmatrices  # ty: ignore[import-not-found]

    of_outcome, design = dmatrices(case.fixed, frame)
    y, x = np.asarray(of_outcome, np.float32), np.asarray(design, np.float32)
    codes, levels = frame[case.group].factorize(sort=True) if case.group else (0, ())
    weights = 1.0 if case.weights is None else frame[case.weights].to_numpy(np.float32)
    middle = x[:, 1:].mean(0)
    centred = np.concatenate([x[:, :1], x[:, 1:] - middle], 1)

    def model() -> None:
        slopes = numpyro.sample("slopes", dist.Normal(0.0, priors["slope"]).expand([x.shape[1] - 1]).to_event(1))
        # The prior is of the intercept at x = 0; NUTS moves that at the mean of x.
        at_mean = numpyro.sample("at_mean", dist.ImproperUniform(dist.constraints.real, (), ()))
        intercept = numpyro.deterministic("intercept", at_mean - middle @ slopes)
        numpyro.factor("prior", dist.Normal(*priors["intercept"]).log_prob(intercept))
        z = at_mean + centred[:, 1:] @ slopes
        if case.group:
            sd = numpyro.sample("sd", dist.HalfNormal(priors["group_sd"]))
            effects: Any = sd * numpyro.sample("raw", dist.Normal().expand([len(levels)]).to_event(1))
            z += effects[codes]
        if case.family == "bernoulli":
            outcome: Any = dist.Bernoulli(logits=z)
        else:
            log_noise = numpyro.sample("log_noise", dist.Normal(priors["log_noise"], 3.0))
            outcome = dist.Normal(z, jax.numpy.exp(log_noise))
        numpyro.factor("y", jax.numpy.sum(weights * outcome.log_prob(y[:, 0])))

    start = {"slopes": np.zeros(x.shape[1] - 1), "at_mean": priors["intercept"][0]}
    start |= {"sd": 0.5} if case.group else {}
    sampler = MCMC(
        NUTS(model, init_strategy=init_to_value(values=start)),
        num_warmup=draws,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    sampler.run(jax.random.key(SEED))
    of = {name: np.asarray(values, np.float64) for name, values in sampler.get_samples(group_by_chain=True).items()}
    last = [of["sd"][..., None]] if case.group else []
    together = np.concatenate([of["intercept"][..., None], of["slopes"], *last], 2)
    mcse = array_stats.mcse(together, method="mean", chain_axis=0, draw_axis=1)
    names = [*map(plain, design.design_info.column_names), *([f"sd({case.group})"] if case.group else [])]
    return Reference(names, together.mean((0, 1)), together.std((0, 1)), mcse)
