"""What the pictures of draws show: names, places and order."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection

from plots.made_up import CARRIERS, COLUMNS, grouped_model, grouped_trace, trace_of
from tallchain import plots
from tallchain.models.alone import own_estimates
from tallchain.plots.style import elided, figure_of, panels


def labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def points(axes: Axes) -> np.ndarray:
    """Where the means are."""
    [(line, _, _)] = [container.lines for container in axes.containers]
    return np.asarray(line.get_xdata())


def intervals(axes: Axes) -> np.ndarray:
    [(_, _, (bars,))] = [container.lines for container in axes.containers]
    return np.array([segment[:, 0] for segment in bars.get_segments()])


def drawn(axes: Any) -> None:
    """Lay the figure out: what does not fit is a warning, and so an error."""
    figure_of(axes).canvas.draw()


class TestCoefficients:
    def test_each_has_its_name_and_interval_and_the_intercept_is_last(self) -> None:
        trace = grouped_trace()
        axes = plots.coefficients(trace, interval=0.8)
        drawn(axes)
        assert labels(axes) == [elided(name) for name in (*COLUMNS, "(intercept)")]
        of = trace.position["coefficients"][..., [1, 2, 3, 0]]
        np.testing.assert_allclose(points(axes), of.mean((0, 1)), rtol=1e-6)
        np.testing.assert_allclose(intervals(axes), np.quantile(of, [0.1, 0.9], (0, 1)).T, rtol=1e-6)
        bottom, top = axes.get_ylim()
        assert bottom > top  # from the top down

    def test_the_intercept_can_be_left_out(self) -> None:
        assert "(intercept)" not in labels(plots.coefficients(grouped_trace(), intercept=False))

    def test_names_are_those_of_columns_or_of_the_summary(self) -> None:
        axes = plots.coefficients(grouped_trace(), ["hour", "carrier[UA]", "coefficients[distance]"])
        assert labels(axes) == ["hour", "carrier[UA]", "distance"]

    def test_an_unknown_name_is_refused_with_near_ones(self) -> None:
        with pytest.raises(ValueError, match="has no 'distanc'; did you mean 'distance'"):
            plots.coefficients(grouped_trace(), ["distanc"])

    def test_of_many_the_largest_are_shown_and_counted(self) -> None:
        sizes = np.linspace(0, 3, 60) * np.where(np.arange(60) % 2, 1, -1)
        axes = plots.coefficients(trace_of({"coefficients": np.broadcast_to(sizes, (2, 10, 60))}))
        assert labels(axes) == [f"coefficients[{at}]" for at in range(20, 60)]
        assert axes.get_title() == "The 40 largest of 60 coefficients"

    def test_it_draws_where_it_is_told(self) -> None:
        mine = panels((3, 3))[1][0, 0]
        assert plots.coefficients(grouped_trace(), axes=mine) is mine

    @pytest.mark.parametrize("interval", [0, 1, 90, "0.9"])
    def test_an_interval_is_a_probability(self, interval: Any) -> None:
        with pytest.raises(ValueError, match="must be a probability, between 0 and 1"):
            plots.coefficients(grouped_trace(), interval=interval)


class TestGroupEffects:
    def test_they_come_in_order(self) -> None:
        axes = plots.group_effects(grouped_trace(), "carrier")
        drawn(axes)
        assert labels(axes) == ["AA", "DL", "EV", "UA", "B6"]
        assert np.all(np.diff(points(axes)) < 0)
        assert axes.get_title() == "carrier: 5 levels"

    def test_what_the_rows_of_each_level_would_give_is_beside(self) -> None:
        trace, model = grouped_trace(), grouped_model()
        axes = plots.group_effects(trace, "carrier", model)
        drawn(axes)
        own = own_estimates(model, trace, "carrier")
        [lines] = [each for each in axes.collections if isinstance(each, LineCollection) and each.get_zorder() == 2]
        ends = {tuple(np.round(segment[0], 6)) for segment in lines.get_segments()}
        order = [CARRIERS.index(label) for label in labels(axes)]
        shown = [each for each in axes.collections if isinstance(each, PathCollection)]
        places = np.concatenate([np.asarray(each.get_offsets()) for each in shown])
        assert len(places) >= 5
        assert ends <= {tuple(np.round((own[at], place), 6)) for place, at in enumerate(order)}

    def test_a_trace_without_such_effects_is_refused(self) -> None:
        with pytest.raises(ValueError, match="has no such effects; it has 'carrier'"):
            plots.group_effects(grouped_trace(), "coefficients")
        with pytest.raises(ValueError, match="it has no groups"):
            plots.group_effects(trace_of(np.zeros((1, 2, 3))), "carrier")


class TestChains:
    def test_those_of_largest_r_hat_are_shown(self) -> None:
        draws = np.random.default_rng(0).normal(size=(4, 100, 9))
        draws[0, :, 4] += 3
        axes = plots.traces(trace_of(draws))
        drawn(axes[0])
        assert len(axes) == 6
        assert any(each.get_title().startswith("position[4]   R-hat 1.") for each in axes)

    def test_a_line_is_a_chain(self) -> None:
        draws = np.random.default_rng(0).normal(size=(3, 50, 1))
        [axes] = plots.traces(trace_of(draws), "position[0]")
        np.testing.assert_array_equal([line.get_ydata() for line in axes.lines], draws[..., 0])

    def test_of_many_chains_some_are_shown(self) -> None:
        axes = plots.traces(trace_of(np.random.default_rng(0).normal(size=(40, 50, 1))))
        assert len(axes[0].lines) == 8
        assert axes[0].get_ylabel() == "8 of 40 chains"

    def test_ranks_are_even_unless_chains_differ(self) -> None:
        draws = np.random.default_rng(0).normal(size=(4, 400, 2))
        draws[0, :, 1] += 10
        even, uneven = plots.ranks(trace_of(draws))
        drawn(even)
        heights = [
            np.array([each.get_data().values for each in axes.patches if hasattr(each, "get_data")])
            for axes in (even, uneven)
        ]
        assert heights[0].max() < 2
        np.testing.assert_allclose(heights[1][0], np.repeat([0, 4], [15, 5]), atol=1e-9)  # all in the last quarter

    def test_many_chains_are_put_together(self) -> None:
        [axes] = plots.ranks(trace_of(np.random.default_rng(0).normal(size=(40, 50, 1))))
        assert len([each for each in axes.patches if hasattr(each, "get_data")]) == 8
        assert axes.get_ylabel() == "by group of chains"

    def test_as_many_axes_as_coordinates(self) -> None:
        with pytest.raises(ValueError, match="must be 2 axes, one for each coordinate; got 1"):
            plots.traces(trace_of(np.random.default_rng(0).normal(size=(2, 50, 2))), axes=panels((3, 3))[1][0])


class TestRows:
    def test_shares_add_up_and_lines_are_at_the_mean_and_at_all_rows(self) -> None:
        rows = np.random.default_rng(0).geometric(0.02, (4, 100))
        axes = plots.rows_per_decision(trace_of(np.zeros((4, 100, 1)), rows_read=rows))
        drawn(axes)
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(1)
        assert [line.get_xdata()[0] for line in axes.lines] == [rows.mean(), 5000]

    def test_decisions_that_read_nothing_are_in_the_first_bar(self) -> None:
        rows = np.broadcast_to([0, 3], (4, 2))
        axes = plots.rows_per_decision(trace_of(np.zeros((4, 2, 1)), rows_read=rows))
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(1)


def test_long_names_keep_both_ends() -> None:
    assert elided("abcdefghij", 10) == "abcdefghij"
    assert elided("abcdefghijk", 7) == "abc…ijk"


def test_names_are_shown_letter_by_letter() -> None:
    """Not as formulas, some of which could not be drawn."""
    trace = dataclasses.replace(
        grouped_trace(), names={"coefficients": ("(intercept)", r"$\frac$", "$a$ or $b$", "a\nb")}
    )
    axes = plots.coefficients(trace)
    drawn(axes)
    assert labels(axes)[:3] == [r"\$\frac\$", r"\$a\$ or \$b\$", "a b"]
