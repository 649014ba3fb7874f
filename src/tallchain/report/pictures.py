"""The pictures of the page, as SVG."""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tallchain import plots
from tallchain.checking import Audit, PredictiveCheck, Trace
from tallchain.models.regression import Regression
from tallchain.plots.style import figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI = 110  # of lines that are drawn as pixels
_MOST_TERMS = 6


@dataclasses.dataclass(frozen=True)
class Pictures:
    """SVG, as text; None where there is nothing to show."""

    coefficients: str | None = None
    groups: dict[str, str] = dataclasses.field(default_factory=dict)
    """By term."""
    traces: str | None = None
    ranks: str | None = None
    rows: str | None = None
    predictive: str | None = None
    audit: str | None = None


def draw(
    trace: Trace,
    model: Regression | None = None,
    check: PredictiveCheck | None = None,
    audit: Audit | None = None,
    *,
    worst: Sequence[str] | None = None,
) -> Pictures:
    """Draw all pictures of a page.

    Args:
        trace: the draws.
        model: the regression: then effects of groups stand beside what the rows of each level alone would give, which
            takes a pass over all rows for each term.
        check: what `predictive_check` found.
        audit: what an audit found.
        worst: coordinates of the largest R-hat, whose chains are drawn, if they are known.
    """
    variables = trace.variables()
    terms = [name for name in variables if f"log_sd({name})" in variables][:_MOST_TERMS]
    return Pictures(
        coefficients=svg(plots.coefficients(trace)),
        groups={term: svg(plots.group_effects(trace, term, model)) for term in terms},
        traces=svg(plots.traces(trace, worst)),
        ranks=svg(plots.ranks(trace, worst)),
        rows=svg(plots.rows_per_decision(trace)),
        predictive=None if check is None else svg(plots.predictive_check(check)),
        audit=None if audit is None else svg(plots.acceptance_curves(audit)),
    )


def svg(axes: Axes | Sequence[Axes]) -> str:
    """Return the figure of some axes as SVG: letters are paths, so that it looks the same everywhere."""
    from matplotlib import rc_context

    figure = figure_of(axes[0] if isinstance(axes, Sequence) else axes)
    said = io.StringIO()
    metadata: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "tallchain"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # letters without a font: the tables have the names
        figure.savefig(said, format="svg", dpi=_DPI, metadata=metadata)
    return said.getvalue()
