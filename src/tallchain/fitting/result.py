"""A fit: the draws, what they say by name, what they cost, and how far to trust them."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tallchain.checking.auditing import audit
from tallchain.checking.findings import Audit
from tallchain.checking.trace import Trace
from tallchain.fitting.held import Held, Pending
from tallchain.fitting.variables import Variable, variables_of
from tallchain.kernel import MetropolisHastings
from tallchain.keys import make_key
from tallchain.models import Regression
from tallchain.models.prediction import Prediction
from tallchain.prepared import Prepared
from tallchain.report.facts import Facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tallchain.fitting.saving import Saved
    from tallchain.fitting.table import SummaryTable
    from tallchain.formulas import Spec


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """A posterior that was drawn from; `print` it for the summary.

    There is no comparison of models by leave-one-out or the like: that needs the log likelihood of every row at every
    draw, N x draws numbers, which is what this library avoids; compare models by `predict` on rows held out.
    """

    model: Regression | None
    """None for a posterior of own functions. A fit that was loaded has the model without its rows, and one with room
    for more rows has some of them."""
    trace: Trace
    facts: Facts
    """Everything that the report says."""
    spec: Spec | None = None
    """How a table becomes rows of the model, if there was a formula."""
    prepared: Prepared | None = None
    """None for a fit that was loaded."""
    given: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Acceptance test and proposal, if they were given."""
    num_updates: int = 0
    """How often rows have been added."""
    pending: Pending | None = None
    """The last of them, if they were too few to see whether they drift."""

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """The draws by name, (chain, draw, ...): standard deviations and not their logs."""
        return {variable.name: variable.draws for variable in self._variables}

    def summary(self, *, effects: bool | None = None) -> SummaryTable:
        """Return a frame of pandas with a line for each parameter; `print` it for more.

        Args:
            effects: list group effects too; None lists them if there are at most 20.
        """
        from tallchain.fitting.table import SummaryTable

        of_groups = self.facts.of_kind("group effect")
        listed = len(of_groups) <= _FEW if effects is None else effects
        chosen = [each for each in self.facts.parameters if listed or each.kind != "group effect"]
        return SummaryTable.of(self.facts, chosen)

    def predict(
        self,
        new: Any = None,
        interval: float = 0.9,
        *,
        draws: bool = False,
        max_draws: int = 400,
        new_levels: Any = "refuse",
        seed: int | None = None,
        **rows: Any,
    ) -> Prediction:
        """Return what is expected of rows, and outcomes: means and intervals; `.to_pandas()` makes a frame.

        Args:
            new: a frame, or a file, with the columns of the formula. None for those of a regression
                that was made of arrays.
            interval: probability between the ends of the intervals.
            draws: keep the outcomes drawn, one for every draw and row.
            max_draws: draws of the parameters to use.
            new_levels: "refuse" groups that the fit does not have, or "draw" their effects.
            seed: of the outcomes; None for that of the fit.
            rows: for a regression without a formula: `x`, `groups`, `offset`, `rows`, `size`, as `Regression.predict`.
        """
        if self.model is None:
            raise ValueError(
                "`fit.predict(...)`: the model is a posterior of your own functions, which do not say what an outcome "
                "is. Use `fit.draws`."
            )
        key = make_key((self.facts.seed or 0) if seed is None else seed)
        options: dict[str, Any] = {"key": key, "draws": draws, "max_draws": max_draws, "new_levels": new_levels}
        is_in_order = self.prepared is not None and self.spec is None and self._has_all_rows
        if new is None and not rows and not is_in_order:
            raise ValueError(
                "`fit.predict()`: a fit of a formula, with room for more rows, or that was loaded, does not keep the "
                "rows in their order; give them, or others: `fit.predict(frame)`."
            )
        if new is not None and self.spec is not None:
            from tallchain.tables import open_table

            rows = self.spec.new_rows(open_table(new, "fit.predict(new=...)")) | rows
        elif new is not None:
            rows = {"data": new} | rows
        return self.model.predict(self.trace, **rows, interval=interval, **options)

    def update(
        self,
        new_rows: Any,
        *,
        missing: Literal["refuse", "drop"] = "refuse",
        num_draws: int | None = None,
        max_draws: int | None = None,
        max_seconds: float = math.inf,
        drift: Literal["warn", "refuse"] = "warn",
        room: float = 0.25,
        scan: int = 0,
        progress: bool = True,
    ) -> Fit:
        """Return the fit with more rows, the draws being of the posterior of all rows; this one stays as it is.

        Rows take the places of empty ones, if `fit(room=...)` has left some: then only the new rows are swept, no
        program is compiled, and the chains go on from where they are. If there is no room, or the posterior has moved
        by more than half a standard deviation from where its surrogate was made, all rows are prepared again.

            fit = tallchain.fit("late ~ distance + (1 | carrier)", january, family="bernoulli", room=0.5)
            for month in others:
                fit = fit.update(month)

        Args:
            new_rows: a table with the columns of the formula, outcome included; for a fit without a formula, rows as
                the fit was given (of a `Regression`, arrays as `model.data` has them).
            missing: "refuse" missing values in the columns used, or "drop" such rows, counted.
            num_draws: effective draws of the worst parameter to ask for; None for as many as before.
            max_draws: to make at most, of all chains; None for 100 times `num_draws`.
            max_seconds: of sampling, at most.
            drift: what becomes of rows that are not like those before (see `fit.facts.findings`): "warn" adds them and
                says so in the summary, "refuse" raises an error.
            room: to make, as a share of all rows, if there is too little.
            scan: proposals at which every row is read at the end, old ones too. Without it, new rows are compared with
                the old ones by how much noise of decisions they make; 8 where all rows are prepared again.
            progress: show what is going on.
        """
        from tallchain.fitting.updating import updated

        options: dict[str, Any] = {"missing": missing, "num_draws": num_draws, "max_draws": max_draws, "drift": drift}
        options |= {"max_seconds": max_seconds, "room": room, "scan": scan, "progress": progress}
        held = Held(*(getattr(self, name) for name in Held._fields))
        return Fit(*updated(held, new_rows, **options))

    def audit(self, **options: Any) -> Audit:
        """Measure how wrong the decisions are: see `tallchain.audit`, whose options these are."""
        if not isinstance(self.trace.kernel, MetropolisHastings):
            raise ValueError("`fit.audit()`: a fit that was loaded has no rows. Run `tallchain check FIT ROWS`.")
        population = self.trace.kernel.source.population.total  # with the places of rows to come
        found = audit(self.trace.kernel, dataclasses.replace(self.trace, num_rows=population), **options)
        return dataclasses.replace(found, num_rows=self.trace.num_rows)

    def to_datatree(
        self,
        predictive: int = 500,
        coords: dict[str, Any] | None = None,
        dims: dict[str, list[str]] | None = None,
    ) -> Any:
        """Return an xarray DataTree with the groups ArviZ expects: coefficients and groups by name.

        Args:
            predictive: rows, spread over all, of which outcomes are drawn for `posterior_predictive`, and given as
                observed in `observed_data`; 0 leaves these groups out, and so does a fit that was loaded, has weights,
                or is of functions of your own.
            coords: values of dimensions, by dimension, as `arviz_base.from_dict` takes them.
            dims: names of the dimensions of a parameter, except chain and draw, by parameter.
        """
        from tallchain.fitting.trees import datatree

        return datatree(self.model, self.trace, self.facts, predictive, coords, dims)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the coefficients with their intervals; `tallchain.plots` has more."""
        from tallchain import plots

        return plots.coefficients(self.named_trace, axes=axes)

    @property
    def named_trace(self) -> Trace:
        """The trace with the variables of `draws`, for `tallchain.plots`."""
        found = self._variables
        names = {each.name: each.levels or each.labels for each in found if each.flat.ndim == 3}
        return dataclasses.replace(self.trace, position={each.name: each.flat for each in found}, names=names)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained page of HTML that says all of it."""
        from tallchain.fitting.saving import write_report

        return write_report(self._saved, Path(path))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a folder: fit.json, draws.nc, summary.csv and report.html. `Fit.load` reads it; it holds no rows."""
        from tallchain.fitting.saving import save

        return save(self._saved, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Fit:
        """Read what `save` wrote; safe for files from somebody else: nothing in them is run."""
        from tallchain.fitting.saving import load

        return cls(**load(Path(path))._asdict())

    @property
    def _has_all_rows(self) -> bool:
        return self.model is None or len(self.model.data["x"]) == self.facts.num_rows

    @property
    def _variables(self) -> list[Variable]:
        return variables_of(self.model, self.trace, () if self.spec is None else self.spec.outcome_levels)

    @property
    def _saved(self) -> Saved:
        from tallchain.fitting.saving import Saved

        return Saved(self.model, self.trace, self.facts, self.spec)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        of, chains = self.facts, self.facts.convergence
        return f"Fit({of.title!r}, {of.num_rows:,} rows, {chains.num_chains} chains x {chains.num_draws} draws)"


_FEW = 20
