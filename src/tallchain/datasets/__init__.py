"""Real data for the experiments: MNIST's 1s and 7s, which ship with the package, and more of them by deformation."""

from tallchain.datasets.mnist import Digits, infinite_mnist_style, mnist_1_7

__all__ = ["Digits", "infinite_mnist_style", "mnist_1_7"]
