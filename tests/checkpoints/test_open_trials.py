"""Chains go on without the trials that were open: these are opened again, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from test_checkpoints import DATA, KERNEL, POSTERIOR, START, assert_same, sample, stop_after

import tallchain as tc
from killed import rows
from tallchain.firefly import FireflyMC
from tallchain.models import Regression, families
from tallchain.runner import Runner
from tallchain.stochastic import SGNHT, StochasticGradient

pytestmark = pytest.mark.filterwarnings("ignore:Chains? .* left out")  # how far they are is a matter of time
KINDS = ["minibatch", "stochastic", pytest.param("firefly", marks=pytest.mark.slow)]
KINDS += [pytest.param("costly", marks=pytest.mark.slow)]


def called(kind: str) -> dict[str, Any]:
    """A kernel whose chains carry something of their own, or whose candidates wait for each other; and a start."""
    if kind == "minibatch":
        return {"kernel": KERNEL, "initial": START}
    if kind == "stochastic":
        pytest.importorskip("blackjax")
        return {"kernel": StochasticGradient(POSTERIOR, tc.Shuffled(DATA, 50), SGNHT(1e-4), 50), "initial": START}
    model = Regression(families.Bernoulli(), **rows(has_groups=kind == "costly"))
    prepared = tc.prepare(model, progress=False)
    kernel = FireflyMC(model, prepared.reference) if kind == "firefly" else prepared.kernel()
    return {"kernel": kernel, "initial": prepared.starts(jax.random.key(2), 8)}


@pytest.fixture(autouse=True)
def _a_state_after_every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallchain.checkpoints.run._SHARE", 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_trials_are_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    call = called(kind)
    whole = sample(**call)
    monkeypatch.setattr(Runner, "lanes", Runner._known)
    for stop in (100, 300):
        assert sample(tmp_path / "run", progress=stop_after(stop), **call).is_interrupted
    assert_same(sample(tmp_path / "run", **call), whole)


def test_chains_that_are_elsewhere_make_other_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself."""
    whole = sample()
    monkeypatch.setattr(Runner, "lanes", lambda run: [run.draw, *(of[::-1].copy() for of in Runner._known(run)[1:])])
    sample(tmp_path, progress=stop_after(100))
    assert np.any(sample(tmp_path).position["a"] != whole.position["a"])
