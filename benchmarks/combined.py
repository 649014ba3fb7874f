"""Two tests at each look: may AustereMH's t-test decide before the minibatch test can, and what does that cost?

The constructions differ in the variable that the t-test adds to Delta* before it asks for the sign, and in how that is
tied to the noise of the minibatch test (Z, X_corr), which decides when the t-test could not:

    fresh       X_log drawn apart: a test of Barker's kind, and another one if that was not sure
    uniform     X_log made of the same uniform as X_corr
    sum         sigma Z + X_corr, which is logistic
    curtailed   X_corr alone, with s2 - sigma^2 for s2: is the decision of the minibatch test all but made?
    metropolis  -log u: Metropolis' test, and one of Barker's kind if that was not sure

on the minibatch test that grows its batch until s2 < sigma^2, as printed; and `Combined`, which is "curtailed" on the
minibatch test that plans its batch by a pilot, the default. Measured are rows, and two errors: that of detailed balance
at fixed pairs, and that of the draws on the paper's mixture. `early` is the share of decisions made by the t-test.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

import tallchain as tc
from benchmarks.measure import interleaved, median_ratio, save
from benchmarks.mixture import BATCH, SEED, STEP, bias, exact_starts
from tallchain.acceptance.combined import Combined
from tallchain.acceptance.evidence import Moments, SkewMoments, variance_of_mean
from tallchain.acceptance.tables import Reading, logistic
from tallchain.models.gaussian_mixture import GaussianMixture, Grid
from tallchain.types import Array, Ask, Judgement, Population, part, set_fields, static

# ---- the constructions on a growing batch ------------------------------------------------------


class _Memory(NamedTuple):
    barker: Any
    threshold: Array
    is_early: Array


@part
class Grown:
    """Grow the batch; while s2 >= sigma^2 let the t-test decide if it is sure at level epsilon."""

    Evidence: ClassVar = Moments

    barker: tc.MinibatchBarker
    austere: tc.Austere
    coupling: str = static()

    def __init__(self, coupling: str, epsilon: float, sigma: float = 1.0, batch: int | None = None) -> None:
        barker = tc.MinibatchBarker(sigma, batch=batch, stopping="growth", skew=False)
        set_fields(self, barker=barker, austere=tc.Austere(epsilon), coupling=coupling)

    def appetite(self, population: Population) -> int:
        """m, the rows between two judgements."""
        return self.barker.appetite(population)

    def draw(self, key: Array) -> tuple[Any, Array]:
        """The noise of the minibatch test, the same as without a t-test; and the threshold of the t-test."""
        noise, sigma = self.barker.draw(key), self.barker.sigma
        correction = self.barker.tables.total(noise, Reading(jnp.zeros(()), jnp.float32(sigma**2)))  # no room to pad
        apart = jr.fold_in(key, 1000)  # the first few are what `split` makes of the key
        threshold = {
            "fresh": lambda: jr.logistic(apart),
            "uniform": lambda: logistic(noise.bits),
            "sum": lambda: sigma * noise.normal + correction,
            "curtailed": lambda: correction,
            "metropolis": lambda: jr.exponential(apart),
        }[self.coupling]()
        return noise, threshold

    def open(self, noise, offset: Array, bound: Array | None, population: Population) -> tuple[_Memory, Ask]:
        """Ask for m rows."""
        memory, ask = self.barker.open(noise[0], offset, bound, population)
        return _Memory(memory, noise[1], jnp.zeros((), bool)), ask

    def judge(self, memory: _Memory, evidence: Moments, population: Population) -> Judgement:
        """Decide by the minibatch test where it can, else by the t-test where that is sure."""
        late = self.barker.judge(memory.barker, evidence, population)
        s2 = variance_of_mean(evidence, population)
        # The minibatch test wants sigma^2 of the noise in Delta*: only what is beyond it hides its decision.
        doubt = s2 - self.barker.sigma**2 if self.coupling == "curtailed" else s2
        gap = evidence.mean + memory.barker.offset + memory.threshold
        student = self.austere._quantile(jnp.int32(0), evidence.count)
        is_early = ~late.is_decided & (jnp.abs(gap) > student * jnp.sqrt(doubt))
        is_accepted = jnp.where(is_early, gap > 0, late.is_accepted)
        return Judgement(memory._replace(is_early=is_early), late.ask, late.is_decided | is_early, is_accepted)


EPSILONS = (0.001, 0.005, 0.05)
_growth = partial(tc.MinibatchBarker, stopping="growth", skew=False)
GROWN = {
    "growth": _growth,
    "growth, sigma=1.2": partial(_growth, 1.2),
    "growth, shortcut=5": partial(_growth, shortcut=5.0),
} | {
    f"{coupling}, {epsilon}": partial(Grown, coupling, epsilon)
    for coupling in ("fresh", "uniform", "sum", "curtailed", "metropolis")
    for epsilon in EPSILONS
}
FEW_GROWN = {
    name: GROWN[name]
    for name in (
        "growth",
        "growth, sigma=1.2",
        "fresh, 0.001",
        "sum, 0.001",
        "curtailed, 0.001",
        "curtailed, 0.05",
        "metropolis, 0.001",
    )
}
PLANNED = {
    "MinibatchBarker()": tc.MinibatchBarker,
    "MinibatchBarker(1.2)": partial(tc.MinibatchBarker, 1.2),
    **{f"Combined({epsilon})": partial(Combined, epsilon) for epsilon in EPSILONS},
    "Combined(0.001, MinibatchBarker(1.2))": lambda: Combined(0.001, tc.MinibatchBarker(1.2)),
}
# One part is the minibatch test itself, with its randomness used as `Combined` does: what differs is the early stop.
PLANNED_ALIKE = {"Combined(looks=1)": partial(Combined, looks=1)} | {
    name: test for name, test in PLANNED.items() if name != "MinibatchBarker()"
}

# ---- fixed pairs -------------------------------------------------------------------------------

DELTAS = np.array([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0], np.float32)
SHAPE = 1.5625  # of the gamma law with skewness 1.6, about that of the rows of the mixture
LAWS = ("normal", "skewed")
REPLICATES, CHUNK = 60_000, 5_000
CASES = (  # tests, variance of a row, m, and (windows, rows of a window) to simulate
    (GROWN, 150.0, 50, (14, 50)),
    (FEW_GROWN, 150.0, 10, (50, 10)),
    (FEW_GROWN, 600.0, 200, (10, 200)),
    (PLANNED_ALIKE, 150.0, 50, (32, 25)),
)


def simulated_rows(random: np.random.Generator, law: str, shape: tuple[int, ...]) -> np.ndarray:
    """Rows of mean 0 and variance 1."""
    if law == "normal":
        return random.standard_normal(shape, np.float32)
    return (np.float32(SHAPE) - random.standard_gamma(SHAPE, shape, np.float32)) / np.float32(np.sqrt(SHAPE))


def moments_of(rows: np.ndarray, *, in_parts: bool) -> SkewMoments:
    """Moments of each window, along the last axis: of its first 1, 2, ... rows, or of all of them."""
    powers = (rows, rows**2, rows**3)
    if in_parts:
        count = np.arange(1, rows.shape[-1] + 1, dtype=np.float32)
        first, second, third = (np.cumsum(power, -1) for power in powers)
    else:
        count = np.float32(rows.shape[-1])
        first, second, third = (np.sum(power, -1, keepdims=True) for power in powers)
    mean = first / count
    squares, cubes = second - count * mean**2, third - 3 * mean * second + 2 * count * mean**3
    return SkewMoments(*map(jnp.asarray, (np.broadcast_to(count, mean.shape).astype(np.int32), mean, squares, cubes)))


class _Trial(NamedTuple):
    memory: Any
    evidence: Any
    rows_wanted: Array
    num_rows: Array
    is_decided: Array
    is_accepted: Array
    is_early: Array


def look_and_judge(test, population: Population, trial: _Trial, window: SkewMoments) -> _Trial:
    """What the kernel does with one window: absorb the rows wanted, judge once there are no more of them."""
    parts = len(window.count)
    part = jax.tree.map(lambda leaf: leaf[jnp.minimum(trial.rows_wanted, parts) - 1], window)
    seen = trial.evidence.merge(evidence_of(test, part))
    wanted = trial.rows_wanted - part.count
    judgement = test.judge(trial.memory, seen, population)
    is_ready = wanted <= 0
    choose = partial(jax.tree.map, partial(jnp.where, is_ready))
    after = _Trial(
        choose(judgement.memory, trial.memory),
        jax.tree.map(partial(jnp.where, is_ready & judgement.ask.fresh), test.Evidence.empty(), seen),
        jnp.where(is_ready, judgement.ask.rows, wanted),
        trial.num_rows + part.count,
        is_ready & judgement.is_decided,
        judgement.is_accepted,
        is_early(judgement.memory, seen),
    )
    return jax.tree.map(partial(jnp.where, trial.is_decided), trial, after)


def evidence_of(test, moments: SkewMoments) -> Any:
    return moments if test.Evidence is SkewMoments else Moments(*moments[:3])


def is_early(memory, evidence) -> Array:
    """Whether the decision, if there is one, is the t-test's."""
    if hasattr(memory, "plan"):
        return evidence.count < memory.plan
    return memory.is_early if isinstance(memory, _Memory) else jnp.zeros((), bool)


@partial(jax.jit, static_argnames="population")
def decide(test, keys: Array, windows: SkewMoments, population: Population) -> _Trial:
    """Decide at every Delta, and on the way back, where the rows have the other sign; by (way, Delta, replicate)."""

    def once(sign, delta, key, windows):
        memory, ask = test.open(test.draw(key), sign * delta, None, population)
        no = jnp.zeros((), bool)
        trial = _Trial(memory, test.Evidence.empty(), jnp.int32(ask.rows), jnp.int32(0), no, no, no)
        windows = windows._replace(mean=sign * windows.mean, cubes=sign * windows.cubes)
        return lax.scan(lambda t, w: (look_and_judge(test, population, t, w), None), trial, windows)[0]

    by_replicate = jax.vmap(once, (None, None, 0, 0))
    signs, deltas = jnp.meshgrid(jnp.array([1.0, -1.0]), jnp.asarray(DELTAS), indexing="ij")
    trials = lax.map(lambda way: by_replicate(*way, keys, windows), (signs.ravel(), deltas.ravel()))
    return jax.tree.map(lambda leaf: leaf.reshape(2, len(DELTAS), CHUNK), trials._replace(memory=(), evidence=()))


def fixed_pairs(tests: dict[str, Any], law: str, variance: float, batch: int, shape: tuple) -> list[dict[str, Any]]:
    """The error of detailed balance, log a(Delta)/a'(-Delta) - Delta with a' for rows of the other sign.

    Where a' = 1 - a, as for all tests here but "metropolis", this is the error in log-odds of acceptance. All tests see
    the same rows and the same noise, so that differences from the first one are known better than the errors.
    """
    random = np.random.default_rng(SEED)
    population = Population(10**9, batch, repeats=True)
    made = {name: test() for name, test in tests.items()}
    runs: dict[str, list[_Trial]] = {name: [] for name in made}
    for chunk in range(REPLICATES // CHUNK):
        rows = simulated_rows(random, law, (CHUNK, *shape)) * np.float32(np.sqrt(variance))
        windows = moments_of(rows, in_parts=shape[-1] < batch)
        keys = jr.split(jr.fold_in(jr.key(SEED), chunk), CHUNK)
        for name, test in made.items():
            runs[name].append(jax.tree.map(np.asarray, decide(test, keys, windows, population)))
    whole = {name: jax.tree.map(lambda *leaves: np.concatenate(leaves, -1), *run) for name, run in runs.items()}
    reference = next(iter(whole.values()))
    return [
        {"test": name, "law": law, "row_variance": variance, "batch": batch} | summary(trials, reference)
        for name, trials in whole.items()
    ]


def summary(trials: _Trial, reference: _Trial) -> dict[str, Any]:
    accepted, expected = trials.is_accepted, reference.is_accepted
    rate, expected_rate = accepted.mean(-1), expected.mean(-1)
    turned = (accepted != expected).mean(-1)
    per = accepted.shape[-1]
    round_list = lambda values: np.round(values, 4).tolist()  # noqa: E731
    return {
        "rows": round(float(trials.num_rows.mean()), 1),
        "rows_by_delta": np.round(trials.num_rows.mean((0, 2)), 1).tolist(),
        "early": round(float(trials.is_early.mean()), 3),
        "error": round_list(np.log(rate[0] / rate[1]) - DELTAS),
        "error_se": round_list(np.sqrt(((1 - rate) / rate / per).sum(0))),
        "added": round_list(np.log(rate[0] / rate[1]) - np.log(expected_rate[0] / expected_rate[1])),
        "added_se": round_list(np.sqrt((turned / expected_rate**2 / per).sum(0))),
        "undecided": float((~trials.is_decided).mean()),
    }


# ---- the paper's mixture -----------------------------------------------------------------------

CHAINS, WARMUP, DRAWS = 512, 1000, 3000
MORE_CHAINS, MORE_DRAWS = 1024, 4000
COUPLED = {
    name: GROWN[name] for name in ("growth", "fresh, 0.001", "sum, 0.001", "curtailed, 0.001", "metropolis, 0.001")
}
CHOSEN = {
    name: PLANNED[name] for name in ("MinibatchBarker()", "Combined(0.001)", "Combined(0.001, MinibatchBarker(1.2))")
}
TIMED, TIMED_DRAWS, REPETITIONS = ("MinibatchBarker()", "Combined(0.001)"), 200, 5


def kernel_of(mixture: GaussianMixture, acceptance) -> tc.MetropolisHastings:
    source = tc.Shuffled(mixture.data, BATCH)
    return tc.MetropolisHastings(mixture.posterior, source, proposal=tc.RandomWalk(STEP), acceptance=acceptance())


@jax.jit
def early_share(kernel: tc.MetropolisHastings, keys: Array, positions: Array) -> Array:
    """The share of decisions made by the t-test, over one decision at each position."""

    def once(key, position):
        def more(carry):
            looked = kernel.look(position, carry[0])
            judged, is_decided, _ = kernel.judge(looked)
            return judged, is_early(judged.memory, looked.evidence), is_decided

        no = jnp.zeros((), bool)
        trial = kernel.open(kernel.draw(key, position), position)
        return lax.while_loop(lambda carry: ~carry[2], more, (trial, no, no))[1]

    return jax.vmap(once)(keys, positions).mean()


def on_mixture(tests: dict[str, Any], mixture: GaussianMixture, grid: Grid, chains: int, draws: int) -> list[dict]:
    return [{"test": name} | run_mixture(test, mixture, grid, chains, draws) for name, test in tests.items()]


def run_mixture(test, mixture: GaussianMixture, grid: Grid, chains: int, draws: int) -> dict[str, Any]:
    kernel, starts = kernel_of(mixture, test), exact_starts(grid, chains)
    trace = tc.sample(jr.key(SEED), kernel, starts, draws, num_chains=chains, num_warmup=WARMUP, progress=False)
    by_chain = trace.num_rows.mean(1)
    positions = jnp.asarray(trace.position[:, :: draws // 4].reshape(-1, 2))
    return {
        "chains": chains,
        "draws": draws,
        "rows": float(by_chain.mean()),
        "rows_mcse": float(by_chain.std(ddof=1) / np.sqrt(chains)),
        "acceptance": float(trace.is_accepted.mean()),
        "early": float(early_share(kernel, jr.split(jr.key(SEED + 1), len(positions)), positions)),
    } | bias(trace.position, grid)


def time_ratio(mixture: GaussianMixture, grid: Grid) -> float:
    """Time of `Combined` over that of `MinibatchBarker` for as many draws: fewer rows, in more and narrower looks."""
    starts = exact_starts(grid, CHAINS)

    def run(name: str):
        kernel = kernel_of(mixture, CHOSEN[name])
        return lambda: tc.sample(jr.key(SEED), kernel, starts, TIMED_DRAWS, num_chains=CHAINS, progress=False)

    seconds = interleaved({name: run(name) for name in TIMED}, REPETITIONS)
    return median_ratio(seconds[TIMED[1]], seconds[TIMED[0]])


def main() -> None:
    pairs = []
    for law in LAWS:
        for tests, variance, batch, windows in CASES:
            pairs += fixed_pairs(tests, law, variance, batch, windows)
    mixture = tc.models.gaussian_mixture()
    grid = mixture.quadrature()
    draws = on_mixture(COUPLED, mixture, grid, CHAINS, DRAWS) + on_mixture(
        CHOSEN, mixture, grid, MORE_CHAINS, MORE_DRAWS
    )
    configuration = {
        "fixed_pairs": f"{REPLICATES:,} decisions each way at each Delta of {DELTAS.tolist()}; rows normal, or gamma "
        "with skewness -1.6; `added` is the error less that of the first test with the same law, variance and batch",
        "mixture": f"N = 1,000,000, K = 10,000, RandomWalk({STEP}), Shuffled(batch_size={BATCH}); {WARMUP} draws of "
        "warm-up from the exact posterior; standard errors between independent chains",
        "rules": "the constructions named by a word are on top of `growth`, MinibatchBarker(stopping='growth', "
        "skew=False); Combined(epsilon) is on top of MinibatchBarker()",
        "time_over_minibatch": f"{TIMED[1]} over {TIMED[0]}, {CHAINS} chains x {TIMED_DRAWS} draws of the mixture, "
        f"median of {REPETITIONS} ratios of neighbouring runs",
        "seed": SEED,
    }
    ratio = time_ratio(mixture, grid)
    save("combined", configuration, {"fixed_pairs": pairs, "mixture": draws, "time_over_minibatch": ratio})


if __name__ == "__main__":
    main()
