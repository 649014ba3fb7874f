"""The report of a fit: one page of HTML that needs nothing else."""

from tallchain.report import advice
from tallchain.report.citing import citations
from tallchain.report.facts import Advice, Convergence, Facts, ParameterFact, Reading, Stage, Trust
from tallchain.report.page import page
from tallchain.report.pictures import Pictures, draw
from tallchain.report.trust import Verdict, verdict

__all__ = [
    "Advice",
    "Convergence",
    "Facts",
    "ParameterFact",
    "Pictures",
    "Reading",
    "Stage",
    "Trust",
    "Verdict",
    "advice",
    "citations",
    "draw",
    "page",
    "verdict",
]
