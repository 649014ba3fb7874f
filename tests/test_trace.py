"""The trace: names, ArviZ, and a summary that is right."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

import tallchain as tc
from scenarios import normal_vector


@pytest.fixture(scope="module")
def trace() -> tc.Trace:
    target = normal_vector()
    source = tc.Shuffled(target.data, 100)
    kernel = tc.MetropolisHastings(target.posterior, source, proposal=target.proposal)
    return tc.sample(
        jax.random.key(0), kernel, {"a": 0.0, "b": 0.0}, 100, num_chains=4, num_warmup=10, scan=0, progress=False
    )


def test_datatree(trace: tc.Trace) -> None:
    tree = trace.to_datatree()
    assert tree["posterior"]["a"].dims == ("chain", "draw")
    np.testing.assert_array_equal(tree["sample_stats"]["batch_size"].values, trace.num_rows)
    assert set(tree["sample_stats"].data_vars) >= {"accepted", "batch_size", "log_ratio"}


def test_summary_against_numpy(trace: tc.Trace) -> None:
    summary = trace.summary()
    assert [p.name for p in summary.parameters] == ["a", "b"]
    np.testing.assert_allclose(summary.parameters[1].mean, trace.position["b"].mean(dtype=float))
    assert summary.rows.mean == trace.num_rows.mean()
    assert summary.rows.max == trace.num_rows.max()
    assert summary.rows.total == trace.num_rows.sum() + trace.warmup.num_rows
    assert summary.rows.share == pytest.approx(trace.num_rows.mean() / 20_000)
    assert 0.9 < summary.parameters[0].r_hat < 1.5
    json.dumps(summary.to_dict())


def test_summary_is_printable(trace: tc.Trace) -> None:
    text = str(trace.summary())
    for word in ("acceptance", "rows per decision", "99th percentile", "r_hat", "share of the data", "scanned"):
        assert word in text


def test_names_of_vectors_and_records(trace: tc.Trace) -> None:
    import dataclasses

    vector = dataclasses.replace(trace, position=np.stack([trace.position["a"]] * 3, -1))
    assert list(vector.variables()) == ["position"]
    assert [p.name for p in vector.summary().parameters] == ["position[0]", "position[1]", "position[2]"]
    assert "4 chains x 100 draws of position[3]" in repr(vector)
    nested = dataclasses.replace(trace, position={"w": {"bias": trace.position["a"]}})
    assert list(nested.variables()) == ["w.bias"]


def test_few_draws_have_no_effective_sample_size(trace: tc.Trace) -> None:
    import dataclasses

    short = dataclasses.replace(
        trace,
        **{
            name: getattr(trace, name)[:, :2]
            for name in ("is_accepted", "num_rows", "num_scanned", "log_ratio", "is_invalid")
        },
        position=jax.tree.map(lambda leaf: leaf[:, :2], trace.position),
    )
    assert np.isnan(short.summary().parameters[0].ess_bulk)
