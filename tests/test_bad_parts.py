"""Parts refuse bad input when they are made: the right exception, a message that quotes the call and what it got."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from refusals import ROWS, SCALE, kernel_with, log_likelihood, log_prior, refuse, table
from tallchain.acceptance import correction
from tallchain.parts import part


@pytest.mark.parametrize("source", [tc.Shuffled, tc.WithReplacement])
@pytest.mark.parametrize(
    ("data", "batch_size", "fragments"),
    [
        (
            {"x": np.zeros((4, 2)), "y": np.zeros(3)},
            1,
            ["same number of rows", "data['x']: shape (4, 2), data['y']: shape (3,)"],
        ),
        ({"x": np.zeros(4), "y": 1.0}, 1, ["with the rows along the first axis", "data['y']: shape ()"]),
        (1.0, 1, ["with the rows along the first axis", "data: shape ()"]),
        ([1.0, 2.0], 1, ["with the rows along the first axis", "data[0]: shape (), data[1]: shape ()"]),
        ({}, 1, ["must be an array, a frame or a pytree of arrays", "got {}"]),
        (None, 1, ["must be an array, a frame or a pytree of arrays", "got None"]),
        (np.zeros((0, 2)), 1, ["at least one row", "got data: shape (0, 2)"]),
        (ROWS, 0, ["batch_size=...)` must be a whole number between 1 and 20, the number of rows; got 0."]),
        (ROWS, -5, ["batch_size=...)` must be a whole number between 1 and 20, the number of rows; got -5."]),
        (ROWS, 21, ["batch_size=...)` must be a whole number between 1 and 20, the number of rows; got 21."]),
        (
            ROWS,
            5.0,
            ["batch_size=...)` must be a whole number between 1 and 20, the number of rows; got 5.0. Write 5."],
        ),
        (ROWS, "5", ["batch_size=...)` must be a whole number between 1 and 20, the number of rows; got '5'."]),
        (ROWS, None, ["batch_size=...)` must be a whole number between 1 and 20, the number of rows; got None."]),
    ],
)
def test_sources(source: Any, data: Any, batch_size: Any, fragments: list[str]) -> None:
    refuse(lambda: source(data, batch_size), ValueError, f"`{source.__name__}(", *fragments)


@pytest.mark.parametrize("windows", ["sometimes", None, 1, 0.5, np.array([True, False]), np.array("auto")])
def test_windows(windows: Any) -> None:
    quoted = '`Shuffled(windows=...)` must be True, False or "auto"; got '
    refuse(lambda: tc.Shuffled(ROWS, 5, windows=windows), ValueError, quoted + repr(windows))
    assert tc.Shuffled(ROWS, 5, windows=np.bool_(True)).windows is True


@pytest.mark.parametrize("temperature", [0, 0.0, -1.0, np.nan, np.inf, np.ones(2), jnp.zeros(())])
def test_temperature(temperature: Any) -> None:
    quoted = "`Posterior(temperature=...)` must be a positive number, 1 for the posterior itself; got "
    refuse(lambda: tc.Posterior(log_prior, log_likelihood, temperature), ValueError, quoted + repr(temperature))


@table(
    {
        "log prior": (
            lambda: tc.Posterior(0.0, log_likelihood),
            TypeError,
            "`Posterior(log_prior=...)` must be a function; got float.",
        ),
        "log likelihood": (
            lambda: tc.Posterior(log_prior, None),
            TypeError,
            "`Posterior(log_likelihood=...)` must be a function; got NoneType.",
        ),
        "temperature of a schedule": (
            lambda: tc.Schedule(temperature=2.0),
            TypeError,
            "`Schedule(temperature=...)` must be a function of the draw or None; got 2.0.",
        ),
        "scale of a schedule": (
            lambda: tc.Schedule(scale=np.ones(2)),
            TypeError,
            "`Schedule(scale=...)` must be a function of the draw or None; got array([1., 1.]).",
        ),
    }
)
def test_functions(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


@table(
    {
        "zero": (lambda: tc.RandomWalk(0.0), ValueError, SCALE, "positive and finite", "got 0.0"),
        "negative": (lambda: tc.RandomWalk(np.array([1.0, -2.0])), ValueError, SCALE, "got array([ 1., -2.])"),
        "negative in a pytree": (lambda: tc.RandomWalk({"a": 1.0, "b": -2.0}), ValueError, SCALE, "got -2.0"),
        "not a number": (lambda: tc.RandomWalk({"a": np.nan}), ValueError, SCALE, "got nan"),
        "infinite": (lambda: tc.RandomWalk(np.inf), ValueError, SCALE, "got inf"),
        "matrix with nan": (lambda: tc.RandomWalk(np.full((2, 2), np.nan)), ValueError, SCALE, "got array([[nan"),
        "nothing": (lambda: tc.RandomWalk({}), ValueError, SCALE, "at least one number; got {}"),
    }
)
def test_scale(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


@pytest.mark.parametrize("sigma", [0, -1.0, 1.61, 2, np.nan, np.inf])
@pytest.mark.parametrize("kind", ["minimax", "ridge"])
def test_sigma(sigma: Any, kind: str) -> None:
    refuse(
        lambda: tc.MinibatchBarker(sigma, kind, stopping="growth"),
        ValueError,
        kind,
        "0 < sigma <= 1.6; got sigma = ",
        repr(sigma),
    )


@table(
    {
        "for another sigma": (
            lambda: tc.MinibatchBarker(1.1, correction.minimax(1.0), stopping="growth"),
            ValueError,
            "`MinibatchBarker(sigma=1.1, correction=...)` received a correction made for sigma = 1.0.",
            "set sigma=1.0",
        ),
        "unknown": (
            lambda: tc.MinibatchBarker(correction="best"),
            ValueError,
            '`MinibatchBarker(correction=...)` must be "minimax", "ridge" or a Correction',
            "got 'best'",
        ),
        "batch 0": (
            lambda: tc.MinibatchBarker(batch=0),
            ValueError,
            "`MinibatchBarker(batch=...)` must be a whole number of rows, at least 1, or None",
            "got 0",
        ),
        "half a row": (lambda: tc.MinibatchBarker(batch=2.5), ValueError, "`MinibatchBarker(batch=...)`", "got 2.5"),
        "shortcut -1": (
            lambda: tc.MinibatchBarker(shortcut=-1),
            ValueError,
            "`MinibatchBarker(shortcut=...)` must be positive or None; got -1",
        ),
        "another table with fresh rows": (
            lambda: tc.MinibatchBarker(correction="ridge"),
            ValueError,
            "`MinibatchBarker(correction='ridge', stopping='fresh', skew=True)`",
            'needs stopping="growth" and skew=False',
        ),
        "stopping": (
            lambda: tc.MinibatchBarker(stopping="early"),
            ValueError,
            "`MinibatchBarker(stopping=...)` must be one of fresh, pilot, stein, growth; got 'early'",
        ),
        "skew": (lambda: tc.MinibatchBarker(skew="some"), ValueError, "`MinibatchBarker(skew=...)`", "got 'some'"),
        "skew with stein": (
            lambda: tc.MinibatchBarker(stopping="stein", skew=True),
            ValueError,
            "`MinibatchBarker(stopping='stein', skew=True)`: Stein's scheme has no skew correction",
        ),
        "skew as printed": (lambda: tc.MinibatchBarker(skew="printed"), ValueError, "stopping='fresh', skew=\"printed"),
        "shortcut with fresh rows": (
            lambda: tc.MinibatchBarker(shortcut=5.0),
            ValueError,
            'needs stopping="growth"',
        ),
        "penalty's stopping": (
            lambda: tc.Penalty(stopping="stein"),
            ValueError,
            "`Penalty(stopping=...)` must be one of fresh, pilot, growth; got 'stein'",
        ),
        "shortcut 0": (lambda: tc.MinibatchBarker(shortcut=0.0), ValueError, "shortcut=...)`", "got 0.0"),
        "shortcut nan": (lambda: tc.MinibatchBarker(shortcut=np.nan), ValueError, "shortcut=...)`", "got nan"),
    }
)
def test_minibatch_barker(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


class Sub(tc.Shuffled):
    """Inherits from a part, and lacks `@part`."""


@table(
    {
        "acceptance class": (
            lambda: kernel_with(acceptance=tc.Barker),
            TypeError,
            "`MetropolisHastings(acceptance=...)` must be an object with `judge`; got <class",
            "Did you mean `Barker(...)`?",
        ),
        "proposal class": (
            lambda: kernel_with(proposal=tc.RandomWalk),
            TypeError,
            "`MetropolisHastings(proposal=...)` must be an object with `propose`; got <class",
            "Did you mean `RandomWalk(...)`?",
        ),
        "scale for a proposal": (
            lambda: kernel_with(proposal=0.5),
            TypeError,
            "`MetropolisHastings(proposal=...)` must be an object with `propose`; got 0.5.",
        ),
        "data for a source": (
            lambda: tc.MetropolisHastings(tc.Posterior(log_prior, log_likelihood), ROWS, proposal=tc.RandomWalk(1.0)),
            TypeError,
            "`MetropolisHastings(source=...)` must be an object with `look`; got array(",
        ),
        "bound with copies": (
            lambda: tc.MetropolisHastings(
                tc.Posterior(log_prior, log_likelihood),
                tc.Shuffled(ROWS, 5).reweighted(exact=[3], copies=1 + np.arange(20) % 2),
                proposal=tc.RandomWalk(1.0),
                bound=lambda t, there: 1.0,
            ),
            ValueError,
            "`MetropolisHastings(bound=...)` does not work with a source that has some rows several times",
            "this one has 28 for 20 rows",
            "Leave the bound or the copies out",
        ),
        "source that is no part": (
            lambda: tc.MetropolisHastings(
                tc.Posterior(log_prior, log_likelihood), Sub(ROWS, 5), proposal=tc.RandomWalk(1.0)
            ),
            TypeError,
            "`MetropolisHastings(source=...)` got a Sub, whose class is not a part",
            "Write `@part` above `class Sub`, after `from tallchain.parts import part`.",
        ),
        "function for a posterior": (
            lambda: tc.MetropolisHastings(log_likelihood, tc.Shuffled(ROWS, 5), proposal=tc.RandomWalk(1.0)),
            TypeError,
            "`MetropolisHastings(posterior=...)` must be an object with `log_likelihood`; got <function",
        ),
    }
)
def test_kernel(call: Any, error: type[Exception], fragments: list[str]) -> None:
    refuse(call, error, *fragments)


def test_a_part_that_inherits_from_a_part_keeps_its_constructor() -> None:
    """So that the advice above works."""
    inherited = part(type("Inherited", (tc.Shuffled,), {}))
    kernel = tc.MetropolisHastings(
        tc.Posterior(log_prior, log_likelihood), inherited(ROWS, 5), proposal=tc.RandomWalk(1.0)
    )
    assert type(jax.tree.map(lambda leaf: leaf, kernel).source) is inherited
