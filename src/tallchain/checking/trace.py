"""The draws, what they cost, and what they say."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from tallchain.acceptance.stopping import LEAST_ROWS
from tallchain.checking.convergence import Parameter, parameters_of
from tallchain.checking.moments import Moments
from tallchain.checking.summary import Rows, Summary, few
from tallchain.checking.trees import datatree
from tallchain.checking.verdict import Scan
from tallchain.checks import position_of
from tallchain.coordinates import coordinates_of
from tallchain.digest import COUNTED
from tallchain.names import all_coordinates, coordinates, in_order_of, named_leaves
from tallchain.schedule import Kernel
from tallchain.settings import Settings
from tallchain.types import PyTree, Verdict
from tallchain.validation import brief

BY_DRAW = ("is_accepted", "rows_read", "rows_scanned", "log_ratio", "is_invalid")
"""Fields by (chain, draw), with the extras."""
_TIMES = ("seconds", "compile_seconds", "scan_seconds")
_FEW_SHARE = 0.01  # of the decisions that may use very few rows


@dataclasses.dataclass(frozen=True)
class Tally:
    """Totals over some decisions."""

    num_decisions: int = 0
    num_accepted: int = 0
    rows_read: int = 0
    rows_scanned: int = 0
    num_invalid: int = 0
    num_infinite: int = 0

    @classmethod
    def of(cls, verdict: Verdict, is_counted: np.ndarray) -> Tally:
        """Add up some of the decisions."""
        sums = (int(np.asarray(getattr(verdict, name))[is_counted].sum(dtype=np.int64)) for name in COUNTED)
        return cls(int(is_counted.sum()), *sums)

    def __add__(self, other: Tally) -> Tally:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Tally(*(a + b for a, b in pairs))

    def __sub__(self, other: Tally) -> Tally:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Tally(*(a - b for a, b in pairs))


@dataclasses.dataclass(frozen=True)
class Trace:
    """Draws of many chains, by (chain, draw), with the verdict of each decision.

    Args:
        position: the draws, a pytree of arrays (chain, draw, ...); dicts have their keys in the order of the initial
            position's. Of a posterior with constraints they are of the parameters, as its functions take them.
        is_accepted: whether the decision moved the chain.
        rows_read: rows the test looked at.
        rows_scanned: additional rows scanned, for bounds, designs or proposals.
        log_ratio: the estimate of the log ratio that the decision used.
        is_invalid: the log ratio was NaN or +inf, which counts as a rejection.
        extras: what else the test reports about a decision, by name.
        num_rows: N, the number of rows.
        warmup: totals over the warm-up draws.
        thin: every `thin`-th draw was kept, from the first after the warm-up.
        all_decisions: totals over the decisions of all chains after the warm-up, if the trace is thinned.
        moments: moments and quantiles of all draws, with `sample(keep="moments")`; then the summary is of these. Those
            of an interrupted run have every finished draw, also of chains that were cut or left out.
        seconds: time spent sampling, including warm-up but not compilation.
        compile_seconds: other time spent before the draws were made: checks, compilation, moving a surrogate.
        scan_seconds: time spent on the scan.
        is_interrupted: Ctrl-C, or a fault, ended the run (perhaps in its last chunk, with all draws made).
        left_out: chains of an interrupted run that are not in the trace, by number, and the draws each had finished.
            A chain without a draw is left out, and so are chains so far behind that cutting the others to their
            length would cost more than half of the draws.
        is_one_start: all chains started from the same position.
        notes: what else happened during the run, in words.
        key: the words of the key that determined the draws, if it is known.
        names: labels for the entries of a vector, by its name in `variables`; they name the parameters in the summary,
            and are coordinates of the DataTree.
        settings: test, proposal, prior and temperature, in words.
        scan: what the scan at the end of the run has shown; None if there was none.
        sampled: the draws in the coordinates of the sampler, if the posterior has constraints; None where they are the
            position. `unconstrained` has either.
        before: the draws of the warm-up, if they were kept.
        kernel: the sampler as it was at the end of the run, for `audit(trace.kernel, trace)`: with the surrogate that
            `recentre` has moved, and with the temperature and the scale of a schedule at the last draw kept. It holds
            the data and your functions, which cannot be pickled: a trace that was pickled or copied has None.
    """

    position: PyTree
    is_accepted: np.ndarray
    rows_read: np.ndarray
    rows_scanned: np.ndarray
    log_ratio: np.ndarray
    is_invalid: np.ndarray
    num_rows: int
    extras: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    warmup: Tally = Tally()
    thin: int = 1
    all_decisions: Tally | None = None
    moments: Moments | None = None
    seconds: float = 0.0
    compile_seconds: float = 0.0
    scan_seconds: float = 0.0
    is_interrupted: bool = False
    left_out: dict[int, int] = dataclasses.field(default_factory=dict)
    is_one_start: bool = False
    notes: tuple[str, ...] = ()
    key: tuple[int, ...] = ()
    names: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    settings: Settings | None = None
    scan: Scan | None = None
    sampled: PyTree = None
    before: Trace | None = None
    kernel: Kernel | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"kernel": None}

    @property
    def num_chains(self) -> int:
        """Chains."""
        return self.is_accepted.shape[0]

    @property
    def num_draws(self) -> int:
        """Draws per chain."""
        return self.is_accepted.shape[1]

    @property
    def unconstrained(self) -> PyTree:
        """The draws in the coordinates of the sampler: `position` itself if the posterior has no constraints."""
        return self.position if self.sampled is None else self.sampled

    @property
    def is_infinite(self) -> np.ndarray:
        """The log ratio was +inf."""
        return self.log_ratio == np.inf

    @property
    def decisions(self) -> Tally:
        """Totals over the decisions after the warm-up, whether their draws were kept or not."""
        if self.all_decisions is not None:
            return self.all_decisions
        sums = (int(np.sum(getattr(self, name), dtype=np.int64)) for name in COUNTED)
        return Tally(self.is_accepted.size, *sums)

    def variables(self) -> dict[str, np.ndarray]:
        """The draws by name: the keys of a dict, the fields of a record, or "position" for a single array."""
        return named_leaves(self.position)

    def extend(self, more: Trace) -> Trace:
        """Return these draws and `more` of the same chains, which went on from here (`sample(initial=trace)`).

        The kernel, the scan and what else is of the end are those of `more`.
        """
        _check_extension(self, more)
        values: dict[str, Any] = {
            name: np.concatenate([getattr(of, name) for of in (self, more)], 1) for name in BY_DRAW
        }
        values |= {name: getattr(self, name) + getattr(more, name) for name in _TIMES}
        return dataclasses.replace(
            more,
            position=_one_after_another(self.position, more.position),
            sampled=_one_after_another(self.sampled, more.sampled),
            extras={name: np.concatenate([self.extras[name], more.extras[name]], 1) for name in self.extras},
            warmup=self.warmup + more.warmup,
            all_decisions=None if self.all_decisions is None else self.decisions + more.decisions,
            is_one_start=self.is_one_start,
            before=self.before,
            notes=tuple(dict.fromkeys((*self.notes, *more.notes))),
            **values,
        )

    def complaints(self) -> list[str]:
        """Describe what may be wrong with the draws; empty if nothing was found."""
        found = [] if self.scan is None else self.scan.complaints()
        found += _words_of(self.left_out, has_moments=self.moments is not None)
        is_few = np.isfinite(self.log_ratio) & (self.rows_read < min(LEAST_ROWS, self.num_rows))
        needs_few = self.settings is not None and (self.settings.is_exact or not self.settings.is_tested)
        if not needs_few and is_few.mean() > _FEW_SHARE:
            found.append(
                f"{is_few.mean():.0%} of the decisions used fewer than {LEAST_ROWS} rows, too few to estimate a "
                "variance. Give the test a larger batch"
            )
        total = self.decisions + self.warmup
        if total.num_invalid and self.settings is not None and not self.settings.is_tested:
            found.append(
                f"{total.num_invalid} of {total.num_decisions} updates were not finite, and the chains stayed where "
                "they were. Shorten the step, or start nearer to the mode"
            )
        elif total.num_invalid:
            found.append(
                f"{total.num_invalid} of {total.num_decisions} log ratios were NaN or +inf and counted as rejections. "
                "The posterior is wrong wherever that happens: find the positions where your log prior or log "
                "likelihood is not finite"
            )
        return found

    def to_datatree(self, coords: dict[str, Any] | None = None, dims: dict[str, list[str]] | None = None) -> Any:
        """Return an xarray DataTree with the groups ArviZ expects (needs `arviz-base`).

        `sample_stats` has acceptance_rate (1 or 0), accepted, rows_read, rows_scanned, log_ratio, invalid, and what
        the test reports. With `sample(keep_warmup=True)` there are `warmup_posterior` and `warmup_sample_stats`.

        Args:
            coords: values of the dimensions, by dimension, as `arviz_base.from_dict` takes them.
            dims: names of the dimensions of a parameter, except chain and draw, by parameter.
        """
        return datatree(self, coords, dims)

    def summary(self) -> Summary:
        """Return means, errors and costs, printable."""
        return _summarise(self)

    def __repr__(self) -> str:
        names = ", ".join(f"{name}{list(leaf.shape[2:])}" for name, leaf in self.variables().items())
        interrupted = ", interrupted" if self.is_interrupted else ""
        thinned = f", one in {self.thin} of those made" if self.thin > 1 else ""
        return f"Trace({self.num_chains} chains x {self.num_draws} draws of {names}{thinned}{interrupted})"


def _check_extension(trace: Trace, more: Any) -> None:
    """Refuse draws that did not go on from a trace."""
    if not isinstance(more, Trace):
        raise TypeError(f"`trace.extend(more)` must be a Trace; got {brief(more)}.")
    if trace.moments is not None or more.moments is not None:
        raise ValueError('`trace.extend(more)`: moments of two runs (keep="moments") cannot be put together.')
    if trace.left_out or more.left_out:
        raise ValueError(
            "`trace.extend(more)`: chains were left out of an interrupted run, so the others do not match."
        )
    for what, of in (
        ("chains", lambda each: each.num_chains),
        ("rows", lambda each: each.num_rows),
        ("parameters", lambda each: {name: leaf.shape[2:] for name, leaf in each.variables().items()}),
        ("constraints", lambda each: each.sampled is not None),
        ("thinning", lambda each: each.thin),
        ("sampler", lambda each: each.settings),
        ("reports of the test", lambda each: sorted(each.extras)),
    ):
        if of(trace) != of(more):
            raise ValueError(
                f"`trace.extend(more)`: the {what} of both must be the same; got {brief(of(trace))} and "
                f"{brief(of(more))}."
            )


def _one_after_another(first: PyTree, second: PyTree) -> PyTree:
    return in_order_of(jax.tree.map(lambda a, b: np.concatenate([a, b], 1), first, second), first)


def in_coordinates_of(call: str, kernel: Kernel, trace: Trace) -> Trace:
    """Return the trace with draws that a kernel can start from again: one from a file has parameters alone."""
    if coordinates_of(kernel.posterior) is None:
        return dataclasses.replace(trace, sampled=None)
    if trace.sampled is not None:
        return trace
    return dataclasses.replace(trace, sampled=position_of(call, kernel.posterior, trace.position))


def _words_of(left_out: dict[int, int], *, has_moments: bool) -> list[str]:
    """Name the chains that are not in the trace; empty if all of them are."""
    if not left_out:
        return []
    without = [chain for chain, draws in left_out.items() if not draws]
    behind = [chain for chain, draws in left_out.items() if draws]
    said = []
    if without:
        said.append(f"{_chains(without)} had no finished draw and {_are(without)} left out")
    if behind:
        draws = [left_out[chain] for chain in behind]
        most = f"up to {max(draws):,} draws" if max(draws) > 1 else "1 draw"
        said.append(f"{_chains(behind)} had {most}, far fewer than the others, and {_are(behind)} left out")
    why = "Chains are slow where decisions take many rows, so the draws may miss such places: let the run finish"
    moments = ". The moments have what these chains have drawn" if has_moments and behind else ""
    return [f"{'; '.join(said)}. {why}{moments}"]


def _chains(chains: list[int]) -> str:
    if len(chains) == 1:
        return f"chain {chains[0]}"
    if len(chains) > 10:
        return f"{len(chains)} chains (the first is chain {chains[0]})"
    return f"chains {', '.join(map(str, chains[:-1]))} and {chains[-1]}"


def _are(chains: list[int]) -> str:
    return "is" if len(chains) == 1 else "are"


def _summarise(trace: Trace) -> Summary:
    """Summarise a trace: ESS, R-hat and MCSE (Vehtari et al. 2021), and the rows read."""
    if trace.num_draws == 0:
        raise ValueError("`summary()` needs at least one draw; the trace is empty.")
    kept, every = trace.decisions, trace.decisions + trace.warmup
    num_chains = trace.num_chains if trace.all_decisions is None else trace.num_chains + len(trace.left_out)
    read = kept.rows_read / kept.num_decisions
    rows = Rows(
        mean=read,
        median=float(np.median(trace.rows_read)),
        percentile_99=float(np.percentile(trace.rows_read, 99)),
        max=int(trace.rows_read.max()),
        total=every.rows_read,
        scanned=every.rows_scanned + (trace.scan.rows_swept if trace.scan else 0),
        share=(read + kept.rows_scanned / kept.num_decisions) / trace.num_rows,
    )
    return Summary(
        num_chains=trace.num_chains,
        num_draws=trace.num_draws,
        num_made=round(kept.num_decisions / num_chains),
        is_of_all_draws=trace.thin == 1 or trace.moments is not None,
        num_rows=trace.num_rows,
        parameters=tuple(_parameters_of(trace)),
        acceptance=kept.num_accepted / kept.num_decisions,
        rows=rows,
        complaints=tuple(trace.complaints()),
        settings=trace.settings,
        seconds=trace.seconds,
        compile_seconds=trace.compile_seconds,
        scan_seconds=trace.scan_seconds,
        draws_per_second=every.num_decisions / trace.seconds if trace.seconds else float("nan"),
        is_interrupted=trace.is_interrupted,
        is_one_start=trace.is_one_start,
        notes=trace.notes + _rough_quantiles(trace),
        scan=trace.scan,
    )


def _rough_quantiles(trace: Trace) -> tuple[str, ...]:
    """Name the coordinates whose quantiles are known only to a wide bin."""
    if trace.moments is None or not trace.moments.is_coarse.any():
        return ()
    flat, _ = all_coordinates(trace.position, trace.names)
    names = few([flat[i] for i in np.flatnonzero(trace.moments.is_coarse)])
    return (f"quantiles of {names} are rough: some draws are so far from the others that bins are wide",)


def _parameters_of(trace: Trace) -> list[Parameter]:
    if trace.moments is None:
        named = trace.variables().items()
        return [
            parameter
            for name, draws in named
            for parameter in parameters_of(coordinates(name, draws.shape[2:], trace.names), draws)
        ]
    flat, own = all_coordinates(trace.position, trace.names)
    found = {parameter.name: parameter for parameter in trace.moments.parameters(flat)}
    return [found[name] for name in own]
