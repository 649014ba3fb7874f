"""From a table and a formula to a posterior, in one call."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import numpy as np

from tallchain.checking.replicas import LEAST_DRAWS, predictive_check
from tallchain.fitting.advising import advice_of
from tallchain.fitting.checkpointing import rounds_in
from tallchain.fitting.gathering import Asked, facts_of
from tallchain.fitting.result import Fit
from tallchain.fitting.roomy import check_room, of_present, rehearsed, sample_of, shuffled_with_room
from tallchain.fitting.running import Limits, Ran, dispersed, num_chains_for, run
from tallchain.fitting.variables import check_names
from tallchain.interrupts import catch_interrupt
from tallchain.keys import fold_in, make_key
from tallchain.memory import release
from tallchain.models import Posterior, Regression
from tallchain.models.collinear import determined
from tallchain.models.families import Family
from tallchain.models.priors import Prior
from tallchain.models.regression import with_rows
from tallchain.packs import is_packed, open_design
from tallchain.parts import is_part
from tallchain.prepare import prepare
from tallchain.prepared import Prepared
from tallchain.report.facts import Facts
from tallchain.settings import describe
from tallchain.sources import as_shuffled
from tallchain.sources.rows import take_data
from tallchain.sources.stored import Stored
from tallchain.sources.taking import is_source
from tallchain.surrogates.no_reference import NoReferenceError
from tallchain.types import AcceptanceTest, Array, ModelWithRows, Proposal, PyTree
from tallchain.validation import RowError, brief, check_switch, is_positive, is_whole

if TYPE_CHECKING:
    from tallchain.formulas import Spec

_MOST_DRAWS = 100  # draws made for one effective draw that was asked for


def fit(
    model: str | Regression | Posterior | ModelWithRows | Prepared,
    data: Any = None,
    *,
    family: str | Family | None = None,
    prior: Prior | None = None,
    weights: str | None = None,
    offset: str | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    initial: PyTree = None,
    num_draws: int = 4000,
    seed: int = 0,
    num_chains: int | None = None,
    acceptance: AcceptanceTest | None = None,
    proposal: Proposal | None = None,
    max_draws: int | None = None,
    max_seconds: float = math.inf,
    scan: int = 8,
    check: bool = True,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    memory: str | float = "4GB",
    room: float = 0.0,
) -> Fit:
    """Prepare, sample until the draws are enough, check them, and say what was done and how far to trust it.

    Draws are enough when every parameter has `num_draws` effective ones, in bulk and in its tails, and an R-hat of at
    most 1.01. Ctrl-C ends the sampling and keeps the draws. The seed determines them: the same call, the same draws.

        fit("delayed ~ distance + hour + (1 | carrier)", frame, family="bernoulli")

    Args:
        model: a formula; or a `Regression`, a `Posterior`, a model of another library by way of `bridges`, or what
            `prepare` returned.
        data: the table for a formula: a frame, a dict of arrays, or a file (CSV, Parquet, Arrow, .npz) or a folder of
            Parquet files, or one that `pack` made with the same formula; the rows for a `Posterior`, as `prepare` takes
            them.
        family: of the outcomes, for a formula: a name such as "bernoulli", "poisson" or "probit", or a family.
        prior: for a formula; None for weakly informative ones, see `Prior`.
        weights: a column that says how often each row counts, for a formula.
        offset: a column that is added to the linear predictor, for a formula.
        missing: "refuse" missing values in the columns used, or "drop" such rows, counted.
        initial: a position to start the search for the mode from, for a `Posterior`.
        num_draws: effective draws of the worst parameter to ask for.
        seed: of everything random.
        num_chains: None for 64, or 16 where a candidate is costly.
        acceptance: how to decide; None for what `prepare` chose.
        proposal: None for what `prepare` chose.
        max_draws: to make at most, of all chains; None for 100 times `num_draws`.
        max_seconds: of sampling, at most; the scan comes after.
        scan: proposals at which every row is read at the end, unless the test is exact.
        check: compare outcomes with outcomes drawn from the fit (a posterior predictive check of a regression).
        progress: show what is going on (needs `rich`); without a terminal, a line every ten seconds or more.
        checkpoint: a folder in which to keep the draws as they come. The same call goes on from there, however the
            process before ended, and makes the same draws. It reads the data and prepares again; `max_seconds` is of
            each call.
        memory: of the rows of a packed table that are in memory at a time, about.
        room: for rows that `fit.update` will add, as a share of those there are: 0.25 has room for a quarter more.
            Decisions then read that many more rows for the same noise, if they read more than the least.
    """
    limits = _limits(num_draws, max_draws, max_seconds)
    _check(seed, num_chains, scan, check, progress)
    of_formula = {"family": family, "prior": prior, "weights": weights, "offset": offset}
    chosen: dict[str, Any] = {"num_draws": num_draws, "seed": seed, "num_chains": num_chains, "max_draws": max_draws}
    chosen |= of_formula | {"missing": missing, "max_seconds": max_seconds, "scan": scan, "acceptance": acceptance}
    chosen |= {"proposal": proposal} | ({"room": room} if check_room(room) else {})
    with rounds_in(checkpoint) as rounds:
        began = time.perf_counter()
        given = _given(model, data, of_formula, missing, initial, memory, progress=progress)
        reading = time.perf_counter() - began if isinstance(model, str) else 0.0
        rounds.begin(model, given.asked.checksum, chosen)
        num_rows = given.num_rows
        given = given.with_room(room) if room else given.shuffled()
        release()
        prepared = model if isinstance(model, Prepared) else _prepared(given, seed, progress=progress)
        key = make_key(seed)
        prepared = rehearsed(prepared, key) if room else prepared
        kernel = prepared.kernel(acceptance, proposal)
        chains = num_chains or num_chains_for(kernel)
        release()
        starts = dispersed(prepared, fold_in(key, 1), chains)
        options: dict[str, Any] = {"scan": scan, "progress": progress, "place": rounds.place}
        ran = run(fold_in(key, 0), kernel, starts, chains, limits, **options)
        call = _call(model, data, chosen)
        if room:
            prepared = of_present(prepared, num_rows)
            ran = ran._replace(trace=dataclasses.replace(ran.trace, num_rows=num_rows))
        asked = given.asked._replace(num_draws=num_draws, seed=seed, reading_seconds=reading, call=call)
        release()
        facts = _described(given, prepared, ran, asked, limits, fold_in(key, 2) if check else None)
        release()
        parts = {"acceptance": acceptance, "proposal": proposal}
        return Fit(given.model, ran.trace, facts, given.spec, prepared, parts)


def _call(model: Any, data: Any, options: dict[str, Any]) -> str:
    """Write the call, without what was left at its default."""
    defaults = inspect.signature(fit).parameters
    said = [repr(model) if isinstance(model, str) else type(model).__name__.lower()]
    if data is not None:
        said.append(repr(str(data)) if isinstance(data, str | os.PathLike) else "data")
    given = {name: value for name, value in options.items() if repr(value) != repr(defaults[name].default)}
    said += [f"{name}={_brief(value)}" for name, value in given.items()]
    return f"tallchain.fit({', '.join(said)})"


def _brief(value: Any) -> str:
    return describe(value) if is_part(value) else repr(value)


class _Given(NamedTuple):
    """What there is to fit."""

    model: Regression | None
    rows: tuple[Any, ...]
    """The arguments of `prepare`."""
    asked: Asked
    spec: Spec | None = None
    keep: np.ndarray | None = None
    """Which rows of the table are in the model; None for all."""

    @property
    def num_rows(self) -> int:
        """Rows of the table or of the model; 0 if only a source has them."""
        model, rows = (*self.rows, None, None)[:2]
        if rows is None and isinstance(model, Regression | ModelWithRows):
            rows = model.data
        return 0 if rows is None or is_source(rows) else len(jax.tree.leaves(rows)[0])

    def with_room(self, room: float) -> _Given:
        """Copy the rows in random order, with empty ones among them."""
        model, data, start = (*self.rows, None, None)[:3]
        if isinstance(model, Regression | ModelWithRows):
            data, start = model.data if data is None else data, model.start if start is None else start
        if data is None or is_source(data):
            raise ValueError(
                "`fit(room=...)` needs the rows themselves, in memory: a table, arrays or a model with rows; got "
                f"{brief(data)}. Leave `room` out."
            )
        posterior: Any = model.posterior if isinstance(model, Regression | ModelWithRows) else model
        posterior, source = shuffled_with_room(posterior, take_data("fit", data)[0], room)
        found = self._replace(rows=(posterior, source, start))
        if self.model is None:
            return found
        return found._replace(model=with_rows(self.model, sample_of(self.model, source)))

    def shuffled(self) -> _Given:
        """Copy the rows of a table in random order, and let go of the design that was made of it."""
        if self.spec is None or self.model is None or len(self.rows) > 1:  # a packed table is in random order
            return self
        source = as_shuffled("fit", self.model.data, None)
        assert isinstance(source, Stored)
        rows = {name: np.asarray(leaf)[: source.num_data] for name, leaf in source.data.items()}
        model = with_rows(self.model, rows)
        return self._replace(model=model, rows=(model, source))


def _given(
    model: Any, data: Any, of_formula: dict[str, Any], missing: str, initial: Any, memory: Any, *, progress: bool
) -> _Given:
    """Read a formula, or take what is given."""
    if isinstance(model, str):
        if initial is not None:
            raise TypeError("`fit(formula, initial=...)`: a regression has a start of its own; leave `initial` out.")
        if is_packed(data):
            return _of_packed(model, data, of_formula, memory)
        return _of_formula(model, data, of_formula, missing, progress=progress)
    for name, value in (*of_formula.items(), ("missing", None if missing == "refuse" else missing)):
        if value is not None:
            raise TypeError(f"`fit(model, {name}=...)` goes with a formula; got {brief(value)}. Give it to the model.")
    if isinstance(model, Regression):
        check_names("fit(model)", model)
        return _Given(model, (model, data, initial), Asked())
    if isinstance(model, Posterior | ModelWithRows):
        return _Given(None, (model, data, initial), Asked())
    if isinstance(model, Prepared):
        if data is not None or initial is not None:
            raise TypeError("`fit(prepared)` has its rows; leave `data` and `initial` out.")
        return _Given(None, (), Asked())
    hint = " A NumPyro model is given by `fit(bridges.numpyro.posterior(model, ...))`." if callable(model) else ""
    raise TypeError(
        f"`fit(model=...)` must be a formula, a Regression, a Posterior or a Prepared; got {brief(model)}.{hint}"
    )


def _of_formula(formula: str, data: Any, options: dict[str, Any], missing: Any, *, progress: bool) -> _Given:
    from tallchain.formulas import build
    from tallchain.tables import open_table

    if data is None:
        raise TypeError(f"`fit({formula!r})`: give the table, as `data=`: a frame, or the name of a file.")
    if options["family"] is None:
        raise TypeError(
            f'`fit({formula!r}, data)`: say what the outcomes are, e.g. `family="bernoulli"` for 0 and 1, "gaussian" '
            'for numbers, "poisson" for counts.'
        )
    table = open_table(data, "fit(data=...)")
    built = build(formula, table, **options, missing=missing, progress=progress)
    outcome = built.spec.plan.outcome.text
    asked = Asked(formula=formula, outcome=outcome, checksum=table.checksum(), num_dropped=built.num_dropped)
    asked = asked._replace(words=built.words, dropped=built.missing, outcome_levels=built.spec.outcome_levels)
    check_names(f"fit({formula!r})", built.model)
    return _Given(built.model, (built.model,), asked, built.spec, built.keep)


def _of_packed(formula: str, data: Any, options: dict[str, Any], memory: Any) -> _Given:
    """Take the design that was packed."""
    design = open_design(data)
    design.check(formula, options["family"], options)
    source, facts = design.source(memory), design.facts
    model = design.model(source, options["prior"])
    asked = Asked(formula=formula, outcome=design.spec.plan.outcome.text, checksum=design.checksum)
    asked = asked._replace(words=tuple(facts["words"]), outcome_levels=design.spec.outcome_levels)
    asked = asked._replace(num_dropped=facts["num_dropped"], dropped=facts["missing"])
    check_names(f"fit({formula!r})", model)
    return _Given(model, (model, source), asked, design.spec)


def _prepared(given: _Given, seed: int, *, progress: bool) -> Prepared:
    """Prepare; where there is no mode, name the columns that are to blame, if they are."""
    try:
        return prepare(*given.rows, seed=seed, progress=progress)
    except RowError as error:
        from tallchain.formulas.learning import by_row_of_table

        raise by_row_of_table(error, given.keep) from error
    except NoReferenceError as error:
        model = given.model
        if model is None:
            raise
        columns = determined(model.data["x"], model.names, has_intercept=model.layout.has_intercept)
        if not columns:
            raise
        call = repr(given.asked.formula) if given.asked.formula else "model"
        raise NoReferenceError(
            f"`fit({call})`: these determine one another, or hardly vary, to the precision of float32: "
            f"{', '.join(columns)}. Leave one of them out, or centre and scale columns that are far from 0."
        ) from error


def _described(given: _Given, prepared: Prepared, ran: Ran, asked: Asked, limits: Limits, key: Array | None) -> Facts:
    """Gather the facts; a Ctrl-C leaves out the check, for which there is a key if it is wanted."""
    trace = ran.trace
    with catch_interrupt() as interrupt:
        facts, predictive = facts_of(given.model, prepared, trace, asked), None
        has_draws = trace.num_chains * trace.num_draws >= LEAST_DRAWS
        if key is not None and given.model is not None and has_draws and not interrupt.is_set():
            predictive = predictive_check(given.model, trace, key)
        facts = dataclasses.replace(facts, predictive=predictive)
        return dataclasses.replace(facts, advice=advice_of(facts, ran, limits, given.model, prepared))


def _limits(num_draws: Any, max_draws: Any, max_seconds: Any) -> Limits:
    for name, value in (("num_draws", num_draws), ("max_draws", 1 if max_draws is None else max_draws)):
        if not is_whole(value, 1):
            raise ValueError(f"`fit({name}=...)` must be a whole number, at least 1; got {brief(value)}.")
    if not (is_positive(max_seconds) or max_seconds == math.inf):
        raise ValueError(f"`fit(max_seconds=...)` must be a positive number; got {brief(max_seconds)}.")
    return Limits(int(num_draws), int(max_draws or _MOST_DRAWS * num_draws), float(max_seconds))


def _check(seed: Any, num_chains: Any, scan: Any, check: Any, progress: Any) -> None:
    for name, value, least in (
        ("seed", seed, 0),
        ("num_chains", 1 if num_chains is None else num_chains, 1),
        ("scan", scan, 0),
    ):
        if not is_whole(value, least):
            raise ValueError(f"`fit({name}=...)` must be a whole number, at least {least}; got {brief(value)}.")
    check_switch("fit", "check", check)
    check_switch("fit", "progress", progress)
