"""Pictures of gradient proposals and of stochastic gradients without a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.experiments.gradients import CONTENDERS, PAIRS, Result
from tallchain.experiments.gradients.ranking import best_on_digits, best_on_mixture
from tallchain.pictures.logistic import curve
from tallchain.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_COLOURS = {
    "RandomWalk": BLACK,
    "Langevin": BLUE,
    "Hamiltonian": SKY,
    "Amagold": GREEN,
    "SGLD": VERMILION,
    "SGHMC": ORANGE,
    "SGNHT": PURPLE,
    "SGFS": GREY,
}
_TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_MARKERS = {"Langevin": "o", "Amagold": "D", "SGLD": "s", "SGHMC": "^"}


def gradients_figure(result: Result) -> Figure:
    """Draw all four panels: both tasks against rows, and both errors against the step."""
    figure, [above, below] = panels((11.5, 9.2), 2, 2, grid=True)
    _draw_rows(above, result)
    _draw_bias(below, result)
    shared_legend(figure, [*above, *below], 4, fontsize=9)
    figure.suptitle(_TITLE)
    return figure


_TITLE = "With a test (solid) and without (dashed)"


def rows_figure(result: Result) -> Figure:
    """Draw total variation on the mixture and accuracy on MNIST-13k against rows read in all."""
    figure, [axes] = panels((11.5, 4.9), 1, 2, grid=True)
    _draw_rows(axes, result)
    shared_legend(figure, axes, 4, fontsize=9)
    figure.suptitle(f"{_TITLE}, each sampler at its best step")
    return figure


def bias_figure(result: Result) -> Figure:
    """Draw the variance and the total variation on the mixture against the step."""
    figure, [axes] = panels((11.5, 4.9), 1, 2, grid=True)
    _draw_bias(axes, result)
    shared_legend(figure, axes, fontsize=9)
    figure.suptitle(f"The same steps {_TITLE[0].lower()}{_TITLE[1:]}")
    return figure


def _style(name: str) -> dict[str, Any]:
    return {"color": _COLOURS[name], "ls": "-" if CONTENDERS[name].is_corrected else "--"}


def _draw_rows(axes: Any, result: Result) -> None:
    for name, entry in best_on_mixture(result.mixture).items():
        mean, sd = entry.curve.mean(0), entry.curve.std(0, ddof=1) if len(entry.curve) > 1 else 0.0
        axes[0].plot(entry.rows, mean, lw=1.6, label=name, **_style(name))
        axes[0].fill_between(entry.rows, mean - sd, mean + sd, color=_COLOURS[name], alpha=0.15, lw=0)
    axes[0].set(xscale="log", yscale="log", xlabel="rows read in all by a repetition, gradients included")
    axes[0].set(ylabel="total variation from the posterior", title="Mixture")
    _plain(axes[0].yaxis)
    for name, entry in best_on_digits(result.digits).items():
        rows = np.cumsum(entry.found.read, 1)
        curve(axes[1], rows, entry.found.accuracy, name, _COLOURS[name], ls=_style(name)["ls"])
    axes[1].set(xscale="log", xlabel="rows read in all by a chain, gradients included", ylim=(0.45, 1.0))
    axes[1].set(ylabel="accuracy on the test images", title="MNIST-13k")


def _draw_bias(axes: Any, result: Result) -> None:
    names = [name for pair in PAIRS for name in pair if result.of(name)]
    for name in names:
        entries = result.of(name)
        steps = [entry.step for entry in entries]
        style = _style(name) | {"marker": _MARKERS[name], "ms": 6, "lw": 1.6}
        ratios = [entry.narrow for entry in entries]
        errors = [1.96 * ratio.error for ratio in ratios]
        axes[0].errorbar(steps, [ratio.value for ratio in ratios], errors, capsize=3, label=name, **style)
        axes[1].plot(steps, [entry.total_variation for entry in entries], label=name, **style)
        chance = [entry.by_chance for entry in entries]
        axes[1].plot(steps, chance, color=_COLOURS[name], ls=":", lw=1.2)
    formula = [(entry.step, entry.expected) for entry in result.of("SGLD") if entry.expected is not None]
    if formula:
        axes[0].plot(*np.transpose(formula), "+", color=BLACK, ms=11, label="SGLD, by formula", zorder=3)
    axes[0].axhline(1, color=BLACK, lw=1, label="exact")
    axes[1].plot([], [], color=GREY, ls=":", lw=1.2, label="by chance")
    _finish(axes[0], "variance over the exact one", "Mixture, the narrow direction (bars: 95 %)")
    _finish(axes[1], "total variation from the posterior", "Mixture, all draws")


def _finish(axes: Axes, ylabel: str, title: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel="step, a standard deviation", ylabel=ylabel, title=title)
    _plain(axes.xaxis)
    _plain(axes.yaxis)


def _plain(axis: Axis) -> None:
    """Label a logarithmic axis that spans little more than a power of ten with plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(10, _TICKS, numticks=20))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
