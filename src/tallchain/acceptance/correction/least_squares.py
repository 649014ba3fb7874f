"""The paper's regularised least squares for the correction (its section on the correction, and the appendix)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from tallchain.acceptance.correction.record import Array, Correction, measured

V = 20.0
SMALLEST_N = 10


def compute_ridge(sigma: float, n: int, ridge: float, reach: float) -> Correction:
    """Solve the paper's problem from scratch; clip, renormalise and measure.

    The solution is even except for the effect of shrinkage on its sum, which is negligible on the paper's grids (1e-7
    of its peak); the two halves are averaged.
    """
    u = _solve_ridge(sigma, n, ridge)
    half_weights = u[n:] + u[n::-1]
    half_weights[0] /= 2
    half_atoms = np.linspace(0.0, V, n + 1)
    return measured(sigma, half_atoms, half_weights, reach=reach, step=V / n / 10, method="ridge")


def printed_error(sigma: float, n: int, ridges: Sequence[float]) -> Array:
    """max_i |(M u)_i - v_i| for each ridge, u clipped and not renormalised; see `_solve_ridge`."""
    kernel, v = _kernel(sigma, n), _target(n)
    products = (np.convolve(kernel, _solve_ridge(sigma, n, value), "valid") for value in ridges)
    return np.array([np.abs(product - v).max() for product in products])


def _kernel(sigma: float, n: int) -> Array:
    """Phi(m V / (n sigma)) for m = -3n..3n: every entry that the Toeplitz matrix M has."""
    with np.errstate(over="ignore"):  # sigma may be tiny; ndtr handles infinity
        return scipy.special.ndtr(np.arange(-3 * n, 3 * n + 1) * (V / n) / sigma)


def _target(n: int) -> Array:
    """v_i = logistic(X_i)."""
    return scipy.special.expit(np.arange(-2 * n, 2 * n + 1) * (V / n))


def _solve_ridge(sigma: float, n: int, ridge: float) -> Array:
    """u = max(0, argmin |M u - v|^2 + ridge |u|^2), equal to (M'M + ridge I)^-1 M'v before clipping.

    X_i = i V/n for |i| <= 2n, Y_j = j V/n for |j| <= n, V = 20,
    M_ij = Phi((X_i - Y_j)/sigma), v_i = logistic(X_i).

    M is never formed: M u and M'r are convolutions, and M smooths so much that some hundred steps of LSQR (Paige and
    Saunders 1982) reach rounding error, which is smaller than for the normal equations, whose condition number is the
    square.
    """
    from scipy.sparse.linalg import lsqr

    solution = lsqr(_Convolution(sigma, n), _target(n), math.sqrt(ridge), atol=1e-14, btol=1e-14, conlim=0)
    return np.maximum(solution[0], 0.0)


class _Convolution:
    """M for `lsqr`: products with it and with its transpose by fast Fourier transform.

    The transform is as long as the kernel, 6n + 1, or longer. What wraps around falls outside the
    entries kept.
    """

    def __init__(self, sigma: float, n: int) -> None:
        kernel = _kernel(sigma, n)
        self.shape = (4 * n + 1, 2 * n + 1)
        self._n = n
        self._size = 1 << kernel.size.bit_length()
        self._forward = np.fft.rfft(kernel, self._size)
        self._backward = np.fft.rfft(kernel[::-1], self._size)

    def matvec(self, u: Array) -> Array:
        """Return M u."""
        return self._convolve(self._forward, u)[2 * self._n : 6 * self._n + 1]

    def rmatvec(self, r: Array) -> Array:
        """Return M'r."""
        return self._convolve(self._backward, r)[4 * self._n : 6 * self._n + 1]

    def _convolve(self, transformed: NDArray[np.complex128], x: Array) -> Array:
        return np.fft.irfft(transformed * np.fft.rfft(x, self._size), self._size)
