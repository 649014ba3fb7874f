"""Errors and warnings of a run that carry its trace, so that no finished draw is lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tallchain.checking.recorder import Recorder
from tallchain.checking.trace import Trace


class SamplingError(RuntimeError):
    """Something broke while sampling; `trace` holds the draws that were finished."""

    def __init__(self, message: str, trace: Trace) -> None:
        super().__init__(message)
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.trace)


class SamplingWarning(RuntimeWarning):
    """The draws may be wrong. `trace` holds them, even if a filter turns the warning into an error."""

    def __init__(self, message: str, trace: Trace) -> None:
        super().__init__(message)
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.trace)


@contextmanager
def saving(recorder: Recorder, make_trace: Callable[[], Trace]) -> Generator[None]:
    """Turn any failure into an error that has the draws so far, if there are any."""
    try:
        yield
    except Exception as error:
        if not recorder.has_draws:
            raise
        trace = make_trace()
        raise SamplingError(
            f"Sampling failed: {error!r}. The finished draws, {trace.num_draws:,} of each of "
            f"{trace.num_chains:,} chains, are in the `trace` of this exception.",
            trace,
        ) from error


def warn_of(trace: Trace, stacklevel: int) -> None:
    """Warn of every complaint; where warnings are errors, raise one that has all complaints and the trace."""
    complaints = [complaint[0].upper() + complaint[1:] + "." for complaint in trace.complaints()]
    for complaint in complaints:
        try:
            warnings.warn(SamplingWarning(complaint, trace), stacklevel=stacklevel + 1)
        except SamplingWarning as raised:
            message = "\n".join([*complaints, "The draws are in the `trace` of this exception."])
            raise SamplingWarning(message, trace) from raised
