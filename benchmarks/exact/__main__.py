"""The command line of `benchmarks.exact`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import exact
from benchmarks.exact import firefly, package
from benchmarks.exact.agreement import agreement
from benchmarks.exact.cases import CASES, Prepared, measured
from benchmarks.exact.page import rows_figure
from benchmarks.measure import RESULTS, load, save
from benchmarks.peers.targets import TARGETS, simulated

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
ROWS = 2**24  # to read for each case, about
DOCS = Path(__file__).parent.parent.parent / "docs"


def main() -> None:
    """Measure every case, and write results/exact.json as they come."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exact", description=(exact.__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--covertype", type=Path, metavar="PATH", help="an .npz with X, wild, soil, y")
    parser.add_argument("--target", choices=TARGETS, action="append", help="may be repeated; all targets by default")
    parser.add_argument("--sizes", type=float, nargs="*", default=SIZES, help="N, for rows against N")
    parser.add_argument("--agreement", type=Path, metavar="FOLDER", help="compare with its TARGET.npz of NUTS instead")
    parser.add_argument("--package", action="store_true", help="compare with PyMHSS instead")
    parser.add_argument("--firefly", choices=firefly.SETTINGS, action="append", help="measure FireflyMC instead")
    parser.add_argument("--chains", type=int, default=16, help="for --firefly")
    parser.add_argument("--draws", type=int, default=20_000, help="of each chain, for --firefly")
    parser.add_argument("--draw", action="store_true", help="only draw docs/exact-rows.png, from the results")
    given = parser.parse_args()
    results: dict[str, Any] = load("exact").results if (RESULTS / "exact.json").exists() else {}
    results = {"targets": {}, "against_n": {}, "firefly": {}, "agreement": {}} | results
    if given.firefly:
        for name in given.firefly:
            results["firefly"][name] = firefly.measured(firefly.SETTINGS[name](), given.chains, given.draws)
            _save(results)
    elif given.agreement:
        for name in given.target or TARGETS:
            target = TARGETS[name](None, given.covertype)
            results["agreement"][name] = agreement(target, given.agreement / f"{name}.npz")
            _save(results)
    elif given.package:
        results["package"] = package.compared()
        _save(results)
    elif not given.draw:
        for name in given.target or TARGETS:
            try:
                target = Prepared(TARGETS[name](None, given.covertype))
            except (ModuleNotFoundError, OSError, ValueError) as error:
                print(f"{name}: skipped: {error}", flush=True)
                continue
            _measure(target, results, "targets", name)
        for size in given.sizes:
            _measure(Prepared(simulated(int(size))), results, "against_n", str(int(size)))
    rows_figure(load("exact").results).savefig(DOCS / "exact-rows.png")


def _measure(target: Prepared, results: dict[str, Any], part: str, name: str) -> None:
    cases: list[dict[str, Any]] = []
    results[part][name] = {"rows": target.target.num_rows, "d": target.target.d, "cases": cases}
    for case in CASES:
        record = measured(target, case, ROWS)
        print(name, record, flush=True)
        cases.append(record)
        _save(results)


def _save(results: dict[str, Any]) -> None:
    configuration = {"rows_to_read_for_each_case": ROWS, "starts": "draws of the Laplace approximation"}
    save("exact", configuration, results, quiet=True)


if __name__ == "__main__":
    main()
