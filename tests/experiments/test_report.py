"""The report of all experiments, at a tiny size."""

import dataclasses
import json
from pathlib import Path

import pytest

from conftest import SEED
from tallchain.experiments import (
    correction,
    disagreements,
    document,
    gaussian_mixture,
    gradients,
    logistic_regression,
    report,
    worst_case,
)

TINY = {
    gaussian_mixture: gaussian_mixture.Config(rows=3000, draws=40, slow_draws=30, trials=2, seed=SEED),
    logistic_regression: logistic_regression.Config(
        dataclasses.replace(logistic_regression.SMALL, draws=20, slow_draws=20, trials=2),
        logistic_regression.Task(
            "MNIST-100k", 300, 0.01, draws=20, slow_draws=20, trials=2, austere_batch=300, austere_error=0.1
        ),
        dataclasses.replace(logistic_regression.REPEATED, further=300, draws=20, slow_draws=10, trials=2),
        cooling_draws=410,
        cooling_trials=2,
        study_draws=20,
        seed=SEED,
    ),
    worst_case: worst_case.Config(
        num_rows=(1000,),
        tests=("minibatch", "austere"),
        num_decisions=100,
        budget=1e7,
        study_rows=1000,
        study_decisions=100,
        factors=(1.0, 3.0),
    ),
    disagreements: disagreements.Config(rows=20_000, chains=16, draws=50, seed=SEED),
    gradients: gradients.Config(
        gradients.MixtureConfig(
            rows=3000, repetitions=2, chains=4, budget=2000, steps={"Langevin": (0.05, 0.15), "SGLD": (0.05, 0.15)}
        ),
        gradients.DigitsConfig(repetitions=2, budget=2000, steps={"Langevin": (0.05,), "SGLD": (0.05,)}),
        seed=SEED,
    ),
}


@pytest.mark.slow
def test_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, config in TINY.items():
        monkeypatch.setattr(module.Config, "quick", lambda seed, config=config: config)
    seen: list[str] = []
    results = report.run_all(False, tmp_path, seed=SEED, progress=lambda done, total, what: seen.append(what))
    assert any("mixture: Confidence(), 2 repetitions, 30 of 30 draws" in what for what in seen)
    page, text = report.write(results, tmp_path, is_paper=False, seed=SEED)
    told = text.read_text()
    for words in (
        "182.3 ± 11.4",
        "13,540.5 ± 1,521.4",
        "125.4 ± 9.2",
        "2,215.6",
        "infinite MNIST",
        "steps of variance",
        "without a test",
        "leaves out RandomWalk, Hamiltonian",
    ):
        assert words in told
    assert page.read_text().count("data:image/png;base64,") == told.count("](") == 10
    assert "nan" not in told
    for name in ("correction", "mixture", "logistic", "worst_case", "disagreements", "gradients"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["versions"]
    of = results.disagreements.found
    assert of["variance"].rows > of["printed"].rows
    assert of["growth"].bound is not None
    assert of["growth"].bound > 0.5
    assert all(0.1 < variance < 3 for found in of.values() for variance in found.variances)
    assert min(results.disagreements.without_prior) > 1  # a prior only takes away


def test_document(tmp_path: Path) -> None:
    table = document.Table(["a", "b < c"], [["1", "2 & 3"]])
    page, text = document.Document("T", [document.Section("S", ["Words <b>.", table])]).save(tmp_path)
    assert "| 1 | 2 & 3 |" in text.read_text()
    assert "<td>2 &amp; 3</td>" in page.read_text()
    assert "Words &lt;b&gt;." in page.read_text()


def test_table_of_the_terminal() -> None:
    result = correction.run(correction.Config.quick())
    table = document.Table.of(result.to_table())
    assert len(table.rows) == len(result.entries) + 2
    assert all(len(row) == len(table.header) for row in table.rows)
