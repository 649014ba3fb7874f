"""Speed against peers: effective draws per second on the same posteriors, the same cores, all in float32.

Ours (`tallchain ...`) against BlackJAX's random walk and NUTS on all rows, NumPyro's NUTS and HMCECS (order-2 Taylor
proxy, 1000 rows), and PyMHSS. Whatever is not installed, or fails, is recorded with what it said.

- Every sampler starts in draws of the Laplace approximation; the random walks have its covariance, BlackJAX's NUTS
  begins its warm-up with it for a mass matrix (diagonal or dense), or keeps it ("told"), HMCECS expands at its mode:
  more than most users would do for them. NumPyro's NUTS has its usual warm-up. Finding the mode counts for each.
- Every sampler runs at its best number of chains, chosen by a short run of a few; that search counts for none.
- Set-up: mode, passes over the rows, compilation, warm-up; apart from sampling. Time to the first 1000 effective draws
  has both.
- Then all samplers take turns, `--seconds` each, again and again. Chains go on where they stopped: effective draws per
  draw (bulk, the worst parameter, ArviZ) come from all turns together, draws per second from each.

`python -m benchmarks.peers --target simulated`
`python -m benchmarks.peers --make-reference rare rare.npz`: long NUTS, on any device
`python -m benchmarks.peers --target rare --reference rare.npz`: says also how far each sampler is from it
`python -m benchmarks.peers --rows-against-n --draw`: rows per decision against N, and docs/rows-against-n.png
"""
