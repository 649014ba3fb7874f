"""From draws to numbers: rows in all, total variation on the way, and how far the variances are from the exact ones."""

from __future__ import annotations

import numpy as np

from tallchain.abilities import ReadingProposal
from tallchain.experiments.gaussian_mixture import Target, shares
from tallchain.experiments.gradients.contenders import CONTENDERS, MINIBATCH
from tallchain.experiments.gradients.entries import Cost, DigitsEntry, MixtureEntry, Ratio
from tallchain.experiments.logistic_regression import Found
from tallchain.experiments.trials import Arrays, rows_of

_POINTS = 24  # of a curve
_SETTLING = 4  # one of so many draws is left out where a bias is measured: chains start in the exact posterior


def rows_by_draw(name: str, step: float, task: str, trials: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of the test and gradients of rows (chain, draw)."""
    contender = CONTENDERS[name]
    part, read = contender.make(step, task), trials["rows_read"].astype(float)
    if not contender.is_corrected:
        return np.zeros_like(read), part.gradients_per_row * read
    times = part.gradients_per_row if isinstance(part, ReadingProposal) else 0
    return read, times * trials["rows_scanned"].astype(float)


def mixture_entry(name: str, step: float, repetitions: int, trials: Arrays, target: Target) -> MixtureEntry:
    """Measure the draws of a sampler on the mixture."""
    test, gradients = rows_by_draw(name, step, "mixture", trials)
    position = trials["position"].astype(float)
    settled = position[:, position.shape[1] // _SETTLING :]
    narrow, wide = variance_ratios(settled, target.grid.mean, target.grid.covariance)
    total, by_chance = total_variation(settled, target.chances)
    rows, curve = total_variation_curve(position, test + gradients, repetitions, target.chances)
    return MixtureEntry(
        name,
        step,
        position.shape[1],
        float(trials["is_accepted"].mean()),
        Cost(float(test.mean()), float(gradients.mean())),
        narrow,
        expected_sgld(0.5 * step**2, target) if name == "SGLD" else None,
        wide,
        total,
        by_chance,
        rows,
        curve,
    )


def digits_entry(name: str, step: float, trials: Arrays) -> DigitsEntry:
    """Measure the draws of a sampler on MNIST-13k."""
    test, gradients = rows_by_draw(name, step, "MNIST-13k", trials)
    rows = rows_of(trials | {"rows_read": test + gradients})
    acceptance = float(trials["is_accepted"].mean())
    found = Found(name, None, rows, acceptance, trials["accuracy"], test + gradients)
    return DigitsEntry(name, step, Cost(float(test.mean()), float(gradients.mean())), found)


def variance_ratios(position: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[Ratio, ...]:
    """Return the variance along each principal direction over the exact one, the narrowest direction first.

    It is about the exact mean, so that it is a mean over draws, and its error comes from the means of the chains, which
    are independent. `position` is (chain, draw, coordinate).
    """
    exact, directions = np.linalg.eigh(covariance)
    of_chains = (((position - mean) @ directions) ** 2).mean(1) / exact
    errors = of_chains.std(0, ddof=1) / len(of_chains) ** 0.5
    return tuple(Ratio(float(v), float(e)) for v, e in zip(of_chains.mean(0), errors, strict=True))


def expected_sgld(step_size: float, target: Target) -> float:
    """Return SGLD's variance over the exact one, in the narrow direction, if the posterior were normal.

    (1 + eps s2/2)/(1 - eps P/2), P the precision. The rows are drawn from the model, so the variance of their scores is
    the information of a row, P K/N but for the prior, and that of a gradient from m of them is s2 = P (N/K) (1 -
    m/N)/m.
    """
    precision = 1 / np.linalg.eigvalsh(target.grid.covariance)[0]
    per_row = target.rows / float(target.mixture.posterior.temperature)
    noise = precision * per_row * (1 - MINIBATCH / target.rows) / MINIBATCH
    return float((1 + step_size * noise / 2) / (1 - step_size * precision / 2))


def total_variation(position: np.ndarray, chances: np.ndarray) -> tuple[float, float]:
    """Return the total variation between all draws and the posterior, and how much of it is chance.

    The draws of one half of the chains differ from those of the other by chance alone, twice as much as all draws
    together differ by chance from what they are drawn from. `position` is (chain, draw, coordinate).
    """
    share, chance = shares(position.reshape(-1, 2), chances)
    one, other = (shares(position[half::2].reshape(-1, 2), chances)[0] for half in (0, 1))
    return _distance(share, chance), 0.5 * _distance(one, other)


def total_variation_curve(
    position: np.ndarray, rows: np.ndarray, repetitions: int, chances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows read in all by a repetition, and the total variation of its draws by then (repetition, point).

    A repetition has the chains that follow one another in `position` (chain, draw, coordinate) and `rows` (chain,
    draw).
    """
    draws = position.shape[1]
    stops = np.unique(np.geomspace(1, draws, min(_POINTS, draws)).round().astype(int))
    so_far = rows.cumsum(1).reshape(repetitions, -1, draws).sum(1)[:, stops - 1].mean(0)
    curve = [_on_the_way(of, stops, chances) for of in np.split(position, repetitions)]
    return so_far, np.array(curve)


def _on_the_way(position: np.ndarray, stops: np.ndarray, chances: np.ndarray) -> list[float]:
    counts, found = 0.0, []
    for begin, end in zip((0, *stops[:-1]), stops, strict=True):
        new = position[:, begin:end].reshape(-1, 2)
        share, chance = shares(new, chances)
        counts = counts + share * len(new)
        found.append(_distance(counts / np.sum(counts), chance))
    return found


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(0.5 * np.abs(one - other).sum())
