"""Pieces of docs/ from `benchmarks.exact`, and its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.measure import load
from benchmarks.records import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NEEDS = {
    "MHSS()": ("a bound for every row, and independent rows", "yes"),
    "ScalableMH()": ("the same", "yes"),
    "TunaMH()": ("the same", "yes"),
    "Penalty()": ("nothing, but assumes that the mean of b rows is nearly normal", "to order 1/sqrt(b), small"),
}


def pieces() -> dict[str, str]:
    """Rows and acceptance by test and target, and FireflyMC beside a walk on all rows."""
    found = load("exact").results
    targets = found["targets"]
    return {
        "exact_tests": by_target(targets),
        "exact_choice": choice(targets["simulated"]),
        "firefly": firefly(found["firefly"]),
        "package": package(found["package"]),
        "agreement": agreement(found["agreement"]),
        "exact_speed": speed(load("peers_exact").results),
    }


def speed(found: dict[str, Any]) -> str:
    """The default, an exact test, over other samplers: effective draws a second, in one run by target."""
    names = dict.fromkeys(name for of in found.values() for name in of["samplers"] if name != "tallchain")

    def ratio(of: dict[str, Any], name: str) -> str:
        if name not in of["samplers"]:
            return ""
        ours, its = (of["samplers"][each]["median_ess_per_second"] for each in ("tallchain", name))
        value = of["ratios"]["tallchain"].get(name, {"ess_per_second": ours / its})["ess_per_second"]
        return f"{float(f'{value:.2g}'):,g}"

    titles = (f"{name}, {of['rows']:,} x {len(of['columns'])}" for name, of in found.items())
    return table(["over", *titles], [[name, *(ratio(of, name) for of in found.values())] for name in names])


def agreement(found: dict[str, Any]) -> str:
    """Distances from NUTS, by target."""
    header = ["target", "rows", "acceptance", "effective draws", "of NUTS", "means apart", "error of that", "sd"]
    header += ["5 % quantile", "95 % quantile"]
    rows = [
        [
            name,
            f"{of['rows']:,.1f}",
            f"{of['acceptance']:.2f}",
            f"{of['effective']:,.0f}",
            f"{of['of_reference']:,.0f}",
            *(f"{of[key]:.3f}" for key in ("mean", "error")),
            f"{of['least_sd_ratio']:.3f} to {of['most_sd_ratio']:.3f}",
            *(f"{of[key]:.3f}" for key in ("q05", "q95")),
        ]
        for name, of in found.items()
    ]
    return table(header, rows)


def package(found: list[dict[str, Any]]) -> str:
    """Our tests beside those of the authors' package."""
    header = ["test", "in PyMHSS", "order", "acceptance", "its", "means apart, in sd", "in Monte Carlo errors", "sd"]
    rows = [
        [
            f"`{of['test']}`",
            f"`{of['function']}`",
            str(of["order"]),
            f"{of['acceptance']:.3f}",
            f"{of['their_acceptance']:.3f}",
            f"{of['worst_difference_of_means']:.3f}",
            f"{of['worst_z']:.1f}",
            "{:.3f} to {:.3f}".format(*of["sd_ratios"]),
        ]
        for of in found
    ]
    return table(header, rows)


def firefly(found: dict[str, Any]) -> str:
    """FireflyMC by target."""
    header = ["target", "sampler", "rows per decision", "of them bright", "acceptance", "effective draws per draw"]
    header += ["effective draws", "per row, over those of the walk", "per second, over the walk", "time for brightness"]
    rows = []
    for name, of in found.items():
        for sampler, record in of["samplers"].items():
            bright = f"{record['bright']:,.1f}" if "bright" in record else ""
            share = f"{record['share_of_brightness']:.0%}" if "share_of_brightness" in record else ""
            rows.append(
                [
                    f"{name}, N = {of['rows']:,}, d = {of['d']}",
                    sampler,
                    f"{record['rows']:,.1f}",
                    bright,
                    f"{record['acceptance']:.2f}",
                    f"{record['effective_per_draw']:.2g}",
                    f"{record['effective_draws']:,.0f}",
                    _two_digits(record["per_row_over_walk"]),
                    _two_digits(record["per_second_over_walk"]),
                    share,
                ]
            )
    return table(header, rows)


def choice(of: dict[str, Any]) -> str:
    """The tests with our bounds, on one target."""
    cases = [c for c in of["cases"] if c["order"] == 2 and c["proposal"] == "independent"]
    cases = [c for c in cases if c["bound"] in ("ours", "none")]
    header = ["test", "exact", "needs", f"rows per decision, N = {of['rows']:,}", "acceptance there"]
    needs = [(case, *NEEDS[case["test"]]) for case in cases]
    rows = [
        [f"`{c['test']}`", is_exact, need, f"{c['rows']:.1f}", f"{c['acceptance']:.2f}"] for c, need, is_exact in needs
    ]
    return table(header, rows)


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):,.9g}"


def by_target(targets: dict[str, Any]) -> str:
    """Every case on every target."""
    header = ["test", "bound", "order", "proposals"]
    header += [f"{name}, N = {of['rows']:,}, d = {of['d']}" for name, of in targets.items()]
    by_case: dict[tuple[str, ...], list[str]] = {}
    for number, of in enumerate(targets.values()):
        for case in of["cases"]:
            key = (f"`{case['test']}`", case["bound"], str(case["order"]), case["proposal"])
            cells = by_case.setdefault(key, [""] * len(targets))
            cells[number] = _cell(case, of["rows"])
    return table(header, [[*key, *cells] for key, cells in by_case.items()])


def _cell(case: dict[str, Any], num_rows: int) -> str:
    expects = case["expects"]
    if expects is not None and expects > num_rows:
        return f"all ({expects:.2g} expected); {case['acceptance']:.2f}"
    digits = 1 if case["rows"] < 100 else 0
    return f"{case['rows']:,.{digits}f}; {case['acceptance']:.2f}"


SHOWN = {
    ("MHSS()", "ours", 2): ("MHSS, order 2", "GREEN", "^"),
    ("ScalableMH()", "its paper's", 2): ("ScalableMH, order 2, its paper's bound", "BLUE", "v"),
    ("MHSS()", "ours", 1): ("MHSS, order 1", "PURPLE", "o"),
    ("TunaMH()", "its paper's", 0): ("TunaMH, its paper's bound, walk", "VERMILION", "s"),
    ("Penalty()", "none", 2): ("Penalty, order 2 (not exact)", "GREY", "x"),
}


def rows_figure(results: dict[str, Any]) -> Figure:
    """Draw rows per decision against N."""
    from tallchain.plots import style

    figure, [[axes]] = style.panels((6.5, 5.0), dpi=120)
    against = {int(size): _by_name(of["cases"]) for size, of in results["against_n"].items()}
    sizes = sorted(size for size, found in against.items() if SHOWN.keys() <= found.keys())  # measured to the end
    axes.plot(sizes, sizes, color=style.GREY, lw=1, ls=":", label="all rows")
    for name, (label, color, marker) in SHOWN.items():
        points = [against[size][name] for size in sizes]
        axes.plot(sizes, points, color=getattr(style, color), marker=marker, lw=1.5, label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows in the data, N", ylabel="rows per decision")
    axes.set_title("Logistic regression, d = 20, temperature 1", fontsize=10)
    axes.legend(**style.BELOW, fontsize=8)
    return figure


def _by_name(cases: list[dict[str, Any]]) -> dict[tuple[str, str, int], float]:
    """Rows per decision; of two proposals, those that come first."""
    return {(c["test"], c["bound"], c["order"]): c["rows"] for c in reversed(cases)}
