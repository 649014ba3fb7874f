"""How far the draws can be trusted, and what they cost."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from tallchain.auditing import audit, bound_limits  # noqa: F401 (offered here, beside the summary)
from tallchain.scan import Scan
from tallchain.trace import Trace

_MOST_R_HAT = 1.01  # Vehtari et al. 2021
_LEAST_DRAWS = 4  # ArviZ gives no effective sample size below


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One number of the position."""

    name: str
    mean: float
    sd: float
    mcse_mean: float
    mcse_sd: float
    ess_bulk: float
    ess_tail: float
    r_hat: float


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows per decision."""

    mean: float
    median: float
    percentile_99: float
    max: int
    total: int
    """All rows looked at, warm-up included."""
    scanned: int
    """All rows read beside them for bounds, design or checks, warm-up included."""
    share: float
    """Mean rows per decision, scanned ones included, as a share of the N rows there are."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a trace says, for people (`print`) and for programs (the fields, `to_dict`)."""

    num_chains: int
    num_draws: int
    population: int
    parameters: tuple[Parameter, ...]
    acceptance: float
    rows: Rows
    complaints: tuple[str, ...]
    """What may be wrong with the draws, in words."""
    seconds: float
    draws_per_second: float
    is_interrupted: bool
    is_one_start: bool
    notes: tuple[str, ...]
    """What else happened, in words."""
    scan: Scan | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        columns = ("mean", "sd", "mcse_mean", "mcse_sd", "ess_bulk", "ess_tail", "r_hat")
        width = max([9, *(len(p.name) for p in self.parameters)])
        lines = [f"{self.num_chains} chains x {self.num_draws} draws, N = {self.population:,} rows"]
        if self.is_interrupted:
            lines[0] += " (INTERRUPTED: fewer draws than asked for)"
        lines.append(" " * width + "".join(f"{name:>11}" for name in columns))
        for p in self.parameters:
            numbers = (_figure(name, getattr(p, name)) for name in columns)
            lines.append(f"{p.name:<{width}}" + "".join(f"{number:>11}" for number in numbers))
        rows = self.rows
        lines += [
            f"acceptance           {self.acceptance:.3f}",
            f"rows per decision    mean {rows.mean:,.1f}, median {rows.median:,.0f}, 99th percentile "
            f"{rows.percentile_99:,.0f}, max {rows.max:,}",
            f"share of the data    {rows.share:.3g} per decision",
            f"rows read in all     {rows.total:,} looked at, {rows.scanned:,} scanned beside them (warm-up included)",
            f"speed                {self.draws_per_second:,.0f} draws/s in {self.seconds:.1f} s, compilation apart",
        ]
        return "\n".join(lines + self._warnings())

    def _warnings(self) -> list[str]:
        lines = [f"note                 {note}" for note in self.notes]
        if self.scan:
            worst = f"skewness {max(self.scan.skewness):.2g}, excess kurtosis {max(self.scan.kurtosis):.2g}"
            lines.append(
                f"all rows were read   at {self.scan.num_proposals} proposals; at worst, the mean of "
                f"{self.scan.batch:,.0f} rows has {worst}"
            )
        elif self.rows.share < 1:
            lines.append("NOT CHECKED          no pass over all rows: a few rows that carry the posterior go unnoticed")
        disagree = [p.name for p in self.parameters if p.r_hat > _MOST_R_HAT]
        if disagree:
            lines.append(
                f"CHAINS DISAGREE      r_hat above {_MOST_R_HAT} for {_few(disagree)}: more warm-up, more draws, other "
                "steps, or several modes"
            )
        elif self.is_one_start:
            lines.append("ONE START            chains from one position do not show whether there are other modes")
        lines += [f"WARNING              {complaint}" for complaint in self.complaints]
        return lines


def summarise(trace: Trace) -> Summary:
    """Summarise a trace: ESS, R-hat and MCSE by ArviZ (Vehtari et al. 2021), and the rows read."""
    if trace.num_draws == 0:
        raise ValueError("`summary()` needs at least one draw; the trace is empty.")
    decisions = trace.is_accepted.size + trace.warmup.num_decisions
    rows = Rows(
        mean=float(trace.num_rows.mean()),
        median=float(np.median(trace.num_rows)),
        percentile_99=float(np.percentile(trace.num_rows, 99)),
        max=int(trace.num_rows.max()),
        total=int(trace.num_rows.sum(dtype=np.int64)) + trace.warmup.num_rows,
        scanned=int(trace.num_scanned.sum(dtype=np.int64))
        + trace.warmup.num_scanned
        + (trace.scan.num_rows if trace.scan else 0),
        share=float(trace.num_rows.mean() + trace.num_scanned.mean()) / trace.population,
    )
    return Summary(
        num_chains=trace.num_chains,
        num_draws=trace.num_draws,
        population=trace.population,
        parameters=tuple(p for name, draws in trace.variables().items() for p in _parameters(name, draws)),
        acceptance=float(trace.is_accepted.mean()),
        rows=rows,
        complaints=tuple(trace.complaints()),
        seconds=trace.seconds,
        draws_per_second=decisions / trace.seconds if trace.seconds else float("nan"),
        is_interrupted=trace.is_interrupted,
        is_one_start=trace.is_one_start,
        notes=trace.notes,
        scan=trace.scan,
    )


def _parameters(name: str, draws: np.ndarray) -> list[Parameter]:
    flat = np.asarray(draws, np.float64).reshape(*draws.shape[:2], -1)
    labels = [name + (str(list(index)) if index else "") for index in np.ndindex(draws.shape[2:])]
    statistics = (flat.mean((0, 1)), flat.std((0, 1)), *_convergence(flat))
    return [Parameter(label, *(float(s[i]) for s in statistics)) for i, label in enumerate(labels)]


def _convergence(flat: np.ndarray) -> tuple[np.ndarray, ...]:
    """MCSE of mean and sd, bulk and tail ESS, R-hat, of draws (chain, draw, coordinate)."""
    if flat.shape[1] < _LEAST_DRAWS:
        return (np.full(flat.shape[2], np.nan),) * 5
    from arviz_stats.base import array_stats

    axes = {"chain_axis": 0, "draw_axis": 1}
    with warnings.catch_warnings():  # a chain that never moved has no R-hat: NaN says so
        warnings.simplefilter("ignore")
        return (
            array_stats.mcse(flat, method="mean", **axes),
            array_stats.mcse(flat, method="sd", **axes),
            array_stats.ess(flat, method="bulk", **axes),
            array_stats.ess(flat, method="tail", prob=(0.05, 0.95), **axes),
            array_stats.rhat(flat, **axes),
        )


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _figure(name: str, value: float) -> str:
    if name.startswith("ess"):
        return f"{value:,.0f}"
    return f"{value:.3f}" if name == "r_hat" else f"{value:.4g}"
