"""Gradient proposals: when they pay, how near adaptation comes to the best scale, and the paper's own idea.

On each target every proposal runs at a grid of fixed scales, and with the scale adapted in the warm-up, all after a
warm-up of the same length. What counts is effective draws of the worst parameter per row: rows of the test, and
gradients of rows of the proposal. Chains are independent and start in the posterior or nearly, so effective draws come
from the spread of their means. Of several seeds the median counts, since one chain that sticks in a tail decides a run.
About half an hour.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from benchmarks.records import table
from studies.gradients import absorbed, scales
from studies.study import Keep, Result, forget

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    rows: float = 1.0
    """Share of the rows of each target."""
    chains: int = 96
    draws: int = 300
    seeds: int = 3
    factors: tuple[float, ...] = (0.125, 0.25, 0.35, 0.5, 0.7, 1.0)
    """Of the scale at which the acceptance of a normal posterior without noise would be best."""
    settings: tuple[str, ...] = tuple(scales.TARGETS)
    absorbed_draws: int = 20_000
    minibatches: tuple[int, ...] = (10, 100, 1000)

    @classmethod
    def quick(cls) -> Config:
        """Few rows, short chains."""
        return cls(0.05, 8, 20, 1, (0.5, 1.0), ("linear, order 1",), 20, (10,))


def run(config: Config, keep: Keep = forget) -> Result:
    """Measure all targets, then the paper's idea."""
    results: dict[str, Any] = {"scales": {}, "absorbed": {}}
    for name in config.settings:
        results["scales"][name] = scales.measured(
            name, config.rows, config.chains, config.draws, config.seeds, config.factors
        )
        keep(Result.of(configuration(config), results))
    results["absorbed"] = absorbed.measured(config.chains, config.absorbed_draws // 20, config.minibatches)
    return Result.of(configuration(config), results)


def configuration(config: Config) -> dict[str, Any]:
    """Say how it was measured."""
    return {
        "chains": f"{config.chains} chains from the posterior or nearly, {config.draws} draws after a warm-up of "
        f"{scales.WARMUP} draws, whose rows do not count; of {config.seeds} seeds the run with the median of effective "
        "draws per row",
        "cost": "rows of the test, and gradients of rows of the proposal (each row of one of Hamiltonian counts "
        f"{scales.NUM_STEPS + 1} times)",
        "targets": scales.WORDS,
        "absorbed": absorbed.WORDS,
    }


def page(result: Result) -> dict[str, str]:
    """The best fixed scale, the adapted one, and the paper's idea."""
    header = ["target", "proposal", "acceptance", "rows of the test", "gradients", "effective draws", "per 1000 rows"]
    best, adapted = [], []
    for target, of in result.results["scales"].items():
        for name, found in of.items():
            one = max(found["grid"], key=lambda each: each["per_row"])
            best.append([target, f"`{name}`", *_cells(one)])
            ratio = found["adapted"]["per_row"] / one["per_row"]
            adapted.append([target, f"`{name}`", *_cells(found["adapted"]), f"{ratio:.2f}"])
    return {
        "gradients_best": table(header, best),
        "gradients_adapted": table([*header, "over the best fixed scale"], adapted),
        "gradients_absorbed": absorbed.page(result.results["absorbed"]),
    }


def _cells(found: dict[str, float]) -> list[str]:
    return [
        f"{found['acceptance']:.2f}",
        f"{found['rows']:,.0f}",
        f"{found['gradients']:,.0f}",
        f"{found['effective']:.2g} per draw",
        f"{1000 * found['per_row']:.2g}",
    ]


def pictures(result: Result) -> dict[str, Figure]:
    """Effective draws per row against the scale."""
    return {"gradients": scales.figure(result.results["scales"])}
