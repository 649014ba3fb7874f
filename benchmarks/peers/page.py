"""The tables of docs/temperature-one.md."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import load, median_ratio
from benchmarks.records import table

OURS = ("tallchain", "tallchain, MHSS", "tallchain, Penalty", "tallchain, MinibatchBarker")
TARGETS = {
    "simulated": "Simulated",
    "covertype": "Covertype",
    "rare": "Rare events",
    "flights": "Flights",
}


def pieces() -> dict[str, str]:
    """All tables."""
    return {
        "peers": peers(),
        "peer_summary": peer_summary(),
        "peer_accuracy": peer_accuracy(),
        "influence_plans": influence_plans(),
        "rows_against_n": rows_against_n(),
    }


def peers() -> str:
    """Effective draws and times of every sampler, as ratios to ours, by target."""
    found = load("peers").results
    return "\n\n".join(
        f"**{title}**, N = {found[name]['rows']:,}, d = {len(found[name]['columns'])}:\n\n{_peer_table(found[name])}"
        for name, title in TARGETS.items()
        if name in found
    )


def _peer_table(result: dict[str, Any]) -> str:
    ratios, ours = result["ratios"]["tallchain"], result["samplers"]["tallchain"]
    rows = []
    for name, record in result["samplers"].items():
        if "failed" in record:
            rows.append([name, *["-"] * 5, record["failed"]])
            continue
        over = []
        if name in ratios:
            over = [_round(ratios[name]["ess_per_second"]), f"{ratios[name]['seconds_to_1000']:.1f}"]
        elif name != "tallchain":
            faster = median_ratio(ours["ess_per_second"], record["ess_per_second"])
            over = [
                _round(faster) if faster >= 10 else f"{faster:.2g}",
                f"{record['seconds_to_1000'] / ours['seconds_to_1000']:.1f}",
            ]
        rows.append(
            [
                name,
                f"{record['chains']}",
                f"{record['rows_per_draw']:,.0f}",
                f"{record['acceptance']:.2f}",
                f"{record['ess_per_draw']:.2g}",
                *(over or ["", ""]),
            ]
        )
    header = [
        *("sampler", "chains", "rows per draw", "acceptance", "effective draws per draw"),
        *("effective draws per second: tallchain's over its", "time to the first 1000: its over tallchain's"),
    ]
    return table(header, rows)


def peer_summary() -> str:
    """Ratios to every peer by target, for README."""
    found = {name: result for name, result in load("peers").results.items() if name in TARGETS}
    names = dict.fromkeys(name for result in found.values() for name in result["ratios"]["tallchain"])
    rows = []
    for name in names:
        ratios = [result["ratios"]["tallchain"].get(name) for result in found.values()]
        rows.append(
            [name, *(f"{_round(r['ess_per_second'])} ({r['seconds_to_1000']:.1f})" if r else "" for r in ratios)]
        )
    sizes = [f"{TARGETS[name]}, {result['rows']:,} x {len(result['columns'])}" for name, result in found.items()]
    return table(["tallchain over", *sizes], rows)


def _round(value: float) -> str:
    """Two digits, without an exponent."""
    return f"{float(f'{value:.2g}'):,.0f}"


def peer_accuracy() -> str:
    """How far draws are from a long NUTS run on all rows, the worst parameter, by target."""
    found = load("peers").results
    rows = []
    for target, title in TARGETS.items():
        if "reference" not in found.get(target, {}):
            continue
        result = found[target]
        reference = result["reference"]
        error = max(e / sd for e, sd in zip(reference["mcse_mean"], reference["sd"], strict=True))
        compared = {"Laplace approximation": result["laplace_distance"]}
        compared |= {
            name: r["distance"] for name, r in result["samplers"].items() if name in OURS and "failed" not in r
        }
        for name, far in compared.items():
            record = result["samplers"].get(name, {})
            cells = [f"{far[key]:.3f}" for key in ("mean", "q05", "q95")]
            spread = f"{far['least_sd_ratio']:.3f} to {far['most_sd_ratio']:.3f}"
            read = f"{record['rows_per_draw']:,.0f}" if record else ""
            rows.append([title, name, cells[0], spread, *cells[1:], read])
        rows.append([title, "(Monte Carlo error of the NUTS run)", f"{error:.3f}", "", "", "", ""])
    skewness = ", ".join(
        f"{title} {max(found[target]['reference']['skewness'], key=abs):+.2f}"
        for target, title in TARGETS.items()
        if "reference" in found.get(target, {})
    )
    chains, draws = found["simulated"]["reference"]["shape"]
    header = ["target", "draws", "mean", "sd", "5 % quantile", "95 % quantile", "rows a decision"]
    return (
        f"{table(header, rows)}\n\nThe NUTS runs: {chains} chains of {draws:,} draws. The "
        f"largest skewness of a margin: {skewness}."
    )


def influence_plans() -> str:
    """What each way to sample rows would read, on Covertype and for rare events by N."""
    found = load("peers").results
    columns = {"Covertype": found["covertype"]["samplers"]["tallchain"]["prepared"]}
    columns |= {f"rare events, N = {each['rows']:,}": each for each in found["influence"]}
    words = {"none": "every row alike", "copies": "rows that matter more often", "exact": "{num_exact:,} rows always"}
    cells: dict[str, dict[str, str]] = {}
    for title, prepared in columns.items():
        costs = [(plan, plan["num_exact"] + max(plan["rows"], plan["batch"], 20)) for plan in prepared["plans"]]
        for plan, cost in costs:
            name = words[plan["method"]].format(**plan)
            is_best = cost == min(cost for _, cost in costs)
            cells.setdefault(name, {})[title] = f"**{cost:,.0f}**" if is_best else f"{cost:,.0f}"
    rows = [[name, *(by.get(title, "") for title in columns)] for name, by in cells.items()]
    return table(["rows that a decision would read", *columns], rows)


def rows_against_n() -> str:
    """Rows that a decision reads, by order of the surrogate and N."""
    found = load("peers").results["rows_against_n"]
    sizes = sorted({record["rows"] for record in found})
    by = {(record["rows"], record["order"]): record["rows_per_decision"] for record in found}
    rows = [
        [name, *(f"{by[size, order]:,.0f}" if (size, order) in by else "" for size in sizes)]
        for order, name in ((0, "no surrogate"), (1, "order 1"), (2, "order 2"))
    ]
    return table(["rows per decision", *(f"N = {size:,}" for size in sizes)], rows)
