"""What every combination of parts must keep: the product of the lists in registry.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checks import check_records
from registry import ACCEPTANCE, EXACT, FEW_ROWS, PROPOSALS, REWEIGHTED, ROW_BY_ROW, SETTINGS, SOURCES, UNSOUND
from scenarios import COVARIANCE, SCENARIOS
from tallchain import MetropolisHastings, Posterior, RandomWalk, Schedule, Trace, WithReplacement, runner, sample
from tallchain.bounds import Bound
from tallchain.parts import replace
from tallchain.surrogates import Taylor

CHAINS, DRAWS, WARMUP = 3, 23, 4
# The engine knows no test: in `make test` one test meets every source, and those that test_exactness.py does not run
# meet one source; the rest of the product is for `make test-slow`.
FAST = [
    ("minibatch", source) for source in SOURCES | REWEIGHTED if source not in ("with replacement", "exact, windows")
]
FAST += [(name, "windows") for name in (*UNSOUND, "austere designed")]
COMBINATIONS = [
    pytest.param(name, source, marks=[] if (name, source) in FAST else [pytest.mark.slow])
    for name in ACCEPTANCE
    for source in SOURCES | REWEIGHTED
]
SIMPLE = ("random walk", "independent")  # proposals that do less than another of the list
INITIAL = {"a": jnp.float32(0.2), "b": jnp.float32(-0.4)}


def vector_kernel(acceptance: str, source: str, proposal: str | None = None) -> MetropolisHastings:
    target = SCENARIOS["normal vector"]()
    return MetropolisHastings(
        target.posterior,
        (SOURCES | REWEIGHTED)[source](target.data[:FEW_ROWS], 40),
        proposal=PROPOSALS[proposal]() if proposal else target.proposal,
        acceptance=ACCEPTANCE[acceptance](),
    )


@pytest.mark.parametrize(("acceptance", "source"), COMBINATIONS)
def test_contract(acceptance: str, source: str, key: jax.Array) -> None:
    is_again = (acceptance, source) in (("minibatch", "windows"), ("minibatch", "with replacement, exact and copies"))
    check(vector_kernel(acceptance, source), key, is_again=is_again or acceptance == "austere designed")


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES | REWEIGHTED)
def test_chunks_of_any_size_make_the_same_draws(source: str, key: jax.Array) -> None:
    check(vector_kernel("minibatch", source), key, is_again=True)


@pytest.mark.parametrize(
    "proposal", [pytest.param(name, marks=pytest.mark.slow) if name in SIMPLE else name for name in PROPOSALS]
)
def test_contract_of_a_proposal(proposal: str, key: jax.Array) -> None:
    check(vector_kernel("penalty", "windows", proposal), key)


@pytest.mark.parametrize(
    "test", [pytest.param(name, marks=[] if name == "mh-ss" else [pytest.mark.slow]) for name in EXACT]
)
def test_contract_of_an_exact_test(test: str, key: jax.Array) -> None:
    """With an expansion of order 1, rows that all have the same curvature, and a few at a look."""
    target = SCENARIOS["normal vector"]()
    rows, place = target.data[:FEW_ROWS], {"a": np.float32(0.3), "b": np.float32(-0.2)}
    steepest = np.linalg.eigvalsh(np.linalg.inv(COVARIANCE))[-1]
    weighted = WithReplacement(rows, 3, weights=1 + np.arange(FEW_ROWS) % 3)
    kernel = MetropolisHastings(
        target.posterior,
        SOURCES["row by row"](rows, 3) if test in ROW_BY_ROW else weighted,
        proposal=PROPOSALS["pcn and walk"](),
        acceptance=EXACT[test](),
        surrogate=Taylor(target.posterior, rows, place, 1),
        bound=Bound(np.full(FEW_ROWS, steepest), 1, position=place),
    )
    check(kernel, key, is_again=True)


def check(kernel: MetropolisHastings, key: jax.Array, *, is_again: bool = False) -> None:
    trace = sample(key, kernel, INITIAL, DRAWS, num_chains=CHAINS, num_warmup=WARMUP, scan=0, progress=False)
    assert trace.warmup.num_decisions == CHAINS * WARMUP
    check_records(trace, CHAINS, DRAWS)
    check_same_as_step_by_step(trace, kernel, key)
    if is_again:
        again = sample(
            key, kernel, INITIAL, DRAWS, num_chains=CHAINS, num_warmup=WARMUP, scan=0, progress=False, chunk_size=7
        )
        check_same_to_the_bit(trace, again)


def check_same_to_the_bit(one: Trace, other: Trace) -> None:
    """One key gives the same draws whatever the chunk size."""
    for name in ("position", "is_accepted", "rows_read", "log_ratio"):
        jax.tree.map(np.testing.assert_array_equal, getattr(one, name), getattr(other, name))


def check_same_as_step_by_step(trace: Trace, kernel: MetropolisHastings, key: jax.Array) -> None:
    """A chain alone, by `step` with the kernel as an argument, decides as it does among others."""
    step = jax.jit(lambda kernel, key, state: kernel.step(key, state))
    chain, state = CHAINS - 1, kernel.init(INITIAL)
    for draw in range(-WARMUP, DRAWS):
        draw_key = jax.random.fold_in(jax.random.fold_in(key, chain), draw + WARMUP)
        state, verdict = step(kernel, draw_key, state)
        if draw >= 0:
            assert bool(verdict.is_accepted) == trace.is_accepted[chain, draw]
            assert int(verdict.rows_read) == trace.rows_read[chain, draw]
            np.testing.assert_allclose(state.position["a"], trace.position["a"][chain, draw], rtol=1e-4, atol=1e-5)


def test_chains_differ(key: jax.Array) -> None:
    trace = sample(key, vector_kernel("minibatch", "windows"), INITIAL, DRAWS, num_chains=2, scan=0, progress=False)
    assert not np.array_equal(trace.position["a"][0], trace.position["a"][1])


# ---- rows of any size --------------------------------------------------------------------------

# The log ratio of a row is (t' - t) times these.
EXTREMES = {
    "large": [1e30] * 8,
    "small": [-1e30] * 8,
    "both": [1e30, -1e30] * 4,
    "a few": [0.0] * 7 + [1e30],
    "infinite": [0.0] * 7 + [np.inf],
    "not a number": [0.0] * 7 + [np.nan],
    "nothing": [0.0] * 8,
    "tiny": [1e-30, -1e-30] * 4,
}


# Rows that repeat never run out, and in `make test` every test that does not read all at once meets them (but those
# that are made of others), with the settings that read on by another rule; one test stands for the others where rows
# do not repeat.
READS_ON = [name for name in ACCEPTANCE if name not in ("metropolis", "barker", *UNSOUND, "combined")]
READS_ON += ["minibatch growth", "minibatch stein", "penalty pilot"]


@pytest.mark.parametrize(
    ("acceptance", "source"),
    [
        pytest.param(name, source, marks=[] if is_quick else [pytest.mark.slow])
        for name in ACCEPTANCE | SETTINGS
        for source in SOURCES
        for is_quick in [name in {"with replacement": READS_ON, "row by row": ("minibatch",)}.get(source, ())]
    ],
)
def test_every_decision_ends_whatever_the_rows(acceptance: str, source: str, key: jax.Array) -> None:
    """The loop is bounded here: a decision that never ends fails, and does not hang."""
    posterior = Posterior(lambda t: -(t**2) / 2, lambda t, row: t * row)
    test = (ACCEPTANCE | SETTINGS)[acceptance]()
    keys, schedule, draws = jax.random.split(key, 4), Schedule(), 6
    for name, values in EXTREMES.items():
        rows = np.tile(np.float32(values), FEW_ROWS // 8 + 1)[:FEW_ROWS]
        made = SOURCES[source](np.zeros(FEW_ROWS, np.float32), 40)
        # Sources refuse rows that are not numbers; models make them.
        made = replace(made, data=jnp.asarray(np.resize(rows, made.data.shape)))
        kernel = MetropolisHastings(posterior, made, proposal=RandomWalk(0.5), acceptance=test)
        run = runner.Runner(kernel, schedule, keys, draws + 1).start(jnp.zeros(4))
        finished, drawn = run(last=draws, turns=draws * FEW_ROWS)
        assert (finished == draws).all(), name
        assert np.isfinite(drawn.position).all(), name
        verdict = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :draws], drawn.verdict)
        assert not (verdict.is_accepted & ~np.isfinite(verdict.log_ratio)).any(), name
        if name == "not a number":
            assert verdict.is_invalid.any()
        if name in ("nothing", "tiny", "both"):
            assert not verdict.is_invalid.any(), name
