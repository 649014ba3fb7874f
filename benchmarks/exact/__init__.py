"""Exact tests on the targets of `benchmarks.peers`: rows and acceptance, and rows against N.

`python -m benchmarks.exact --covertype covtype.npz`. Every test runs with the bound of its paper and with ours, at
independent proposals (PCN) or with a preconditioned walk, from draws of the Laplace approximation. A test that expects
more than N rows reads all of them, as it would for its user. `--firefly` has FireflyMC beside a walk on all rows,
`--package` our tests beside those of PyMHSS.
"""
