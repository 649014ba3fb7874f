"""Numbers on the host."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from tallchain.arrays import inverse_of_lower


@pytest.mark.parametrize("size", [1, 2, 3, 20, 61])
@pytest.mark.parametrize("spread", [0, 12])
def test_inverses_of_triangular_matrices_are_scipys(size: int, spread: int) -> None:
    random = np.random.default_rng(0)
    rows, columns = 10.0 ** random.uniform(-spread, spread, (2, size))
    well = np.tril(random.normal(size=(size, size)) / size) + np.diag(random.uniform(1, 2, size))
    found = inverse_of_lower(rows[:, None] * well * columns)
    expected = linalg.solve_triangular(well, np.eye(size), lower=True) / rows / columns[:, None]
    np.testing.assert_allclose(found * rows * columns[:, None], expected * rows * columns[:, None], atol=1e-13)
    assert np.array_equal(found, np.tril(found))
