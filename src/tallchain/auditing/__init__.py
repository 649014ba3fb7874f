"""How wrong is my chain: repeat decisions of a chain many times, and compare them with what all rows say.

A decision moves a chain from t to t' with probability a(t, t'). The chain has the right posterior if

    a(t, t') / a(t', t) = exp(Delta),     Delta = log p(t') q(t', t) - log p(t) q(t, t'),

p the posterior, q the proposal. The audit takes decisions of the chain itself, computes Delta from all rows, repeats
the kernel's own test many times both ways, and reports the error in log-odds

    eta(t, t') = log a(t, t') - log a(t', t) - Delta,

and what it does to the posterior.
"""

from tallchain.auditing.bound import BoundLimits, bound_limits
from tallchain.auditing.records import Audit, Bound, Cost, Decisions, Drift, Estimate, Size
from tallchain.auditing.run import audit

__all__ = ["Audit", "Bound", "BoundLimits", "Cost", "Decisions", "Drift", "Estimate", "Size", "audit", "bound_limits"]
