"""How much the draws can be trusted, and what they cost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.checking.convergence import FALSE_ALARM, MOST_R_HAT, Parameter
from tallchain.checking.verdict import Scan
from tallchain.settings import Settings

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = {
    "mean": "mean",
    "sd": "sd",
    "5 %": "q5",
    "50 %": "median",
    "95 %": "q95",
    "mcse_mean": "mcse_mean",
    "ess_bulk": "ess_bulk",
    "ess_tail": "ess_tail",
    "r_hat": "r_hat",
}


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows per decision; median, percentile and maximum are of the decisions whose draws were kept."""

    mean: float
    median: float
    percentile_99: float
    max: int
    total: int
    """All rows looked at, warm-up included."""
    scanned: int
    """Additional rows scanned for bounds, designs or checks, warm-up included."""
    share: float
    """Mean rows per decision, scanned ones included, as a share of N."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a trace says, for people (`print`) and for programs (the fields, `to_dict`)."""

    num_chains: int
    num_draws: int
    """Kept, of each chain."""
    num_made: int
    """Draws made of each chain, kept or not; their mean if a thinned run was interrupted."""
    is_of_all_draws: bool
    """Whether the parameters are summarised from all draws, kept or not."""
    num_rows: int
    parameters: tuple[Parameter, ...]
    acceptance: float
    rows: Rows
    complaints: tuple[str, ...]
    """What may be wrong with the draws, in words."""
    settings: Settings | None
    """Test, proposal, prior and temperature."""
    seconds: float
    """Of sampling."""
    compile_seconds: float
    """Of checks and compilation."""
    scan_seconds: float
    """Of the scan."""
    draws_per_second: float
    is_interrupted: bool
    is_one_start: bool
    notes: tuple[str, ...]
    """What else happened, in words."""
    scan: Scan | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return dataclasses.asdict(self)

    def to_pandas(self) -> DataFrame:
        """Return the parameters as a table, one per line (needs `pandas`)."""
        from pandas import DataFrame

        fields = [f.name for f in dataclasses.fields(Parameter) if f.name != "name"]
        rows = [[getattr(p, name) for name in fields] for p in self.parameters]
        return DataFrame(rows, [p.name for p in self.parameters], fields)

    @property
    def disagreeing(self) -> list[str]:
        """Parameters on which the chains disagree: R-hat is above 1.01, and beyond what chance explains."""
        limit = FALSE_ALARM / max(len(self.parameters), 1)
        return [p.name for p in self.parameters if p.r_hat > MOST_R_HAT and p.r_hat_chance < limit]

    def __str__(self) -> str:
        width = max([9, *(len(p.name) for p in self.parameters)])
        lines = [f"{self.num_chains} chains x {self.num_made} draws, N = {self.num_rows:,} rows"]
        if self.num_draws < self.num_made:
            of = "moments and quantiles are of all draws" if self.is_of_all_draws else "the others are not in the table"
            lines.append(f"{self.num_draws} draws of each chain were kept; {of}")
        if self.is_interrupted:
            lines[0] += " (INTERRUPTED: fewer draws than asked for)"
        lines += self.settings.lines() if self.settings else []
        lines.append(" " * width + "".join(f"{name:>11}" for name in _COLUMNS))
        for p in self.parameters:
            numbers = (_figure(name, getattr(p, name)) for name in _COLUMNS.values())
            lines.append(f"{p.name:<{width}}" + "".join(f"{number:>11}" for number in numbers))
        rows = self.rows
        lines += [
            f"acceptance           {self.acceptance:.3f}",
            f"rows per decision    mean {rows.mean:,.1f}, median {rows.median:,.0f}, 99th percentile "
            f"{rows.percentile_99:,.0f}, max {rows.max:,}",
            f"share of the data    {rows.share:.3g} per decision",
            f"rows read in all     {rows.total:,}, and {rows.scanned:,} additional rows scanned (warm-up included)",
            f"time                 {self._times()}",
        ]
        return "\n".join(lines + self._warnings())

    def _times(self) -> str:
        total = self.compile_seconds + self.seconds + self.scan_seconds
        scan = f", {self.scan_seconds:.1f} reading all rows" if self.scan_seconds else ""
        return (
            f"{total:.1f} s in all: {self.compile_seconds:.1f} compiling and checking, {self.seconds:.1f} sampling "
            f"({self.draws_per_second:,.0f} draws/s){scan}"
        )

    def _warnings(self) -> list[str]:
        lines = [f"note                 {note}" for note in self.notes]
        if self.scan:
            worst = f"skewness {max(self.scan.skewness):.2g}, excess kurtosis {max(self.scan.kurtosis):.2g}"
            lines.append(
                f"all rows were read   at {self.scan.num_proposals} proposals; at worst, the mean of "
                f"{self.scan.batch:,.0f} rows has {worst}"
            )
            if self.scan.part_error:
                lines.append(
                    f"error of parts       {self.scan.part_error:.2g} (standard deviation of log densities): "
                    f"variances are off by a share of about {self.scan.part_error**2:.1g}"
                )
        elif self.settings and self.settings.is_exact:
            lines.append("exact                the test is exact: its decisions need no check, only the chains do")
        elif self.settings and not self.settings.is_tested:
            lines.append(
                "NO TEST              the step size and the noise of the gradients bias the draws: no check sees it"
            )
        elif self.rows.share < 1:
            lines.append("NOT CHECKED          no scan of all rows: a few rows that carry the posterior go unnoticed")
        highest = max([0.0, *(p.r_hat for p in self.parameters if np.isfinite(p.r_hat))])
        if self.disagreeing:
            lines.append(
                f"CHAINS DISAGREE      r_hat above {MOST_R_HAT} for {few(self.disagreeing)}, beyond chance: more "
                "warm-up, more draws, other steps, or several modes"
            )
        elif highest > MOST_R_HAT:
            lines.append(
                f"r_hat                up to {highest:.3f}, which chance explains with this few effective draws: draw "
                "more to be sure"
            )
        if self.is_one_start and not self.disagreeing:
            lines.append("ONE START            chains from one position do not show whether there are other modes")
        lines += [f"WARNING              {complaint}" for complaint in self.complaints]
        return lines


def few(names: list[str]) -> str:
    """Name the first of them."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _figure(name: str, value: float) -> str:
    if name.startswith("ess"):
        return f"{value:,.0f}"
    return f"{value:.3f}" if name == "r_hat" else f"{value:.4g}"
