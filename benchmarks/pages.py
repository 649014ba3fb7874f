"""Write the figures of the README and of docs/ from the committed result files: `python -m benchmarks.pages`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import load, table
from benchmarks.orders import FINE, LATE, bound, mean_error, select, shift_law
from benchmarks.peers.page import influence_plans, peer_accuracy, peer_summary, peers, rows_against_n
from tallchain.experiments.report import ROW_HEADER, printed_beside
from tallchain.experiments.trials import Printed, Rows, standard_error

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def mixture() -> str:
    found = load("defaults")["results"]["mixture"]
    exact = {r["setting"]: r for r in load("mixture")["results"]["settings"]}
    names = [
        "MinibatchBarker()",
        "MinibatchBarker(sigma=1.2)",
        "Penalty()",
        "MinibatchBarker.paper()",
        "MinibatchBarker.as_published_code()",
    ]
    rows = [[f"`{name}`", f"{found[name]['mean_rows']:,.0f} of 1,000,000", *_bias(found[name])] for name in names]
    for name in ("Barker()", "Metropolis()"):
        rows.append([f"`{name}`", f"{exact[name]['rows']:,} of {exact[name]['rows']:,}", *_bias(exact[name])])
    return (
        table(["setting", "rows per decision", "acceptance", "mean", "variance"], rows)
        + f"\n\nChains: {load('defaults')['configuration']['chains'].split(',')[0]} of warm-up."
    )


def table_1() -> str:
    """Rows per decision on the paper's mixture, beside the printed ones."""
    record = reproduced("mixture")
    rows = [
        _cells(
            name,
            found["printed"]["rows"],
            found["rows"],
            [each["total_variation"] for each in found["distances"]],
            3,
        )
        for name, found in record["methods"].items()
    ]
    config = record["config"]
    return (
        table([*ROW_HEADER, "total variation (± s.e.)"], rows)
        + f"\n\n{config['rows']:,} rows, {config['trials']} trials of {config['draws']:,} draws, seed {config['seed']}."
    )


def table_2() -> str:
    """Rows per decision on MNIST, beside the printed ones."""
    record = reproduced("logistic")
    return "\n\n".join(
        f"{task['name']}, {task['trials']} trials of {task['draws']:,} draws:\n\n"
        + table(
            [*ROW_HEADER, "accuracy at the end (± s.e.)"],
            [
                _cells(name, found["printed"], found["rows"], found["final_accuracy"], 4)
                for name, found in record["tables"][task["name"]].items()
            ],
        )
        for task in (record["config"]["small"], record["config"]["large"])
    )


def reproduced(name: str) -> Any:
    """What `tallchain reproduce --paper` found."""
    return json.loads((ROOT / "results" / "paper" / f"{name}.json").read_text())


def _cells(
    name: str, printed: list[float] | None, rows: dict[str, Any], of_trials: list[float], digits: int
) -> list[str]:
    last = f"{np.mean(of_trials):.{digits}f} ± {standard_error(of_trials):.{digits}f}"
    return [f"`{name}`", *printed_beside(Printed(*printed) if printed else None, Rows(**rows)), last]


# test: (assumes, exact?, needs beside rows)
TESTS = {
    "Metropolis()": ("nothing", "yes", "all rows at every decision"),
    "Barker()": ("nothing", "yes", "all rows at every decision"),
    "MinibatchBarker()": ("the mean of b rows is nearly normal; skewness allowed for", "to order 1/b", "nothing"),
    "Combined()": ("the same", "to order 1/b", "nothing"),
    "MinibatchBarker.paper()": ("the mean of b rows is normal, rows not skewed", "to order 1/sqrt(b)", "nothing"),
    "Penalty()": ("the mean of b rows is nearly normal", "to order 1/sqrt(b), small", "nothing"),
    "NormalBarker()": ("the same, and that normal is logistic", "no: off by up to 0.0095", "nothing"),
    "Austere(0.005)": ("the mean of b rows is nearly normal, from the first look", "no: designed error", "nothing"),
    "Confidence(0.005)": ("nothing", "no: designed error", "the range of the log ratios: a bound, or a scan"),
}


def choosing() -> str:
    found = load("defaults")["results"]["mixture"]
    exact = {r["setting"]: r for r in load("mixture")["results"]["settings"]}
    both = next(r for r in load("combined")["results"]["mixture"] if r["test"] == "Combined(0.001)")
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
    header = ["test", "assumes", "exact", "needs", "rows a decision, mixture of 1,000,000", "acceptance there"]
    return table(header, rows)


def evidence() -> str:
    """Of every setting, on both targets: what audits say of its decisions, what it reads, and its bias in long runs."""
    found, audits = load("defaults")["results"], load("audit")["results"]
    names = {"mixture": "The mixture", "pixels": "The regression"}
    header = ["setting", "error", "at most", "rows", "scanned", "acceptance", "mean", "variance"]
    return "\n\n".join(
        f"{title}:\n\n"
        + table(header, [_evidence_row(name, found[target][name], audits[target][name]) for name in found["mixture"]])
        for target, title in names.items()
    )


def _evidence_row(name: str, measured: dict[str, Any], audited: dict[str, Any]) -> list[str]:
    size = audited["audit"]["log_odds"]
    bias, mcse = max(
        zip(measured["mean_bias_in_sd"], measured["mean_mcse_in_sd"], strict=True), key=lambda b: abs(b[0])
    )
    return [
        f"`{name}`",
        f"{size['value']:.4f}",
        f"{size['upper']:.4f}",
        f"{measured['mean_rows']:,.0f}",
        f"{measured['mean_scanned']:,.0f}",
        f"{measured['acceptance']:.3f}",
        f"{bias:+.3f} ± {mcse:.3f}",
        "{mean_variance_ratio:.3f} ± {mean_variance_mcse:.3f}".format_map(measured),
    ]


PAIR_RULES = (
    "growth",
    "growth, skew as printed",
    "stein",
    "pilot, skew",
    "fresh",
    "fresh, skew",
    "penalty, fresh",
)


def pairs() -> str:
    record = load("pairs")
    deltas = record["configuration"]["deltas"]
    shown = [
        r for r in record["results"]["rules"] if r["rule"] in PAIR_RULES and r["law"].startswith(("normal", "exp"))
    ]
    rows = [
        [result["law"], result["rule"], f"{result['mean_rows']:.0f}", f"{result['shift']:+.3f}"]
        + [f"{error:+.3f}" for error in result["log_odds_error"]]
        for result in shown
    ]
    worst = max(max(result["standard_error"]) for result in shown)
    header = ["rows", "rule", "read", "shift of Delta*", *(f"Delta = {delta:g}" for delta in deltas)]
    return table(header, rows) + f"\n\nStandard errors of the last columns: at most {worst:.4f}."


def stopped() -> str:
    """Mean |error| over Delta against the rows needed, by stopping rule, for exponential rows."""
    results = [r for r in load("pairs")["results"]["by_rows"] if r["law"].startswith("exponential")]
    needed = sorted({r["needed"] for r in results})
    cells = {(r["rule"], r["needed"]): f"{mean_error(r):.4f}" for r in results}
    rows = [[rule, *(cells[rule, b] for b in needed)] for rule in dict.fromkeys(r["rule"] for r in results)]
    return table(["exponential rows", *(f"b near {b:.0f}" for b in needed)], rows)


def orders() -> str:
    """The power of b at a fixed b, and the errors at one b."""
    results = load("orders")["results"]
    power = {(p["method"], p["rows"], p["rule"]): p for p in results["powers"]}
    at = 200
    rows = []
    for kind in (entry["rows"] for entry in results["moments"]):
        known = [power["quadrature", kind, rule]["power"] for rule in ("none", "skew, own table", "skew")]
        used = [power["simulation", kind, rule]["power"] for rule in ("none", "printed", "skew")]
        used.append(power["simulation", kind, "skew"]["late_power"])
        errors = {r["rule"]: mean_error(r) for r in results["simulation"] if (r["rows"], r["b"]) == (kind, at)}
        cells = [f"{value:+.2f}" for value in known + used]
        rows.append([kind, *cells, *(f"{errors[rule]:.4f}" for rule in ("none", "printed", "skew"))])
    header = [
        *("rows", "known: no correction", "skew, a table for each b", "skew, shipped tables"),
        *("estimated: no correction", "A.5 as printed", "skew", f"skew, b >= {LATE}"),
        *(f"error at b = {at}: no correction", "A.5 as printed", "skew"),
    ]
    clear = min(mean_error(r) / r["standard_error_of_mean"] for r in results["simulation"])
    return table(header, rows) + f"\n\n{floor()} Every simulated error is at least {clear:.0f} standard errors."


def floor() -> str:
    """What the interpolation between shipped tables leaves, at the largest b."""
    results = load("orders")["results"]
    left, whole = (
        [select(results["quadrature"], entry["rows"], rule)[-1] for entry in results["moments"]]
        for rule in ("skew", "none")
    )
    shares = [mean_error(a) / mean_error(b) for a, b in zip(left, whole, strict=True)]
    return (
        f"With variance and skewness known the shipped tables leave {min(shares):.1%} to {max(shares):.1%} of the "
        f"uncorrected error at b = {left[0]['b']}."
    )


def shift() -> str:
    results = load("pairs")["results"]["by_rows"]
    growth = [r["shift"] / shift_law(r) for r in results if r["rule"] == "growth" and r["needed"] >= FINE]
    most = {rule: max(abs(r["shift"]) for r in results if r["rule"] == rule) for rule in ("fresh", "pilot")}
    noise = max(r["shift_error"] for r in results)
    return (
        f'Measured over predicted for "growth", b of {FINE:.0f} and more: {min(growth):.2f} to {max(growth):.2f}. '
        f'Largest shift of "fresh": {most["fresh"]:.4f}, of "pilot": {most["pilot"]:.4f}; '
        f"standard errors at most {noise:.4f}."
    )


def paper_bound() -> str:
    results = load("orders")["results"]
    at = 200
    rows = []
    for entry in results["moments"]:
        series = [r for r in results["quadrature"] if (r["rows"], r["b"]) == (entry["rows"], at)]
        error = {r["rule"]: r["chance_error"] for r in series}
        rows.append([entry["rows"], f"{bound(entry, at):.2f}", f"{error['none']:.5f}", f"{error['skew']:.5f}"])
    return table([f"b = {at}", "the bound", "error of P(accept), no correction", "skew correction"], rows)


def tails() -> str:
    rows = [
        [
            result["law"],
            f"{result['mean_rows']:,.0f}",
            f"{result['skewness']:.2g}",
            f"{result['kurtosis']:.2g}",
            f"{result['share_far']:.0%}",
            "yes" if result["warns"] else "no",
            f"{result['error']['value']:.3f}, at most {result['error']['upper']:.3f}",
        ]
        for result in load("tails")["results"]
    ]
    header = ["rows", "read", "skewness", "excess kurtosis", "proposals beyond", "warns", "audited error in log-odds"]
    return table(header, rows)


def bounds() -> str:
    rows = []
    for result in load("bounds")["results"]:
        tests = {test["bound"]: test for test in result["tests"] if test["test"] == "bernstein"}
        ratio = result["bound_over_exact_range"]
        for name in ("range of all rows", "by_norm", "smaller of both"):
            test = tests[name]
            factor = "1" if name == "range of all rows" else f"{ratio[name]:.1f}"
            cost = [f"{test[key]:,.0f}" for key in ("mean_rows_per_decision", "mean_rows_scanned_per_decision")]
            rows.append([f"{result['data']}, N = {result['rows']:,}", name, factor, *cost, f"{test['acceptance']:.2f}"])
    header = ["data", "range by", "over the exact range", "rows looked at", "rows scanned", "acceptance"]
    return table(header, rows)


def combined() -> str:
    record = load("combined")["results"]
    rows = [
        [
            f"`{result['test']}`" if "(" in result["test"] else result["test"],
            f"{result['rows']:.1f} ± {result['rows_mcse']:.1f}",
            f"{result['acceptance']:.3f}",
            f"{result['early']:.2f}",
            _pair(result["variance_ratio"], result["variance_mcse"], ".3f"),
        ]
        for result in record["mixture"]
    ]
    header = ["test", "rows per decision", "acceptance", "decided by the t-test", "variance"]
    return (
        table(header, rows) + f"\n\nTime of `Combined()` over `MinibatchBarker()`: {record['time_over_minibatch']:.2f}."
    )


def worst_case() -> str:
    record = reproduced("worst_case")
    sizes = sorted({entry["num_rows"] for entry in record["entries"]})
    cells = {(entry["test"], entry["num_rows"]): entry for entry in record["entries"]}
    rows = []
    for test in dict.fromkeys(entry["test"] for entry in record["entries"]):
        label = cells[test, sizes[0]]["label"]
        full = [f"{cells[test, n]['full_share']:.4f}" for n in sizes]
        mean = [f"{cells[test, n]['mean_share']:.2f}" for n in sizes]
        rows.append([label, *(f"{a}; {b}" for a, b in zip(full, mean, strict=True))])
    header = ["share of decisions that read all N rows; mean share of rows", *(f"N = {n:,}" for n in sizes)]
    return table(header, rows)


def correction() -> str:
    rows = [
        [
            f"{row['sigma']:.1f}",
            row["name"],
            f"{row['log_odds_error']:.1e} on {row['reach']:.0f}",
            f"{row['cdf_error']:.1e}",
        ]
        for row in load("tables")["results"]
    ]
    return table(["sigma", "correction", "log-odds error", "error of the CDF"], rows)


def speed() -> str:
    rows = [
        [
            f"{result['chains']} chains",
            f"{result['lockstep_over_vmap_throughput']:.1f}",
            f"{result['mean_of_slowest_looks_over_mean_looks']:.1f}",
            f"{result['row_looked_at_over_row_of_full_pass']:.1f}",
            f"{result['on_cores_over_one_group_throughput']:.1f}",
        ]
        for result in load("lockstep")["results"]
    ]
    header = [
        "mixture, m = 50",
        "lockstep over `vmap(while_loop)`",
        "looks of the slowest chain over mean looks",
        "time per row looked at over a plain pass",
        "a group of chains for each of 2 cores over one group",
    ]
    sizes = load("scaling")["results"]
    growth = ", ".join(f"{s['time_over_time_at_smallest_N']:.2f} at N = {s['rows']:.0e}" for s in sizes[1:])
    memory = ", ".join(f"{s['memory_grown_while_sampling_MiB']:.0f}" for s in sizes)
    return (
        table(header, rows)
        + f"\n\nTime per turn relative to N = {sizes[0]['rows']:.0e}: {growth}. Resident memory beyond the data, "
        f"compiler included: {memory} MiB.\n\n{device()}"
    )


def device() -> str:
    record = load("device")
    best = record["results"][-1]
    return (
        f"On an {record['configuration']['device']}, {best['chains']:,} chains: "
        f"{best['million_looks_per_second']:,.0f} million looks of 50 rows, "
        f"{best['million_decisions_per_second']:,.0f} million decisions a second."
    )


def calibration() -> str:
    record = load("calibration")
    results, configuration = record["results"], record["configuration"]
    limit = configuration["level"] / len(results["sound"])
    rows = [
        [
            result["model"],
            f"`{result['test']}`",
            f"{result['sets']:,}",
            f"{result['share_of_rows']:.2f}" + (" + all scanned" if result["share_scanned"] else ""),
            f"{result['acceptance']:.2f}",
            f"{result['p_value']:.2g}",
        ]
        for result in results["sound"]
    ]
    p_values = {(result["broken"], result["model"]): result["p_value"] for result in results["broken"]}
    models = list(dict.fromkeys(model for _, model in p_values))
    broken = [
        [name, *(f"{p_values[name, model]:.1g}" for model in models)]
        for name in dict.fromkeys(name for name, _ in p_values)
    ]
    memory = max(result["memory"] for result in results["sound"])
    seen = ", ".join(f"{share:.2f} at {factor}" for factor, share in results["power"]["refused"].items())
    steps = " or ".join(f"{step:g}" for step in dict.fromkeys(configuration["step"].values()))
    header = ["model", "test", "data sets", "share of rows a decision reads", "acceptance", "p"]
    return (
        f"{table(header, rows)}\n\n{configuration['rows']:,} rows a data set, steps of {steps} posterior standard "
        f"deviations, {configuration['chains']} chains, {configuration['relaxation_times']:g} relaxation times long: "
        f"at most {memory:.2f} of where a chain started is left where it ends. Refused is p < {limit:.1g}, "
        f"{configuration['level']:g} shared among all of them (Bonferroni; also Holm's first step). Samplers broken on "
        "purpose, all of them `MinibatchBarker()` otherwise, "
        f"and their p:\n\n{table(['broken', *models], broken)}\n\nHow often the check refuses draws of a wrong "
        f"variance, by its ratio to the right one (one parameter, {results['power']['sets']:,} data sets): {seen}."
    )


BLOCKS = {
    write.__name__: write
    for write in (
        *(table_1, table_2, mixture, correction, speed, choosing, evidence, bounds, combined, worst_case, calibration),
        *(pairs, stopped, orders, shift, paper_bound, tails),
        *(peers, peer_summary, peer_accuracy, influence_plans, rows_against_n),
    )
}


def fill(text: str) -> str:
    """Replace what stands between the markers."""

    def block(match: re.Match) -> str:
        name = match[1]
        return f"<!-- begin {name} -->\n{BLOCKS[name]()}\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", block, text, flags=re.DOTALL)


def _bias(result: dict[str, Any]) -> list[str]:
    return [
        f"{result['acceptance']:.3f}",
        _pair(result["mean_bias_in_sd"], result["mean_mcse_in_sd"], "+.3f"),
        _pair(result["variance_ratio"], result["variance_mcse"], ".3f"),
    ]


def _pair(values: list[float], errors: list[float], form: str) -> str:
    return ", ".join(f"{value:{form}} ± {error:.3f}" for value, error in zip(values, errors, strict=True))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill(page.read_text()))
