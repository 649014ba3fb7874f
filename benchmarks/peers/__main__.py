"""The command line of `benchmarks.peers`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import load
from benchmarks.peers.compare import Plan, compare, influence_at, save_part
from benchmarks.peers.reference import make_reference, read_reference
from benchmarks.peers.rows import SIZES, rows_against_n, rows_figure
from benchmarks.peers.settings import SETTINGS
from benchmarks.peers.targets import TARGETS, rare

RARE_SIZES = (10_000, 100_000, 1_000_000)
DOCS = Path(__file__).parent.parent.parent / "docs"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=(peers.__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--target", choices=TARGETS, action="append", help="may be repeated; all targets by default")
    parser.add_argument("--covertype", type=Path, metavar="PATH", help="an .npz with X, wild, soil, y")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds per sampler and repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1000, help="draws, of samplers that adapt")
    parser.add_argument("--rows", type=int, help="N, if not all")
    parser.add_argument("--only", action="append", metavar="NAME", help="a sampler, or all whose name contains this")
    parser.add_argument("--reference", type=Path, metavar="PATH", help="from --make-reference; of one target")
    parser.add_argument("--no-search", action="store_true", help="use a middle number of chains without a search")
    parser.add_argument("--output", default="peers", help="results/NAME.json")
    parser.add_argument("--make-reference", nargs=2, metavar=("TARGET", "OUT"), help="run long NUTS instead")
    parser.add_argument("--draws", type=int, default=1000, help="of the reference, by chain")
    parser.add_argument("--chains", type=int, default=64, help="of the reference")
    parser.add_argument("--rows-against-n", action="store_true", help="measure that instead")
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES, help="N, for --rows-against-n")
    parser.add_argument("--influence", action="store_true", help="how to sample the rows of rare events, by N, instead")
    parser.add_argument("--draw", action="store_true", help="docs/rows-against-n.png, from the results")
    return parser.parse_args(words)


def chosen(only: list[str] | None) -> tuple[str, ...]:
    """Names of samplers that equal a word, or contain one that is not itself a name; all names without words."""
    words = [word.lower() for word in only or [""]]
    exact = {name.lower() for name in SETTINGS}
    names = tuple(
        name
        for name in SETTINGS
        if any(word == name.lower() if word in exact else word in name.lower() for word in words)
    )
    if not names:
        raise SystemExit(f"--only {' '.join(only or [])}: no such sampler. There are: {'; '.join(SETTINGS)}.")
    return names


def main(words: list[str] | None = None) -> None:
    given = arguments(words)
    names = chosen(given.only)
    plan = Plan(given.seconds, given.repetitions, given.warmup, names, given.output, not given.no_search)
    if given.make_reference:
        name, path = given.make_reference
        make_reference(TARGETS[name](given.rows, given.covertype), Path(path), draws=given.draws, chains=given.chains)
        return
    if given.rows_against_n:
        records = []
        for record in rows_against_n([int(size) for size in given.sizes]):
            records.append(record)
            save_part(plan, "rows_against_n", records)
    if given.draw:
        rows_figure(load(plan.output).results["rows_against_n"]).savefig(DOCS / "rows-against-n.png")
    if given.influence:
        save_part(plan, "influence", [influence_at(rare(size)) for size in RARE_SIZES])
    if given.rows_against_n or given.draw or given.influence:
        return
    if given.reference and len(given.target or TARGETS) > 1:
        raise SystemExit("--reference belongs to one target: name it with --target.")
    for name in given.target or TARGETS:
        _compare_by_name(name, given, plan)


def _compare_by_name(name: str, given: argparse.Namespace, plan: Plan) -> None:
    """Compare on a target, or say why it is not available."""
    try:
        target = TARGETS[name](given.rows, given.covertype)
    except (ModuleNotFoundError, OSError, ValueError) as error:
        print(f"{name}: skipped: {error}", flush=True)
        return
    compare(target, plan, read_reference(given.reference, target) if given.reference else None)


if __name__ == "__main__":
    main()
