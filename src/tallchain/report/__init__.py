"""The report of a fit: one page of HTML that needs nothing else."""

from tallchain.report.facts import Advice, Convergence, Facts, ParameterFact, Reading, Stage, Trust

__all__ = ["Advice", "Convergence", "Facts", "ParameterFact", "Reading", "Stage", "Trust"]
