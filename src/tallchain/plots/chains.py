"""What the chains did: their draws one after another, and whether their ranks are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tallchain.checking import Trace
from tallchain.checking.convergence import Parameter, parameters_of
from tallchain.plots.draws import picked, plain
from tallchain.plots.style import GREY, SERIES, elided, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PANELS = 6
"""Coordinates shown unless they are named: those of largest R-hat."""
_MOST_CHAINS = len(SERIES)
_BINS = 20
_MOST_POINTS = 1000  # of a line
_MOST_SEARCHED = 200  # coordinates


def traces(
    trace: Trace, names: Sequence[str] | str | None = None, axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Draw the draws of each chain in their order; of many chains, eight.

    Args:
        trace: of any model.
        names: which coordinates to show; None shows the six of largest R-hat, of the first 200 (effects come last).
        axes: where to draw, one for each coordinate; None makes a figure.
    """
    found, axes = _panels("traces", trace, names, axes)
    shown = _some(trace.num_chains, _MOST_CHAINS)
    step = -(-trace.num_draws // _MOST_POINTS)
    for each, (parameter, draws) in zip(axes, found, strict=True):
        for chain, colour in zip(shown, SERIES, strict=False):
            each.plot(np.arange(0, trace.num_draws, step), draws[chain, ::step], color=colour, lw=0.6, rasterized=True)
        each.set(xlim=(0, max(trace.num_draws - 1, 1)), xlabel="draw")
        _title(each, parameter)
    if len(shown) < trace.num_chains:
        axes[0].set_ylabel(f"{len(shown)} of {trace.num_chains} chains")
    return axes


def ranks(trace: Trace, names: Sequence[str] | str | None = None, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draw how the ranks of each chain's draws among all draws are spread: evenly, if the chains agree.

    Vehtari et al. 2021. Of more than eight chains, neighbours are put together. The grey band is where 95 % of the
    steps are if the chains agree, with as many independent draws as there are effective ones.

    Args:
        trace: of any model.
        names: which coordinates to show; None shows the six of largest R-hat, of the first 200 (effects come last).
        axes: where to draw, one for each coordinate; None makes a figure.
    """
    found, axes = _panels("ranks", trace, names, axes)
    for each, (parameter, draws) in zip(axes, found, strict=True):
        shares = _shares(draws)
        band = 1.96 * np.sqrt(_BINS * len(shares) / max(_effective(parameter, draws), 1.0))
        each.axhspan(max(1 - band, 0.0), 1 + band, color=GREY, alpha=0.25, lw=0)
        for values, colour in zip(shares, SERIES, strict=False):
            each.stairs(values, np.linspace(0, 1, len(values) + 1), color=colour, lw=1.2, baseline=None)
        each.set(xlim=(0, 1), ylim=(0, max(2.0, 1.1 * float(shares.max()))), xlabel="rank among all draws")
        _title(each, parameter)
    axes[0].set_ylabel("density by chain" if trace.num_chains <= _MOST_CHAINS else "by group of chains")
    return axes


def _shares(draws: np.ndarray) -> np.ndarray:
    """Density of the ranks, relative to even: (chain or group of chains, bin). Equal draws share their mean rank."""
    from scipy.stats import rankdata  # heavy

    bins = max(min(_BINS, draws.size // 10), 2)
    ranks = (rankdata(draws, axis=None).reshape(draws.shape) - 0.5) / draws.size
    groups = np.array_split(ranks, min(_MOST_CHAINS, len(ranks)))
    return np.array([np.histogram(group, bins, (0, 1))[0] * bins / group.size for group in groups])


def _effective(parameter: Parameter, draws: np.ndarray) -> float:
    ess = parameter.ess_bulk
    return min(ess, draws.size) if np.isfinite(ess) else draws.size


def _panels(
    call: str, trace: Trace, names: Sequence[str] | str | None, axes: Sequence[Axes] | None
) -> tuple[list[tuple[Parameter, np.ndarray]], Sequence[Axes]]:
    """Coordinates and axes."""
    chosen = picked(call, trace, names)
    if names is None:
        chosen = dict(sorted(chosen.items(), key=lambda item: _is_effect(trace, item[0]))[:_MOST_SEARCHED])
    stacked = np.stack(list(chosen.values()), axis=2)
    found = list(zip(parameters_of(list(chosen), stacked), chosen.values(), strict=True))
    if names is None and len(found) > MOST_PANELS:
        worst = np.argsort([-np.nan_to_num(parameter.r_hat) for parameter, _ in found], kind="stable")
        found = [found[at] for at in sorted(worst[:MOST_PANELS])]
    if axes is None:
        axes = own_panels(len(found))
    elif len(axes) != len(found):
        raise ValueError(f"`{call}(axes=...)` must be {len(found)} axes, one for each coordinate; got {len(axes)}.")
    return found, axes


def _is_effect(trace: Trace, name: str) -> bool:
    return f"log_sd({name.partition('[')[0]})" in trace.variables()


def own_panels(count: int) -> list[Axes]:
    """Make a figure of so many panels, two in a line."""
    columns = min(count, 2)
    lines = -(-count // columns)
    figure, grid = panels((2.9 * columns + 0.2, 1.75 * lines + 0.3), lines, columns)
    for spare in grid.flat[count:]:
        figure.delaxes(spare)
    return list(grid.flat[:count])


def _some(count: int, most: int) -> list[int]:
    """Numbers of some chains, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def _title(axes: Any, parameter: Parameter) -> None:
    r_hat = f"   R-hat {parameter.r_hat:.3f}" if np.isfinite(parameter.r_hat) else ""
    axes.set_title(f"{elided(plain(parameter.name), 24)}{r_hat}", fontsize="small")
