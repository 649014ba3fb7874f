"""Speed against peers: effective draws per second on the same posteriors, the same cores, all in float32.

Ours (`tallchain ...`) against BlackJAX's random walk and NUTS on all rows, NumPyro's NUTS and HMCECS (order-2 Taylor
proxy, 1000 rows), and PyMHSS. A sampler that is not installed, or fails, is recorded with its error.

- Every sampler starts in draws of the Laplace approximation. The random walks use its covariance, BlackJAX's NUTS
  starts its warm-up with it as the mass matrix (diagonal or dense), or keeps it ("told"), and HMCECS expands at its
  mode. This is more than most users would do for them. NumPyro's NUTS has its usual warm-up. The time to find the mode
  counts for each.
- Every sampler runs with its best number of chains, chosen by short runs; the time of that search is not counted.
- Set-up is mode, sweeps over the rows, compilation and warm-up, counted separately from sampling. The time to the first
  1000 effective draws includes both.
- Then all samplers take turns, `--seconds` each, several times. Chains continue where they stopped: effective draws per
  draw (bulk, the worst parameter, ArviZ) come from all turns together, draws per second from each.

`python -m benchmarks.peers --target simulated`
`python -m benchmarks.peers --make-reference rare rare.npz`: long NUTS, on any device
`python -m benchmarks.peers --target rare --reference rare.npz`: also measures how far each sampler is from it
`python -m benchmarks.peers --rows-against-n --draw`: rows per decision against N, and docs/rows-against-n.png
"""
