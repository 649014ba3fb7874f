"""The correction module at import, and the experiment that prints its table."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tallchain.acceptance.correction import (
    minimax,
)
from tallchain.experiments import correction as experiment

pytestmark = pytest.mark.usefixtures("table_cache")


def test_reading_a_shipped_table_loads_no_solver() -> None:
    code = (
        "import sys; from tallchain.acceptance.correction import minimax; minimax(1.0);"
        "print(*(name for name in ('scipy.optimize', 'scipy.stats') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.split() == []


def test_experiment_at_quick_size() -> None:
    seen = []
    result = experiment.run(experiment.Config.quick(), progress=lambda *step: seen.append(step))
    assert [done for done, _, _ in seen] == [0, 1, 2]
    assert {total for _, total, _ in seen} == {2}
    record = json.loads(json.dumps(result.to_json()))
    assert [entry["printed"] for entry in record["entries"]] == [4.4e-3, 1.3e-3, 1.1e-3, 2.0e-3, 3.6e-3]
    assert all(entry["is_within"] for entry in record["entries"])
    assert record["minimax"][0]["log_odds_error"] == minimax(1.0).log_odds_error
    assert {"numpy", "scipy", "python", "tallchain"} <= set(record["versions"])


def test_experiment_prints_both_values_and_a_mark() -> None:
    rich = pytest.importorskip("rich.console")
    config = experiment.Config(columns=((4000, 1.1),), ridges=(100.0, 10.0, 0.01))
    ours = dict(zip(config.ridges, (4.31e-3, 6.17e-3, 4.0e-2), strict=True))
    entries = tuple(experiment.Entry(4000, 1.1, r, experiment.PRINTED[4000, 1.1][r], x) for r, x in ours.items())
    result = experiment.Result(config, entries, (experiment.Minimax(1.1, 55, 4.1e-6, 1.7e-5),), 1.0, {})
    console = rich.Console(width=120)
    with console.capture() as capture:
        console.print(result.to_table())
    for cell in ("4.31e-03 (4.3e-03) =", "6.17e-03 (6.0e-03) ~", "4.00e-02 (3.5e-02) !", "4.10e-06", "1.70e-05"):
        assert cell in capture.get()


def test_printed_table_is_complete() -> None:
    assert len(experiment.PRINTED) == 8
    assert all(tuple(column) == experiment.RIDGES for column in experiment.PRINTED.values())
    assert len(experiment.KNOWN_TO_DIFFER) == 3
    best = {setting: min(column.values()) for setting, column in experiment.PRINTED.items()}
    assert best[4000, 1.0] == 8.9e-4
