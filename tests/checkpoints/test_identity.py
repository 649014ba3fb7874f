"""What tells runs apart: everything that has a part in their draws, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tallchain as tc
from tallchain.checkpoints.identity import described, differences

SCALE = 2.0
DATA = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)


def log_prior(t: Any) -> Any:
    return -0.5 * t @ t


def likelihood_of(power: float) -> Callable[[Any, Any], Any]:
    return lambda t, x: -0.5 * SCALE * (x[0] - t[0]) ** power


def kernel_of(power: float = 2, data: np.ndarray = DATA, step: float = 0.1, seed: int = 0, test: Any = None) -> Any:
    posterior = tc.Posterior(log_prior, likelihood_of(power))
    source = tc.Shuffled(data, 50, seed=seed)
    return tc.MetropolisHastings(posterior, source, proposal=tc.RandomWalk(step), acceptance=test or tc.Penalty())


def test_the_same_kernel_made_twice_is_the_same() -> None:
    assert not differences(described("kernel", kernel_of()), described("kernel", kernel_of()))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"power": 4}, "kernel.posterior.log_likelihood.power"),
        ({"data": DATA + np.eye(1000, 2, dtype=np.float32) * 1e-6}, "kernel.source.data"),
        ({"data": DATA.astype(np.float64)[:999]}, "kernel.source"),
        ({"step": 0.2}, "kernel.proposal"),
        ({"seed": 1}, "kernel.source"),
        ({"test": tc.MinibatchBarker()}, "kernel.acceptance"),
        ({"test": tc.Penalty(2.0)}, "kernel.acceptance.max_sd"),
    ],
)
def test_a_change_is_named(change: dict[str, Any], path: str) -> None:
    found = differences(described("kernel", kernel_of()), described("kernel", kernel_of(**change)))
    assert any(path in line and " in the checkpoint, " in line for line in found), found


def test_a_function_is_told_by_what_it_does_and_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(number: float) -> Callable[[float], float]:
        def function(x: float, y: float = number) -> float:
            return x + y + SCALE

        return function

    same = described("f", make(1.0))
    assert same == described("f", make(1.0))
    assert same != described("f", make(2.0))
    assert same != described("f", lambda x: x)
    assert described("f", functools.partial(make, 1)) != described("f", functools.partial(make, 2))
    assert described("f", jax.jit(make(1.0))) == described("f", make(1.0))
    monkeypatch.setitem(make.__globals__, "SCALE", 3.0)
    assert "f.SCALE: 2.0 in the checkpoint, 3.0 in this call" in differences(same, described("f", make(1.0)))


def test_circles_end() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    assert described("circle", circle) == {"circle": "list of 2", "circle[0]": "1"}


def test_keys_and_odd_arrays() -> None:
    one, other = (described("key", jax.random.key(seed)) for seed in (0, 1))
    assert one != other
    assert described("a", np.zeros((0, 3))) == {"a": "float64[0, 3] 00000000"}
    assert described("a", np.float32(2)) == {"a": "float32 2.0"}
    assert described("a", np.array([None, "x"], object)) == {"a": "[None, 'x']"}


def test_many_differences_are_counted() -> None:
    found = differences({str(i): "a" for i in range(9)}, {str(i): "b" for i in range(9)})
    assert found[-1] == "and 5 more"
