"""Fits of NumPyro models, and steps within `numpyro.infer.MCMC`, one chain after another, together, and on devices."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

numpyro = pytest.importorskip("numpyro")

import numpyro.distributions as dist  # noqa: E402
from numpyro.infer import MCMC  # noqa: E402

import tallchain as tc  # noqa: E402
from tallchain.bridges.mcmc import _Made  # noqa: E402
from tallchain.bridges.numpyro import TallChain, posterior  # noqa: E402
from tallchain.parts import replace  # noqa: E402

NUM_ROWS = 3000
TESTS = Path(__file__).parents[1]
CODE = """
import numpyro
numpyro.set_host_device_count(2)
import jax, jax.numpy as jnp, numpy as np
from numpyro.infer import MCMC
from tallchain.bridges.numpyro import TallChain
from bridges.test_numpyro_mcmc import model, rows
kernel = TallChain(model)
mcmc = MCMC(kernel, num_warmup=5, num_samples=30, num_chains=2, chain_method="parallel", progress_bar=False)
mcmc.run(jax.random.key(0), rows(), extra_fields=("rows_read",))
assert mcmc.get_samples(group_by_chain=True)["rate"].shape == (2, 30)
assert not np.array_equal(*mcmc.get_samples(group_by_chain=True)["rate"])
print("rows", int(mcmc.get_extra_fields()["rows_read"].max()))
"""


def model(times: Any) -> None:
    """Exponential times: the posterior of the rate is a Gamma distribution."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.deterministic("mean", 1 / rate)
    with numpyro.plate("rows", len(times), subsample_size=50) as i:
        numpyro.sample("time", dist.Exponential(rate), obs=times[i])


def rows() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).exponential(0.5, NUM_ROWS).astype(np.float32))


def truth() -> tuple[float, float]:
    """Mean and standard deviation of the rate."""
    shape, rate = 2 + NUM_ROWS, 1 + float(np.asarray(rows(), np.float64).sum())
    return shape / rate, np.sqrt(shape) / rate


def run(chain_method: str, kernel: TallChain, **options: Any) -> MCMC:
    options = {"num_warmup": 10, "num_samples": 300, "num_chains": 3, "progress_bar": False} | options
    mcmc = MCMC(kernel, chain_method=chain_method, **options)
    mcmc.run(jax.random.key(1), rows(), extra_fields=("rows_read", "accepted", "log_ratio"))
    return mcmc


@pytest.fixture(scope="module")
def kernel() -> TallChain:
    return TallChain(model)


@pytest.fixture(scope="module")
def mcmc(kernel: TallChain) -> MCMC:
    return run("vectorized", kernel)


def test_draws_are_right(mcmc: MCMC) -> None:
    """Independent proposals, nearly all of them accepted: draws are nearly independent."""
    draws = mcmc.get_samples(group_by_chain=True)
    assert {name: of.shape for name, of in draws.items()} == {"rate": (3, 300), "mean": (3, 300)}
    assert np.allclose(draws["mean"], 1 / draws["rate"], rtol=1e-5)
    assert is_right(draws["rate"])


def is_right(rate: Any) -> bool:
    mean, sd = truth()
    return bool(abs(rate.mean() - mean) < 4.5 * sd / np.sqrt(800) and abs(rate.std() / sd - 1) < 0.12)


@pytest.mark.slow
def test_the_check_of_draws_finds_other_posteriors() -> None:
    """That of the square root of the likelihood."""
    with_half = TallChain(numpyro.handlers.scale(model, scale=0.5))
    assert not is_right(run("vectorized", with_half).get_samples(group_by_chain=True)["rate"])


def test_extra_fields_and_diagnostics(mcmc: MCMC, kernel: TallChain) -> None:
    extra = mcmc.get_extra_fields(group_by_chain=True)
    assert {name: of.shape for name, of in extra.items()} == dict.fromkeys(
        ("rows_read", "accepted", "log_ratio"), (3, 300)
    )
    assert int(extra["rows_read"].max()) < NUM_ROWS / 10
    state = jax.tree.map(lambda leaf: leaf[0], mcmc.last_state)
    assert kernel.get_diagnostics_str(state).startswith(f"{int(state.rows_read)} rows a step. acc. prob=")
    assert int(state.i) == 310
    assert kernel.prepared is not None
    assert "mode" in str(kernel.prepared)


def test_converts_to_arviz(mcmc: MCMC) -> None:
    arviz_base = pytest.importorskip("arviz_base")
    tree = arviz_base.from_numpyro(mcmc)
    assert set(tree["posterior"].data_vars) == {"rate", "mean"}
    assert tree["sample_stats"]["rows_read"].shape == (3, 300)


@pytest.mark.slow
def test_goes_on_where_it_ended(kernel: TallChain) -> None:
    mcmc = run("vectorized", kernel, num_samples=50)
    mcmc.post_warmup_state = mcmc.last_state
    mcmc.run(mcmc.post_warmup_state.rng_key, rows())
    assert int(mcmc.last_state.i.max()) == 110


@pytest.mark.slow
def test_one_chain_after_another(kernel: TallChain, capfd: pytest.CaptureFixture[str]) -> None:
    """With progress."""
    found = run("sequential", kernel, num_chains=2, num_samples=30, progress_bar=True)
    assert found.get_samples(group_by_chain=True)["rate"].shape == (2, 30)
    found.print_summary()
    assert "rate" in capfd.readouterr().out


def test_traced_arguments_are_refused(mcmc: MCMC, kernel: TallChain) -> None:
    """Else a second run of `MCMC(jit_model_args=True)`, with other data, would read the rows of the first."""
    with pytest.raises(ValueError, match=r"arguments are traced.*Leave `MCMC\(jit_model_args=True\)` out"):
        jax.eval_shape(lambda times: kernel.sample(mcmc.last_state, (times,), {}), rows())


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"mean": np.ones(3)}, r"without constraints, of these shapes: {'rate': \(3,\)}; got {'mean': \(3,\)}"),
        ({"rate": np.ones((3, 1))}, r"of these shapes: {'rate': \(3,\)}; got {'rate': \(3, 1\)}"),
        ({"rate": np.array([0.0, np.nan, 0.0])}, "be finite; got .* for rate"),
    ],
)
def test_starts_are_checked(mcmc: MCMC, kernel: TallChain, start: Any, message: str) -> None:
    arguments = mcmc._args  # those that the kernel has prepared for
    with pytest.raises(ValueError, match=r"`mcmc.run\(init_params=...\)` must .*" + message):
        kernel.init(jax.random.split(jax.random.key(0), 3), 0, start, arguments, {})


def test_float32_is_refused_where_it_is_not_enough(mcmc: MCMC, kernel: TallChain) -> None:
    assert kernel._made is not None
    wide = TallChain(model)
    wide._made = kernel._made._replace(kernel=replace(kernel._made.kernel, in_float64=True))
    with pytest.raises(ValueError, match=r"Run inside `with jax.enable_x64\(True\):`"):
        wide.init(jax.random.key(0), 0, None, mcmc._args, {})


def test_names_of_arguments_count() -> None:
    """The same arrays by other names are other arguments."""
    array = np.zeros(3)
    made = _Made(None, None, None, None, ((), {"low": array}))  # ty: ignore[invalid-argument-type]
    assert made.is_for((), {"low": array})
    assert not made.is_for((), {"high": array})
    assert not made.is_for((), {"low": array.copy()})


def test_can_be_pickled(kernel: TallChain) -> None:
    assert pickle.loads(pickle.dumps(kernel)).prepared is None


@pytest.mark.slow
def test_chains_on_devices() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    assert "rows 40" in done.stdout


@pytest.mark.slow
def test_a_fit_has_the_sites(tmp_path: Any) -> None:
    fit = tc.fit(posterior(model, rows()), num_draws=4000, progress=False)
    assert list(fit.draws) == ["rate", "mean"]
    assert fit.prepared is not None
    mean, sd = truth()
    (rate,) = (each for each in fit.facts.parameters if each.name == "rate")
    assert abs(rate.mean - mean) < 4.5 * rate.mcse
    assert rate.sd == pytest.approx(sd, rel=0.1)
    assert fit.audit(num_decisions=60, progress=False).is_sound
    options: dict[str, Any] = {"progress": False, "scan": 0, "num_chains": 4, "checkpoint": tmp_path / "run"}
    kernel, starts = fit.prepared.kernel(), fit.prepared.starts(jax.random.key(0), 4)
    first, second = (tc.sample(jax.random.key(1), kernel, starts, 20, **options) for _ in range(2))
    assert np.array_equal(first.position["mean"], second.position["mean"])
    fit.save(tmp_path / "fit")
    assert list(tc.Fit.load(tmp_path / "fit").draws) == ["rate", "mean"]
