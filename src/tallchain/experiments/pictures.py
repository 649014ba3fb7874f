"""Pictures of the paper's experiments (needs `matplotlib`), drawn without pyplot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tallchain import figures
from tallchain.experiments import gaussian_mixture, logistic_regression

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "MinibatchBarker()": figures.GREEN,
    "MinibatchBarker.paper()": figures.BLUE,
    "MinibatchBarker.as_published_code()": figures.SKY,
    "Austere(0.005)": figures.VERMILION,
    "Austere(0.01)": figures.VERMILION,
    "Austere.nonconservative()": figures.ORANGE,
    "Confidence()": figures.PURPLE,
    "Barker()": figures.BLACK,
}
_BINS = 40
_POINTS = 400  # of a curve


def _figure(columns: int, rows: int = 1, width: float = 3.4, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), dpi=130, layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns)).tolist()
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


# ---- the mixture -------------------------------------------------------------------------------


def mixture_scatter(result: gaussian_mixture.Result) -> Figure:
    """Draws of the first trial of every method on contours of the exact posterior: the paper's first figure."""
    figure, axes = _figure(3, 2)
    for each, found in zip(axes, result.found, strict=True):
        theta = found.example["position"]
        each.plot(theta[:, 0], theta[:, 1], ".", ms=2, alpha=0.35, color=COLOURS[found.method.name])
        figures.draw_regions(each, found.grid)
        each.set(xlim=(-1.5, 2.5), ylim=(-2.5, 3), xlabel="theta_1", ylabel="theta_2")
        each.set_title(f"{found.method.name}, {len(theta):,} draws", fontsize=9)
    figure.suptitle("Draws of one trial, on contours with 50, 90 and 99 % of the posterior")
    return figure


def mixture_rows(result: gaussian_mixture.Result) -> Figure:
    """Rows per decision in one trial, log-log and on equal axes: the paper's second figure."""
    found = [each for each in result.found if each.method.name != "Barker()"]
    figure, axes = _figure(len(found), width=2.8)
    _histograms(
        axes,
        [(each.method.name, each.example["num_rows"], each.method.one_trial) for each in found],
        result.config.rows,
    )
    figure.suptitle("Rows per decision, one trial; the dashed line is the paper's mean for one trial")
    return figure


def _histograms(axes: Sequence[Axes], of: Sequence[tuple[str, np.ndarray, float | None]], most: int) -> None:
    """Histograms with the same axes everywhere."""
    edges = np.geomspace(min(float(rows.min()) for _, rows, _ in of) * 0.9, most * 1.1, _BINS)
    tallest = 1.0
    for each, (name, rows, printed) in zip(axes, of, strict=True):
        counts, *_ = each.hist(rows, edges.tolist(), color=COLOURS.get(name, figures.BLUE))
        tallest = max(tallest, float(np.max(counts)))
        each.axvline(rows.mean(), color="black", lw=1, label=f"mean {rows.mean():,.0f}")
        if printed is not None:
            each.axvline(printed, color="black", lw=1, ls="--", label=f"paper {printed:,.0f}")
        each.set_title(name, fontsize=9)
        each.legend(frameon=False, fontsize=7)
    for each in axes:
        each.set(xscale="log", yscale="log", ylim=(0.8, 1.5 * tallest), xlabel="rows", ylabel="decisions")


# ---- logistic regression -----------------------------------------------------------------------


def accuracy_curves(result: logistic_regression.Result) -> Figure:
    """Accuracy against rows read, and by draw when the temperature falls from 100 to 1: the paper's third figure."""
    figure, axes = _figure(3, width=4.2, height=4.0)
    for each, (task, found) in zip(axes, result.tables.items(), strict=False):
        for one in found:
            _curve(each, np.cumsum(one.read, 1), one.accuracy, one.name)
        each.set(
            xscale="log", xlabel="rows read so far (rows scanned not counted)", ylabel="accuracy on the test images"
        )
        each.set_title(task, fontsize=10)
    for (task, found), colour in zip(result.cooling.items(), (figures.BLUE, figures.VERMILION), strict=True):
        draws = np.broadcast_to(np.arange(1, found.accuracy.shape[1] + 1), found.accuracy.shape)
        _curve(axes[2], draws, found.accuracy, task, colour)
    axes[2].axvline(logistic_regression.COOLING_DRAWS, color="black", lw=0.8, ls="--")
    axes[2].set(xlabel="draw", ylabel="accuracy on the test images")
    axes[2].set_title("MinibatchBarker.paper(), temperature 100, then 1", fontsize=10)
    axes[2].legend(frameon=False, fontsize=7, loc="lower right")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    figure.suptitle("Mean over trials, and one standard deviation")
    return figure


def _curve(axes: Axes, x: np.ndarray, accuracy: np.ndarray, label: str, colour: str | None = None) -> None:
    """Mean and one sd over trials, on a common log grid of rows (a trial at the last draw it had made by then)."""
    grid = np.geomspace(x[:, 0].max(), x[:, -1].min(), _POINTS)
    by_trial = np.stack(
        [
            values[np.searchsorted(rows, grid, side="right").clip(1) - 1]
            for rows, values in zip(x, accuracy, strict=True)
        ]
    )
    mean, sd = by_trial.mean(0), by_trial.std(0, ddof=1) if len(by_trial) > 1 else np.zeros(len(grid))
    colour = colour or COLOURS[label]
    axes.plot(grid, mean, color=colour, lw=1.3, label=label)
    axes.fill_between(grid, mean - sd, mean + sd, color=colour, alpha=0.2, lw=0)


def logistic_rows(result: logistic_regression.Result, task: str) -> Figure:
    """Rows per decision in one trial on one data set, log-log and on equal axes."""
    found = result.tables[task]
    figure, axes = _figure(3, 2, width=3.2, height=2.8)
    most = max(int(each.read[0].max()) for each in found)
    _histograms(axes, [(each.name, each.read[0], each.printed and each.printed.mean) for each in found], most)
    figure.suptitle(f"{task}: rows per decision, one trial; the dashed line is the mean in the paper's Table 2")
    return figure


def step_study(result: logistic_regression.Result) -> Figure:
    """Rows per decision by step on MNIST-100k."""
    figure, axes = _figure(len(result.study))
    most = max(int(found.read[0].max()) for found in result.study.values())
    of = [(f"step {step:g}", found.read[0], logistic_regression.STEPS[step]) for step, found in result.study.items()]
    _histograms(axes, of, most)
    figure.suptitle("MinibatchBarker.paper() on MNIST-100k by step; the dashed line is the paper's mean")
    return figure


def deformed_digits(images: np.ndarray, originals: np.ndarray) -> Figure:
    """Some of MNIST's images, and below each one that was made from it."""
    figure, axes = _figure(len(images), 2, width=0.9, height=1.0)
    for each, image in zip(axes, [*originals, *images], strict=True):
        each.imshow(image, cmap="gray_r", vmin=0, vmax=255)
        each.set_axis_off()
    figure.suptitle("MNIST (above), infinite-MNIST style (below)", fontsize=9)
    return figure
