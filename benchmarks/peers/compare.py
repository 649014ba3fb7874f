"""All samplers on one target, in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Generator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import numpy as np
from jax import random as jr

import tallchain as tc
from benchmarks.measure import RESULTS, load, median_ratio, save
from benchmarks.peers.problem import Problem, Run, Sampler, distances, effective, laplace_moments, moments
from benchmarks.peers.settings import SETTINGS, SUBSAMPLE, Setting, missing
from benchmarks.peers.targets import SEED, Target

MOST_KEPT = 2**26  # bytes of draws kept by sampler
EFFECTIVE = 1000  # draws to wait for


@dataclasses.dataclass
class Measured:
    """A sampler at its best number of chains, and what it has done so far."""

    sampler: Sampler
    chains: int
    setup: dict[str, float]
    runs: list[Run] = dataclasses.field(default_factory=list)
    """Without their draws."""
    kept: list[np.ndarray] = dataclasses.field(default_factory=list)

    def add(self, run: Run) -> None:
        """Remember a run, and its draws while there is room: the first runs are as good as later ones."""
        size = sum(part.nbytes for part in self.kept)
        room = max(0, MOST_KEPT - size) // (run.draws[:, :1].nbytes)
        if room and len(self.kept) == len(self.runs):
            self.kept.append(run.draws[:, :room])
        self.runs.append(run._replace(draws=np.zeros((*run.draws.shape[:2], 0), np.float32)))

    def record(self, reference: dict[str, np.ndarray] | None) -> dict[str, Any]:
        """What to record."""
        draws = np.concatenate(self.kept, 1)
        per_draw = effective(draws)
        speeds = [run.draws.shape[0] * run.draws.shape[1] / run.seconds for run in self.runs]
        per_second = [per_draw * speed for speed in speeds]
        setup = sum(self.setup.values())
        record = {
            "chains": self.chains,
            "draws_by_chain": sum(run.draws.shape[1] for run in self.runs),
            "setup_seconds": setup,
            "setup_parts": self.setup,
            "ess_per_draw": per_draw,
            "draws_per_second": speeds,
            "ess_per_second": per_second,
            "median_ess_per_second": float(np.median(per_second)),
            "seconds_to_1000": setup + EFFECTIVE / float(np.median(per_second)),
            "acceptance": float(np.mean([run.acceptance for run in self.runs])),
            "rows_per_draw": float(np.mean([run.rows for run in self.runs])),
            "effective_draws_for_moments": per_draw * draws[..., 0].size,
        }
        found = moments(draws)
        prepared = getattr(self.sampler, "prepared", None)
        if prepared is not None:
            record["prepared"] = prepared_record(prepared)
        if reference is not None:
            record["distance"] = distances(found, reference)
        return record | {name: values.tolist() for name, values in found.items()}


def prepared_record(prepared: tc.Prepared) -> dict[str, Any]:
    """What `tc.prepare` found and chose."""
    order = prepared.surrogate.order if prepared.surrogate else 0
    if prepared.is_exact and prepared.exact is not None:
        rows = {"chosen": "exact test", "expected_rows": prepared.exact.rows, "findings": list(prepared.findings)}
        return {"rows_read": prepared.rows_swept, "order": order} | rows
    return {
        "rows_read": prepared.rows_swept,
        "order": order,
        "batch_size": prepared.influence.batch_size,
        "chosen": prepared.influence.chosen.method,
        "plans": [plan._asdict() for plan in prepared.influence.plans],
        "findings": list(prepared.findings),
    }


def influence_at(target: Target) -> dict[str, Any]:
    """What `tc.prepare` chooses for a target."""
    model = target.model
    prepared = tc.prepare(model.posterior, model.data, np.zeros(target.d, np.float32), progress=False)
    scored = dataclasses.replace(prepared, scored=prepared.influence, exact=None)
    return {"target": target.name, "rows": target.num_rows} | prepared_record(scored)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to measure, and for how long."""

    seconds: float
    repetitions: int
    warmup: int
    names: tuple[str, ...]
    output: str = "peers"
    is_searching: bool = True
    """For the best number of chains."""


def find_pace(sampler: Sampler, seconds: float) -> None:
    """Make longer and longer runs, so that the next run takes about the time asked for."""
    for part in (0.02, 0.1, 0.4):
        sampler.run(jr.key(SEED + 1), part * seconds)


def choose(setting: Setting, problem: Problem, warmup: int, seconds: float) -> int:
    """Return the number of chains with the most draws per second; the value of a draw does not depend on it."""
    best, chosen = -1.0, setting.chains[0]
    for chains in setting.chains if len(setting.chains) > 1 else ():
        sampler = setting.make(problem, chains, max(warmup // 20, 20))
        sampler.prepare(jr.key(SEED))
        find_pace(sampler, seconds / 2)
        run = sampler.run(jr.key(SEED + 2), seconds / 4)
        speed = run.draws[..., 0].size / run.seconds
        print(f"    {chains:5} chains: {speed:,.1f} draws per second", flush=True)
        if speed > best:
            best, chosen = speed, chains
    return chosen


def prepare(setting: Setting, problem: Problem, plan: Plan) -> Measured:
    """Choose the number of chains, forget all programs, and set up."""
    if plan.is_searching:
        chains = choose(setting, problem, plan.warmup, plan.seconds)
    else:
        chains = setting.chains[len(setting.chains) // 2]
    sampler = setting.make(problem, chains, plan.warmup)
    jax.clear_caches()
    setup = sampler.prepare(jr.key(SEED))
    print(f"    {chains:5} chains: set up in {sum(setup.values()):.1f} s", flush=True)
    return Measured(sampler, chains, setup)


def compare(target: Target, plan: Plan, reference: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
    """Measure all samplers on one target, in turns; saved after each."""
    problem = Problem.of(target)
    result: dict[str, Any] = {
        "rows": target.num_rows,
        "columns": list(target.columns),
        "seconds": plan.seconds,
        "repetitions": plan.repetitions,
        "warmup": plan.warmup,
        "mode_seconds": problem.seconds,
        "mode_passes": problem.reference.num_passes,
        "samplers": {},
    }
    if reference is not None:
        result["laplace_distance"] = distances(laplace_moments(problem), reference)
        result["reference"] = {name: np.asarray(values).tolist() for name, values in reference.items()}
    ready: dict[str, Measured] = {}
    for name in plan.names:
        with _recording(result, name, plan, target.name) as is_fine:
            if is_fine(SETTINGS[name]):
                ready[name] = prepare(SETTINGS[name], problem, plan)
    for repetition in range(-1, plan.repetitions):
        for name in list(ready):
            with _recording(result, name, plan, target.name, lambda name: ready.pop(name, None)):
                measured = ready[name]
                if repetition < 0:  # to find the pace; it also compiles again what `prepare` made others forget
                    find_pace(measured.sampler, plan.seconds)
                    continue
                measured.add(measured.sampler.run(jr.key(SEED + 10 + repetition), plan.seconds))
                result["samplers"][name] = measured.record(reference)
                _say(name, result["samplers"][name])
        result["ratios"] = ratios(result["samplers"])
        save_part(plan, target.name, result)
    return result


@contextlib.contextmanager
def _recording(
    result: dict[str, Any], name: str, plan: Plan, target: str, forget: Callable[[str], Any] = lambda name: None
) -> Generator[Callable[[Setting], bool]]:
    """Run something that may fail, record its error, and save."""

    def is_fine(setting: Setting) -> bool:
        line = missing(setting)
        if line is not None:
            result["samplers"][name] = {"failed": line}
        return line is None

    print(f"{target}: {name}", flush=True)
    try:
        yield is_fine
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        result["samplers"][name] = {"failed": f"{type(error).__name__}: {first}"}
        forget(name)
    if "failed" in result["samplers"].get(name, {}):
        print(f"    failed: {result['samplers'][name]['failed']}", flush=True)
    save_part(plan, target, result)


def _say(name: str, record: dict[str, Any]) -> None:
    print(
        f"    {record['chains']} chains, set-up {record['setup_seconds']:.1f} s, "
        f"{record['median_ess_per_second']:,.1f} effective draws per second, "
        f"1000 after {record['seconds_to_1000']:.1f} s, "
        f"{record['ess_per_draw']:.3f} per draw, acceptance {record['acceptance']:.3f}, "
        f"rows per draw {record['rows_per_draw']:,.1f}, distance {record.get('distance')}",
        flush=True,
    )


def ratios(samplers: dict[str, dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Ratios of ours to each peer: effective draws per second (median of neighbours in time), and times to 1000."""
    done = {name: record for name, record in samplers.items() if "failed" not in record}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for ours in (name for name in done if SETTINGS[name].is_ours):
        found[ours] = {}
        for peer in (name for name in done if not SETTINGS[name].is_ours):
            above, below = done[ours]["ess_per_second"], done[peer]["ess_per_second"]
            both = min(len(above), len(below))
            found[ours][peer] = {
                "ess_per_second": median_ratio(above[:both], below[:both]),
                "seconds_to_1000": done[peer]["seconds_to_1000"] / done[ours]["seconds_to_1000"],
            }
    return found


def save_part(plan: Plan, key: str, result: Any) -> None:
    """Write this part of the file, and leave the others as they are."""
    before = load(plan.output).results if (RESULTS / f"{plan.output}.json").exists() else {}
    save(plan.output, configuration(), before | {key: result}, quiet=True)


def configuration() -> dict[str, Any]:
    return {
        "targets": "logistic regression, temperature 1, prior N(0, 1); float32 (PyMHSS: float64, flat prior)",
        "peers": {name: _version(name) for name in ("blackjax", "numpyro", "pymhss")},
        "cores": os.cpu_count(),
        "hmcecs": f"NUTS, {SUBSAMPLE} rows in 10 blocks, Taylor proxy of order 2",
        "ess": "bulk, the worst parameter; per draw from all repetitions together, per second by repetition",
        "seed": SEED,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
