"""What the sections of the report share: cells, and sentences that compare numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tallchain.experiments.trials import Printed, Rows, standard_error

ROW_HEADER = ["test", "printed", "ours", "ratio", "additional rows scanned"]
PLUS_MINUS = "± is the standard deviation over repetitions, unless stated otherwise."
_FAR = 1.5  # of a ratio to the printed number


def printed_cell(printed: Printed | None) -> str:
    """A printed number with its standard deviation, if there is one."""
    return "" if printed is None else f"{printed.mean:,.1f} ± {printed.sd:,.1f}"


def printed_beside(printed: Printed | None, rows: Rows) -> list[str]:
    """The cells under `ROW_HEADER`, except the test's name."""
    ours = f"{rows.mean:,.1f} ± {rows.sd:,.1f}"
    ratio = "" if printed is None else f"{rows.mean / printed.mean:.2f}"
    return [printed_cell(printed), ours, ratio, f"{rows.scanned:,.0f}"]


def verdict_on(found: Sequence[tuple[str, Printed | None, Rows]]) -> str:
    """Compare ours with the printed numbers."""
    ratios = {name: rows.mean / printed.mean for name, printed, rows in found if printed is not None}
    far = [name for name, ratio in ratios.items() if not 1 / _FAR < ratio < _FAR]
    return f"Ours over the printed: {min(ratios.values()):.2f} to {max(ratios.values()):.2f}. " + (
        f"Beyond a factor of {_FAR:g}: {', '.join(far)}." if far else f"None is beyond a factor of {_FAR:g}."
    )


def comparison(
    what: str,
    ours: tuple[float, float],
    paper: tuple[float, float],
    our_rows: Rows,
    its_rows: Rows,
    *,
    is_less_better: bool,
) -> str:
    """Compare the default with the printed test: value and standard error of each, and rows."""
    worse = (ours[0] - paper[0]) * (1 if is_less_better else -1)
    error = math.hypot(ours[1], paper[1])
    away = abs(worse) / error if error else math.inf
    verdict = f"the default is {'worse' if worse > 0 else 'better'}"
    if away <= 2:
        verdict = "no visible difference"
    rows = [f"{of.mean:,.1f} ± {standard_error(of.trials):,.1f}" for of in (our_rows, its_rows)]
    return (
        f"The default, MinibatchBarker(), compared with the printed test, MinibatchBarker.paper() (± standard errors "
        f"over repetitions). {what}: {ours[0]:.4f} ± {ours[1]:.4f} and {paper[0]:.4f} ± {paper[1]:.4f}: {verdict} "
        f"({away:.1f} standard errors of the difference). "
        f"Rows per decision: {rows[0]} and {rows[1]}."
    )
