"""Bad starts and runs are refused before the sampler compiles."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random as jr

import tallchain as tc
from refusals import ROWS, SCALE, Still, kernel_with, log_likelihood, log_prior, refuse, sample, table
from tallchain import lockstep
from tallchain.types import Array
from tallchain.validation import brief


@pytest.fixture
def no_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a refusal comes only after the sampler has begun to compile."""

    def trace(*arguments: Any) -> None:
        raise AssertionError("the sampler was started")

    monkeypatch.setattr(lockstep.start, "trace", trace)


def test_a_good_start_would_have_reached_the_sampler(no_sampler: None) -> None:
    with pytest.raises(AssertionError, match="the sampler was started"):
        sample()


LIKELIHOOD, PRIOR = "`log_likelihood(position, row)`", "`log_prior(position)`"


@table(
    {
        "likelihood of all entries": (
            lambda: sample(kernel=kernel_with(log_likelihood=lambda t, row: t - row, data=np.zeros((20, 3)))),
            ValueError,
            LIKELIHOOD,
            "must return one float (shape ()); got shape (3,), float32",
        ),
        "likelihood of shape (1,)": (
            lambda: sample(kernel=kernel_with(log_likelihood=lambda t, row: (t - row)[None])),
            ValueError,
            LIKELIHOOD,
            "got shape (1,), float32",
        ),
        "whole likelihood": (
            lambda: sample(kernel=kernel_with(log_likelihood=lambda t, row: jnp.int32(row))),
            ValueError,
            LIKELIHOOD,
            "got shape (), int32",
        ),
        "likelihood that forgets to return": (
            lambda: sample(kernel=kernel_with(log_likelihood=lambda t, row: None)),
            ValueError,
            LIKELIHOOD,
            "got None",
        ),
        "impossible row": (
            lambda: sample(kernel=kernel_with(log_likelihood=lambda t, row: jnp.where(row == 1.0, -jnp.inf, t))),
            ValueError,
            LIKELIHOOD + " is -inf at the initial position of chain 0, for the row array(1., dtype=float32)",
        ),
        "prior of each coordinate": (
            lambda: sample(jnp.zeros(3), kernel=kernel_with(log_prior=lambda t: -(t**2))),
            ValueError,
            PRIOR,
            "must return one float (shape ()); got shape (3,), float32",
        ),
        "whole prior": (lambda: sample(kernel=kernel_with(log_prior=jnp.int32)), ValueError, PRIOR, "(), int32"),
        "prior of nothing": (
            lambda: sample(kernel=kernel_with(log_prior=lambda t: None)),
            ValueError,
            PRIOR,
            "got None",
        ),
        "impossible start": (
            lambda: sample(kernel=kernel_with(log_prior=lambda t: jnp.where(t < 0, 0.0, -jnp.inf))),
            ValueError,
            PRIOR + " is -inf at the initial position of chain 0",
        ),
        "impossible start of one chain": (
            lambda: sample(np.array([[0.5], [-0.5], [0.5]]), kernel=kernel_with(jnp_log), num_chains=3),
            ValueError,
            PRIOR + " is nan at the initial position of chain 1",
        ),
    }
)
@pytest.mark.usefixtures("no_sampler")
def test_posterior_at_the_start(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


def jnp_log(t: Array) -> Array:
    return jnp.sum(jnp.log(t))


INITIAL = "`sample(initial=...)`: the initial position"
FLOAT = "must be of a float type, so that a proposal can move it; got "


@table(
    {
        "whole number": (lambda: sample(1), TypeError, INITIAL + " " + FLOAT + "int32", "Write 1.0 for 1"),
        "whole numbers": (lambda: sample(np.arange(3)), TypeError, INITIAL + " " + FLOAT + "int32"),
        "truth": (lambda: sample(True), TypeError, INITIAL + " " + FLOAT + "bool"),
        "complex": (lambda: sample(1j), TypeError, INITIAL + " " + FLOAT + "complex64"),
        "whole number in a dict": (
            lambda: sample({"a": 1.0, "b": 2}),
            TypeError,
            INITIAL + "['b'] " + FLOAT + "int32",
        ),
        "not a number": (lambda: sample(np.nan), ValueError, INITIAL + " must be finite; got array([nan]"),
        "infinite in a dict": (
            lambda: sample({"a": 1.0, "b": jnp.array([0.0, jnp.inf])}),
            ValueError,
            INITIAL + "['b'] must be finite; got array([[ 0., inf]]",
        ),
        "nothing": (lambda: sample({}), ValueError, INITIAL + " must hold at least one number; got {}"),
        "no position": (lambda: sample(None), ValueError, INITIAL + " must hold at least one number; got None"),
        "no numbers": (
            lambda: sample(jnp.zeros(0)),
            ValueError,
            INITIAL + " must hold at least one number; got Array([]",
        ),
        "text": (
            lambda: sample("text"),
            TypeError,
            "`sample(initial=...)` must be a position: an array, or a pytree of arrays; got 'text'.",
        ),
        "ambiguous": (
            lambda: sample(jnp.zeros(3), num_chains=3),
            ValueError,
            "`sample(initial=..., num_chains=3)`: an initial position of shape (3,) could be one position of 3 "
            "coordinates or 3 positions of one.",
            "shape (3, d)",
        ),
    }
)
@pytest.mark.usefixtures("no_sampler")
def test_initial(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


@table(
    {
        "vector for a number": (lambda: np.ones(2), ValueError, "got shapes (2,) for a position of shapes ()"),
        "matrix of another size": (
            lambda: np.ones((3, 3)),
            ValueError,
            "got shapes (3, 3) for a position of shapes ()",
        ),
        "pytree of another structure": (
            lambda: {"a": 1.0},
            ValueError,
            "got shapes {'a': ()} for a position of shapes ()",
        ),
        "singular matrix": (lambda: np.zeros((1, 1)), ValueError, "received a singular 1 x 1 matrix"),
    }
)
@pytest.mark.usefixtures("no_sampler")
def test_scale_for_the_position(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(lambda: sample(kernel=kernel_with(scale=call())), error, SCALE, *fragments)


@pytest.mark.parametrize(
    ("name", "least", "values"),
    [
        ("num_samples", 1, [0, -1, 3.0, True, "3", None]),
        ("num_chains", 1, [0, -1, 2.0, True, None]),
        ("num_warmup", 0, [-1, 2.0, False, None]),
        ("chunk_size", 1, [0, -1, 2.0, True]),
    ],
)
@pytest.mark.usefixtures("no_sampler")
def test_whole_numbers(name: str, least: int, values: list[Any]) -> None:
    for value in values:
        quoted = f"`sample({name}=...)` must be a whole number, at least {least}; got {value!r}."
        refuse(lambda value=value: sample(**{name: value}), ValueError, quoted)


@table(
    {
        "temperature 0 from draw 7 on": (
            lambda: sample(schedule=tc.Schedule(temperature=lambda draw: 7.0 - draw), num_samples=5, num_warmup=5),
            ValueError,
            "`Schedule(temperature=...)` must be one positive number; got ",
            "(0.",
            "at draw 7.",
        ),
        "temperature nan at the last draw": (
            lambda: sample(schedule=tc.Schedule(temperature=lambda draw: jnp.sqrt(8.5 - draw)), num_samples=10),
            ValueError,
            "`Schedule(temperature=...)` must be one positive number; got ",
            "(nan",
            "at draw 9.",
        ),
        "scale negative from draw 2 on": (
            lambda: sample(schedule=tc.Schedule(scale=lambda draw: 1.5 - draw), num_samples=10),
            ValueError,
            "`Schedule(scale=...)` at draw 2: ",
            SCALE,
            "-0.5",
        ),
        "two temperatures": (
            lambda: sample(schedule=tc.Schedule(temperature=lambda draw: jnp.ones(2))),
            ValueError,
            "`Schedule(temperature=...)` must be one positive number; got array([1., 1.]",
        ),
        "text for a temperature": (
            lambda: sample(schedule=tc.Schedule(temperature=lambda draw: "hot")),
            TypeError,
            "`Schedule(temperature=...)` must return numbers, at every draw; it returned 'hot'.",
        ),
        "not a schedule": (
            lambda: sample(schedule=lambda draw: 1.0),
            TypeError,
            "`sample(schedule=...)` must be a Schedule(temperature=..., scale=...); got <function",
        ),
        "a Python if": (
            lambda: sample(schedule=tc.Schedule(temperature=lambda draw: 1.0 if draw < 5 else 2.0)),
            TypeError,
            "`Schedule(temperature=...)` is traced: write `jnp.where",
        ),
        "scale of another shape": (
            lambda: sample(schedule=tc.Schedule(scale=lambda draw: jnp.ones(2))),
            ValueError,
            SCALE,
            "got shapes (2,) for a position of shapes ()",
        ),
        "scale for a proposal without": (
            lambda: sample(schedule=tc.Schedule(scale=lambda draw: 1.0), kernel=kernel_with(proposal=Still())),
            TypeError,
            "`Schedule(scale=...)` needs a proposal with a scale; Still has none.",
        ),
    }
)
@pytest.mark.usefixtures("no_sampler")
def test_schedules(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


def test_init_refuses_what_sample_refuses() -> None:
    """The BlackJAX side of the kernel checks starts as well."""
    quoted = INITIAL.replace("sample(initial=...)", "kernel.init(position=...)")
    refuse(lambda: kernel_with().init(1), TypeError, quoted + " " + FLOAT + "int32")
    refuse(lambda: kernel_with().init(np.nan), ValueError, quoted + " must be finite")
    refuse(lambda: kernel_with(log_prior=lambda t: -jnp.inf).init(1.0), ValueError, PRIOR + " is -inf")
    refuse(lambda: jax.jit(kernel_with().init)(1), TypeError, FLOAT + "int32")


@table(
    {
        "a seed for a key": (lambda: tc.sample(0, kernel_with(), 0.5, 3), TypeError, "`sample(key=...)`", "got 0"),
        "three keys": (
            lambda: tc.sample(jr.split(jr.key(0), 3), kernel_with(), 0.5, 3),
            TypeError,
            "`sample(key=...)` must be one JAX key",
        ),
        "a class for a kernel": (
            lambda: sample(kernel=tc.MetropolisHastings),
            TypeError,
            "`sample(kernel=...)` must be a MetropolisHastings(...), a FireflyMC(...) or a StochasticGradient(...)",
            "got <class",
        ),
        "a word for a temperature": (
            lambda: tc.Posterior(log_prior, log_likelihood, "hot"),
            ValueError,
            "`Posterior(temperature=...)` must be a positive number",
            "got 'hot'",
        ),
        "a word for a scale": (lambda: tc.RandomWalk("a"), TypeError, SCALE, "must hold numbers; got 'a'"),
        "a word for a shortcut": (
            lambda: tc.MinibatchBarker(shortcut="a"),
            ValueError,
            "`MinibatchBarker(shortcut=...)` must be positive or None; got 'a'",
        ),
        "text for data": (
            lambda: tc.Shuffled(np.array(["a", "b"]), 1),
            TypeError,
            "`Shuffled(data=...)` must hold numbers; got data: <U1",
        ),
        "True for a batch": (lambda: tc.Shuffled(ROWS, True), ValueError, "`Shuffled(batch_size=...)`", "got True"),
        "too many copies": (
            lambda: tc.Shuffled(ROWS, 5, copies=np.full(20, 2**27)),
            ValueError,
            "`Shuffled(copies=...)` must add up to fewer than 2^31 rows",
            "got 2,684,354,560.",
        ),
        "copies that wrap": (
            lambda: tc.Shuffled(ROWS, 5).reweighted(copies=np.full(20, 2**63, np.uint64)),
            ValueError,
            "`reweighted(copies=...)` must add up to fewer than 2^31 rows",
        ),
        "a negative seed": (lambda: tc.Shuffled(ROWS, 5, seed=-1), ValueError, "`Shuffled(seed=...)`", "got -1"),
    }
)
def test_wrong_kinds(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


@pytest.mark.parametrize("progress", ["no", None, 0, 1])
@pytest.mark.usefixtures("no_sampler")
def test_progress_is_shown_or_not(progress: Any) -> None:
    posterior = tc.Posterior(log_prior, log_likelihood)
    for name, call in (
        ("sample", lambda: tc.sample(jr.key(0), kernel_with(), 0.5, 3, progress=progress)),
        ("prepare", lambda: tc.prepare(posterior, ROWS, 0.5, progress=progress)),
        ("find_reference", lambda: tc.surrogates.find_reference(posterior, ROWS, 0.5, progress=progress)),
    ):
        refuse(call, TypeError, f"`{name}(progress=...)` must be True", "False", f"got {progress!r}.")


def test_a_long_value_is_quoted_in_brief() -> None:
    assert brief("ab") == "'ab'"
    assert brief(np.arange(10_000).tolist()).endswith(" ...")
    assert len(brief(np.zeros((1000, 3)).tolist())) < 210


def test_other_things_in_place_of_a_kernel_or_a_posterior_are_told_apart() -> None:
    regression = tc.models.logistic_regression(np.ones((50, 2)), np.arange(50) % 2, bound=False)
    for call in (
        lambda: tc.MetropolisHastings(regression, tc.Shuffled(ROWS, 5), proposal=tc.RandomWalk(0.5)),
        lambda: tc.surrogates.find_reference(regression, regression.data, np.zeros(2, np.float32), progress=False),
    ):
        with pytest.raises(TypeError, match=r"Use `regression.posterior`\.") as caught:
            call()
        assert len(str(caught.value)) < 400
    prepared = tc.Prepared(*(None,) * len(dataclasses.fields(tc.Prepared)))
    with pytest.raises(TypeError, match=r"Use `prepared.kernel\(\)`\."):
        sample(kernel=prepared)
