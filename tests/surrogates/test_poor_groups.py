"""Groups are named if they make much more noise than their rows would, whatever the number of levels."""

from __future__ import annotations

import numpy as np

from tallchain.models import Regression, families
from tallchain.sources import Shuffled
from tallchain.surrogates.poor_groups import poor_groups

ROWS = 4000


def findings(share: float) -> tuple[str, ...]:
    """One of 3 carriers has 10 rows, on 2 of 40 routes, with this share of the noise."""
    carrier = np.where(np.arange(ROWS) < 10, "c", np.where(np.arange(ROWS) % 2, "a", "b"))
    route = np.arange(ROWS) % 40
    route[:10] = np.arange(10) % 2
    model = Regression(families.Bernoulli(), y=np.arange(ROWS) % 3 == 0, groups={"carrier": carrier, "route": route})
    source = Shuffled(model.data, 20)
    is_rare = np.asarray(source.data["groups"])[:, 0] == 2
    squares = np.where(is_rare, share / 10, (1 - share) / (ROWS - 10))
    return poor_groups(model.posterior, source, np.sqrt(squares).astype(np.float32))


def test_a_rare_level_of_a_factor_with_few_levels_is_named() -> None:
    found = findings(0.9)
    assert [line.split("(share")[0].split()[2] for line in found] == ["'carrier':"]
    assert "poor for c (90%)" in found[0]


def test_no_group_is_named_if_none_is_noisy() -> None:
    assert findings(10 / ROWS) == ()
