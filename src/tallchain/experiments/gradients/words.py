"""What was measured, in tables and in words."""

from __future__ import annotations

from collections.abc import Sequence

from tallchain.experiments.document import Table
from tallchain.experiments.gradients.contenders import CONTENDERS, PAIRS
from tallchain.experiments.gradients.entries import DigitsEntry, MixtureEntry, Ratio
from tallchain.experiments.gradients.ranking import best_on_digits, best_on_mixture, common_rows
from tallchain.experiments.logistic_regression import ACCURACIES
from tallchain.experiments.trials import standard_error

_SURE = 4.0  # Monte Carlo errors from which on a difference is told as one
_MIXTURE_CAPTION = (
    "Step: a standard deviation, as in Langevin(step), Hamiltonian(step), Amagold(step), SGHMC(step), SGNHT(step); "
    "SGLD's step_size is half its square, so that it makes the steps of Langevin; that of SGFS has no unit. Rows of a "
    "draw: of the test, and gradients of rows. Variances are over the exact ones, in the two principal directions of "
    "the posterior, with Monte Carlo errors; by formula: SGLD's, for a normal posterior. Total variation is that of "
    "all draws. All without the first quarter of the draws. By chance: the part that more draws would take away."
)
_DIGITS_CAPTION = (
    "Step and rows as in the other table. Rows read to an accuracy: in all, median over repetitions; inf: most "
    "repetitions do not reach it. At the end: over the last fifth of the draws, with its standard error."
)


def tables(mixture: Sequence[MixtureEntry], digits: Sequence[DigitsEntry]) -> list[Table]:
    """Return a table for each task: one line per sampler and step."""
    return [_mixture_table(mixture), _digits_table(digits)]


def _mixture_table(entries: Sequence[MixtureEntry]) -> Table:
    header = [
        *("sampler", "step", "draws", "acceptance", "rows of the test", "gradients"),
        *("variance, narrow", "by formula", "variance, wide", "total variation", "by chance"),
    ]
    rows = [
        [
            *(entry.name, f"{entry.step:g}", f"{entry.draws:,}", _acceptance(entry.name, entry.acceptance)),
            *(f"{entry.cost.test:,.0f}", f"{entry.cost.gradients:,.0f}"),
            *(_ratio(entry.narrow), "" if entry.expected is None else f"{entry.expected:.3f}", _ratio(entry.wide)),
            *(f"{entry.total_variation:.3f}", f"{entry.by_chance:.3f}"),
        ]
        for entry in entries
    ]
    return Table(header, rows, "Mixture: how far the draws are from the posterior", _MIXTURE_CAPTION)


def _digits_table(entries: Sequence[DigitsEntry]) -> Table:
    header = [
        *("sampler", "step", "draws", "acceptance", "rows of the test", "gradients"),
        *(f"rows to {wanted:g}" for wanted in ACCURACIES),
        "accuracy at the end",
    ]
    rows = [
        [
            *(entry.name, f"{entry.step:g}", f"{entry.draws:,}", _acceptance(entry.name, entry.found.acceptance)),
            *(f"{entry.cost.test:,.0f}", f"{entry.cost.gradients:,.0f}"),
            *(f"{entry.found.rows_to_accuracy[wanted]:,.0f}" for wanted in ACCURACIES),
            f"{entry.final:.4f} ± {standard_error(entry.found.final):.4f}",
        ]
        for entry in entries
    ]
    return Table(header, rows, "MNIST-13k: rows in all, and accuracy on the test images", _DIGITS_CAPTION)


def _acceptance(name: str, share: float) -> str:
    return f"{share:.2f}" if CONTENDERS[name].is_corrected else "no test"


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} ± {ratio.error:.3f}"


def findings(mixture: Sequence[MixtureEntry], digits: Sequence[DigitsEntry]) -> list[str]:
    """Return what the numbers say, a sentence or two each."""
    found = [_bias(*pair, mixture) for pair in PAIRS if {*pair} <= {entry.name for entry in mixture}]
    return [*found, _corrected(mixture), _nearest(mixture), _accurate(digits)]


def _bias(free: str, tested: str, entries: Sequence[MixtureEntry]) -> str:
    """Say how the error of a pair of samplers depends on the step."""
    one, other = (sorted((e for e in entries if e.name == name), key=lambda e: e.step) for name in (free, tested))
    least, most = one[0], one[-1]
    farthest = max(other, key=lambda entry: entry.narrow.away)
    is_seen = farthest.narrow.away > _SURE
    return (
        f"{free}'s variance in the narrow direction is {_ratio(least.narrow)} times the exact one at step "
        f"{least.step:g} and {_ratio(most.narrow)} times at step {most.step:g}. {tested} makes the same steps and has "
        f"a test: at steps {other[0].step:g} to {other[-1].step:g} it has {min(e.narrow.value for e in other):.3f} to "
        f"{max(e.narrow.value for e in other):.3f}, at most {farthest.narrow.away:.1f} Monte Carlo errors from 1: "
        + ("a visible error." if is_seen else "no visible error, at any step.")
    )


def _corrected(entries: Sequence[MixtureEntry]) -> str:
    """Say whether any sampler with a test has a visible error, and which without have."""
    away = {True: [], False: []}
    for entry in entries:
        if max(entry.narrow.away, entry.wide.away) > _SURE:
            away[CONTENDERS[entry.name].is_corrected].append(f"{entry.name} at {entry.step:g}")
    with_test = sum(CONTENDERS[entry.name].is_corrected for entry in entries)
    return (
        f"Variances more than {_SURE:g} Monte Carlo errors from the exact ones: "
        f"{len(away[True])} of {with_test} runs with a test"
        + (f" ({', '.join(away[True])})" if away[True] else "")
        + f", {len(away[False])} of {len(entries) - with_test} without"
        + (f" ({', '.join(away[False])})." if away[False] else ".")
    )


def _nearest(entries: Sequence[MixtureEntry]) -> str:
    """Rank the samplers by total variation after the same rows."""
    rows = common_rows(entries)
    ranked = sorted(best_on_mixture(entries).values(), key=lambda entry: entry.at(rows).value)
    told = [f"{e.name} {e.at(rows).value:.3f} ± {e.at(rows).error:.3f} (step {e.step:g})" for e in ranked]
    return (
        f"Mixture, total variation of a repetition's draws after {rows:,.0f} rows in all, each sampler at its best "
        f"step here: {', '.join(told)}. Most of it is chance, which more draws take away; a bias stays."
    )


def _accurate(entries: Sequence[DigitsEntry]) -> str:
    """Rank the samplers by the rows that they read to the higher accuracy."""
    wanted = max(ACCURACIES)
    ranked = sorted(best_on_digits(entries).values(), key=lambda entry: entry.found.rows_to_accuracy[wanted])
    told = [f"{e.name} {e.found.rows_to_accuracy[wanted]:,.0f} (then {e.final:.3f} at the end)" for e in ranked]
    return (
        f"MNIST-13k, rows in all until a draw classifies {100 * wanted:g} % of the test images correctly, each sampler "
        f"at its best step here: {', '.join(told)}. Accuracy says how soon a chain finds a good place, and nothing of "
        "how wide the draws are spread."
    )
