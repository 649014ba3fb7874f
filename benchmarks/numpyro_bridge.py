"""A NumPyro model by tallchain's `fit`, and by NumPyro's own NUTS and HMCECS: time to 4000 effective draws.

`python -m benchmarks.numpyro_bridge` writes results/numpyro_bridge.json: seconds from import to 4000 effective draws of
the worst parameter, everything included (compilation, warm-up, tallchain's check of all rows), of the same model, a
logistic regression of 1,000,000 x 20. Each in a process of its own, in turns. The slow ones make fewer draws, and the
time that the rest would take is added; HMCECS is given the mode that its proxy needs, by a fit whose time counts.
"""

from __future__ import annotations

import argparse

from benchmarks.measure import load, save
from benchmarks.time_to_answer.__main__ import measure
from benchmarks.time_to_answer.child import EFFECTIVE

OURS, PEERS = "tallchain, NumPyro's model", ("NumPyro NUTS", "NumPyro HMCECS")
ROWS = 1_000_000


def pieces() -> dict[str, str]:
    """For docs/from-numpyro.md."""
    found = load("numpyro_bridge").results["methods"]
    ours = found[OURS]["seconds"]["cold"]
    nuts, hmcecs = (found[name]["seconds"]["cold"] / ours for name in PEERS)
    again = found[OURS]["seconds"]["again"] / ours
    said = (
        f"A logistic regression of {ROWS:,} x 20, written for NumPyro: `fit` has {EFFECTIVE:,} effective draws "
        f"{nuts:.0f} times sooner than NumPyro's NUTS and {hmcecs:.1f} times sooner than its HMCECS, everything "
        f"included, on the same 2 cores. A second call in the same process takes {again:.2f} of the time of the first."
    )
    return {"numpyro_bridge": said}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of tallchain; the others run once")
    options = parser.parse_args()
    results = measure("simulated", ROWS, [OURS, *PEERS], options.rounds)
    save("numpyro_bridge", {"rounds": options.rounds, "effective_draws": EFFECTIVE}, results)
