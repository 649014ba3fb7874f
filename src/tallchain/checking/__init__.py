"""The draws, what they say, and how far to trust them: trace, summary, scan and audit."""

from tallchain.checking.auditing import audit
from tallchain.checking.bound import BoundLimits, bound_limits
from tallchain.checking.faults import SamplingError, SamplingWarning
from tallchain.checking.findings import Audit
from tallchain.checking.predictive import PredictiveCheck
from tallchain.checking.records import Bound, Cost, Decisions, Drift, Estimate, Size
from tallchain.checking.replicas import predictive_check
from tallchain.checking.summary import Summary
from tallchain.checking.trace import Trace
from tallchain.checking.verdict import Scan

__all__ = [
    "Audit",
    "Bound",
    "BoundLimits",
    "Cost",
    "Decisions",
    "Drift",
    "Estimate",
    "PredictiveCheck",
    "SamplingError",
    "SamplingWarning",
    "Scan",
    "Size",
    "Summary",
    "Trace",
    "audit",
    "bound_limits",
    "predictive_check",
]
