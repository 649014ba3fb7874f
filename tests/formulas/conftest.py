from __future__ import annotations

import pytest

from tallchain.formulas import arrangement
from tallchain.tables import table


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are smaller than the data."""
    monkeypatch.setattr(table, "BLOCK", 97)
    monkeypatch.setattr(arrangement, "_ROWS", 31)
