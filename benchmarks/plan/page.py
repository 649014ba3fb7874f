"""Pieces for docs/scale.md: the plan, how far its formulas are from real runs, and what limits what."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.measure import load
from benchmarks.plan.model import Constants, Fleet, message, telling
from benchmarks.plan.simulation import FLEET, GROUPED, JOB
from benchmarks.records import table
from tallchain.sources.out_of_core import _MOST_SHARDS, _SHARE

LARGE_VARIANCE = 300.0
"""S^2 of a mixed model with 10,000 groups, whose surrogate leaves much: for comparison."""
STEPS = {
    "reading": "reading the parts",
    "sweeping": "`prepare`: {passes:.0f} passes over all rows",
    "sampling": "{rounds:,} rounds of {length:,} draw, with compiling",
    "telling": "telling each other the draws after each",
    "digesting": "taking in the draws of all",
    "scanning": "the scan",
    "total": "in all",
}
REAL = {
    "preparing": ("sweeping",),
    "sampling": ("sampling", "telling", "digesting"),
    "scanning": ("scanning",),
}
"""What was measured in one, and planned in steps."""


def pieces() -> dict[str, str]:
    """All."""
    found = load("plan").results
    constants = Constants.of(found["measured"])
    return {
        "plan_bytes": sizes(constants),
        "plan_time": times(constants, found["planned"]),
        "plan_checked": checked(constants, found),
        "plan_limits": limits(constants, found["planned"]),
    }


def sizes(constants: Constants) -> str:
    """Return what there is of everything."""
    part = JOB.part_rows * constants.row_bytes
    errors = [JOB.part_error(variance) for variance in (constants.variance, LARGE_VARIANCE)]
    gpu = load("device").results["prepare"]
    on_gpu = gpu["seconds"] / gpu["rows"] * JOB.part_rows
    after = message(constants, JOB, FLEET)
    rows = [
        ["rows, and bytes of a row", f"{_number(JOB.rows)}, {constants.row_bytes:.0f}"],
        ["on disk; in the memory of a device", f"{_bytes(JOB.rows * constants.disk_bytes)}; {_bytes(part)}"],
        ["packing, by one process", _time(JOB.rows * constants.row_bytes * constants.pack_byte)],
        [f"`prepare` of a part on an H200, from that of {_number(gpu['rows'])} rows", _time(on_gpu)],
        [
            f"e, for S^2 = {constants.variance:.2g} as measured at {_number(constants.variance_rows)} rows; for "
            f"S^2 = {LARGE_VARIANCE:.0f}",
            "; ".join(f"{error:.1g}" for error in errors),
        ],
        [
            "draws: chains, draws of each, worth as effective draws",
            f"{JOB.parts * JOB.chains:,}, {JOB.rounds * JOB.length:,}, {constants.effective * JOB.all_draws:,.0f}",
        ],
        ["tours of the parts; rounds; draws in a round", f"{JOB.tours}; {JOB.rounds:,}; {JOB.length}"],
        [
            "after a round, from each process; to each process",
            f"{_bytes(after)}; {_bytes(after * FLEET.processes)}",
        ],
        [
            "a checkpoint: draws; where the chains are",
            f"{_bytes(JOB.all_draws * constants.draw_bytes)}; {_bytes(JOB.parts * JOB.chains * constants.chain_bytes)}",
        ],
    ]
    return table(["1000 devices", ""], rows)


def times(constants: Constants, planned: dict[str, Any]) -> str:
    """Return how long the steps take."""
    words = {"passes": constants.passes, "rounds": JOB.rounds, "length": JOB.length}
    columns = [planned["alone"], planned["alone"], planned["grouped"], planned["grouped"], planned["lifted"]]
    kinds = ["planned", "simulated", "planned", "simulated", "planned"]
    rows = [
        [label.format(**words), *(_time(of[kind][step]) for of, kind in zip(columns, kinds, strict=True))]
        for step, label in STEPS.items()
    ]
    alone, grouped = f"{FLEET.processes:,} processes", f"{GROUPED.processes:,} processes of 8 devices"
    header = ["", alone, "simulated", grouped, "simulated", f"{alone}, limits 3 and 4 lifted"]
    return table(header, rows)


def checked(constants: Constants, found: dict[str, Any]) -> str:
    """Return real runs over formulas and simulation."""
    rows = []
    for name, runs in found["measured"]["real"].items():
        real = {step: float(np.median([each[step] for each in runs])) for step in runs[0]}
        cells, of = [], found["compared"][name]
        for measured, steps in REAL.items():
            once = constants.compile_once if measured == "sampling" else 0.0
            seconds = [sum(of[kind][step] for step in steps) - once for kind in ("planned", "simulated")]
            cells.append("; ".join(f"{real[measured] / each:.2f}" for each in seconds))
        cells.append("; ".join(f"{real['total'] / of[kind]['total']:.2f}" for kind in ("planned", "simulated")))
        rows.append([name, *cells])
    most = max(found["measured"]["talk"], key=lambda of: of["processes"])
    store = telling(constants, Fleet(most["processes"]), 0)
    header = ["measured over planned; over simulated", "`prepare`", "sampling", "the scan", "in all"]
    return (
        f"{table(header, rows)}\n\n{most['processes']} processes told each other a word in "
        f"{1000 * most['seconds'][0]:.1f} ms on two cores, which they shared with the store; for the store alone the "
        f"formula has {1000 * store:.1f} ms."
    )


def limits(constants: Constants, planned: dict[str, Any]) -> str:
    """Return what limits what, what it means for the plan, and what would lift it."""
    shard = JOB.rows * constants.row_bytes / _MOST_SHARDS * _SHARE
    told = {name: planned[name]["planned"]["telling"] for name in ("alone", "grouped")}
    rows = [
        [
            "1. Rows are numbered with 32 bits",
            "fewer than 2^31 rows in a source, all parts together: more are refused",
            "numbers by part and row; N as a float where a kernel multiplies by it",
        ],
        [
            f"2. `pack` is one process, and makes at most {_MOST_SHARDS:,} shards",
            f"{_time(JOB.rows * constants.row_bytes * constants.pack_byte)}; {_bytes(shard)} of memory",
            "several processes that pack, each some of the input and then some of the shards",
        ],
        [
            "3. Each process asks one store for a word of each other, after each round",
            f"{_number(FLEET.processes**2)} requests, {_time(told['alone'] / JOB.rounds)}; in "
            f"{JOB.rounds:,} rounds {_time(told['alone'])}; with 8 devices a process {_time(told['grouped'])}",
            "today, several devices for each process; else a collective or a tree for short messages too",
        ],
        [
            "4. Every process takes in and keeps the draws of all",
            f"{_bytes(JOB.all_draws * constants.draw_bytes)}, and at most "
            f"{1 / constants.digest_draw / 1e6:.1f} million draws a second of a core, for any number of devices",
            '`keep="moments"` for the memory; each process its own draws, and sums of them, for the time',
        ],
        [
            "5. A tour is a round in each part",
            f"at least {JOB.parts:,} rounds, each with a chunk: "
            f"{_time(JOB.rounds * (constants.chunk + constants.chunk_part))} for only {JOB.rounds:,} draws of a chain",
            f"with e = {JOB.part_error(LARGE_VARIANCE):.0e} and less, runs of a part of a tour: they are off by e "
            "standard deviations and not by e^2",
        ],
        [
            "6. A part is in the memory of its device",
            f"{_bytes(JOB.part_rows * constants.row_bytes)}",
            "more devices; or narrower columns, such as int8 and float16, which stay so in memory",
        ],
    ]
    return table(["limit", f"at {_number(JOB.rows)} rows on {FLEET.processes:,} devices", "what would lift it"], rows)


def _number(count: float) -> str:
    power = math.log10(count)
    return f"10^{power:.0f}" if power == int(power) else f"{count:,.0f}"


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def _time(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"
