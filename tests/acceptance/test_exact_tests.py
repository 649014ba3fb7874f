"""MH-SS, Scalable Metropolis-Hastings and TunaMH: by enumeration, by repeated decisions, and broken on purpose."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from conftest import SEED
from five_rows import DATA, FAR, POSTERIOR, REFERENCE, STEEPEST, Example, X, Y, chances, example, kernel_of, swapped
from refusals import refuse, table
from tallchain import MetropolisHastings, RandomWalk, Shuffled, Trace, WithReplacement, audit, sample
from tallchain.acceptance import MHSS, ScalableMH, TunaMH
from tallchain.acceptance.exact.base import PoissonTest
from tallchain.acceptance.exact.poisson import PART, poisson
from tallchain.bounds import Bound
from tallchain.checking import SamplingError
from tallchain.parts import part
from tallchain.proposals import Laplace
from tallchain.surrogates import Taylor
from tallchain.types import Array

TESTS: dict[str, PoissonTest] = {
    "scalable": ScalableMH(FAR),
    "mh-ss": MHSS(FAR),
    "two stages": MHSS(FAR, two_stages=True),
    "tuna, chi 0": TunaMH(0.0, FAR),
    "tuna, chi 0.1": TunaMH(0.1, FAR),
}
# P(accept) from HERE to THERE by order, computed apart from this library; then MH-SS with rows drawn uniformly.
KNOWN = {
    "scalable": (0.278923, 0.677620, 0.809686),
    "mh-ss": (0.530944, 0.716037, 0.818990),
    "two stages": (0.426052, 0.679816, 0.809696),
    "tuna, chi 0": (0.459166, 0.698018, 0.814638),
    "tuna, chi 0.1": (0.607062, 0.705404, 0.814866),
}
UNIFORM = (0.601120, 0.766341, 0.829466)
OFFSETS, LIMITS = (-0.380000, 0.216049, -0.210872), (6.343695, 0.765700, 0.123717)


def enumerated(test: Any, of: Example) -> float:
    """P(accept), by the numbers of kept rows: independent Poisson numbers."""
    with jax.enable_x64(True):
        most, rho = jnp.asarray(of.bounds.sum()), jnp.asarray(of.parts / of.bounds)
        kept, factors = test.kept(rho, most), np.asarray(test.log_factor(rho, most))
        means = float(test.rate(most)) * of.bounds / of.bounds.sum() * (1 if kept is None else np.asarray(kept))
        counts = [np.arange(int(stats.poisson.ppf(1 - 1e-12, mean)) + 2) for mean in means]
        grids = np.meshgrid(*counts, indexing="ij")
        chances = np.exp(sum(stats.poisson.logpmf(s, mean) for s, mean in zip(grids, means, strict=True)))
        product = sum(s * factor for s, factor in zip(grids, factors, strict=True))
        return float(np.sum(chances * np.exp(np.minimum(test.log_chance(of.offset, product), 0))))


# ---- by enumeration ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 2])
def test_bound_and_offset_of_the_example(order: int) -> None:
    of = example(order)
    assert of.offset == pytest.approx(OFFSETS[order], abs=1e-6)
    assert of.bounds.sum() == pytest.approx(LIMITS[order], abs=1e-6)
    assert np.all(np.abs(of.parts) <= of.bounds)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", TESTS)
def test_chance_to_accept_and_detailed_balance(name: str, order: int) -> None:
    """To 6 digits, and P(t to t')/P(t' to t) = exp(Delta) to 1e-10."""
    of = example(order)
    there, back = enumerated(TESTS[name], of), enumerated(TESTS[name], swapped(of))
    assert there == pytest.approx(KNOWN[name][order], abs=1e-6)
    assert np.log(there / back) == pytest.approx(of.offset + of.parts.sum(), abs=1e-10)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_uniform_rows(order: int) -> None:
    of = example(order)
    assert enumerated(MHSS(), of._replace(bounds=np.full(5, of.bounds.max()))) == pytest.approx(
        UNIFORM[order], abs=1e-6
    )


@part
class _NoFactor(MHSS):
    """Forgets the factors of the rows it keeps."""

    def log_factor(self, rho: Array, most: Array) -> Array:
        return jnp.zeros_like(rho)


def test_enumeration_refuses_a_forgotten_factor() -> None:
    of = example(0)
    ratio = enumerated(_NoFactor(), of) / enumerated(_NoFactor(), swapped(of))
    assert abs(np.log(ratio) - of.offset - of.parts.sum()) > 0.1


@pytest.mark.parametrize("mean", [0.0, 0.3, 3.0, PART])
def test_poisson_numbers(mean: float) -> None:
    """By inversion: u falls between the sums of terms on either side."""
    uniforms = np.concatenate([np.linspace(0, 1, 5001)[:-1], [1 - 2**-24]]).astype(np.float32)
    found = np.asarray(jax.jit(jax.vmap(poisson, (0, None)))(uniforms, jnp.float32(mean)))
    assert np.all(stats.poisson.cdf(found, mean) >= uniforms - 1e-6)
    assert np.all(stats.poisson.cdf(found - 1, mean) <= uniforms + 1e-6)


# ---- by repeated decisions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "order"),
    [
        pytest.param(name, order, marks=[] if (order == 0 or name == "mh-ss") else [pytest.mark.slow])
        for name in TESTS
        for order in (0, 1, 2)
    ],
)
def test_decisions_have_the_chance_that_was_enumerated(name: str, order: int) -> None:
    """Alias table, marks, parts and all, there and back; at order 0 decisions need several looks of 5 rows."""
    found, errors = chances(kernel_of(TESTS[name], order))
    known = [enumerated(TESTS[name], of) for of in (example(order), swapped(example(order)))]
    assert np.all(np.abs(found - known) < 4.5 * errors + 1e-5), (found, known, errors)


def test_decisions_without_the_factor_have_another_chance() -> None:
    found, errors = chances(kernel_of(_NoFactor(FAR), 0))
    assert np.any(np.abs(found - [enumerated(MHSS(), of) for of in (example(0), swapped(example(0)))]) > 20 * errors)


@part
class _Window(WithReplacement):
    """Reads rows in a run from a random place on: each row comes as often, but rows are not independent."""

    def _at_random(self, key: Array, is_asked: Array) -> Array:
        return (super()._at_random(key, is_asked[:1])[0] + jnp.arange(len(is_asked))) % self.num_rows


def test_decisions_by_contiguous_windows_have_another_chance() -> None:
    """Uniform rows, for which windows have the right probabilities by row."""
    kernel = kernel_of(MHSS(), 0)
    constants = np.full(5, STEEPEST[0] * np.linalg.norm(X, axis=1).max())
    parts: dict[str, Any] = {"proposal": kernel.proposal, "acceptance": MHSS(FAR), "bound": Bound(constants, 0)}
    of = example(0)._replace(bounds=np.full(5, example(0).bounds.max()))
    known = [enumerated(MHSS(), each) for each in (of, swapped(of))]
    for source, is_right in ((WithReplacement, True), (_Window, False)):
        found, errors = chances(MetropolisHastings(POSTERIOR, source(DATA, 5), **parts))
        assert np.all(np.abs(found - known) < 4.5 * errors + 1e-5) == is_right, (found, known, errors)


@pytest.mark.parametrize("mean", [0.0, 1e-3, 0.7, 8.0, float(PART)])
def test_numbers_of_rows_are_poisson(mean: float) -> None:
    uniform = (np.arange(1000) + 0.5) / 1000
    with jax.enable_x64(True):
        found = jax.vmap(poisson, (0, None))(jnp.asarray(uniform), jnp.asarray(mean))
    np.testing.assert_array_equal(found, stats.poisson.ppf(uniform, mean) if mean else 0)


def test_many_rows_come_in_parts() -> None:
    """L = 165 at 26 times the bound: six parts. The chance is that of the larger bound, whatever the parts."""
    scale = 26.0
    of = example(0)._replace(bounds=scale * example(0).bounds)
    variance = float(np.sum(of.parts**2 / of.bounds))
    found, errors = chances(kernel_of(MHSS(FAR), 0, scale=scale), 20_000)
    # P is nearly normal there, as the noise of the penalty test is.
    delta = np.array([1, -1]) * (of.offset + of.parts.sum())
    sd = variance**0.5
    known = stats.norm.cdf(delta / sd - sd / 2) + np.exp(delta) * stats.norm.cdf(-delta / sd - sd / 2)
    assert np.all(np.abs(found - known) < 4.5 * errors + 0.002), (found, known, errors)


def test_above_the_limit_every_row_is_read() -> None:
    """And the decision is Metropolis'."""
    found, _ = chances(kernel_of(MHSS(limit=6.0), 0), 2000)
    delta = example(0).offset + example(0).parts.sum()
    np.testing.assert_allclose(found, np.exp(np.minimum([delta, -delta], 0)), rtol=1e-5)
    trace = sample(
        jax.random.key(1), kernel_of(TunaMH(0.1, limit=1e-9), 0), np.zeros(2), 20, num_chains=3, progress=False
    )
    assert np.all(trace.rows_read == 5)


# ---- chains --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("mh-ss", "scalable") else [pytest.mark.slow]) for name in TESTS]
)
def test_draws_agree_with_those_of_the_full_data_test(name: str) -> None:
    """Moments of five rows' posterior, by a grid; chains start anywhere."""
    trace = sample(jax.random.key(SEED), kernel_of(TESTS[name], 1), np.zeros(2), 600, num_chains=200, progress=False)
    grid = np.stack(np.meshgrid(*[np.linspace(-6, 6, 241)] * 2, indexing="ij"), -1).reshape(-1, 2)
    log_density = np.sum(np.log(expit((2 * Y - 1) * (grid @ X.T))), 1) - 0.5 * np.sum(grid**2, 1)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    powers = [lambda t: t, lambda t: t**2, lambda t: t[..., :1] * t[..., 1:]]
    for power in powers:
        by_chain = power(trace.position[:, 200:].astype(np.float64)).mean(1)
        truth = weights @ power(grid)
        assert np.all(np.abs(by_chain.mean(0) - truth) < 4.5 * by_chain.std(0, ddof=1) / len(by_chain) ** 0.5)


@pytest.mark.parametrize("name", ["mh-ss", pytest.param("scalable", marks=pytest.mark.slow), "no factor"])
def test_an_audit_finds_no_error_but_that_of_a_broken_test(name: str) -> None:
    """Exact by construction, and measured all the same."""
    kernel = kernel_of(TESTS.get(name, _NoFactor(FAR)), 0)
    trace = sample(jax.random.key(SEED), kernel, np.zeros(2), 200, num_chains=100, num_warmup=50, progress=False)
    found = audit(kernel, trace, num_trials=400, progress=False, seed=SEED)
    assert found.is_sound == (name in TESTS), str(found)


def _given(share: float = 1.0) -> np.ndarray:
    """Bounds for 1000 rows without a surrogate, |x_i|; those of row 617, or all from one half on, shrunk."""
    constants = np.linalg.norm(_rows()["x"], axis=1)
    constants[617 if share < 0.5 else slice(None)] *= share
    return constants


def _rows() -> dict[str, np.ndarray]:
    """Row 617 is far out."""
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(1000, 2)).astype(np.float32)
    x[617] *= 40
    return {"x": x, "y": (rng.random(1000) < 0.5).astype(np.float32)}


def _draw(constants: np.ndarray, num_samples: int, **options: Any) -> Trace:
    parts: dict[str, Any] = {"proposal": RandomWalk(0.05), "acceptance": MHSS(), "bound": Bound(constants, 0)}
    kernel = MetropolisHastings(POSTERIOR, WithReplacement(_rows(), 50, weights=constants), **parts)
    return sample(jax.random.key(0), kernel, np.zeros(2), num_samples, num_chains=4, progress=False, **options)


@pytest.mark.parametrize(("share", "words"), [(0.8, r"row \d+ exceeds its bound"), (0.2, r"row 617 .* 4\.\d+ times")])
def test_a_violated_bound_ends_the_run_and_names_the_row(share: float, words: str) -> None:
    """Bounds that are too small by 20 % for all rows, or five times too small for one; the draws before are kept."""
    with pytest.raises(SamplingError, match=words) as caught:
        _draw(_given(share), 20_000)
    assert 0 < caught.value.trace.num_draws < 20_000


def test_a_bound_that_was_given_is_checked_on_all_rows() -> None:
    """A row of a tiny constant is never drawn, so that no decision shows how wrong it is."""
    trace = _draw(_given(), 200)
    assert not trace.complaints()
    assert re.search(r"all rows were read at 8 proposals \(8,000 rows\): .* 0\.\d+ of its bound", str(trace.summary()))
    with pytest.raises(SamplingError, match=r"row 617 exceeds .* in the `trace`") as caught:
        _draw(_given(1e-7), 200)
    assert caught.value.trace.num_draws == 200
    assert not _draw(_given(1e-7), 200, scan=0).complaints()


def test_constants_are_rounded_up() -> None:
    assert Bound([1e-50, 1 + 1e-9, 0.5, 0], 0).constants.tolist() == [2**-149, 1 + 2**-23, 0.5, 0]


# ---- refusals ------------------------------------------------------------------------------------

SOURCE, BOUND = WithReplacement(DATA, 2), Bound(np.ones(5), 0)
ELSEWHERE = Bound(np.ones(5), 1, laplace=Laplace(np.zeros(2), np.eye(2)))


def _kernel(source: Any = SOURCE, **parts: Any) -> MetropolisHastings:
    return MetropolisHastings(POSTERIOR, source, proposal=RandomWalk(0.5), acceptance=MHSS(), **parts)


def _expanded() -> Taylor:
    return Taylor(POSTERIOR, DATA, np.float32(REFERENCE), 1)


@table(
    {
        "no bound": (_kernel, ValueError, "acceptance=MHSS(...)", "bound"),
        "a range": (lambda: _kernel(bound=lambda t, u: jnp.ones(())), ValueError, "acceptance=MHSS(...)", "no range"),
        "no Bound": (lambda: _kernel(bound=3), TypeError, "bound=...", "Bound", "3"),
        "windows": (lambda: _kernel(Shuffled(DATA, 2), bound=BOUND), ValueError, "independent rows", "WithReplacement"),
        "order": (lambda: _kernel(surrogate=_expanded(), bound=BOUND), ValueError, "order 0", "order 1"),
        "place": (lambda: _kernel(surrogate=_expanded(), bound=ELSEWHERE), ValueError, "another position"),
        "rows": (lambda: _kernel(bound=Bound(np.ones(4), 0)), ValueError, "4 rows", "5"),
        "limit": (lambda: MHSS(limit=-1), ValueError, "MHSS(limit=...)", "-1"),
        "chi": (lambda: TunaMH(float("nan")), ValueError, "TunaMH(chi=...)", "nan"),
        "chis": (lambda: TunaMH(np.ones(2)), ValueError, "TunaMH(chi=...)"),  # ty: ignore
        "no chi": (lambda: TunaMH(False), ValueError, "TunaMH(chi=...)", "False"),
        "stages": (lambda: MHSS(two_stages=1), TypeError, "MHSS(two_stages=...)", "1"),  # ty: ignore
        "batch": (lambda: ScalableMH(batch=0), ValueError, "ScalableMH(batch=...)", "0"),
        "constants": (lambda: Bound([1.0, np.nan], 0), ValueError, "Bound(constants=...)", "nan", "row 1"),
        "no constants": (lambda: Bound([], 0), ValueError, "Bound(constants=...)", "a vector"),
        "ragged": (lambda: Bound([[1.0], [1.0, 2.0]], 0), ValueError, "Bound(constants=...)", "a vector"),
        "outside": (lambda: Bound(np.ones(5), 0, outside=np.ones(3)), ValueError, "Bound(outside=...)", "5 rows"),
        "sizes": (lambda: Bound(np.ones(5), 0, sizes=np.ones(3)), ValueError, "Bound(sizes=...)", "5 rows"),
        "order of a bound": (lambda: Bound(np.ones(5), np.ones(2)), ValueError, "Bound(order=...)"),  # ty: ignore
        "concave": (lambda: Bound(np.ones(5), 0, is_concave="no"), TypeError, "Bound(is_concave=...)", "no"),  # ty: ignore
        "not finite": (lambda: Bound(np.ones(5), 1, position=np.full(2, np.nan)), ValueError, "finite", "nan"),
        "words": (lambda: Bound(np.ones(5), 1, position="abc"), ValueError, "Bound(position=...)", "abc"),
        "no place": (lambda: Bound(np.ones(5), 2), ValueError, "Bound(order=2", "position"),
        "measure": (lambda: Bound(np.ones(5), 0, measure="l2"), ValueError, "Bound(measure=...)", "predictor", "l2"),
        "weights": (lambda: WithReplacement(DATA, 2, weights=[1, 2, 0, 1, 1]), ValueError, "weights=...", "row 2"),
        "too few": (lambda: WithReplacement(DATA, 2, weights=[1, 2]), ValueError, "weights=...", "5 rows"),
    }
)
def test_refusals(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)
