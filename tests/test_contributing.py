"""The skeletons of CONTRIBUTING are run."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_the_skeletons_work() -> None:
    found = doctest.testfile(str(Path(__file__).parents[1] / "CONTRIBUTING.md"), module_relative=False)
    assert found.attempted > 20
    assert found.failed == 0
