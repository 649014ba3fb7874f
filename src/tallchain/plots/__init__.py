"""Pictures of draws, decisions and checks: matplotlib axes in, axes out. Without axes, each makes a figure."""

from tallchain.plots.audits import acceptance_curves, audit
from tallchain.plots.chains import ranks, traces
from tallchain.plots.checks import predictive_check
from tallchain.plots.effects import coefficients, group_effects
from tallchain.plots.rows import rows_per_decision

__all__ = [
    "acceptance_curves",
    "audit",
    "coefficients",
    "group_effects",
    "predictive_check",
    "ranks",
    "rows_per_decision",
    "traces",
]
