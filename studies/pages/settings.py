"""Pieces that several studies make together: every setting, by what it assumes, reads and gets wrong."""

from __future__ import annotations

from typing import Any

from benchmarks.records import table
from studies import audit, defaults
from studies.mixture import bias_cells
from studies.study import load

# test: (assumes, exact?, needs besides rows)
TESTS = {
    "Metropolis()": ("nothing", "yes", "all rows at every decision"),
    "Barker()": ("nothing", "yes", "all rows at every decision"),
    "MinibatchBarker()": ("the mean of b rows is nearly normal; corrects its skewness", "to order 1/b", "nothing"),
    "Combined()": ("the same as `MinibatchBarker()`", "to order 1/b", "nothing"),
    "MinibatchBarker.paper()": (
        "the mean of b rows is normal, and rows are not skewed",
        "to order 1/sqrt(b)",
        "nothing",
    ),
    "Penalty()": ("the mean of b rows is nearly normal", "to order 1/sqrt(b), small", "nothing"),
    "NormalBarker()": (
        "the mean of b rows is nearly normal; also treats logistic noise as normal",
        "no: off by up to 0.0095",
        "nothing",
    ),
    "Austere(0.005)": ("the mean of b rows is nearly normal, from the first look", "no: designed error", "nothing"),
    "Confidence(0.005)": ("nothing", "no: designed error", "a range bound, or all rows at every decision"),
}
ON_MIXTURE = (
    "MinibatchBarker()",
    "MinibatchBarker(sigma=1.2)",
    "Penalty()",
    "MinibatchBarker.paper()",
    "MinibatchBarker.as_published_code()",
)
TARGETS = {"mixture": "The mixture", "pixels": "The regression"}


def pieces() -> dict[str, str]:
    """The settings on the mixture, the choice among them, and the evidence for the default."""
    return {"mixture": mixture(), "choosing": choosing(), "evidence": evidence()}


def mixture() -> str:
    """Rows and bias on the mixture, of some settings and of the exact tests."""
    record, exact = load("defaults"), _exact()
    found = record.results["mixture"]
    rows = [
        [f"`{name}`", f"{found[name]['mean_rows']:,.0f} of 1,000,000", *bias_cells(found[name])] for name in ON_MIXTURE
    ]
    for name in ("Barker()", "Metropolis()"):
        rows.append([f"`{name}`", f"{exact[name]['rows']:,} of {exact[name]['rows']:,}", *bias_cells(exact[name])])
    return (
        table(["setting", "rows per decision", "acceptance", "mean", "variance"], rows)
        + f"\n\nChains: {record.configuration['chains'].split(',')[0]} of warm-up."
    )


def _exact() -> dict[str, dict[str, Any]]:
    return {found["setting"]: found for found in load("mixture").results["settings"]}


def choosing() -> str:
    """What every test assumes and needs, and what it reads on the mixture."""
    found, exact = load("defaults").results["mixture"], _exact()
    both = next(r for r in load("combined").results["mixture"] if r["test"] == "Combined(0.001)")
    found["Combined()"] = {"mean_rows": both["rows"], "mean_scanned": 0, "acceptance": both["acceptance"]}
    rows = []
    for name, words in TESTS.items():
        if name in exact:
            cost, result = "1,000,000", exact[name]
        else:
            result = found[name]
            cost = f"{result['mean_rows']:,.0f}"
            if result["mean_scanned"]:
                cost += f" + {result['mean_scanned']:,.0f} scanned"
        rows.append([f"`{name}`", *words, cost, f"{result['acceptance']:.2f}"])
    header = ["test", "assumes", "exact", "needs", "rows per decision, mixture of 1,000,000", "acceptance there"]
    return table(header, rows)


def evidence() -> str:
    """For every setting, on both targets: audits of its decisions, what it reads, and its bias in long runs."""
    found, audits = load("defaults").results, load("audit").results
    header = ["setting", *audit.HEADER, *defaults.HEADER]
    parts = []
    for target, title in TARGETS.items():
        rows = [
            [f"`{name}`", *audit.cells(audits[target][name]), *defaults.cells(found[target][name])]
            for name in found["mixture"]
        ]
        parts.append(f"{title}:\n\n{table(header, rows)}")
    return "\n\n".join(parts)
