"""The picture of a predictive check."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from report.facts_cases import CHECK
from tallchain import plots
from tallchain.plots.style import figure_of


def test_points_are_where_they_were_observed_and_apart_if_outside() -> None:
    [axes] = plots.predictive_check(CHECK)
    figure_of(axes).canvas.draw()
    inside, outside = [each for each in axes.collections if isinstance(each, PathCollection)]
    np.testing.assert_allclose(inside.get_offsets(), [[0.1, 0.11], [0.3, 0.3]])
    np.testing.assert_allclose(outside.get_offsets(), [[0.2, 0.35]])
    assert axes.get_title().endswith("2 of 3 within, 2.7 expected")


def test_values_have_names() -> None:
    labels = ("0", "1", "≥2")
    panel = dataclasses.replace(CHECK.panels[0], labels=labels, place=(0.0, 1.0, 2.0))
    axes = plots.predictive_check(dataclasses.replace(CHECK, panels=(panel, panel)))
    figure_of(axes[0]).canvas.draw()
    assert tuple(label.get_text() for label in axes[1].get_xticklabels()) == labels


def test_one_panel_each() -> None:
    with pytest.raises(ValueError, match="must be 1 axes; got 0"):
        plots.predictive_check(CHECK, [])
