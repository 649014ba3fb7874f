"""MNIST's 1s and 7s, and additional images in the style of infinite MNIST.

`mnist_1s_7s.npz` holds all 1s and 7s of MNIST (Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten
digits"), extracted from the original idx files: 13,007 training and 2,163 test images of 28 x 28 bytes.

Infinite MNIST (G. Loosli, S. Canu, L. Bottou, "Training invariant support vector machines using selective sampling",
2007) makes more by moving pixels along smooth random fields. The file with its fields is not public, so these images
are different, and called "infinite-MNIST style".
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tallchain.files import cache_folder, read_arrays, write_arrays
from tallchain.validation import is_whole

SHIPPED = Path(__file__).with_name("mnist_1s_7s.npz")
SIZE = 28
FURTHER = 87_000
_TANGENT_WIDTH = 0.9
_FIELD_WIDTH = 4.0
_BLOCK = 4096
_VERSION = 1  # of the recipe: files of another version are not read


class Digits(NamedTuple):
    """Images of 1s and 7s."""

    train_images: np.ndarray
    """(N, 28, 28), bytes: 0 is paper, 255 ink."""
    train_is_seven: np.ndarray
    test_images: np.ndarray
    test_is_seven: np.ndarray

    def features(self) -> tuple[np.ndarray, np.ndarray]:
        """Pixels of training and test images as vectors of float32 in [0, 1], as the paper scales them."""
        return _vectors(self.train_images), _vectors(self.test_images)


def _vectors(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1).astype(np.float32) / 255


def mnist_1_7() -> Digits:
    """Load MNIST's 1s and 7s, the paper's MNIST-13k: 13,007 to train and 2,163 to test."""
    arrays = read_arrays(SHIPPED)
    if arrays is None:
        raise FileNotFoundError(f"{SHIPPED} is missing or damaged: install tallchain again.")
    return Digits(arrays["x_train"], arrays["y_train"] == 7, arrays["x_test"], arrays["y_test"] == 7)


def infinite_mnist_style(further: int = FURTHER, *, seed: int = 0, cache: bool = True) -> Digits:
    """MNIST's 1s and 7s with additional training images made by deformation: like the paper's MNIST-100k.

    An additional image is I + s (F1 dI/dx - F2 dI/dy), shifted by at most a pixel each way and clipped to [0, 255]: I
    one of the training images, F1 and F2 smooth random fields of displacements, s = +1 or -1.

    Args:
        further: images to make.
        seed: of everything random.
        cache: keep them in the cache folder (`TALLCHAIN_CACHE`, `XDG_CACHE_HOME`, `~/.cache/tallchain`).
    """
    if not is_whole(further, least=1):
        raise ValueError(f"`infinite_mnist_style(further=...)` must be a whole number, at least 1; got {further!r}.")
    digits = mnist_1_7()
    folder = cache_folder() if cache else None
    path = folder / f"infinite_mnist_style-{_VERSION}-{further}-{seed}.npz" if folder else None
    made = read_arrays(path, ("images", "is_seven")) if path else None
    if made is None:
        images, is_seven = deform(digits.train_images, digits.train_is_seven, further, seed)
        made = {"images": images, "is_seven": is_seven}
        if path:
            # If the folder cannot be written, the only cost is making them again.
            with contextlib.suppress(OSError):
                write_arrays(path, made)
    return digits._replace(
        train_images=np.concatenate([digits.train_images, made["images"]]),
        train_is_seven=np.concatenate([digits.train_is_seven, made["is_seven"]]),
    )


def deform(images: np.ndarray, labels: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw images at random and deform each; return the bytes and their labels."""
    random = np.random.default_rng(seed)
    chosen = random.integers(len(images), size=count)
    made = np.empty((count, *images.shape[1:]), np.uint8)
    for first in range(0, count, _BLOCK):
        made[first : first + _BLOCK] = deform_each(images[chosen[first : first + _BLOCK]], random)
    return made, labels[chosen]


def deform_each(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Deform every image (count, 28, 28) once."""
    images, count = images.astype(np.float32), len(images)
    smooth, slope = gaussian_matrix(_TANGENT_WIDTH, 0), gaussian_matrix(_TANGENT_WIDTH, 1)
    down, across = slope @ images @ smooth.T, smooth @ images @ slope.T
    spread = gaussian_matrix(_FIELD_WIDTH, 0)
    fields = spread @ random.standard_normal((2, count, SIZE, SIZE), np.float32) @ spread.T
    fields /= np.sqrt(np.mean(fields**2, axis=(2, 3), keepdims=True))  # one pixel, root mean square
    sign = random.choice(np.array([-1, 1], np.float32), (count, 1, 1))
    moved = images + sign * (fields[0] * across - fields[1] * down)
    return _shifted(np.clip(np.rint(moved), 0, 255).astype(np.uint8), random.integers(-1, 2, (count, 2)))


def _shifted(images: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Each image moved by whole pixels, down and across; new pixels are 0."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    rows, columns = (np.arange(SIZE) + 1 - shifts[:, axis, None] for axis in (0, 1))
    return padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]


def gaussian_matrix(width: float, derivative: int) -> np.ndarray:
    """Smooth the 28 pixels of a line with a Gaussian of this width, or take the derivative of that: a matrix.

    Pixels outside are 0. A matrix product handles all lines of all images at once.
    """
    offset = np.arange(SIZE)[:, None] - np.arange(SIZE)[None, :]
    kernel = np.exp(-0.5 * (offset / width) ** 2)
    kernel /= np.exp(-0.5 * (np.arange(-5 * SIZE, 5 * SIZE + 1) / width) ** 2).sum()
    return (kernel if derivative == 0 else -offset / width**2 * kernel).astype(np.float32)
