"""The example of the README, run as written there: what it prints, and a picture of its draws."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.study import ROOT, Keep, Result, forget
from tallchain.plots.style import panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUTH = (1.0, -0.5, 0.2)
"""The weights that the example simulates its outcomes with."""
_BINS = 50


@dataclasses.dataclass(frozen=True)
class Config:
    """Size of the example."""

    rows: str = "200_000"

    @classmethod
    def quick(cls) -> Config:
        """Fewer rows."""
        return cls("20_000")


def run(config: Config, keep: Keep = forget) -> Result:
    """Run the snippet in a namespace of its own, and record what it prints."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    printed, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(printed):
        exec(snippet.replace("200_000", config.rows), names)
    trace, laplace = names["trace"], names["prepared"].laplace
    counts, edges = zip(*(np.histogram(each, _BINS, density=True) for each in trace.position.T), strict=True)
    return Result.of(
        dataclasses.asdict(config),
        {
            "printed": printed.getvalue().rstrip(),
            "density": [each.round(3).tolist() for each in counts],
            "edges": [each.round(6).tolist() for each in edges],
            "mean": np.asarray(laplace.mean, float).tolist(),
            "sd": np.asarray(laplace.standard_deviations, float).tolist(),
        },
    )


def page(result: Result) -> dict[str, str]:
    """What it prints."""
    return {"example": f"```text\n{result.results['printed']}\n```\n\n![Draws of the three weights](docs/example.png)"}


def pictures(result: Result) -> dict[str, Figure]:
    """Draw a histogram of each weight, the Laplace approximation, and the truth."""
    found = result.results
    figure, [axes] = panels((9, 2.6), 1, len(TRUTH), grid=True)
    for i, (truth, mean, sd) in enumerate(zip(TRUTH, found["mean"], found["sd"], strict=True)):
        grid = mean + sd * np.linspace(-4, 4, 200)
        axes[i].stairs(found["density"][i], found["edges"][i], fill=True, alpha=0.5, label="draws")
        density = np.exp(-0.5 * ((grid - mean) / sd) ** 2) / sd / np.sqrt(2 * np.pi)
        axes[i].plot(grid, density, label="Laplace approximation")
        axes[i].axvline(truth, color="black", linestyle="--", linewidth=1, label="simulated with")
        axes[i].set(xlabel=f"weight {i}", yticks=[])
    shared_legend(figure, axes, 3, fontsize=9)
    return {"example": figure}
