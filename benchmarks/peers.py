"""Speed against peers: effective draws per second on the same posteriors, the same cores, all in float32.

Ours (`tallchain ...`) against BlackJAX's random walk and NUTS on all rows, NumPyro's NUTS and HMCECS (order-2 Taylor
proxy, 1000 rows), and PyMHSS. Whatever is not installed, or fails, is recorded with what it said.

- Every sampler starts in draws of the Laplace approximation; the random walks have its covariance, NUTS' warm-up begins
  with it for a mass matrix, HMCECS expands at its mode: the best case for each. Finding the mode counts for each of
  them.
- Every sampler runs at its best number of chains, chosen by a short run of a few; that search counts for none.
- Set-up: mode, compilation, warm-up; apart from sampling. Time to the first 1000 effective draws has both.
- Then all samplers take turns, `--seconds` each, again and again. Chains go on where they stopped: effective draws per
  draw (bulk, the worst parameter, ArviZ) come from all turns together, draws per second from each.

`python -m benchmarks.peers --target simulated`
`python -m benchmarks.peers --make-reference rare rare.npz --draws 2000 --chains 16`: long NUTS, on any device
`python -m benchmarks.peers --target rare --reference rare.npz`: says also how far each sampler is from it
`python -m benchmarks.peers --rows-against-n --draw`: rows per decision against N, and docs/rows-against-n.png
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import random as jr

import tallchain as tc
from benchmarks.measure import RESULTS, load, median_ratio, save
from benchmarks.peer_targets import SEED, TARGETS, Target, simulated
from tallchain.surrogates import Laplace, Reference, Taylor, find_reference

DOCS = Path(__file__).parent.parent / "docs"
BATCH = 50  # rows per look, ours
SLOTS = 256  # draws per dispatch at most
SUBSAMPLE, BLOCKS = 1000, 10  # of HMCECS
SHORT_WARMUP = 200  # of walks, which have nothing to adapt
MOST_KEPT = 2**26  # bytes of draws kept by sampler
MOST_NUMBERS = 2**22  # to make an effective sample size of
MOST_HESSIANS = 2**32  # bytes that PyMHSS may take for the Hessians of all rows
EFFECTIVE = 1000  # draws to wait for
NORMAL_95 = 1.6448536
_DISPATCH_SECONDS = 0.5


class Run(NamedTuple):
    """Draws, and what they cost."""

    draws: np.ndarray
    """(chain, draw, parameter)."""
    seconds: float
    acceptance: float
    rows: float
    """Per draw; a gradient of a row counts as a row."""


class Sampler(Protocol):
    """One sampler with a number of chains; `run` goes on where the last one stopped."""

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Compile and warm up; seconds by part."""
        ...

    def run(self, key: jax.Array, seconds: float) -> Run:
        """Draw for about so many seconds."""
        ...


@dataclasses.dataclass(frozen=True)
class Problem:
    """A target with its mode, and the rows as peers want them."""

    target: Target
    reference: Reference
    laplace: Laplace
    seconds: float
    """To find the mode, compilation included."""
    rows: dict[str, jax.Array]
    """Features with the sign of the outcome, all that a logistic likelihood needs; see `log_density`."""

    @classmethod
    def of(cls, target: Target) -> Problem:
        """Find the mode from all rows."""
        began = time.perf_counter()
        model = target.model
        reference = find_reference(model.posterior, model.data, jnp.zeros(target.d), progress=False)
        laplace = jax.block_until_ready(reference.laplace)
        seconds = time.perf_counter() - began
        signed = model.data["x"] * (2 * model.data["y"] - 1)[:, None]
        return cls(target, reference, laplace, seconds, {"x": jnp.asarray(signed)})

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of the Laplace approximation."""
        factor = np.asarray(self.laplace.factor, np.float64)
        return factor @ factor.T

    def starts(self, key: jax.Array, chains: int) -> jax.Array:
        """Positions from the Laplace approximation, (chain, parameter)."""
        return jax.vmap(self.laplace.draw)(jr.split(key, chains))


def log_density(rows: dict[str, jax.Array], position: jax.Array) -> jax.Array:
    """Log posterior from all rows, up to a constant; less `base` by row where given, which saves digits."""
    signed = jnp.dot(rows["x"], position, precision=lax.Precision.HIGHEST)
    values = jax.nn.log_sigmoid(signed)
    return jnp.sum(values - rows["base"] if "base" in rows else values) - 0.5 * jnp.sum(position**2)


# ---- ours --------------------------------------------------------------------------------------

MakeSource = Callable[[Problem, int], Any]


def plain_source(problem: Problem, batch: int) -> tc.Shuffled:
    """All rows alike."""
    return tc.Shuffled(problem.target.model.data, batch)


def make_kernel(
    problem: Problem,
    *,
    order: int | None = 2,
    proposal: Callable[[Laplace], Any] = tc.PCN,
    acceptance: Callable[[], Any] = tc.Penalty,
    source: MakeSource = plain_source,
    batch: int = BATCH,
) -> tc.MetropolisHastings:
    """A Taylor surrogate, or none; a proposal around the Laplace approximation; any test; any source."""
    model = problem.target.model
    surrogate = None if order is None else Taylor(model.posterior, model.data, problem.reference, order=order)
    return tc.MetropolisHastings(
        model.posterior,
        source(problem, batch),
        proposal=proposal(problem.laplace),
        acceptance=acceptance(),
        surrogate=surrogate,
    )


def draw_ours(
    key: jax.Array, kernel: tc.MetropolisHastings, starts: np.ndarray, draws: int, warmup: int = 0
) -> tc.Trace:
    """Sample without the pass over all rows at the end, and without the warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return tc.sample(
            key,
            kernel,
            starts,
            draws,
            num_chains=len(starts),
            num_warmup=warmup,
            scan=0,
            progress=False,
            chunk_size=SLOTS,  # one program, however many draws
        )


class Ours:
    """tallchain, with the options of `make_kernel`."""

    def __init__(self, problem: Problem, chains: int, warmup: int, *, steps: int = 20, **options: Any) -> None:
        self.problem, self.chains = problem, chains
        self._options, self._warmup = options, min(warmup, steps)
        self._draws_per_second = 0.0

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Make the source and the kernel, compile, warm up."""
        began = time.perf_counter()
        self._kernel = jax.block_until_ready(make_kernel(self.problem, **self._options))
        made = time.perf_counter()
        start, walk = jr.split(key)
        starts = np.asarray(self.problem.starts(start, self.chains))
        trace = draw_ours(walk, self._kernel, starts, 4, self._warmup)
        self._at = trace.position[:, -1]
        done = time.perf_counter()
        return {
            "mode": self.problem.seconds,
            "source": made - began,
            "compilation": trace.compile_seconds,
            "warmup": done - made - trace.compile_seconds,
        }

    def run(self, key: jax.Array, seconds: float) -> Run:
        """Draw as many as the last run lets expect: short ones are slower, and the first one is short."""
        draws = max(16, int(seconds * self._draws_per_second))
        began = time.perf_counter()
        trace = draw_ours(key, self._kernel, self._at, draws)
        seconds = time.perf_counter() - began
        self._at, self._draws_per_second = trace.position[:, -1], draws / seconds
        rows = float(trace.num_rows.mean() + trace.num_scanned.mean())
        return Run(trace.position, seconds, float(trace.is_accepted.mean()), rows)


# ---- peers by a step in JAX --------------------------------------------------------------------


class Advanced(NamedTuple):
    """Some steps of all chains."""

    states: Any
    draws: jax.Array
    """(slot, chain, parameter)."""
    acceptance: jax.Array
    """Summed over steps, mean over chains."""
    gradients: jax.Array
    """Passes over the rows, summed over steps, mean over chains."""


class Stepped:
    """A sampler that makes a step of all chains at a time, in dispatches of about half a second.

    The rows are an argument of the program, never a constant in it.
    """

    def __init__(self, problem: Problem, chains: int, warmup: int) -> None:
        self.problem, self.chains, self.warmup = problem, chains, warmup
        self._per_draw = 0.0
        self._states: Any = None

    def step(self, rows: Any, key: jax.Array, state: Any) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """One chain: its state, its position, its acceptance, its passes over the rows."""
        raise NotImplementedError

    def run(self, key: jax.Array, seconds: float) -> Run:
        """Draw until the time is over."""
        began = time.perf_counter()
        parts: list[np.ndarray] = []
        acceptance = gradients = 0.0
        while not parts or time.perf_counter() - began < seconds:
            left = seconds - (time.perf_counter() - began)
            count = int(min(left, _DISPATCH_SECONDS) / self._per_draw) if self._per_draw else 1
            then = time.perf_counter()
            done = self._dispatch(jr.fold_in(key, len(parts)), min(max(count, 1), SLOTS))
            parts.append(np.asarray(done.draws)[: min(max(count, 1), SLOTS)].swapaxes(0, 1))
            self._per_draw = (time.perf_counter() - then) / parts[-1].shape[1]
            acceptance += float(done.acceptance)
            gradients += float(done.gradients)
        seconds = time.perf_counter() - began
        draws = np.concatenate(parts, 1)
        made = draws.shape[1]
        return Run(draws, seconds, acceptance / made, gradients / made * self.rows_per_gradient)

    @property
    def rows_per_gradient(self) -> int:
        """Rows that one evaluation reads."""
        return self.problem.target.num_rows

    @property
    def rows(self) -> Any:
        """What `step` reads."""
        return self.problem.rows

    def _dispatch(self, key: jax.Array, count: int) -> Advanced:
        done = jax.block_until_ready(self._advance(self.rows, key, self._states, count))
        self._states = done.states
        return done

    @cached_property
    def _advance(self) -> Callable[..., Advanced]:
        """Compiled once for any number of steps up to SLOTS."""

        def advance(rows: Any, key: jax.Array, states: Any, count: jax.Array) -> Advanced:
            def one(i: jax.Array, carry: Advanced) -> Advanced:
                keys = jr.split(jr.fold_in(key, i), self.chains)
                states, position, acceptance, gradients = jax.vmap(partial(self.step, rows))(keys, carry.states)
                return Advanced(
                    states,
                    carry.draws.at[i].set(position),
                    carry.acceptance + jnp.mean(acceptance),
                    carry.gradients + jnp.mean(gradients),
                )

            empty = jnp.zeros((SLOTS, self.chains, self.problem.target.d))
            return lax.fori_loop(0, count, one, Advanced(states, empty, jnp.zeros(()), jnp.zeros(())))

        return jax.jit(advance)

    def _compile(self, key: jax.Array) -> float:
        """Seconds to compile, and to run no step."""
        began = time.perf_counter()
        self._dispatch(key, 0)
        return time.perf_counter() - began

    def _warm_up(self, key: jax.Array, steps: int) -> float:
        """Seconds to make steps and throw them away."""
        began = time.perf_counter()
        for i, first in enumerate(range(0, steps, SLOTS)):
            self._dispatch(jr.fold_in(key, i), min(SLOTS, steps - first))
        return time.perf_counter() - began


class RandomWalkMetropolis(Stepped):
    """BlackJAX's random walk on all rows, steps with the covariance of the Laplace approximation, 2.38/sqrt(d)."""

    def step(self, rows: Any, key: jax.Array, state: Any) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """One proposal."""
        import blackjax

        factor = 2.38 / self.problem.target.d**0.5 * self.problem.laplace.factor
        walk: Any = blackjax.additive_step_random_walk(
            partial(log_density, rows), lambda key, position: factor @ jr.normal(key, position.shape)
        )
        state, info = walk.step(key, state)
        return state, state.position, info.is_accepted, jnp.ones(())

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Start in the Laplace approximation, and walk a little."""
        from blackjax.mcmc.random_walk import RWState

        start, walk = jr.split(key)
        positions = self.problem.starts(start, self.chains)
        values = jax.jit(jax.vmap(log_density, (None, 0)))(self.rows, positions)
        self._states = RWState(positions, values)
        compilation = self._compile(walk)
        return {
            "mode": self.problem.seconds,
            "compilation": compilation,
            "warmup": self._warm_up(walk, min(self.warmup, SHORT_WARMUP)),
        }


class Nuts(Stepped):
    """BlackJAX's NUTS on all rows, with its window adaptation, by chain."""

    def __init__(self, problem: Problem, chains: int, warmup: int, *, is_diagonal: bool = True) -> None:
        super().__init__(problem, chains, warmup)
        self._is_diagonal = is_diagonal

    def step(self, rows: Any, key: jax.Array, state: Any) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """One trajectory."""
        import blackjax

        at, parameters = state
        at, info = blackjax.nuts(partial(log_density, rows), **parameters).step(key, at)
        return (at, parameters), at.position, info.acceptance_rate, info.num_integration_steps

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Adapt step size and mass matrix."""
        start, adapt = jr.split(key)
        positions = self.problem.starts(start, self.chains)
        began = time.perf_counter()
        program = jax.jit(self._adapt).lower(self.rows, jr.split(adapt, self.chains), positions).compile()
        compiled = time.perf_counter()
        self._states = jax.block_until_ready(program(self.rows, jr.split(adapt, self.chains), positions))
        adapted = time.perf_counter()
        return {
            "mode": self.problem.seconds,
            "compilation": compiled - began + self._compile(key),
            "warmup": adapted - compiled,
        }

    def _adapt(self, rows: Any, keys: jax.Array, positions: jax.Array) -> Any:
        import blackjax
        from blackjax.adaptation.base import get_filter_adapt_info_fn

        covariance = self.problem.covariance
        warm_up: Any = blackjax.window_adaptation(
            blackjax.nuts,
            partial(log_density, rows),
            is_mass_matrix_diagonal=self._is_diagonal,
            initial_inverse_mass_matrix=jnp.asarray(np.diag(covariance) if self._is_diagonal else covariance),
            adaptation_info_fn=get_filter_adapt_info_fn(),
        )

        def one(key: jax.Array, position: jax.Array) -> Any:
            (state, parameters), _ = warm_up.run(key, position, self.warmup)
            return state, {name: parameters[name] for name in ("step_size", "inverse_mass_matrix")}

        return jax.vmap(one)(keys, positions)


class NumPyro(Stepped):
    """A NumPyro kernel for the model of a logistic regression; subsampled if it is HMCECS.

    Driven by its own `init` and `sample`: `numpyro.infer.MCMC` compiles anew at every run of chains under `vmap`, the
    only way to more than one chain with HMCECS. HMCECS keeps the rows that its proxy reads as constants of the program.
    """

    def __init__(self, problem: Problem, chains: int, warmup: int, *, subsample: int | None = None) -> None:
        super().__init__(problem, chains, warmup)
        self._subsample = None if subsample is None else min(subsample, problem.target.num_rows // 2)
        self._data = {name: jnp.asarray(values) for name, values in problem.target.model.data.items()}

    @property
    def rows(self) -> Any:
        """The data as they are."""
        return self._data["x"], self._data["y"]

    @property
    def rows_per_gradient(self) -> int:
        """The subsample, if there is one."""
        return self._subsample or super().rows_per_gradient

    @cached_property
    def _kernel(self) -> Any:
        from numpyro.infer import HMCECS, NUTS

        if self._subsample is None:
            return NUTS(self._model)
        proxy = HMCECS.taylor_proxy({"t": self.problem.reference.position}, degree=2)
        return HMCECS(NUTS(self._model), num_blocks=min(BLOCKS, self._subsample), proxy=proxy)

    def _model(self, x: jax.Array, y: jax.Array) -> None:
        import numpyro
        import numpyro.distributions as dist

        t = numpyro.sample("t", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("rows", len(y), subsample_size=self._subsample):
            xs, ys = jnp.asarray(numpyro.subsample(x, event_dim=1)), numpyro.subsample(y, event_dim=0)
            numpyro.sample("y", dist.Bernoulli(logits=xs @ jnp.asarray(t)), obs=ys)

    def step(self, rows: Any, key: jax.Array, state: Any) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """One draw; its state has a key of its own."""
        state = self._kernel.sample(state, rows, {})
        inner = getattr(state, "hmc_state", state)
        return state, state.z["t"], inner.accept_prob, inner.num_steps

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Make the proxy, compile, adapt."""
        began = time.perf_counter()
        start, chains = jr.split(key)
        positions = self.problem.starts(start, self.chains)
        state = self._kernel.init(start, self.warmup, {"t": positions[0]}, self.rows, {})
        self._states = jax.block_until_ready(_spread(state, jr.split(chains, self.chains)))
        made = time.perf_counter()
        return {
            "mode": self.problem.seconds,
            "proxy": made - began,
            "compilation": self._compile(key),
            "warmup": self._warm_up(key, self.warmup),
        }


def _spread(state: Any, keys: jax.Array) -> Any:
    """One state for all chains, each with a key of its own."""
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(keys), *jnp.shape(leaf))), state)
    if hasattr(many, "hmc_state"):
        many = many._replace(hmc_state=many.hmc_state._replace(rng_key=jax.vmap(partial(jr.fold_in, data=1))(keys)))
    return many._replace(rng_key=keys)


# ---- PyMHSS ------------------------------------------------------------------------------------


class Mhss:
    """PyMHSS' `MH_SS`, exact subsampling: NumPy in float64, one chain, and a FLAT prior (it has no other).

    Given our mode and covariance, in place of its own stochastic gradients. It forms the Hessian of every row for order
    2; where these do not fit, order 1. It cannot go on where it stopped: every run is new, and thinks for a while.
    """

    def __init__(self, problem: Problem, chains: int, warmup: int) -> None:
        self.problem, self.chains = problem, chains
        self._warmup = min(warmup, SHORT_WARMUP)
        target = problem.target
        self._order = 2 if target.num_rows * target.d**2 * 8 <= MOST_HESSIANS else 1
        self._per_draw = 0.0

    def prepare(self, key: jax.Array) -> dict[str, float]:
        """Run a little, for the time of its preparation."""
        began = time.perf_counter()
        sampling = self._sample(key, SLOTS)["cpu_time"]
        return {"mode": self.problem.seconds, "bounds": time.perf_counter() - began - sampling, "warmup": sampling}

    def run(self, key: jax.Array, seconds: float) -> Run:
        """Draw as many as the last run lets expect."""
        draws = max(SLOTS, 2 * int(seconds / self._per_draw / 2))  # it fails on odd numbers
        found = self._sample(key, draws)
        rows = float(np.mean(found["BoverN"])) * self.problem.target.num_rows
        share = draws / (draws + self._warmup)
        return Run(found["parameters"][None], share * found["cpu_time"], float(found["acc_rate"]), rows)

    def _sample(self, key: jax.Array, draws: int) -> dict[str, Any]:
        data = self.problem.target.model.data
        np.random.seed(int(jr.randint(key, (), 0, 2**31 - 1)))
        with contextlib.redirect_stderr(io.StringIO()):
            found = _mhss().MH_SS(
                data["y"].astype(np.float64),
                data["x"].astype(np.float64),
                self.problem.covariance,
                np.asarray(self.problem.laplace.mean, np.float64),
                nburn=self._warmup,
                npost=draws,
                model="logistic",
                implementation="vectorised",
                taylor_order=self._order,
            )
        self._per_draw = found["cpu_time"] / (draws + self._warmup)
        return found


def _mhss() -> Any:
    """Import it; TensorFlow, which it brings, talks."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import PyMHSS  # ty: ignore[import-not-found]
    return PyMHSS


# ---- the list ----------------------------------------------------------------------------------


class Setting(NamedTuple):
    """A sampler by name."""

    make: Callable[..., Sampler]
    """(problem, chains, warmup)."""
    chains: tuple[int, ...]
    """Numbers of chains to choose from."""
    needs: str | None = None
    """A package."""
    is_ours: bool = False


def _ours(**options: Any) -> Setting:
    return Setting(partial(Ours, **options), (64, 256, 1024), is_ours=True)


_barker = partial(tc.MinibatchBarker, 1.2)
_walking: dict[str, Any] = {"proposal": tc.RandomWalk.preconditioned, "steps": SHORT_WARMUP}

SETTINGS: dict[str, Setting] = {
    "tallchain PCN, Penalty, order 2": _ours(),
    "tallchain PCN, MinibatchBarker(1.2), order 2": _ours(acceptance=_barker),
    "tallchain walk, Penalty, order 2": _ours(**_walking),
    "tallchain walk, MinibatchBarker(1.2), order 2": _ours(acceptance=_barker, **_walking),
    "tallchain PCN, Penalty, order 1": _ours(order=1),
    "tallchain walk, MinibatchBarker(1.2), order 1": _ours(order=1, acceptance=_barker, **_walking),
    "BlackJAX walk": Setting(RandomWalkMetropolis, (1, 4, 16, 64), "blackjax"),
    "BlackJAX NUTS": Setting(Nuts, (1, 4, 16), "blackjax"),
    "BlackJAX NUTS, dense": Setting(partial(Nuts, is_diagonal=False), (1, 4, 16), "blackjax"),
    "NumPyro NUTS": Setting(NumPyro, (1, 4, 16), "numpyro"),
    "NumPyro HMCECS": Setting(partial(NumPyro, subsample=SUBSAMPLE), (1, 4, 16), "numpyro"),
    "PyMHSS": Setting(Mhss, (1,), "PyMHSS"),
}


def missing(setting: Setting) -> str | None:
    """Say which package is missing, if one is."""
    if setting.needs is None or find_spec(setting.needs) is not None:
        return None
    return f"{setting.needs} is not installed: pip install {setting.needs.lower()}"


# ---- what draws are worth ----------------------------------------------------------------------


def effective(draws: np.ndarray) -> float:
    """Bulk effective draws per draw of the worst parameter, from some of the chains; NaN if draws are too few."""
    from arviz_stats.base import array_stats

    if draws.shape[1] < 4:
        return float("nan")
    some = draws[: max(1, MOST_NUMBERS // draws[0].size)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(np.min(array_stats.ess(some, chain_axis=0, draw_axis=1, method="bulk"))) / some[..., 0].size


def moments(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, standard deviation, 5 % and 95 % quantiles of draws (chain, draw, parameter)."""
    flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64)
    low, high = np.quantile(flat, (0.05, 0.95), axis=0)
    return {"mean": flat.mean(0), "sd": flat.std(0), "q05": low, "q95": high}


def distances(found: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> dict[str, float]:
    """The worst parameter's distance from a reference, in its standard deviations; of deviations, as ratios."""
    sd = reference["sd"]
    far = {name: float(np.max(np.abs(found[name] - reference[name]) / sd)) for name in ("mean", "q05", "q95")}
    ratio = found["sd"] / sd
    return far | {"least_sd_ratio": float(ratio.min()), "most_sd_ratio": float(ratio.max())}


def laplace_moments(problem: Problem) -> dict[str, np.ndarray]:
    """As `moments`, of the Laplace approximation."""
    mean, sd = np.asarray(problem.laplace.mean, np.float64), np.sqrt(np.diag(problem.covariance))
    return {"mean": mean, "sd": sd, "q05": mean - NORMAL_95 * sd, "q95": mean + NORMAL_95 * sd}


@dataclasses.dataclass
class Measured:
    """A sampler at its best number of chains, and what it has done so far."""

    sampler: Sampler
    chains: int
    setup: dict[str, float]
    runs: list[Run] = dataclasses.field(default_factory=list)
    """Without their draws."""
    kept: list[np.ndarray] = dataclasses.field(default_factory=list)

    def add(self, run: Run) -> None:
        """Remember a run, and its draws while there is room: those of the first runs are as good as any."""
        size = sum(part.nbytes for part in self.kept)
        room = max(0, MOST_KEPT - size) // (run.draws[:, :1].nbytes)
        if room and len(self.kept) == len(self.runs):
            self.kept.append(run.draws[:, :room])
        self.runs.append(run._replace(draws=np.zeros((*run.draws.shape[:2], 0), np.float32)))

    def record(self, reference: dict[str, np.ndarray] | None) -> dict[str, Any]:
        """What to write down."""
        draws = np.concatenate(self.kept, 1)
        per_draw = effective(draws)
        speeds = [run.draws.shape[0] * run.draws.shape[1] / run.seconds for run in self.runs]
        per_second = [per_draw * speed for speed in speeds]
        setup = sum(self.setup.values())
        record = {
            "chains": self.chains,
            "draws_by_chain": sum(run.draws.shape[1] for run in self.runs),
            "setup_seconds": setup,
            "setup_parts": self.setup,
            "ess_per_draw": per_draw,
            "draws_per_second": speeds,
            "ess_per_second": per_second,
            "median_ess_per_second": float(np.median(per_second)),
            "seconds_to_1000": setup + EFFECTIVE / float(np.median(per_second)),
            "acceptance": float(np.mean([run.acceptance for run in self.runs])),
            "rows_per_draw": float(np.mean([run.rows for run in self.runs])),
            "effective_draws_for_moments": per_draw * draws[..., 0].size,
        }
        found = moments(draws)
        if reference is not None:
            record["distance"] = distances(found, reference)
        return record | {name: values.tolist() for name, values in found.items()}


# ---- one target --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to measure, and for how long."""

    seconds: float
    repetitions: int
    warmup: int
    names: tuple[str, ...]
    output: str = "peers"
    is_searching: bool = True
    """For the best number of chains."""


def find_pace(sampler: Sampler, seconds: float) -> None:
    """Run longer and longer, so that the next run takes about as long as it is told to."""
    for part in (0.02, 0.1, 0.4):
        sampler.run(jr.key(SEED + 1), part * seconds)


def choose(setting: Setting, problem: Problem, warmup: int, seconds: float) -> int:
    """Return the number of chains with the most draws per second: what a draw is worth does not depend on it."""
    best, chosen = -1.0, setting.chains[0]
    for chains in setting.chains if len(setting.chains) > 1 else ():
        sampler = setting.make(problem, chains, max(warmup // 5, 20))
        sampler.prepare(jr.key(SEED))
        find_pace(sampler, seconds / 2)
        run = sampler.run(jr.key(SEED + 2), seconds / 4)
        speed = run.draws[..., 0].size / run.seconds
        print(f"    {chains:5} chains: {speed:,.1f} draws a second", flush=True)
        if speed > best:
            best, chosen = speed, chains
    return chosen


def prepare(setting: Setting, problem: Problem, plan: Plan) -> Measured:
    """Choose the number of chains, forget all programs, and set up."""
    if plan.is_searching:
        chains = choose(setting, problem, plan.warmup, plan.seconds)
    else:
        chains = setting.chains[len(setting.chains) // 2]
    sampler = setting.make(problem, chains, plan.warmup)
    jax.clear_caches()
    setup = sampler.prepare(jr.key(SEED))
    print(f"    {chains:5} chains: set up in {sum(setup.values()):.1f} s", flush=True)
    return Measured(sampler, chains, setup)


def compare(target: Target, plan: Plan, reference: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
    """Measure all samplers on one target, in turns; saved after each."""
    problem = Problem.of(target)
    result: dict[str, Any] = {
        "rows": target.num_rows,
        "columns": list(target.columns),
        "seconds": plan.seconds,
        "repetitions": plan.repetitions,
        "warmup": plan.warmup,
        "mode_seconds": problem.seconds,
        "mode_passes": problem.reference.num_passes,
        "samplers": {},
    }
    if reference is not None:
        result["laplace_distance"] = distances(laplace_moments(problem), reference)
        result["reference"] = {name: np.asarray(values).tolist() for name, values in reference.items()}
    ready: dict[str, Measured] = {}
    for name in plan.names:
        with _recording(result, name, plan, target.name) as is_fine:
            if is_fine(SETTINGS[name]):
                ready[name] = prepare(SETTINGS[name], problem, plan)
    for repetition in range(-1, plan.repetitions):
        for name in list(ready):
            with _recording(result, name, plan, target.name, lambda name: ready.pop(name, None)):
                measured = ready[name]
                if repetition < 0:  # for the pace; and it compiles what `prepare` has made others forget
                    find_pace(measured.sampler, plan.seconds)
                    continue
                measured.add(measured.sampler.run(jr.key(SEED + 10 + repetition), plan.seconds))
                result["samplers"][name] = measured.record(reference)
                _say(name, result["samplers"][name])
        result["ratios"] = ratios(result["samplers"])
        _save(plan, target.name, result)
    return result


@contextlib.contextmanager
def _recording(
    result: dict[str, Any], name: str, plan: Plan, target: str, forget: Callable[[str], Any] = lambda name: None
) -> Generator[Callable[[Setting], bool]]:
    """Run what may fail, put down what it says, and save."""

    def is_fine(setting: Setting) -> bool:
        line = missing(setting)
        if line is not None:
            result["samplers"][name] = {"failed": line}
        return line is None

    print(f"{target}: {name}", flush=True)
    try:
        yield is_fine
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        result["samplers"][name] = {"failed": f"{type(error).__name__}: {first}"}
        forget(name)
    if "failed" in result["samplers"].get(name, {}):
        print(f"    failed: {result['samplers'][name]['failed']}", flush=True)
    _save(plan, target, result)


def _say(name: str, record: dict[str, Any]) -> None:
    print(
        f"    {record['chains']} chains, set-up {record['setup_seconds']:.1f} s, "
        f"{record['median_ess_per_second']:,.1f} effective draws a second, "
        f"1000 after {record['seconds_to_1000']:.1f} s, "
        f"{record['ess_per_draw']:.3f} a draw, acceptance {record['acceptance']:.3f}, "
        f"rows a draw {record['rows_per_draw']:,.1f}, distance {record.get('distance')}",
        flush=True,
    )


def ratios(samplers: dict[str, dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Of each of ours over each peer: effective draws per second (median of neighbours in time), and times to 1000."""
    done = {name: record for name, record in samplers.items() if "failed" not in record}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for ours in (name for name in done if SETTINGS[name].is_ours):
        found[ours] = {}
        for peer in (name for name in done if not SETTINGS[name].is_ours):
            above, below = done[ours]["ess_per_second"], done[peer]["ess_per_second"]
            both = min(len(above), len(below))
            found[ours][peer] = {
                "ess_per_second": median_ratio(above[:both], below[:both]),
                "seconds_to_1000": done[peer]["seconds_to_1000"] / done[ours]["seconds_to_1000"],
            }
    return found


def _save(plan: Plan, key: str, result: Any) -> None:
    """Write this part of the file, and leave the others as they are."""
    before = load(plan.output)["results"] if (RESULTS / f"{plan.output}.json").exists() else {}
    save(plan.output, configuration(), before | {key: result}, quiet=True)


def configuration() -> dict[str, Any]:
    return {
        "targets": "logistic regression, temperature 1, prior N(0, 1); float32 (PyMHSS: float64, flat prior)",
        "peers": {name: _version(name) for name in ("blackjax", "numpyro", "pymhss")},
        "cores": os.cpu_count(),
        "batch": BATCH,
        "hmcecs": f"NUTS, {SUBSAMPLE} rows in {BLOCKS} blocks, Taylor proxy of order 2",
        "ess": "bulk, the worst parameter; per draw from all repetitions together, per second by repetition",
        "seed": SEED,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# ---- a long run for reference ------------------------------------------------------------------


def make_reference(target: Target, path: Path, *, draws: int, chains: int, warmup: int = 500) -> None:
    """Run NUTS on all rows, with a dense mass matrix, and write its moments with their Monte Carlo errors."""
    from arviz_stats.base import array_stats

    problem = Problem.of(target)
    position = jnp.asarray(problem.laplace.mean)
    base = jax.nn.log_sigmoid(jnp.dot(problem.rows["x"], position, precision=lax.Precision.HIGHEST))
    problem = dataclasses.replace(problem, rows=problem.rows | {"base": base})
    sampler = Nuts(problem, chains, warmup, is_diagonal=False)
    print(sampler.prepare(jr.key(SEED + 100)), flush=True)
    parts: list[np.ndarray] = []
    while sum(part.shape[1] for part in parts) < draws:
        run = sampler.run(jr.fold_in(jr.key(SEED + 101), len(parts)), 10.0)
        parts.append(run.draws)
        print(f"{sum(part.shape[1] for part in parts)} draws, acceptance {run.acceptance:.3f}", flush=True)
        kept = np.concatenate(parts, 1).astype(np.float64)
        axes = {"chain_axis": 0, "draw_axis": 1}
        found = moments(kept)
        centred = (kept - found["mean"]) / found["sd"]
        errors = {
            "mcse_mean": array_stats.mcse(kept, method="mean", **axes),
            # By hand: NUTS draws are antithetic, their squares are not, and ArviZ' error of the sd is too small here.
            "mcse_sd": found["sd"] / 2 * array_stats.mcse(centred**2, method="mean", **axes),
            "skewness": (centred**3).mean((0, 1)),
            "ess": array_stats.ess(kept, method="bulk", **axes),
            "r_hat": array_stats.rhat(kept, **axes),
        }
        size = {"rows": target.num_rows, "chains": chains, "draws": kept.shape[1]}
        np.savez(path, allow_pickle=False, **found, **errors, **size)


def read_reference(path: Path, target: Target) -> dict[str, np.ndarray]:
    """Read what `make_reference` wrote, for the same rows."""
    with np.load(path) as file:
        found = {name: file[name] for name in file.files}
    if int(found["rows"]) != target.num_rows or len(found["mean"]) != target.d:
        raise ValueError(f"{path} is of {int(found['rows']):,} rows and {len(found['mean'])} parameters, not of these.")
    return found


# ---- rows against N ----------------------------------------------------------------------------

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
MOST_WITHOUT = 100_000  # rows up to which a test without a surrogate, which reads most of them, is run


def rows_at(problem: Problem, order: int | None, chains: int, draws: int, warmup: int = 20) -> dict[str, Any]:
    """Rows per decision of the random walk with `MinibatchBarker(1.2, batch=50)`, from the Laplace approximation."""
    walk, test = tc.RandomWalk.preconditioned, partial(tc.MinibatchBarker, 1.2, batch=BATCH)
    kernel = make_kernel(problem, order=order, proposal=walk, acceptance=test)
    starts = np.asarray(problem.starts(jr.key(SEED), chains))
    trace = draw_ours(jr.key(SEED + 1), kernel, starts, draws, warmup)
    return {
        "rows": problem.target.num_rows,
        "order": order or 0,
        "rows_per_decision": float(trace.num_rows.mean()),
        "standard_error": float(trace.num_rows.mean(1).std(ddof=1) / np.sqrt(chains)),
        "acceptance": float(trace.is_accepted.mean()),
        "decisions": trace.num_rows.size,
    }


def rows_against_n(sizes: Iterable[int] = SIZES, chains: int = 64, draws: int = 200) -> Iterator[dict[str, Any]]:
    """Measure every size and order, the small ones first."""
    for size in sizes:
        problem = Problem.of(simulated(size))
        for order in (None, 1, 2) if size <= MOST_WITHOUT else (1, 2):
            found = rows_at(problem, order, 4, 8, 2) if order is None else rows_at(problem, order, chains, draws)
            print(found, flush=True)
            yield found


def draw_rows(records: list[dict[str, Any]], path: Path) -> None:
    """Draw rows per decision against N, by order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    sizes = sorted({record["rows"] for record in records})
    axes.plot(sizes, sizes, color="#999999", lw=1, ls=":", label="all rows")
    for order, color, marker in ((0, "#D55E00", "s"), (1, "#0072B2", "o"), (2, "#009E73", "^")):
        points = [(record["rows"], record["rows_per_decision"]) for record in records if record["order"] == order]
        label = f"Taylor, order {order}" if order else "no surrogate"
        axes.plot(*zip(*points, strict=True), color=color, marker=marker, lw=1.5, label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows in the data, N", ylabel="rows per decision")
    axes.set_title("Logistic regression, d = 20, temperature 1", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path)


# ---- the command line --------------------------------------------------------------------------


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, action="append", help="may be given again; all without")
    parser.add_argument("--covertype", type=Path, metavar="PATH", help="an .npz with X, wild, soil, y")
    parser.add_argument("--seconds", type=float, default=10.0, help="per sampler and repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1000, help="draws, of samplers that adapt")
    parser.add_argument("--rows", type=int, help="N, if not all")
    parser.add_argument("--only", action="append", metavar="NAME", help="samplers whose name contains this")
    parser.add_argument("--reference", type=Path, metavar="PATH", help="from --make-reference; of one target")
    parser.add_argument("--no-search", action="store_true", help="take a middling number of chains, do not choose it")
    parser.add_argument("--output", default="peers", help="results/NAME.json")
    parser.add_argument("--make-reference", nargs=2, metavar=("TARGET", "OUT"), help="run long NUTS instead")
    parser.add_argument("--draws", type=int, default=2000, help="of the reference, by chain")
    parser.add_argument("--chains", type=int, default=16, help="of the reference")
    parser.add_argument("--rows-against-n", action="store_true", help="measure that instead")
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES, help="N, for --rows-against-n")
    parser.add_argument("--draw", action="store_true", help="docs/rows-against-n.png, from the results")
    return parser.parse_args(words)


def chosen(only: list[str] | None) -> tuple[str, ...]:
    """Names of samplers that contain one of the words; all without any."""
    names = tuple(name for name in SETTINGS if only is None or any(word.lower() in name.lower() for word in only))
    if not names:
        raise SystemExit(f"--only {' '.join(only or [])}: no such sampler. There are: {'; '.join(SETTINGS)}.")
    return names


def main(words: list[str] | None = None) -> None:
    given = arguments(words)
    names = chosen(given.only)
    plan = Plan(given.seconds, given.repetitions, given.warmup, names, given.output, not given.no_search)
    if given.make_reference:
        name, path = given.make_reference
        make_reference(TARGETS[name](given.rows, given.covertype), Path(path), draws=given.draws, chains=given.chains)
        return
    if given.rows_against_n:
        records = []
        for record in rows_against_n([int(size) for size in given.sizes]):
            records.append(record)
            _save(plan, "rows_against_n", records)
    if given.draw:
        draw_rows(load(plan.output)["results"]["rows_against_n"], DOCS / "rows-against-n.png")
    if given.rows_against_n or given.draw:
        return
    if given.reference and len(given.target or TARGETS) > 1:
        raise SystemExit("--reference is of one target: name it with --target.")
    for name in given.target or TARGETS:
        _compare_by_name(name, given, plan)


def _compare_by_name(name: str, given: argparse.Namespace, plan: Plan) -> None:
    """Compare on a target, or say why there is none."""
    try:
        target = TARGETS[name](given.rows, given.covertype)
    except (ModuleNotFoundError, OSError, ValueError) as error:
        print(f"{name}: skipped: {error}", flush=True)
        return
    compare(target, plan, read_reference(given.reference, target) if given.reference else None)


if __name__ == "__main__":
    main()
