"""Pictures of the experiment with logistic regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tallchain.experiments import logistic_regression
from tallchain.pictures.methods import COLOURS, histograms
from tallchain.plots.style import BLUE, VERMILION, panels, shared_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 400  # of a curve


def accuracy_curves(result: logistic_regression.Result) -> Figure:
    """Accuracy against rows read, and by draw when the temperature falls from 100 to 1: the paper's third figure."""
    figure, [axes] = panels((12.6, 4.0), 1, 3)
    for each, (task, found) in zip(axes, result.tables.items(), strict=False):
        for one in found:
            curve(each, np.cumsum(one.read, 1), one.accuracy, one.name)
        each.set(
            xscale="log", xlabel="rows read so far (rows scanned not counted)", ylabel="accuracy on the test images"
        )
        each.set_title(task, fontsize=10)
    for (task, found), colour in zip(result.cooling.items(), (BLUE, VERMILION), strict=True):
        draws = np.broadcast_to(np.arange(1, found.accuracy.shape[1] + 1), found.accuracy.shape)
        curve(axes[2], draws, found.accuracy, task, colour)
    axes[2].axvline(logistic_regression.COOLING_DRAWS, color="black", lw=0.8, ls="--")
    axes[2].set(xlabel="draw", ylabel="accuracy on the test images")
    axes[2].set_title("MinibatchBarker.paper(), temperature 100, then 1", fontsize=10)
    axes[2].legend(frameon=False, fontsize=7, loc="lower right")
    shared_legend(figure, axes[0], fontsize=8)
    figure.suptitle("Mean over repetitions, and one standard deviation")
    return figure


def curve(
    axes: Axes, x: np.ndarray, accuracy: np.ndarray, label: str, colour: str | None = None, ls: str = "-"
) -> None:
    """Mean and one sd over repetitions, on a common log grid of rows (each at the last draw it had made by then)."""
    grid = np.geomspace(x[:, 0].max(), x[:, -1].min(), _POINTS)
    by_trial = np.stack(
        [
            values[np.searchsorted(rows, grid, side="right").clip(1) - 1]
            for rows, values in zip(x, accuracy, strict=True)
        ]
    )
    mean, sd = by_trial.mean(0), by_trial.std(0, ddof=1) if len(by_trial) > 1 else np.zeros(len(grid))
    colour = colour or COLOURS[label]
    axes.plot(grid, mean, color=colour, lw=1.3, ls=ls, label=label)
    axes.fill_between(grid, mean - sd, mean + sd, color=colour, alpha=0.2, lw=0)


def logistic_rows(result: logistic_regression.Result, task: str) -> Figure:
    """Rows per decision in one repetition on one data set, log-log and on equal axes."""
    found = result.tables[task]
    figure, grid = panels((3 * 3.2, 2 * 2.8), 2, 3)
    most = max(int(each.read[0].max()) for each in found)
    histograms(list(grid.flat), [(each.name, each.read[0], each.printed and each.printed.mean) for each in found], most)
    figure.suptitle(f"{task}: rows per decision, one repetition; the dashed line is the mean in the paper's Table 2")
    return figure


def step_study(result: logistic_regression.Result) -> Figure:
    """Rows per decision by step on MNIST-100k."""
    figure, [axes] = panels((3.4 * len(result.study), 3.4), 1, len(result.study))
    most = max(int(found.read[0].max()) for found in result.study.values())
    of = [(f"step {step:g}", found.read[0], logistic_regression.STEPS[step]) for step, found in result.study.items()]
    histograms(axes, of, most)
    figure.suptitle("MinibatchBarker.paper() on MNIST-100k by step; the dashed line is the paper's mean")
    return figure


def deformed_digits(images: np.ndarray, originals: np.ndarray) -> Figure:
    """Some of MNIST's images, and below each an image made from it."""
    figure, grid = panels((0.9 * len(images), 2.0), 2, len(images))
    for each, image in zip(grid.flat, [*originals, *images], strict=True):
        each.imshow(image, cmap="gray_r", vmin=0, vmax=255)
        each.set_axis_off()
    figure.suptitle("MNIST (above), infinite-MNIST style (below)", fontsize=9)
    return figure
