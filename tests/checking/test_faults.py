"""Errors and warnings that carry the trace: as exceptions, through a process pool, all complaints at once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tallchain as tc
from tallchain.checking.faults import warn_of


def complaining() -> tc.Trace:
    """Few rows, and log ratios that are no numbers: two complaints."""
    shape = (2, 10)
    no = np.zeros(shape, bool)
    return tc.Trace(np.zeros(shape), no, np.full(shape, 5), no * 0, no * 0.0, ~no, num_rows=1000)


@pytest.mark.parametrize("kind", [tc.SamplingError, tc.SamplingWarning])
def test_pickles(kind: type) -> None:
    again = pickle.loads(pickle.dumps(kind("what happened", complaining())))
    assert type(again) is kind
    assert str(again) == "what happened"
    np.testing.assert_array_equal(again.trace.rows_read, complaining().rows_read)


def test_every_complaint_is_a_warning_with_the_trace() -> None:
    trace = complaining()
    with pytest.warns(RuntimeWarning) as caught:
        warn_of(trace, stacklevel=1)
    assert len(caught) == len(trace.complaints()) == 2
    assert all(one.message.trace is trace for one in caught)
    assert caught[0].filename == __file__


def test_a_warning_that_is_an_error_has_all_complaints_and_the_draws() -> None:
    trace = complaining()
    with pytest.raises(tc.SamplingWarning) as caught:  # the tests run with warnings as errors
        warn_of(trace, stacklevel=1)
    assert caught.value.trace is trace
    for complaint in ("fewer than 20 rows", "were NaN or +inf", "The draws are in the `trace` of this exception."):
        assert complaint in str(caught.value)
