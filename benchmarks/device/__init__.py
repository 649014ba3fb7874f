"""Absolute figures, so for an accelerator only: `python -m benchmarks.device [PART ...]`.

- mixture: the paper's mixture, N = 1,000,000, m = 50; whole chunks as `sample` runs them, random numbers included,
  without the copies to the host.
- wide: logistic regression with 784 columns, every chain with rows of its own: bytes of rows read a second.
- prepare: `prepare` at N = 10^8, d = 20, after compiling, and a sweep with the Hessian over one jitted program.
- sample: 16,384 chains x 400 draws, d = 20, N = 1,000,000, after compiling, with draws and with moments.
- effective: effective draws a second there, and those of NumPyro's NUTS.

Results are saved as they come, over those of parts that were not run.
"""
