"""Write the figures of the README from the committed result files: `python -m benchmarks.readme`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS

README = Path(__file__).parent.parent / "README.md"


def load(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mixture() -> str:
    record = load("mixture")
    rows = [
        [
            f"`{result['setting']}`",
            f"{result['mean_rows_per_decision']:,.0f} of {result['rows']:,}",
            f"{result['acceptance']:.3f}",
            _pair(result["mean_bias_in_sd"], result["mean_mcse_in_sd"], "+.3f"),
            _pair(result["variance_ratio"], result["variance_mcse"], ".3f"),
        ]
        for result in record["results"]["settings"]
    ]
    printed = record["results"]["table_1"]["as_published_code(), flat prior"]
    chains = {(r["chains"], r["warmup"], r["draws"]) for r in record["results"]["settings"]}
    runs = "; ".join(f"{c} chains x {d:,} draws after {w:,} of warm-up" for c, w, d in sorted(chains, reverse=True))
    return (
        table(["setting", "rows per decision", "acceptance", "mean", "variance"], rows)
        + f"\n\n{runs}. As the paper's Table 1 counts it (10 trials of 3000 draws), `as_published_code()` reads "
        f"{printed['mean_batch']:.1f} +- {printed['sd_over_trials']:.1f} rows; the paper prints 182.3 +- 11.4."
    )


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
        ]
        for result in load("lockstep")["results"]
    ]
    header = [
        "mixture, m = 50",
        "lockstep over `vmap(while_loop)`",
        "looks of the slowest chain over mean looks",
        "time per row looked at over a plain pass",
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


def fill(text: str) -> str:
    """Replace what stands between the markers."""
    for name, write in (("mixture", mixture), ("correction", correction), ("speed", speed)):
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        block = f"{begin}\n{write()}\n{end}"
        text = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _, block=block: block, text, flags=re.DOTALL)
    return text


def _pair(values: list[float], errors: list[float], form: str) -> str:
    return ", ".join(f"{value:{form}} ± {error:.3f}" for value, error in zip(values, errors, strict=True))


if __name__ == "__main__":
    README.write_text(fill(README.read_text()))
