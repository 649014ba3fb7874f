"""What an audit says: in words, as JSON, as a picture."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import pytest

import tallchain as tc
from audits import (
    scaled_audit,
)
from tallchain import checking
from tallchain.checking import Audit, Drift, Estimate


def test_report(broken: Audit) -> None:
    report = str(broken)
    for line in (
        r"Audit of Blurred\(\), N = 40 rows",
        r"temperature          4   tempered: NOT the posterior",
        r"draws                the means are off by at most 0\.0\d+ sd, the sds by at most \d\.\d %",
        "to first order, from linear and quadratic functions of the position",
        r"position +[+-]0\.\d{4} \([+-]0\.\d{4} to [+-]0\.\d{4}\) +-\d\.\d\d \(-\d\.\d\d to -\d\.\d\d\)",
        r"decisions            200, each repeated 200 times each way, with its noise integrated out",
        r"log-odds           off by 0\.\d{4} on average, at most 0\.\d{4} \(95 %\); the worst by [+-]0\.\d{4} \(",
        r"probabilities      off by 0\.\d{4} on average, at most 0\.\d{4}",
        r"beyond their noise \d+ % of these errors; 5 % by chance alone",
        r"cost                 80,200 sweeps over all rows in \d+\.\d s: 8,000 rows for exact log ratios, 3,200,000 by",
        r"worst case           total variation at most 0\.\d+",
        "ERROR FOUND",
    ):
        assert re.search(line, report), line


def test_a_bound_that_says_nothing_is_left_out(broken: Audit) -> None:
    bound = dataclasses.replace(broken.bound, value=1.2)
    assert "total variation" not in str(dataclasses.replace(broken, bound=bound))


def test_drift_of_a_standard_deviation_in_per_cent() -> None:
    unknown = Estimate(math.nan, math.nan, math.nan)
    found = Drift("a", unknown, Estimate(-0.19, -0.36, 0.21)).sd
    assert (found.value, found.low, found.high) == pytest.approx((-10, -20, 10))
    assert math.isnan(Drift("a", unknown, unknown).sd.value)


def test_numbers_are_json(broken: Audit) -> None:
    numbers = json.loads(json.dumps(broken.to_json(), allow_nan=False))
    assert numbers["is_sound"] is False
    assert numbers["log_odds"]["value"] == broken.log_odds.value
    assert len(numbers["decisions"]["log_ratio"]) == 200
    assert numbers["drift"][0]["name"] == "position"
    assert numbers["verdict"] == broken.verdict


def test_nothing_within_reach_is_said() -> None:
    audit = scaled_audit(1.0, max_log_ratio=1e-9)
    assert not audit.is_sound
    assert "NOTHING AUDITED" in str(audit)
    json.dumps(audit.to_json(), allow_nan=False)


def test_diagnostics_offer_it() -> None:
    assert checking.audit is tc.audit
