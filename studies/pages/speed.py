"""Pieces from the benchmarks."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.device.answers import DRAWS
from benchmarks.measure import load
from benchmarks.records import table


def pieces() -> dict[str, str]:
    """Throughput."""
    return {"speed": speed(), "mixed_speed": mixed()}


def mixed() -> str:
    """Regressions with groups beside NUTS on all rows."""
    record = load("mixed")
    num_rows, wanted = record.configuration["rows"], record.configuration["effective_draws_wanted"]
    header = [
        f"groups, N = {num_rows:,}",
        "rows a decision",
        "acceptance",
        "sweeps for the reference, and in all",
        "effective draws a second over NUTS",
        f"time to {wanted} effective draws, everything included: NUTS over tallchain",
        "second call over the first",
    ]
    rows = [
        [
            f"{int(groups):,}",
            f"{found['ours']['rows_per_decision']:.0f}",
            f"{found['ours']['acceptance']:.2f}",
            f"{found['ours']['sweeps_for_the_reference']}, {found['ours']['rows_swept'] / num_rows:.0f}",
            f"{found['effective_per_second']:,.0f}",
            f"{found['time_to_wanted']:,.0f}{_unhelped(found)}",
            f"{found['ours']['again']['seconds'] / found['ours']['first']['seconds']:.2f}",
        ]
        for groups, found in record.results.items()
    ]
    return table(header, rows)


def _unhelped(found: dict[str, Any]) -> str:
    """The same over NUTS by its own defaults, where it was helped otherwise."""
    one = found.get("unhelped")
    if one is None:
        return ""
    wanted = found["ours"]["to_wanted"]
    if "to_wanted" in one:
        return f"; not helped {one['to_wanted'] / wanted:,.0f}"
    return f"; not helped more than {math.floor(one['stopped_after'] / wanted)}"


def speed() -> str:
    """Chains in lockstep against other ways to run them, and how that scales."""
    rows = [
        [
            f"{result['chains']} chains",
            f"{result['lockstep_over_vmap_throughput']:.1f}",
            f"{result['mean_of_slowest_looks_over_mean_looks']:.1f}",
            f"{result['row_looked_at_over_row_of_full_pass']:.1f}",
            f"{result['on_cores_over_one_group_throughput']:.1f}",
        ]
        for result in load("lockstep").results
    ]
    header = [
        "mixture, m = 50",
        "lockstep over `vmap(while_loop)`",
        "looks of the slowest chain over mean looks",
        "time per row looked at over a plain sweep",
        "one group of chains per core (2) over one group",
    ]
    sizes = load("scaling").results
    growth = ", ".join(f"{s['time_over_time_at_smallest_N']:.2f} at N = {s['rows']:.0e}" for s in sizes[1:])
    memory = ", ".join(f"{s['memory_grown_while_sampling_MiB']:.0f}" for s in sizes)
    return (
        table(header, rows)
        + f"\n\nTime per turn relative to N = {sizes[0]['rows']:.0e}: {growth}. Resident memory beyond the data, "
        f"compiler included: {memory} MiB.\n\n{device()}"
    )


def device() -> str:
    """Absolute figures on an accelerator."""
    record = load("device")
    found, best = record.results, record.results["mixture"][-1]
    sample, prepare, effective = (found[name] for name in ("sample", "prepare", "effective"))
    rows = [
        [
            f"the mixture, {best['chains']:,} chains",
            f"{best['million_looks_per_second']:,.0f} million looks of 50 rows a second",
        ],
        ["", f"{best['million_decisions_per_second']:,.0f} million decisions a second"],
        [
            f"logistic, {found['wide']['columns']} columns, {found['wide']['chains']:,} chains with rows of their own",
            f"{found['wide']['terabytes_per_second']:.1f} TB of rows a second",
        ],
        [
            f"`prepare`, N = {prepare['rows']:,}, d = 20",
            f"{prepare['seconds']:.1f} s ({prepare['first']:.1f} with compiling)",
        ],
        ["a sweep with the Hessian there, over one jitted program", f"{prepare['ratio']:.1f}"],
        [
            f"`sample`, {sample['chains']:,} chains x {DRAWS} draws, d = 20, scan included",
            f"{sample['draws']['seconds']:.2f} s with draws, {sample['moments']['seconds']:.2f} s with moments",
        ],
        [
            f"effective draws a second, {effective['chains']:,} chains",
            f"{effective['tallchain'] / 1e6:,.0f} million; NumPyro's NUTS, one chain: "
            f"{effective['NumPyro NUTS']['per_second']:,.0f}",
        ],
    ]
    return table([f"on an {record.configuration['device']}", "after compiling"], rows)
