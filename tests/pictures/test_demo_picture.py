"""The picture of the demo."""

import numpy as np
import pytest

from commands import made_up_trace, png_size
from tallchain.models.gaussian_mixture import Grid
from tallchain.pictures import demo
from tallchain.pictures.posterior import levels


class TestFigure:
    @pytest.fixture
    def grid(self) -> Grid:
        x, y = np.linspace(-4, 4, 41), np.linspace(-6, 6, 51)
        return Grid(x, y, -0.5 * (x[:, None] ** 2 + y**2), np.zeros(2), np.eye(2))

    @pytest.mark.parametrize("rows", [50, 1000, np.arange(1, 11) * 100, [50] * 9 + [1000]])
    def test_draws_any_distribution_of_rows(self, rows, grid, tmp_path):
        figure = demo.demo_figure(made_up_trace(rows=rows), grid, temperature=10, test="minibatch test")
        figure.savefig(tmp_path / "a.png")
        assert png_size(tmp_path / "a.png")

    def test_levels_hold_their_shares(self, grid):
        density = np.exp(grid.log_density)
        shares = [density[grid.log_density >= level].sum() / density.sum() for level in levels(grid)]
        np.testing.assert_allclose(shares, [0.99, 0.9, 0.5], atol=0.02)

    def test_thins_to_a_bounded_number_of_points(self, monkeypatch):
        monkeypatch.setattr(demo, "_POINTS", 7)
        assert len(demo._points(made_up_trace())) == 7
