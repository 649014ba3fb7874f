"""MH-SS without replacement: by enumeration of all subsets, by repeated decisions, and broken on purpose."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from conftest import SEED
from five_rows import DATA, FAR, POSTERIOR, Example, X, Y, chances, example, kernel_of, swapped
from refusals import refuse, table
from tallchain import (
    MHSS,
    BinomialMHSS,
    MetropolisHastings,
    Posterior,
    RandomWalk,
    Shuffled,
    WithReplacement,
    audit,
    sample,
)
from tallchain.acceptance.exact.drawing import Distinct
from tallchain.acceptance.exact.poisson import PART, binomial
from tallchain.bounds import Bound
from tallchain.checking import SamplingError
from tallchain.parts import part
from tallchain.types import Array, Population

KNOWN = (0.692810, 0.766638, 0.829466)  # P(accept) from HERE to THERE by order, computed apart from this library
UNIFORM = (0.601120, 0.766341, 0.829466)  # of `MHSS`, which knows more
SUBSETS = np.array(list(itertools.product((False, True), repeat=5)))
FIVE = Population(5, 5, repeats=False, is_simple=True)


def enumerated(of: Example, *, scale: float = 1.0, by: MHSS | None = None) -> float:
    """P(accept), from the definition: over all subsets of rows with s_i > 0; or by a test's own rule."""
    most = scale * of.bounds.max()  # A
    rho = of.parts / most
    mean, back = most * (1 - np.maximum(rho, 0)), most * (1 - np.maximum(-rho, 0))
    present, log_factors = -np.expm1(-mean), np.log(np.expm1(back) / np.expm1(mean))
    if by is not None:
        with jax.enable_x64(True):
            rate = jnp.asarray(5 * most)
            rule = by.drawing.rule(by, rate, FIVE)
            present = -np.expm1(-most) * np.asarray(rule.kept(jnp.asarray(rho), rate))
            log_factors = np.asarray(rule.log_factor(jnp.asarray(rho), rate))
    chance = np.prod(np.where(SUBSETS, present, 1 - present), 1)
    return float(np.sum(chance * np.exp(np.minimum(of.offset + SUBSETS @ log_factors, 0))))


class _NoFactor(Distinct):
    """Forgets the factors of the rows it keeps."""

    def rule(self, rule: Any, rate: Array, population: Population) -> Any:
        return _Keeping(super().rule(rule, rate, population))


@part
class _Keeping:
    of: Any

    def kept(self, rho: Array, most: Array) -> Array:
        return self.of.kept(rho, most)

    def log_factor(self, rho: Array, most: Array) -> Array:
        return jnp.zeros_like(rho)


class _OnceOnly(Distinct):
    """Rows without replacement, but kept and counted as if they were independent."""

    def rule(self, rule: Any, rate: Array, population: Population) -> Any:
        return rule


@part
class NoFactor(BinomialMHSS):
    drawing = _NoFactor()


@part
class OnceOnly(BinomialMHSS):
    drawing = _OnceOnly()


# ---- by enumeration ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 2])
def test_chance_to_accept_and_detailed_balance(order: int) -> None:
    """To 6 digits, P(t to t')/P(t' to t) = exp(Delta) to 1e-10, and at least the chance of `MHSS`."""
    of = example(order)
    for by in (None, BinomialMHSS()):
        there, back = enumerated(of, by=by), enumerated(swapped(of), by=by)
        assert there == pytest.approx(KNOWN[order], abs=1e-6)
        assert np.log(there / back) == pytest.approx(of.offset + of.parts.sum(), abs=1e-10)
        assert there > UNIFORM[order] - 1e-6


@pytest.mark.parametrize("broken", [NoFactor(), OnceOnly()])
def test_enumeration_refuses_another_factor(broken: MHSS) -> None:
    of = example(0)
    ratio = enumerated(of, by=broken) / enumerated(swapped(of), by=broken)
    assert abs(np.log(ratio) - of.offset - of.parts.sum()) > 0.05


@pytest.mark.parametrize("scale", [1e-37, 1.0, 30.0, 1e37])
def test_rule_in_float32(scale: float) -> None:
    """Neither too small nor too large for float32: as in float64, and never NaN."""
    rho = np.array([-1, -0.9, -1e-4, 0, 1e-4, 0.9, 1]) * (1 - 1e-6)

    def of(rho: Any, scale: Any) -> tuple[Array, Array]:
        rule = Distinct().rule(BinomialMHSS(), 5 * scale, FIVE)
        return rule.kept(rho, 5 * scale), rule.log_factor(rho, 5 * scale)

    rounded = np.float32(rho), np.float32(scale)
    found = of(*map(jnp.asarray, rounded))
    with jax.enable_x64(True):
        known = of(*(jnp.asarray(np.float64(each)) for each in rounded))
    np.testing.assert_allclose(found[0], known[0], rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(found[1], known[1], rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e7])
def test_log_ratios_keep_their_digits_far_below_a_bound(scale: float) -> None:
    """All rows come then, and the factor of a row is its likelihood ratio."""
    parts = example(0).parts
    found = Distinct().rule(BinomialMHSS(), 5 * scale, FIVE).log_factor(jnp.float32(parts / scale), 5 * scale)
    np.testing.assert_allclose(found, parts, rtol=1e-6)


@pytest.mark.parametrize(
    ("trials", "times"),
    [(5, 0.0), (5, 1e-8), (5, 1.2), (2, 16.0), (1, 32.0), (32, 1.0), (1000, 0.032), (2**31 - 1, 1e-9), (10**9, 3.2e-8)],
)
def test_binomial_numbers(trials: int, times: float) -> None:
    """By inversion: u falls between the sums of terms on either side, for small chances and for those near 1."""
    uniforms = np.concatenate([np.linspace(0, 1, 5001)[:-1], [1 - 2**-24]]).astype(np.float32)
    found = np.asarray(jax.vmap(binomial, (0, None, None))(uniforms, jnp.int32(trials), jnp.float32(times)))
    law = stats.binom(trials, -np.expm1(-np.float64(np.float32(times))))
    assert np.all((found >= 0) & (found <= trials))
    assert np.all(law.cdf(found) >= uniforms - 1e-5)
    assert np.all(law.cdf(found - 1) <= uniforms + 1e-5)


@pytest.mark.parametrize("num_rows", [1, 5, 1000, 10**6, 2**31 - 1])
def test_parts_have_all_trials(num_rows: int) -> None:
    """N of them in all, whatever L is; each part with at most 32 rows expected."""
    population, drawing, uniform = Population(num_rows, 1, repeats=False, is_simple=True), Distinct(), jnp.float32(0.5)
    for rate in (0.0, 1e-30, 0.3, 31.0, 33.0, 700.0, 0.9 * num_rows, 40.0 * num_rows, 1e38):
        rate_ = jnp.float32(rate)
        trials, times = int(drawing._trials(rate_, population)), float(drawing._times(rate_, population))
        parts = int(drawing.first(uniform, rate_, population)[1])
        first = num_rows - parts * trials
        assert 1 <= first <= trials
        assert trials * times <= PART * (1 + 1e-6)
        assert (trials + 1) * times > PART * (1 - 1e-6) or parts == 0


def test_enumeration_refuses_contiguous_windows() -> None:
    """Each row comes as often, but which rows come together is always the same: here, neighbours on a circle."""
    of = example(1)
    assert _ratio(of, [(row, ahead) for row in range(5) for ahead in range(1, 5)]) == pytest.approx(0, abs=1e-10)
    assert abs(_ratio(of, [(row, 1) for row in range(5)])) > 1e-3


def _ratio(of: Example, runs: list[tuple[int, int]]) -> float:
    """log(P(t to t')/P(t' to t)) - Delta, if a decision reads the first rows of one of these runs: start and step."""

    def chance(of: Example) -> float:
        most = of.bounds.max()
        rho, total = of.parts / most, 0.0
        mean, back = most * (1 - np.maximum(rho, 0)), most * (1 - np.maximum(-rho, 0))
        kept, log_factors = np.expm1(-mean) / np.expm1(-most), np.log(np.expm1(back) / np.expm1(mean))
        for count, (row, ahead) in itertools.product(range(6), runs):
            is_read = np.isin(np.arange(5), (row + ahead * np.arange(count)) % 5)
            chances = np.prod(np.where(SUBSETS, is_read * kept, 1 - is_read * kept), 1)
            accepted = chances @ np.exp(np.minimum(of.offset + SUBSETS @ log_factors, 0))
            total += stats.binom(5, -np.expm1(-most)).pmf(count) * accepted / len(runs)
        return total

    return float(np.log(chance(of) / chance(swapped(of))) - of.offset - of.parts.sum())


# ---- by repeated decisions -----------------------------------------------------------------------


def kernel(order: int, test: Any = None, **options: Any) -> MetropolisHastings:
    batch_size = options.pop("batch_size", 5)
    source = options.pop("source", None) or Shuffled(DATA, batch_size, windows=False)
    return kernel_of(test or BinomialMHSS(FAR), order, source=source, **options)


def known(order: int, scale: float = 1.0) -> np.ndarray:
    return np.array([enumerated(of, scale=scale) for of in (example(order), swapped(example(order)))])


@pytest.mark.parametrize("order", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_decisions_have_the_chance_that_was_enumerated(order: int) -> None:
    """Permutation, numbers of rows, several looks and all, there and back."""
    found, errors = chances(kernel(order, batch_size=2))
    assert np.all(np.abs(found - known(order)) < 4 * errors + 1e-5), (found, known(order), errors)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "batch_size"), [(8.0, 2), (40.0, 5)])
def test_rows_come_in_parts_and_none_twice(scale: float, batch_size: int) -> None:
    """A = 10 and 51: two parts and five."""
    found, errors = chances(kernel(0, scale=scale, batch_size=batch_size), 20_000)
    assert np.all(np.abs(found - known(0, scale)) < 4 * errors + 2e-5), (found, known(0, scale), errors)


@pytest.mark.slow
def test_far_below_a_bound_decisions_are_those_of_all_rows() -> None:
    """A = 1e5: every row comes, and the chance is Metropolis'."""
    found, _ = chances(kernel(0, scale=1e5), 2000)
    delta = example(0).offset + example(0).parts.sum()
    np.testing.assert_allclose(found, np.exp(np.minimum([delta, -delta], 0)), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [NoFactor(FAR), OnceOnly(FAR)])
def test_decisions_with_another_factor_have_another_chance(broken: MHSS) -> None:
    found, errors = chances(kernel(0, broken))
    assert np.any(np.abs(found - known(0)) > 20 * errors)


@pytest.mark.slow
def test_above_the_limit_every_row_is_read() -> None:
    """And the decision is Metropolis'."""
    found, _ = chances(kernel(0, BinomialMHSS(limit=6.0)), 2000)
    delta = example(0).offset + example(0).parts.sum()
    np.testing.assert_allclose(found, np.exp(np.minimum([delta, -delta], 0)), rtol=1e-5)


def test_a_number_beyond_the_bound_is_infinite() -> None:
    """By 20 %: the kernel then rejects, and the run ends. (0.1 % is rounding.)"""
    test = BinomialMHSS()
    _, evidence, ask = test.open(test.draw(jax.random.key(SEED)), jnp.float32(2.0), FIVE)
    assert float(evidence.rate) == pytest.approx(5 * -np.expm1(-0.2))
    assert not ask.census
    for factor, is_fine in ((1.0, True), (1.0005, True), (1.25, False)):
        seen = evidence.of(jnp.float32([0.1, -factor]), jnp.ones(2, bool))
        assert np.isfinite(seen.mean) == is_fine


@pytest.mark.parametrize("bound", [0.0, np.nan, np.inf, 1e30])
def test_no_bound_to_speak_of(bound: float) -> None:
    """L = 0 reads nothing, and accepts by the offset; NaN, infinity and L far above N are a census."""
    test = BinomialMHSS()
    memory, evidence, ask = test.open(test.draw(jax.random.key(SEED)), jnp.float32(bound), FIVE)
    assert bool(ask.census) == (bound != 0)
    assert ask.rows == (5 if bound else 0)
    seen = evidence.of(jnp.full(5, 0.1), jnp.arange(5) < ask.rows)
    for offset, is_accepted in ((20.0, True), (-20.0, False)):
        judgement = test.judge(memory, jnp.float32(offset), evidence.merge(seen), FIVE)
        assert judgement.is_decided
        assert bool(judgement.is_accepted) == is_accepted
    assert np.isfinite(seen.mean)


# ---- chains --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("two_stages", [False, True])
def test_draws_agree_with_those_of_the_full_data_test(two_stages: bool) -> None:
    """Moments of five rows' posterior, by a grid."""
    test = BinomialMHSS(FAR, two_stages=two_stages)
    trace = sample(jax.random.key(SEED), kernel(1, test), np.zeros(2), 600, num_chains=200, progress=False)
    assert trace.rows_read.max() == 5
    grid = np.stack(np.meshgrid(*[np.linspace(-6, 6, 241)] * 2, indexing="ij"), -1).reshape(-1, 2)
    log_density = np.sum(np.log(expit((2 * Y - 1) * (grid @ X.T))), 1) - 0.5 * np.sum(grid**2, 1)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    for power in (lambda t: t, lambda t: t**2, lambda t: t[..., :1] * t[..., 1:]):
        by_chain = power(trace.position[:, 200:].astype(np.float64)).mean(1)
        truth = weights @ power(grid)
        assert np.all(np.abs(by_chain.mean(0) - truth) < 4.5 * by_chain.std(0, ddof=1) / len(by_chain) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("test", [BinomialMHSS(FAR), NoFactor(FAR)])
def test_an_audit_finds_no_error_but_that_of_a_broken_test(test: MHSS) -> None:
    trace = sample(
        jax.random.key(SEED), kernel(0, test), np.zeros(2), 200, num_chains=100, num_warmup=50, progress=False
    )
    found = audit(trace.kernel, trace, num_trials=400, progress=False, seed=SEED)
    assert found.is_sound == (type(test) is BinomialMHSS), str(found)


def _draw(share: float, num_samples: int) -> Any:
    """1000 rows on a circle and a linear log likelihood: all bounds are 1, times a share."""
    angle = np.linspace(0, 2 * np.pi, 1001)[:-1]
    rows = np.float32(np.stack([np.cos(angle), np.sin(angle)], 1))
    posterior = Posterior(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: row @ t)
    parts: dict[str, Any] = {"proposal": RandomWalk(0.05), "acceptance": BinomialMHSS()}
    kernel = MetropolisHastings(
        posterior, Shuffled(rows, 64, windows=False), bound=Bound(np.full(1000, share), 0), **parts
    )
    return sample(jax.random.key(0), kernel, np.zeros(2), num_samples, num_chains=4, progress=False)


@pytest.mark.slow
def test_a_bound_that_is_violated_ends_the_run_and_one_that_holds_is_checked() -> None:
    """A bound that is too small by 20 % is met at once; rows are about N (1 - exp(-L/N)), L = 1000 |t' - t|."""
    trace = _draw(1.0, 200)
    assert "of its bound" in str(trace.summary())
    assert not trace.complaints()
    lengths = stats.rayleigh(scale=0.05)
    expected = lengths.expect(lambda length: -1000 * np.expm1(-length))
    assert abs(trace.rows_read.mean() - expected) < 4.5 * trace.rows_read.std() / trace.rows_read.size**0.5
    with pytest.raises(SamplingError, match=r"`BinomialMHSS` is exact only if .* row \d+ exceeds its bound"):
        _draw(0.8, 2000)


# ---- refusals ------------------------------------------------------------------------------------

BOUND = Bound(np.ones(5), 0)


def _kernel(source: Any, **parts: Any) -> MetropolisHastings:
    return MetropolisHastings(POSTERIOR, source, proposal=RandomWalk(0.5), acceptance=BinomialMHSS(), **parts)


@table(
    {
        "windows": (lambda: _kernel(Shuffled(DATA, 2, windows=True), bound=BOUND), ValueError, "windows=False"),
        "auto": (lambda: _kernel(Shuffled(DATA, 2), bound=BOUND), ValueError, "BinomialMHSS", "row by row", '"auto"'),
        "repeats": (lambda: _kernel(WithReplacement(DATA, 2), bound=BOUND), ValueError, "Shuffled", "come again"),
        "no bound": (lambda: _kernel(Shuffled(DATA, 2, windows=False)), ValueError, "BinomialMHSS(...)", "bound"),
        "copies": (
            lambda: _kernel(Shuffled(DATA, 2, windows=False, copies=[1, 2, 1, 1, 1]), bound=BOUND),
            ValueError,
            "reweighted",
        ),
        "limit": (lambda: BinomialMHSS(limit=0), ValueError, "BinomialMHSS(limit=...)", "0"),
        "batch": (lambda: BinomialMHSS(batch=0), ValueError, "BinomialMHSS(batch=...)", "0"),
        "stages": (lambda: BinomialMHSS(two_stages=1), TypeError, "BinomialMHSS(two_stages=...)", "1"),  # ty: ignore
    }
)
def test_refusals(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


def test_a_source_that_was_resolved_for_another_test_is_refused() -> None:
    """`windows="auto"` stays what it is, also where few rows are read one by one."""
    source = Shuffled(DATA, 2).suited(2)
    assert not source.windows
    with pytest.raises(ValueError, match="row by row"):
        _kernel(source, bound=BOUND)
