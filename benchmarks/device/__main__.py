"""Run the parts, and write results/device.json; see the package."""

from __future__ import annotations

import argparse
import time

import jax

from benchmarks.device import answers, throughput
from benchmarks.measure import RESULTS, load, save
from benchmarks.records import Result

PARTS = {
    "mixture": throughput.mixture,
    "sample": answers.sample,
    "wide": throughput.wide,
    "effective": answers.effective,
    "prepare": answers.prepare,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    configuration = {
        "device": jax.devices()[0].device_kind,
        "statistic": f"wall clock, after a first run that compiles: medians of {throughput.REPETITIONS} runs "
        f"(prepare {answers.PREPARED}, effective draws {answers.RATES}); NUTS once",
    }
    for name in parser.parse_args().parts:
        began = time.perf_counter()
        found = PARTS[name]()
        print(f"{name} ({time.perf_counter() - began:.0f} s): {found}", flush=True)
        new, path = Result.of(configuration, {name: found}), RESULTS / "device.json"
        results = (new.over(load("device")) if path.exists() else new).results
        save("device", configuration, results, quiet=True)


if __name__ == "__main__":
    main()
