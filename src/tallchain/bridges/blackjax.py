"""tallchain's sampler as an algorithm of BlackJAX: `init` and `step`, for its runners and tools.

    algorithm = as_top_level_api(kernel)
    state = algorithm.init(position)
    state, info = algorithm.step(rng_key, state)

`blackjax.util.run_inference_algorithm`, `thin_algorithm` and `jax.vmap` over keys and states take it like any other
algorithm. Rows are drawn within `step`, from its key. A kernel is a pytree whose leaves are the rows, so make the
algorithm INSIDE a jitted function that takes the kernel as an argument: otherwise rows are constants of the program.

    run = jax.jit(lambda key, kernel: run_inference_algorithm(key, as_top_level_api(kernel), 1000, state))

What BlackJAX's stochastic gradients call `logprior_fn(position)` and `loglikelihood_fn(position, datum)` are the two
functions of a `Posterior`: `Posterior(logprior_fn, loglikelihood_fn)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from tallchain.kernel import MetropolisHastings
from tallchain.types import Array, PyTree
from tallchain.validation import brief, is_traced

if TYPE_CHECKING:
    from blackjax.base import SamplingAlgorithm


class TallState(NamedTuple):
    """Where a chain is."""

    position: PyTree


class TallInfo(NamedTuple):
    """What a step has done."""

    acceptance_rate: Array
    """1 if the candidate was accepted, else 0: the test decides without knowing the probability."""
    is_accepted: Array
    rows_read: Array
    rows_scanned: Array
    log_ratio: Array
    """The estimate that the decision used."""
    is_invalid: Array
    """The log ratio was NaN or +inf, which counts as a rejection."""


def init(position: PyTree, kernel: MetropolisHastings, rng_key: Array | None = None) -> TallState:
    """Start a chain; refuse a position from which the posterior cannot start, unless it is traced."""
    kernel.check_digits()
    if any(is_traced(leaf) for leaf in jax.tree.leaves((position, kernel))):
        return TallState(jax.tree.map(jnp.asarray, position))
    return TallState(kernel.init(position, rng_key).position)


def build_kernel() -> Callable[[Array, TallState, MetropolisHastings], tuple[TallState, TallInfo]]:
    """Return the step as a function of the kernel too."""

    def step(rng_key: Array, state: TallState, kernel: MetropolisHastings) -> tuple[TallState, TallInfo]:
        decision = kernel.decide(kernel.draw(rng_key, state.position), state.position)
        of = decision.verdict
        accepted = jnp.asarray(of.is_accepted, jnp.result_type(float))
        info = TallInfo(accepted, of.is_accepted, of.rows_read, of.rows_scanned, of.log_ratio, of.is_invalid)
        return TallState(decision.position), info

    return step


def as_top_level_api(kernel: MetropolisHastings) -> SamplingAlgorithm:
    """Return the algorithm of a kernel, as `tallchain.prepare(...).kernel()` makes one."""
    try:
        from blackjax.base import SamplingAlgorithm
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`as_top_level_api(...)` needs BlackJAX: pip install blackjax, or 'tallchain[all]'."
        ) from error
    if not isinstance(kernel, MetropolisHastings):
        hint = " Use `prepared.kernel()`." if callable(getattr(kernel, "kernel", None)) else ""
        raise TypeError(
            f"`as_top_level_api(kernel)` must be a MetropolisHastings(...); got {brief(kernel)}.{hint} Log densities "
            "of all rows, which BlackJAX's other algorithms take, cannot be divided into rows: give "
            "`Posterior(logprior_fn, loglikelihood_fn)` and the data to `prepare`."
        )
    step = build_kernel()
    return SamplingAlgorithm(
        lambda position, rng_key=None: init(position, kernel, rng_key),
        lambda rng_key, state: step(rng_key, state, kernel),
    )
