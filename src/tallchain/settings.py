"""What a sampler is made of, in words: test, proposal, prior and temperature."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tallchain.abilities import ReadingProposal
from tallchain.firefly import FireflyMC
from tallchain.functions import Function
from tallchain.kernel import MetropolisHastings
from tallchain.stochastic import StochasticGradient
from tallchain.types import ExactTest

_LONGEST = 100


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run, in words."""

    test: str
    proposal: str
    prior: str
    temperature: float
    """K; under a schedule, at the last draw."""
    is_scheduled: bool = False
    """Whether a schedule sets the temperature."""
    is_exact: bool = False
    """Whether the test leaves the posterior unchanged, whatever the rows."""
    gradients_per_row: int = 0
    """Of the rows that a proposal reads, which are counted as scanned."""
    is_tested: bool = True
    """Whether there is a test at all."""

    @property
    def is_tempered(self) -> bool:
        """Whether the draws are not from the posterior."""
        return self.temperature != 1

    def lines(self) -> list[str]:
        """A line for each."""
        when = " at the last draw, by a schedule" if self.is_scheduled else ""
        tempered = "   tempered: NOT the posterior" if self.is_tempered else ""
        many = "a gradient" if self.gradients_per_row == 1 else f"{self.gradients_per_row} gradients"
        return [
            f"test                 {self.test}{'   exact' if self.is_exact else ''}",
            f"proposal             {self.proposal}",
            *([f"gradients            {many} of every row that it scans"] if self.gradients_per_row else []),
            f"prior                {self.prior}",
            f"temperature          {self.temperature:,.10g}{when}{tempered}",
        ]


def settings_of(kernel: MetropolisHastings | FireflyMC | StochasticGradient, *, is_scheduled: bool = False) -> Settings:
    """Describe a kernel."""
    test, proposal = _test_and_proposal(kernel)
    return Settings(
        test,
        proposal,
        name_of(kernel.posterior.log_prior),
        float(kernel.posterior.temperature),
        is_scheduled,
        is_exact(kernel),
        kernel.proposal.gradients_per_row if isinstance(kernel.proposal, ReadingProposal) else 0,
        kernel.acceptance is not None,
    )


def _test_and_proposal(kernel: MetropolisHastings | FireflyMC | StochasticGradient) -> tuple[str, str]:
    if isinstance(kernel, StochasticGradient):
        count = kernel.gradients_per_row
        gradients = "1 gradient" if count == 1 else f"{count} gradients"
        rows = f"{kernel.rows:,} rows an update, {gradients} of each"
        return "none: every update is kept, so the draws are biased", f"{describe(kernel.dynamics)}, {rows}"
    test = kernel.words if isinstance(kernel, FireflyMC) else describe(kernel.acceptance, static_only=True)
    return test, describe(kernel.proposal)


def is_exact(kernel: MetropolisHastings | FireflyMC | StochasticGradient) -> bool:
    """Whether the test leaves the posterior unchanged, whatever the rows: not if it sees a part of them at a time."""
    test = kernel.acceptance
    return isinstance(test, ExactTest) and test.is_exact and not kernel.source.population.is_part


def describe(part: Any, *, static_only: bool = False) -> str:
    """Return the name of a part with those settings that are plain values, arrays or parts without arrays."""
    if not dataclasses.is_dataclass(part):
        return name_of(part)
    values = [(f, getattr(part, f.name)) for f in dataclasses.fields(part)]
    if static_only:
        values = [(f, value) for f, value in values if f.metadata.get("static") or not jax.tree.leaves(value)]
    said = ((f.name, _plain(value)) for f, value in values)
    return f"{type(part).__name__}({', '.join(f'{name}={value}' for name, value in said if value)})"


def _plain(value: Any) -> str:
    """Return a value in words; empty for a value with arrays of its own."""
    if isinstance(value, bool | int | float | str):
        return repr(value)
    if dataclasses.is_dataclass(value) and not jax.tree.leaves(value):
        return describe(value)
    shape = getattr(value, "shape", None)
    if shape is None:
        return ""
    if shape == ():
        return f"{np.asarray(value).item():.4g}"
    return f"{shape[0]} numbers" if len(shape) == 1 else f"{' x '.join(map(str, shape))} matrix"


def name_of(function: Any) -> str:
    """Return the name of a function, or the description of a callable object."""
    function = inspect.unwrap(function.function if isinstance(function, Function) else function)
    if isinstance(function, functools.partial):
        return f"{name_of(function.func)} (partial)"
    code = getattr(function, "__code__", None)
    if code is not None and function.__name__ == "<lambda>":
        return f"lambda in {Path(code.co_filename).name}, line {code.co_firstlineno}"
    if hasattr(function, "__qualname__"):
        return function.__qualname__.removeprefix("<locals>.").split("<locals>.")[-1]
    said = repr(function)
    is_useful = len(said) <= _LONGEST and " at 0x" not in said
    return said if is_useful else type(function).__name__
