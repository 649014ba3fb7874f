"""The pictures of an audit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from tallchain import plots
from tallchain.checking import Audit
from tallchain.plots.style import figure_of


def test_errors_and_drift(broken: Audit, tmp_path: Path) -> None:
    errors, drift = plots.audit(broken)
    figure_of(errors).savefig(tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size > 20_000
    near = broken.decisions.is_near
    np.testing.assert_array_equal(errors.lines[-2].get_ydata(), broken.decisions.log_odds_error[near])
    assert [label.get_text() for label in drift.get_yticklabels()] == ["position"]


def test_no_drift_says_why(broken: Audit) -> None:
    _, drift = plots.audit(dataclasses.replace(broken, drift=()))
    assert "too few decisions" in drift.texts[0].get_text()


def test_chances_and_those_of_the_test_on_all_rows(broken: Audit) -> None:
    axes = plots.acceptance_curves(broken)
    figure_of(axes).canvas.draw()
    near = broken.decisions.is_near
    points, exact = axes.lines
    assert len(points.get_xdata()) == 2 * near.sum()
    assert np.all(np.diff(exact.get_ydata()) >= -1e-6)  # more likely, the larger the ratio
    assert exact.get_label() == "the test on all rows"
