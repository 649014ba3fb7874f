"""What was measured, in tables and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallchain.experiments.worst_case.config import Config
from tallchain.experiments.worst_case.contenders import BATCH, CONTENDERS, LEMMA
from tallchain.experiments.worst_case.entries import SERIES, Entry, Point

if TYPE_CHECKING:
    from rich.table import Table

_CAPTION = (
    "All N: share of decisions that read every row. Lemma: whether the limits of that share are above its bound, "
    "below, or include it; it covers AustereMH and MHSubLhd. Mean share: rows read over N, with its standard "
    "error. Formula: the expected value, if there is a formula; < marks an upper limit. Scan: rows scanned for a "
    "bound, over N, not part of the mean share. (repeats): rows drawn with replacement, as in the lemma's proof. "
    "(bound), (scan): the range bound comes from the model, or from a census before every decision. MinibatchBarker, "
    "Penalty: stopped by the paper's rule. MinibatchBarker(): the library's default."
)
_STUDY_CAPTION = (
    "Measured share with its standard error; by formula; in brackets, by formula with replacement, "
    "Var(Lambda_i) / (N sigma^2). No share can be below m/N."
)


def table(config: Config, entries: Sequence[Entry]) -> Table:
    """Return a `rich` table: one line per test and N."""
    from rich.table import Table

    table = Table(title=f"Rows read in the worst case; the lemma's bound is {LEMMA:.4f}", caption=_CAPTION)
    table.add_column("test")
    for name in ("N", "m", "decisions", "all N (95 % limits)", "formula", "lemma", "mean share", "formula", "scan"):
        table.add_column(name, justify="right")
    for test in config.tests:
        for entry in (entry for entry in entries if entry.test == test):
            table.add_row(*_cells(entry))
        table.add_section()
    return table


def study_table(config: Config, study: Sequence[Point]) -> Table:
    """Return a `rich` table: the minibatch test's share of rows against temperature and step."""
    from rich.table import Table

    table = Table(
        title=f"MinibatchBarker, N = {config.study_rows:,}: what makes the mean share of rows small",
        caption=_STUDY_CAPTION,
    )
    table.add_column("factor", justify="right")
    for label in SERIES.values():
        table.add_column(label, justify="right")
    cells = {(point.series, point.factor): _study_cell(point) for point in study}
    for factor in config.factors:
        table.add_row(f"{factor:g}", *(cells[series, factor] for series in SERIES))
    return table


def _cells(entry: Entry) -> list[str]:
    low, high = entry.full_share_limits
    return [
        entry.label,
        f"{entry.num_rows:,}",
        f"{entry.batch}",
        f"{entry.num_decisions:,}",
        f"{entry.full_share:.4f} ({low:.4f}-{high:.4f})",
        "-" if entry.expected_full is None else f"{'<' if entry.epsilon else ''}{entry.expected_full:.4f}",
        entry.verdict or "-",
        f"{entry.mean_share:.3f} ± {entry.mean_share_error:.3f}",
        "-" if entry.expected_mean is None else f"{entry.expected_mean:.3f}",
        f"{entry.mean_scanned:g}",
    ]


def _study_cell(point: Point) -> str:
    return (
        f"{point.mean_share:.5f} ± {point.mean_share_error:.5f}; {point.expected_mean:.5f} "
        f"({point.expected_with_replacement:.5f})"
    )


def findings(config: Config, entries: Sequence[Entry], study: Sequence[Point]) -> list[str]:
    """Return what the numbers say, a sentence or two each."""
    rivals = [entry for entry in entries if CONTENDERS[entry.test].is_rival]
    found = _lemma_findings(rivals) if rivals else []
    if "minibatch" in config.tests:
        found.append(_minibatch_finding([entry for entry in entries if entry.test == "minibatch"], study))
    return found


def _lemma_findings(entries: list[Entry]) -> list[str]:
    """Say which tests satisfy the lemma, which do not, and why."""
    exceptions = [entry for entry in entries if entry.verdict != "above"]
    others = dict.fromkeys(e.label for e in entries if e.test not in {exception.test for exception in exceptions})
    findings = [f"Above the lemma's {LEMMA:.4f} at every N: {', '.join(others)}."] if others else []
    for entry in exceptions:
        low, high = entry.full_share_limits
        stand = "below the lemma's" if entry.verdict == "below" else "not distinguishable from the lemma's"
        findings.append(
            f"{entry.label} at N = {entry.num_rows:,} reads all N rows in {entry.full_share:.4f} of its decisions "
            f"(limits {low:.4f} to {high:.4f}), {stand} {LEMMA:.4f}."
        )
    if any(entry.epsilon and not CONTENDERS[entry.test].repeats for entry in entries):
        findings.append(_AUSTERE_FINDING)
    least = min(entries, key=lambda entry: entry.mean_share)
    findings.append(
        f"The mean share of rows is far above the lemma's bound for all of them: {least.mean_share:.2f} or more "
        f"({least.label}, N = {least.num_rows:,})."
    )
    return findings


_AUSTERE_FINDING = (
    "Without replacement, AustereMH can stop shortly before the last row however close the decision is, because its "
    "standard error goes to 0 with the rows that are left: its share of full reads falls like sqrt(m/N). The lemma's "
    "proof omits this factor."
)


def _minibatch_finding(entries: list[Entry], study: Sequence[Point]) -> str:
    shares = ", ".join(f"{entry.mean_share:.2f}" for entry in entries)
    easiest = max((point for point in study if point.series == "step"), key=lambda point: point.factor)
    return (
        f"MinibatchBarker is no exception at temperature 1 with this step: it reads {shares} of the rows at these N, "
        "and with replacement would need about N. It pays at high temperature or with short steps: steps "
        f"{easiest.factor:g} times shorter bring it to {easiest.mean_share:.1e} of the rows, and a temperature "
        f"{easiest.factor:g} times higher at the same step does as much (one batch is "
        f"{BATCH / easiest.num_rows:.1e} of them)."
    )
