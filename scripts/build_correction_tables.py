"""Rebuild the correction tables that ship with the package, from scratch (about 15 s).

PYTHONPATH=src python scripts/build_correction_tables.py
"""

from __future__ import annotations

from tallchain.acceptance import correction
from tallchain.acceptance.correction import program, store
from tallchain.acceptance.correction.least_squares import compute_ridge
from tallchain.acceptance.tables import shipped_laws

REACH = 20.0
MINIMAX = [(sigma / 10, REACH) for sigma in range(5, 17)]
RIDGE = [(1.0, 4000, 10.0, 10.0), (0.9, 2000, 10.0, 10.0)]
LAWS = shipped_laws()


def main() -> None:
    """Compute every table, write the file, and print the errors."""
    tables = {correction.minimax_key(*setting): program.compute_minimax(*setting) for setting in MINIMAX}
    tables |= {correction.ridge_key(*setting): compute_ridge(*setting) for setting in RIDGE}
    tables |= {correction.law_key(law, REACH): program.compute_for_law(law, REACH) for law in LAWS}
    store.save(store.SHIPPED, tables)
    for key, table in tables.items():
        print(f"{key:70} {table.atoms.size:5} atoms  cdf {table.cdf_error:.2e}  log-odds {table.log_odds_error:.2e}")
    print(f"{store.SHIPPED.name}: {store.SHIPPED.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
