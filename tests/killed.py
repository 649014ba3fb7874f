"""A run that is killed again and again: `python killed.py KIND FOLDER OUT` makes it, `kill_until_done` kills it.

On several processes it kills itself: those and after as many seconds as `KILLED` says, such as "1 2.5" or "01 2.5".
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("draws", "moments", "adapted", "exact", "transition", "fit", "command")
KINDS_OF_SEVERAL = ("draws", "moments", "adapted", "sharded", "fit")


def run(kind: str, folder: str | None) -> Any:
    """Make a run of a few seconds, and return its trace; with a folder, from its checkpoint."""
    if kind == "command":
        return command(folder)
    import jax

    import tallchain as tc

    key, options = jax.random.key(1), {"num_chains": 16, "progress": False, "checkpoint": folder}
    if kind in ("exact", "transition", "fit"):
        model = tc.models.Regression(tc.models.families.Bernoulli(), **rows(has_groups=kind != "exact"))
        if kind == "fit":
            return tc.fit(model, num_draws=8_000, progress=False, checkpoint=folder).trace
        prepared = tc.prepare(model, progress=False)
        count = 600 if kind == "transition" else 40_000
        return tc.sample(key, prepared.kernel(), prepared.starts(jax.random.key(2), 16), count, **options)
    data = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    posterior = tc.Posterior(lambda t: -0.5 * t @ t, lambda t, x: -0.5 * (x - t[0]) ** 2, temperature=100.0)
    source = tc.sources.Sharded(data, 4) if kind == "sharded" else tc.Shuffled(data, 50)
    kernel = tc.MetropolisHastings(posterior, source, proposal=tc.RandomWalk(0.2))
    more = {"moments": {"keep": "moments", "thin": 7}, "adapted": {"adapt": True, "num_warmup": 8_000}}.get(kind, {})
    return tc.sample(key, kernel, np.zeros(2, np.float32), 20_000, **options, **more)


def rows(*, has_groups: bool) -> dict[str, Any]:
    """Features, outcomes and groups."""
    random = np.random.default_rng(0)
    x, group = random.normal(size=(5_000, 2)), random.integers(0, 40, 5_000)
    y = random.random(5_000) < 1 / (1 + np.exp(-x @ [0.5, -0.5]))
    return {"x": x, "y": y, "groups": {"g": group} if has_groups else None}


def command(folder: str | None) -> Any:
    """`tallchain fit` in this process."""
    import pandas as pd

    from tallchain.cli import main
    from tallchain.fitting import Fit

    with tempfile.TemporaryDirectory() as elsewhere:
        of = rows(has_groups=True)
        frame = pd.DataFrame({"a": of["x"][:, 0], "b": of["x"][:, 1], "g": of["groups"]["g"], "y": of["y"]})
        frame.to_csv(f"{elsewhere}/rows.csv", index=False)
        words = ["tallchain", "fit", "rows.csv", "y ~ a + b + (1 | g)", "--family", "bernoulli", "--no-progress"]
        sys.argv = [*words, "--draws", "8000", *([] if folder is None else ["--checkpoint", os.path.abspath(folder)])]
        os.chdir(elsewhere)
        with contextlib.suppress(SystemExit):
            main()
        return Fit.load("fit").trace


def numbers_of(trace: Any) -> dict[str, np.ndarray]:
    """Everything that must be the same."""
    import jax

    leaves = jax.tree.leaves(trace.position)
    found = {f"position/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return found | {name: getattr(trace, name) for name in ("is_accepted", "rows_read", "log_ratio")}


def kill_until_done(kind: str, folder: Path, out: Path, kills: int, seconds: float, seed: int) -> list[float]:
    """Start the run again and again, and kill it after a random time; return these times. The last run may end."""
    chance, times = random.Random(seed), []
    command = [sys.executable, __file__, kind, str(folder), str(out)]
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        times.append(chance.uniform(0, seconds))
        time.sleep(times[-1])
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        if out.exists():
            break
    ended = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return times


def kill_later(rank: int) -> None:
    """Have this process killed, if it is to be."""
    who, seconds = os.environ.get("KILLED", " 0").split(" ")
    if str(rank) in who:
        timer = threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()


if __name__ == "__main__":
    from tallchain import crew, joining

    kind, folder, out = sys.argv[1:]
    rank = int(os.environ.get(joining.LAUNCHED, "0,0,0").split(",")[2])
    kill_later(rank)
    crew.start()
    made = numbers_of(run(kind, None if folder == "-" else folder))
    out = out.replace("RANK", str(rank))
    temporary = Path(out).with_suffix(".part.npz")
    np.savez(temporary, **made)
    os.replace(temporary, out)
