"""Every acceptance test, on every source, against closed forms; and broken samplers, which the check must refuse."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from checks import agrees, check_records, ks_p_values, run, z_scores
from registry import ACCEPTANCE, FEW_ROWS, READS_ALL, SETTINGS, SOUND, SOURCES
from scenarios import BATCH_SIZE, NUM_ROWS, SCENARIOS, Redrawn
from tallchain.acceptance import MinibatchBarker
from tallchain.parts import part, replace
from tallchain.types import Array, Proposed, Target

# `make test` runs every test on one source and one target, and one test on every source and two targets; the rest of
# the product, and settings of the same tests, are for `make test-slow`.


def _is_fast(name: str, source: str, scenario: str) -> bool:
    # Row by row, compiled the quickest way, all rows take long.
    if name in READS_ALL or name == "austere":
        return source == "windows" and scenario == "normal mean" and name not in (*SETTINGS, "austere designed")
    if name == "minibatch":
        return scenario == ("two states" if source == "windows" else "normal vector")
    return source == "row by row" and scenario == "normal vector" and name not in SETTINGS


PRODUCT = [
    pytest.param(name, source, scenario, marks=[] if _is_fast(name, source, scenario) else [pytest.mark.slow])
    for names, sources in ((SOUND, SOURCES), (SETTINGS, ["row by row"]))
    for name in names
    for source in sources
    for scenario in SCENARIOS
]


@pytest.mark.parametrize(("acceptance", "source", "scenario"), PRODUCT)
def test_agrees_with_the_closed_form(acceptance: str, source: str, scenario: str) -> None:
    # Tests that read every row get few of them; windows are for data of many times their width.
    target = SCENARIOS[scenario](FEW_ROWS if acceptance in READS_ALL else NUM_ROWS)
    trace = run(target, (ACCEPTANCE | SETTINGS)[acceptance](), SOURCES[source])
    check_records(trace, 300, 100, may_stay=scenario == "two states")
    assert agrees(trace, target), (z_scores(trace, target), ks_p_values(trace, target))


# ---- negative controls -------------------------------------------------------------------------


def test_check_refuses_a_dropped_correction() -> None:
    target = SCENARIOS["normal mean"]()
    broken = MinibatchBarker()
    broken = replace(broken, tables=replace(broken.tables, atoms=jnp.zeros_like(broken.tables.atoms)))
    assert not agrees(run(target, broken, SOURCES["windows"]), target)


@part
class _Uncorrected:
    """A proposal that forgets its log correction."""

    proposal: object

    def check(self, position: Array) -> None:
        pass

    def draw(self, key: Array, position: Array) -> Array:
        return self.proposal.draw(key, position)

    def propose(self, noise: Array, position: Array, target: Target) -> Proposed:
        return self.proposal.propose(noise, position, target)._replace(log_correction=0.0)


@pytest.mark.parametrize("acceptance", ["metropolis", "minibatch"])
def test_check_refuses_a_dropped_log_correction(acceptance: str) -> None:
    target = SCENARIOS["two states"](FEW_ROWS if acceptance in READS_ALL else NUM_ROWS)
    broken = _Uncorrected(target.proposal)
    assert not agrees(run(target, ACCEPTANCE[acceptance](), SOURCES["windows"], proposal=broken), target)


def test_check_refuses_noise_redrawn_at_each_look() -> None:
    target = SCENARIOS["two states"]()
    assert not agrees(run(target, Redrawn(), SOURCES["windows"]), target)


def test_check_refuses_the_wrong_temperature() -> None:
    target = SCENARIOS["normal vector"]()
    broken = target._replace(posterior=replace(target.posterior, temperature=1.3 * target.posterior.temperature))
    assert not agrees(run(broken, ACCEPTANCE["minibatch"](), SOURCES["row by row"]), target)


def test_the_minibatch_tests_pad_and_grow_on_these_targets() -> None:
    """Else the agreement above would say little: s2 is neither negligible nor always below sigma^2 at once."""
    trace = run(SCENARIOS["normal mean"](), ACCEPTANCE["minibatch"](), SOURCES["windows"], chains=100, length=50)
    assert 1.05 < trace.rows_read.mean() / BATCH_SIZE < 2.0
