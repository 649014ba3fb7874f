"""Posteriors of NumPyro models: against NumPyro's potential energy; what rows and draws are; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

numpyro = pytest.importorskip("numpyro")

import numpyro.distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402
from numpyro.infer.util import constrain_fn, potential_energy  # noqa: E402

import tallchain as tc  # noqa: E402
from bridges.numpyro_models import NUM_ROWS, PART, Case, cases, constrained, regression  # noqa: E402
from tallchain.bridges.numpyro import Bridged, posterior  # noqa: E402

CASES = cases()


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Case, Bridged]:
    found = CASES[request.param]
    return found, posterior(found.model, *found.arguments, part=PART)


def somewhere(case: Case) -> dict[str, Any]:
    """A position without constraints."""
    random = np.random.default_rng(1)
    model = handlers.substitute(handlers.seed(case.model, 0), substitute_fn=numpyro.infer.init_to_feasible())
    sites = handlers.trace(model).get_trace(*case.arguments)
    latent = {name: site for name, site in sites.items() if site["type"] == "sample" and not site["is_observed"]}
    shapes = {n: dist.biject_to(s["fn"].support).inverse_shape(s["fn"].shape()) for n, s in latent.items()}
    return {name: jnp.asarray(random.uniform(-1, 1, shape)) for name, shape in shapes.items()}


def log_density(made: Bridged) -> Callable[[Any, Any], Any]:
    of = made.posterior
    return jax.jit(lambda u, rows: of.log_prior(u) + jnp.sum(jax.vmap(of.log_likelihood, (None, 0))(u, rows)))


@pytest.mark.parametrize("is_wide", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["float32", "float64"])
def test_is_the_potential_energy(case: tuple[Case, Bridged], is_wide: bool) -> None:
    of, made = case
    with jax.enable_x64(is_wide):
        u = somewhere(of)
        arguments = jax.tree.map(jnp.asarray, of.arguments)  # NumPy's cannot be indexed in programs
        energy = jax.jit(lambda u: potential_energy(handlers.seed(of.model, 0), arguments, {}, u))(u)
        found = log_density(made)(u, made.data)
        assert found.dtype == (np.float64 if is_wide else np.float32)
        assert float(found) == pytest.approx(-float(energy), rel=1e-10 if is_wide else 2e-6)


def test_sites_are_those_of_numpyro(case: tuple[Case, Bridged]) -> None:
    of, made = case
    u = somewhere(of)
    arguments = jax.tree.map(jnp.asarray, of.arguments)
    theirs = jax.jit(lambda u: constrain_fn(handlers.seed(of.model, 0), arguments, {}, u, return_deterministic=True))(u)
    mine = jax.jit(made.constrain)(u)
    assert set(mine) == set(of.sites)
    for name in of.sites:
        assert np.allclose(mine[name], theirs[name], rtol=1e-5)
    again = made.posterior.unconstrain({name: np.asarray(mine[name]) for name in mine})
    assert all(np.allclose(again[name], u[name], rtol=1e-3, atol=1e-4) for name in u)


def test_rows_are_columns_of_the_arguments(case: tuple[Case, Bridged]) -> None:
    _, made = case
    assert "index" not in made.data
    assert {len(column) for column in made.data.values()} == {NUM_ROWS}


def test_starts_are_near_the_middle(case: tuple[Case, Bridged]) -> None:
    _, made = case
    at = made.posterior.unconstrain(made.start)
    assert all(np.all((np.abs(value) < 0.51) & (value != 0)) for value in at.values())


def test_a_row_evaluates_one_row_only() -> None:
    """However many there are, nothing in the program has their number."""
    of = CASES["hierarchical"]
    made = posterior(of.model, *of.arguments, part=PART)
    row = {name: column[3] for name, column in made.data.items()}
    program = jax.make_jaxpr(made.posterior.log_likelihood)(somewhere(of), row)
    assert str(NUM_ROWS) not in str(program)
    assert str(NUM_ROWS) not in str(jax.make_jaxpr(made.posterior.log_prior)(somewhere(of)))


def test_names_of_columns() -> None:
    of = CASES["improper"]
    assert set(posterior(of.model, *of.arguments, part=PART).data) == {"data['y']"}
    assert set(posterior(regression, *CASES["regression"].arguments).data) == {"x", "y"}


def test_names_of_columns_of_wrapped_models() -> None:
    x, y = CASES["regression"].arguments
    assert set(posterior(handlers.scale(regression, scale=0.5), x, y).data) == {"x", "y"}
    assert set(posterior(lambda *x, **more: regression(x[0], more["x"]), x, x=y).data) == {"*args[0]", "x"}


def test_rows_are_indices_where_arrays_are_needed_whole() -> None:
    y = np.asarray(CASES["constrained"].arguments[0])

    def model(part: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("rows", NUM_ROWS, subsample_size=part) as i:
            numpyro.sample("y", dist.Normal(mean, 1), obs=jnp.asarray(y)[i])

    def prior_of_rows(y: Any, part: Any) -> None:
        """A part of the prior is over as many things as there are rows."""
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        each = numpyro.sample("each", dist.Normal(0, 1).expand([NUM_ROWS]).to_event(1))
        with numpyro.plate("rows", NUM_ROWS, subsample_size=part) as i:
            numpyro.sample("y", dist.Normal(mean + each[i], 1), obs=y[i])

    for of, arguments in ((model, ()), (prior_of_rows, (y,))):
        made = posterior(of, *arguments, part=PART)
        assert list(made.data) == ["index"]
        u = {name: jnp.full(np.shape(value), 0.3) for name, value in made.start.items()}
        whole = tuple(map(jnp.asarray, arguments))
        energy = potential_energy(handlers.seed(of, 0), (*whole, None), {}, u)
        assert float(log_density(made)(u, made.data)) == pytest.approx(-float(energy), rel=1e-5)


def test_starts_are_checked() -> None:
    made = posterior(constrained, *CASES["constrained"].arguments)
    good = {"scale": 1.0, "share": 0.5, "low": 0.0}
    for change, message in (
        ({"scale": -1.0}, r'`prepare\(initial=...\)`: "scale" must be in the support of its prior; got'),
        ({"low": 3.0}, '"low" must be in the support of its prior'),
        ({"low": np.zeros(2)}, r'"low" must have shape \(\)'),
        (
            {"hight": 0.0},
            "must be a dict of the latent sites of the model, scale, share, low; got scale, share, low, hi",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            tc.prepare(made, initial=good | change, progress=False)


# ---- refusals ----------------------------------------------------------------------------------

Y = np.zeros(NUM_ROWS, np.float32)


def latent_in_the_plate() -> None:
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal(0, 1)), 1), obs=Y)


def two_plates() -> None:
    z = numpyro.sample("z", dist.Normal(0, 1))
    for name, count in (("rows", NUM_ROWS), ("others", 5)):
        with numpyro.plate(name, count):
            numpyro.sample(f"y of {name}", dist.Normal(z, 1), obs=Y[:count])


def nested() -> None:
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("columns", 2), numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(z, 1), obs=np.zeros((NUM_ROWS, 2)))


def nothing_in_the_plate() -> None:
    numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal(0, 1)), 1), obs=Y)


def discrete() -> None:
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(z, 1), obs=Y)


def with_a_param() -> None:
    z = numpyro.sample("z", dist.Normal(numpyro.param("loc", 0.0), 1))
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(z, 1), obs=Y)


def groups_in_part() -> None:
    with numpyro.plate("groups", 6, subsample_size=3):
        numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(0, 1), obs=Y)


def nothing_to_infer() -> None:
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(0, 1), obs=Y)


def closed_over() -> None:
    """Without indices, and with data that is no argument."""
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(z, 1), obs=Y)


def no_data(y: Any = None) -> None:
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


def partly_observed() -> None:
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(z, 1), obs=Y, obs_mask=jnp.arange(NUM_ROWS) > 3)


def loop_of_sites() -> None:
    def step(last: Any, _: Any) -> Any:
        now = numpyro.sample("now", dist.Normal(last, 1))
        return now, now

    last, _ = scan(step, 0.0, jnp.arange(3))
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(last, 1), obs=Y)


def numpys_array() -> None:
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", NUM_ROWS, subsample_size=5) as i:
        numpyro.sample("y", dist.Normal(z, 1), obs=Y[i])


def branching() -> None:
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", NUM_ROWS):
        numpyro.sample("y", dist.Normal(z if z > 0 else 0.0, 1), obs=Y)


def standardising(y: Any) -> None:
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(z, 1), obs=(y - y.mean()) / y.std())


def prior_of_the_data(y: Any) -> None:
    z = numpyro.sample("z", dist.Normal(y.mean() + y.max(), 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


def counting(group: Any) -> None:
    z = numpyro.sample("z", dist.Normal(0, 1).expand([int(group.max()) + 1]))
    with numpyro.plate("rows", len(group)):
        numpyro.sample("y", dist.Normal(z[group], 1), obs=0.0 * group)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (latent_in_the_plate, 'latent site "z" is in the plate "rows" of the rows.*Sum it out'),
        (two_plates, "observed in several plates, rows, others.*in a `numpyro.factor` outside"),
        (nested, r'"y" is in nested plates.*to_event\(1\)'),
        (nothing_in_the_plate, r'nothing is observed in a plate.*with numpyro.plate\("rows", N\)'),
        (discrete, '"z" is discrete.*Sum it out'),
        (with_a_param, '"loc" is a param site.*with a prior'),
        (groups_in_part, '"groups" takes 3 of its 6 entries.*Leave `subsample_size` out'),
        (nothing_to_infer, "no latent site"),
        (no_data, 'Its plates, rows, have no observed sites.*If "y" is the outcome'),
        (partly_observed, "made by `obs_mask`. Leave missing outcomes out"),
        (loop_of_sites, "does not have `scan` and `cond`.*as vectors"),
        (numpys_array, r"cannot be traced: .*Use `jax.numpy` in place of NumPy.*`jnp.asarray\(x\)\[i\]`"),
        (branching, "cannot be traced: .*Write `jnp.where` for an `if`"),
        (closed_over, "must touch the data of its own row only: give the data to the model as arguments"),
    ],
)
def test_models_without_rows_are_refused(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"`bridges.numpyro.posterior\(...\)`: .*" + message) as caught:
        posterior(model)
    assert "\n" not in str(caught.value)


# ---- silently another model, but for a few rows, small numbers, or the position ----------------

MANY = 3000


def nowhere_finite(y: Any) -> None:
    """No value of `upper` that is tried allows any row."""
    upper = numpyro.sample("upper", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Uniform(0, upper), obs=100 + y - y.mean())


def rare_weights(y: Any) -> None:
    """Weights are no argument, and few are not 1."""
    z = numpyro.sample("z", dist.Normal(0, 1))
    weights = jnp.ones(MANY).at[jnp.array([7, 1234])].set(50.0)
    with numpyro.plate("rows", len(y)) as i, handlers.scale(scale=weights[i]):
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


def centred_dummy(y: Any) -> None:
    """What one row has is 0 once its own mean is taken away."""
    z, w = numpyro.sample("z", dist.Normal(0, 1)), numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        rare = (y > 3) - jnp.mean(y > 3)
        numpyro.sample("y", dist.Normal(z + w * rare, 1), obs=0.0 * y)


def tempered(y: Any) -> None:
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)), handlers.scale(scale=1e-4):
        numpyro.sample("y", dist.Normal(z, 1), obs=2 + y - y.mean())


def vague_prior_of_the_data(y: Any) -> None:
    z = numpyro.sample("z", dist.Normal(10 * y.mean(), 100.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


def saturated(y: Any) -> None:
    """Far from 0 all probabilities are 0 or 1."""
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(1 / (1 + jnp.exp(-z * (1e4 + y - y.mean())))), obs=y > 0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (rare_weights, "log density of a row is another"),
        (centred_dummy, "log density of a row is another"),
        (tempered, "log density of a row is another"),
        (vague_prior_of_the_data, "what is outside of the plate depends on the rows"),
        (saturated, "log density of a row is another"),
        (nowhere_finite, "NaN or infinite wherever the latent sites were tried"),
    ],
)
def test_every_row_is_compared(model: Any, message: str) -> None:
    y = np.random.default_rng(0).normal(size=MANY).astype(np.float32)
    with pytest.raises(ValueError, match=message):
        posterior(model, y)


def test_small_deterministic_sites_are_compared() -> None:
    def model(y: Any) -> None:
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.deterministic("of rows", 1e-6 * jnp.mean(y) * z)
        numpyro.deterministic("of all", 1e-6 * z)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(z, 1), obs=y)

    assert posterior(model, np.arange(NUM_ROWS, dtype=np.float32)).deterministic == ("of all",)


def test_in_float32_where_a_model_takes_no_other() -> None:
    def model(y: Any) -> None:
        z = numpyro.sample("z", dist.Normal(0, 1))
        last, _ = jax.lax.scan(lambda at, _: (at + 0.1 * z, at), jnp.zeros((), jnp.float32), jnp.arange(3))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(last, 1), obs=y)

    made = posterior(model, Y)
    u = {"z": jnp.float32(0.3)}
    energy = potential_energy(handlers.seed(model, 0), (jnp.asarray(Y),), {}, u)
    assert float(log_density(made)(u, made.data)) == pytest.approx(-float(energy), rel=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (standardising, "log density of a row is another.*such as their mean, compute before"),
        (prior_of_the_data, "what is outside of the plate depends on the rows.*such as their mean, compute before"),
        (counting, "cannot be traced with arrays for group: .*such as the number of groups, as whole numbers"),
    ],
)
def test_models_that_need_all_rows_are_refused(model: Any, message: str) -> None:
    values = np.random.default_rng(0).integers(0, 4, NUM_ROWS).astype(np.int32)
    with pytest.raises(ValueError, match=message):
        posterior(model, values if model is counting else values.astype(np.float32))


def test_frames_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"`y` is no array: give `y.to_numpy\(\)`"):
        posterior(lambda y: closed_over(), y=pandas.Series(Y))


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a NumPyro model, a function, and its arguments; got 3"):
        posterior(3)
    with pytest.raises(TypeError, match=r"A NumPyro model is given by `fit\(bridges.numpyro.posterior\(model"):
        tc.fit(regression)
    with pytest.raises(
        TypeError, match=r"`prepare\(posterior=...\)` must be a Posterior.*by `bridges.numpyro.posterior"
    ):
        tc.prepare(regression, Y, {"w": 0.0})  # ty: ignore[invalid-argument-type]
