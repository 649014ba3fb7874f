"""The examples of the README and of docs/own-model.md, run as written there: what they print, and a picture."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.study import ROOT, Keep, Result, forget
from tallchain.plots.style import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUTH = {"age": 0.02, "dose": 0.4}
"""The coefficients that the example simulates its outcomes with."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Size of the examples."""

    rows: str = "200_000"

    @classmethod
    def quick(cls) -> Config:
        """Fewer rows."""
        return cls("20_000")


def run(config: Config, keep: Keep = forget) -> Result:
    """Run each snippet in a namespace of its own, and record what it prints."""
    printed, names = _run("README.md", config)
    own, _ = _run("docs/own-model.md", config)
    facts = names["fit"].facts
    effects = {"truth": names["effect_of_clinic"].tolist()}
    effects |= {of: [getattr(each, of) for each in facts.of_kind("group effect")] for of in ("mean", "q5", "q95")}
    found = {each.name: [each.q5, each.mean, each.q95] for each in facts.of_kind("coefficient")}
    return Result.of(
        dataclasses.asdict(config), {"printed": printed, "own": own, "coefficients": found, "effects": effects}
    )


def _run(page: str, config: Config) -> tuple[str, dict[str, Any]]:
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    said, names = io.StringIO(), dict[str, Any]()
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        os.chdir(folder)  # it writes a report
        try:
            exec(snippet.replace("200_000", config.rows), names)
        finally:
            os.chdir(before)
    return said.getvalue().rstrip(), names


def page(result: Result) -> dict[str, str]:
    """What they print."""
    printed, own = (f"```text\n{result.results[of]}\n```" for of in ("printed", "own"))
    return {
        "example": f"{printed}\n\n![Effects of the clinics, and what they were simulated with](docs/example.png)"
    } | {"own_example": own}


def pictures(result: Result) -> dict[str, Figure]:
    """Draw the effects of the clinics with their intervals, and the truth."""
    found = {name: np.array(values) for name, values in result.results["effects"].items()}
    order = np.argsort(found["truth"])
    figure, [[axes]] = panels((9, 2.8), grid=True)
    at = np.arange(len(order))
    errors = np.abs(np.stack([found["q5"], found["q95"]]) - found["mean"])[:, order]
    axes.errorbar(at, found["mean"][order], errors, fmt=".", label="mean and 90 % interval")
    axes.plot(at, found["truth"][order], "x", color="black", markersize=4, label="simulated with")
    axes.set(xlabel="clinics, in order", ylabel="effect", xticks=[])
    axes.legend(frameon=False)
    return {"example": figure}
