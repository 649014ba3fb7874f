"""The errors of the corrections that ship with the package."""

from __future__ import annotations

from benchmarks.measure import save
from tallchain.acceptance.correction import minimax, ridge


def main() -> None:
    corrections = {
        "ridge, n = 4000, lambda = 10 (the paper)": ridge(1.0),
        "ridge, n = 2000, lambda = 10 (its published code)": ridge(0.9, 2000, 10.0),
    } | {f"minimax, sigma = {sigma:.1f}": minimax(sigma) for sigma in (0.9, 1.0, 1.1, 1.2, 1.4, 1.6)}
    results = [
        {
            "name": name.split(", sigma")[0],
            "sigma": correction.sigma,
            "atoms": len(correction.atoms),
            "reach": correction.reach,
            "log_odds_error": correction.log_odds_error,
            "cdf_error": correction.cdf_error,
        }
        for name, correction in corrections.items()
    ]
    save("tables", {"grid": "at least 10 times finer than the one used to build"}, results)


if __name__ == "__main__":
    main()
