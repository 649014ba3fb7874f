"""Statistical checks in units of Monte Carlo error; test_exactness.py shows each to fail on a broken sampler."""

from __future__ import annotations

import jax
import numpy as np
from scipy import stats

from conftest import SEED
from scenarios import BATCH_SIZE, Scenario
from tallchain import MetropolisHastings, Trace, sample
from tallchain.types import BoundedTest

Z_LIMIT = 4.5  # about fifty z-scores per target, test and source; 4.5 fails once in three thousand runs of them all
P_LIMIT = 1e-4


def draws(trace: Trace) -> np.ndarray:
    """All parameters side by side: (chain, draw, parameter)."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(trace.position)]
    return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], -1)


def run(scenario: Scenario, acceptance, source, *, chains: int = 300, length: int = 100, proposal=None) -> Trace:
    """Run chains that start in the exact posterior: whatever they drift to is the sampler's doing."""
    kernel = MetropolisHastings(
        scenario.posterior,
        source(scenario.data, BATCH_SIZE),
        proposal=scenario.proposal if proposal is None else proposal,
        acceptance=acceptance,
    )
    starts = scenario.starts(np.random.default_rng(SEED), chains)
    return sample(jax.random.key(SEED), kernel, starts, length, num_chains=chains, scan=0, progress=False)


def z_scores(trace: Trace, scenario: Scenario) -> np.ndarray:
    """Means and second moments against the truth, in standard errors between chains, which are independent."""
    values = draws(trace)[:, trace.num_draws // 3 :]
    centred = values - scenario.mean
    pairs = np.einsum("cti,ctj->ctij", centred, centred)
    means = np.concatenate([centred.mean(1), pairs.mean(1).reshape(len(values), -1)], 1)
    truth = np.concatenate([np.zeros_like(scenario.mean), scenario.covariance.ravel()])
    return (means.mean(0) - truth) / (means.std(0, ddof=1) / np.sqrt(len(means)))


def ks_p_values(trace: Trace, scenario: Scenario) -> np.ndarray:
    """Kolmogorov-Smirnov of the last draws, one per chain and so independent, against each exact margin."""
    last = draws(trace)[:, -1]
    sd = np.sqrt(np.diag(scenario.covariance))
    if set(np.unique(last)) <= {0.0, 1.0}:  # two states: the exact binomial test instead
        ones = int(last.sum())
        return np.array([stats.binomtest(ones, len(last), float(scenario.mean[0])).pvalue])
    return np.array([stats.kstest(column, "norm").pvalue for column in ((last - scenario.mean) / sd).T])


def agrees(trace: Trace, scenario: Scenario) -> bool:
    """Whether moments and margins agree with the exact posterior."""
    is_near = np.all(np.abs(z_scores(trace, scenario)) < Z_LIMIT)
    return bool(is_near and np.all(ks_p_values(trace, scenario) > P_LIMIT))


# ---- what every trace must keep ----------------------------------------------------------------


def check_records(trace: Trace, chains: int, length: int, *, may_stay: bool = False) -> None:
    """Shapes, finite numbers, moves where candidates were accepted, and rows within their limits.

    Args:
        trace: any.
        chains: that were asked for.
        length: draws that were asked for.
        may_stay: whether a candidate may be where the chain is.
    """
    leaf = jax.tree.leaves(trace.position)[0]
    assert leaf.shape == (chains, length)
    assert trace.rows_read.shape == trace.is_accepted.shape == trace.log_ratio.shape == (chains, length)
    assert not trace.is_interrupted
    assert not trace.is_invalid.any()
    assert np.isfinite(trace.log_ratio).all()
    moved, accepted = np.diff(leaf, axis=1) != 0, trace.is_accepted[:, 1:]
    assert not (moved & ~accepted).any()
    assert may_stay or (moved == accepted).all()
    population = trace.kernel.source.population
    always = population.num_exact
    appetite = trace.kernel.acceptance.appetite(population)
    if appetite == population.num_rows:
        assert (trace.rows_read == population.num_rows + always).all()
    if not isinstance(trace.kernel.acceptance, BoundedTest):  # these may need no row
        assert (trace.rows_read >= min(population.batch_size, appetite) + always).all()
    assert population.repeats or (trace.rows_read <= population.num_rows + always).all()
