"""Time per turn and memory beyond the data, for N from 10^4 to 10^7. Each N in a process of its own, for its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import interleaved, save

SIZES = (10**4, 10**5, 10**6, 10**7)
CHAINS, TURNS, REPETITIONS = 256, 2000, 11


def memory_beyond_data(num_rows: int) -> dict[str, float]:
    """In a process of its own: resident memory of sampling beyond that of holding the data, in MiB."""
    code = f"from benchmarks.scaling import report_memory; report_memory({num_rows})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report_memory(num_rows: int) -> None:
    import resource

    run = runner(num_rows)
    before = _resident()
    run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"resident_before_MiB": before, "grown_by_MiB": _resident() - before, "peak_MiB": peak}))


def runner(num_rows: int) -> Callable[[], Any]:
    """A function that takes TURNS turns of CHAINS chains on the mixture with this many rows."""
    import jax
    import jax.numpy as jnp
    from jax import random as jr

    import tallchain as tc
    from tallchain import runner

    mixture = tc.models.gaussian_mixture(num_rows)
    source = tc.Shuffled(mixture.data, 50, windows=True)
    kernel = tc.MetropolisHastings(
        mixture.posterior, source, proposal=tc.RandomWalk(0.15), acceptance=tc.MinibatchBarker(stopping="growth")
    )
    keys = jax.vmap(lambda chain: jr.fold_in(jr.key(0), chain))(jnp.arange(CHAINS))
    positions = jnp.tile(jnp.array([0.0, 1.0]), (CHAINS, 1))

    run = runner.Runner(kernel, tc.Schedule(), keys, TURNS // 2, groups=1)
    return lambda: run.start(positions)(last=2**30, turns=TURNS)


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def main() -> None:
    memory = {str(size): memory_beyond_data(size) for size in SIZES}
    seconds = interleaved({str(size): runner(size) for size in SIZES}, REPETITIONS)
    first = np.asarray(seconds[str(SIZES[0])])
    results = [
        {
            "rows": size,
            "time_over_time_at_smallest_N": float(np.median(np.asarray(seconds[str(size)]) / first)),
            "memory_grown_while_sampling_MiB": memory[str(size)]["grown_by_MiB"],
        }
        for size in SIZES
    ]
    configuration = {
        "model": "gaussian_mixture at K = N/100",
        "source": "Shuffled(batch_size=50, windows=True)",
        "chains": CHAINS,
        "turns": TURNS,
        "repetitions": REPETITIONS,
        "statistic": "median of ratios of neighbouring runs; memory in a process of its own, compiler included",
    }
    save("scaling", configuration, results)


if __name__ == "__main__":
    main()
