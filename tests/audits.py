"""A target with a closed form, tests with known errors, and audits of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

import tallchain as tc
from scenarios import kernel_of
from tallchain.acceptance.evidence import Moments
from tallchain.checking import Audit
from tallchain.parts import part
from tallchain.types import Array, Ask, Judgement, Population

NUM_ROWS, TEMPERATURE, STEP = 40, 4.0, 0.6
DATA = np.random.default_rng(1).normal(0.3, 1.0, NUM_ROWS).astype(np.float32)
PRECISION = 1 / 4 + NUM_ROWS / TEMPERATURE
MEAN = DATA.mean(dtype=np.float64) * NUM_ROWS / TEMPERATURE / PRECISION


def log_ratio(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Delta in closed form."""
    return -PRECISION / 2 * ((there - MEAN) ** 2 - (here - MEAN) ** 2)


class _Memory(NamedTuple):
    logistic: Array
    blur: Array


@part
class Scaled:
    """Barker's test at another temperature: accepts with probability 1/(1 + exp(-factor Delta)).

    So eta = (factor - 1) Delta, and the chain has the posterior to the power `factor`.
    """

    factor: Array

    def appetite(self, population: Population) -> int:
        return population.num_rows

    def draw(self, key: Array) -> tuple[Array, Array]:
        return jr.logistic(jr.fold_in(key, 0)), jr.uniform(jr.fold_in(key, 1), minval=-0.9, maxval=0.9)

    def open(self, noise: Any, bound: Any, population: Population) -> tuple[_Memory, Moments, Ask]:
        return _Memory(*noise), Moments.empty(), Ask(population.num_rows)

    def judge(self, memory: _Memory, offset: Array, evidence: Moments, population: Population) -> Judgement:
        return Judgement(memory, Ask(0), True, self.factor * (evidence.mean + offset) + memory.logistic > 0)


@part
class Blurred(Scaled):
    """The same; says its chance to accept, give or take some noise that is 0 on average."""

    def chance(self, memory: _Memory, offset: Array, evidence: Moments, population: Population) -> Array:
        chance = jax.nn.sigmoid(self.factor * (evidence.mean + offset))
        return chance + memory.blur * jnp.minimum(chance, 1 - chance)

    def exact_chance(self, log_ratio: Array) -> Array:
        return jax.nn.sigmoid(log_ratio)


def normal_kernel(acceptance: Any, data: Any = DATA) -> tc.MetropolisHastings:
    temperature = TEMPERATURE * len(data) / NUM_ROWS
    return kernel_of(data, acceptance, temperature=temperature, batch_size=20, scale=STEP)


def trace_of(
    factor: float = 1.0, seed: int = 0, shape: tuple[int, int] = (50, 400), num_rows: int = NUM_ROWS, **fields
):
    """Independent draws from the posterior to the power `factor`, which is where a `Scaled` chain is stationary."""
    position = np.random.default_rng(seed).normal(MEAN, (factor * PRECISION) ** -0.5, shape).astype(np.float32)
    zeros = np.zeros(shape)
    no = zeros > 0
    values = {"position": position, "num_rows": num_rows} | fields
    return tc.Trace(
        is_accepted=no,
        rows_read=np.full(shape, num_rows),
        rows_scanned=no * 0,
        log_ratio=zeros,
        is_invalid=no,
        **values,
    )


def scaled_audit(factor: float, *, test: type = Blurred, seed: int = 0, **options: Any) -> Audit:
    options = {"num_decisions": 200, "num_trials": 200} | options
    kernel = normal_kernel(test(jnp.float32(factor)))
    return tc.audit(kernel, trace_of(factor, seed), seed=seed, progress=False, **options)
