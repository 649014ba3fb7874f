"""What tells runs apart: everything that has a part in their draws, and nothing else."""

from __future__ import annotations

import fractions
import functools
import types
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
    assert described("circle", circle) == {"circle": "list of 2", "circle[0]": "1", "circle[1]": "list of 2"}


def user_function(source: str, **names: Any) -> Any:
    """`f` of a module of a user."""
    module = {"__name__": "mine", "jax": jax, "jnp": jax.numpy, "np": np} | names
    exec(source, module)
    return module["f"]


def module_of(source: str) -> types.ModuleType:
    module = types.ModuleType("helpers")
    exec(source, module.__dict__)
    return module


@pytest.mark.parametrize(
    ("source", "one", "other"),
    [
        ("def f(t): return t * S[0]", {"S": (1.0,)}, {"S": (2.0,)}),
        ("def f(t): return t * S['a']", {"S": {"a": 1.0}}, {"S": {"a": 2.0}}),
        ("def f(t): return t * S.a", {"S": types.SimpleNamespace(a=1.0)}, {"S": types.SimpleNamespace(a=2.0)}),
        ("def f(t): return [S for _ in t]", {"S": frozenset("a")}, {"S": frozenset("b")}),
        ("def f(t): return t * S", {"S": fractions.Fraction(1)}, {"S": fractions.Fraction(2)}),
        ("def f(t): return g(t)", {"g": jax.jit(lambda t: t * 2)}, {"g": jax.jit(lambda t: t * 3)}),
        ("def f(t): return g(t)", {"g": functools.partial(pow, 2)}, {"g": functools.partial(pow, 3)}),
        ("def f(t): return h.g(t)", *({"h": module_of(f"def g(t): return {n} * t")} for n in (2, 3))),
        ("def f(t): return h.S * t", *({"h": module_of(f"S = {n}")} for n in (2, 3))),
    ],
)
def test_what_a_function_reads_by_name(source: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    assert described("f", user_function(source, **one)) == described("f", user_function(source, **one))
    assert described("f", user_function(source, **one)) != described("f", user_function(source, **other))


@pytest.mark.parametrize(
    "source",
    [
        "def make(n):\n    def f(t, *, scale=n): return scale * t\n    return f\nf = make(1)",
        "class C:\n    def helper(self, t): return t * 1\n    def __call__(self, t): return self.helper(t)\nf = C()",
        "class C:\n    S = 1\n    def g(self, t): return t * self.S\nf = C().g",
        "class C:\n    __slots__ = ('a',)\nf = C()\nf.a = 1",
        "import typing\nclass C(typing.NamedTuple):\n    a: float = 0\n    def g(self): return 1\nf = C()",
    ],
)
def test_what_is_in_a_class_of_the_user(source: str) -> None:
    one, other = source, source.replace("1", "2")
    assert described("f", user_function(one)) == described("f", user_function(one))
    assert described("f", user_function(one)) != described("f", user_function(other))


def test_attributes_are_not_globals_of_their_name() -> None:
    """In a notebook, `mean` and `trace` are results of the run before."""
    source = "def f(t): return jnp.mean(t.data) + jnp.trace(t)"
    plain = described("f", user_function(source))
    assert plain == described("f", user_function(source, mean=1.0, data=np.ones(3), trace="a"))


def test_functions_that_call_one_another_are_taken_apart_once() -> None:
    names = [f"f{i}" for i in range(30)]
    lines = [f"def {name}(t): return {' + '.join(f'{other}(t)' for other in names)}" for name in names]
    assert len(described("f", user_function("\n".join([*lines, "f = f0"])))) < 1000


def test_addresses_have_no_part_in_it() -> None:
    assert described("a", np.array([object()], object)) == described("a", np.array([object()], object))


def test_keys_and_odd_arrays() -> None:
    one, other = (described("key", jax.random.key(seed)) for seed in (0, 1))
    assert one != other
    assert described("a", np.zeros((0, 3))) == {"a": "float64[0, 3] 00000000"}
    assert described("a", np.float32(2)) == {"a": "float32 2.0"}
    assert described("a", np.array([None, "x"], object)) == {"a": "[None, 'x']"}


def test_many_differences_are_counted() -> None:
    found = differences({str(i): "a" for i in range(9)}, {str(i): "b" for i in range(9)})
    assert found[-1] == "and 5 more"
