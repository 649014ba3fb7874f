"""Read the file, and fit its numbers by maximum likelihood; prints the seconds of both as a line of JSON."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pyarrow.parquet as pq
from sklearn.linear_model import LogisticRegression  # ty: ignore[import-not-found]


def main() -> None:
    """Time both."""
    began = time.perf_counter()
    table = pq.read_table(sys.argv[1])
    reading = time.perf_counter() - began
    x = np.stack([table[name].to_numpy() for name in table.column_names if name.startswith("x")], 1)
    y = table["y"].to_numpy()
    del table
    began = time.perf_counter()
    LogisticRegression(C=6.25, solver="newton-cholesky").fit(x, y)
    print(json.dumps({"reading": reading, "fit": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
