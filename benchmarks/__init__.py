"""Benchmarks, each a module with `main`: ratios within one run, results in results/."""
