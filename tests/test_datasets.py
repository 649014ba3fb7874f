"""The images that ship, and those made from them."""

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from conftest import SEED
from tallchain import datasets
from tallchain.datasets import mnist


def test_the_paper_s_digits() -> None:
    digits = datasets.mnist_1_7()
    assert digits.train_images.shape == (13_007, 28, 28)
    assert digits.test_images.shape == (2_163, 28, 28)
    assert digits.train_is_seven.sum() == 6_265
    train, test = digits.features()
    assert train.dtype == np.float32
    assert test.shape == (2_163, 784)
    assert (train.min(), train.max()) == (0, 1)
    np.testing.assert_array_equal(train[5].reshape(28, 28) * 255, digits.train_images[5])


@pytest.mark.parametrize("derivative", [0, 1])
@pytest.mark.parametrize("width", [0.9, 4.0])
def test_smoothing_is_scipy_s(width: float, derivative: int) -> None:
    """Inside, where the edge has no part in it."""
    line = np.zeros(mnist.SIZE)
    line[10:18] = np.random.default_rng(SEED).normal(size=8)
    truth = ndimage.gaussian_filter1d(line, width, order=derivative, mode="constant", truncate=8)
    # scipy samples the Gaussian's derivative and we do too; its kernel is normalised to a sum of 1, as ours.
    np.testing.assert_allclose(mnist.gaussian_matrix(width, derivative) @ line, truth, atol=2e-6)


def test_deformed_images_are_like_their_originals() -> None:
    digits = datasets.mnist_1_7()
    images, is_seven = mnist.deform(digits.train_images, digits.train_is_seven, 500, seed=SEED)
    again, _ = mnist.deform(digits.train_images, digits.train_is_seven, 500, seed=SEED)
    np.testing.assert_array_equal(images, again)
    chosen = np.random.default_rng(SEED).integers(len(digits.train_images), size=500)
    originals = digits.train_images[chosen]
    np.testing.assert_array_equal(is_seven, digits.train_is_seven[chosen])
    assert images.dtype == np.uint8
    assert not np.any(np.all(images == originals, axis=(1, 2)))

    def likeness(a: np.ndarray, b: np.ndarray) -> float:
        flat = [(x - x.mean((1, 2), keepdims=True)).reshape(len(x), -1) for x in (a.astype(float), b.astype(float))]
        return float(np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(*flat, strict=True)]))

    assert 0.6 < likeness(images, originals) < 0.97
    assert likeness(images, np.roll(originals, 1, axis=0)) < 0.6  # others
    ink = images.mean((1, 2)) / originals.mean((1, 2))
    assert 0.9 < np.median(ink) < 1.2


def test_a_shift_is_a_shift() -> None:
    images = np.random.default_rng(SEED).integers(0, 256, (3, 28, 28)).astype(np.uint8)
    moved = mnist._shifted(images, np.array([[0, 0], [1, 0], [-1, 1]]))
    np.testing.assert_array_equal(moved[0], images[0])
    np.testing.assert_array_equal(moved[1, 1:], images[1, :-1])
    assert not moved[1, 0].any()
    np.testing.assert_array_equal(moved[2, :-1, 1:], images[2, 1:, :-1])


def test_further_images_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLCHAIN_CACHE", str(tmp_path))
    first = datasets.infinite_mnist_style(50, seed=1)
    assert first.train_images.shape == (13_057, 28, 28)
    assert len(first.train_is_seven) == 13_057
    (file,) = tmp_path.iterdir()

    def refuse(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(mnist, "deform", refuse)
    again = datasets.infinite_mnist_style(50, seed=1)
    np.testing.assert_array_equal(first.train_images, again.train_images)
    file.write_bytes(b"not a file of arrays")
    with pytest.raises(AssertionError, match="made again"):
        datasets.infinite_mnist_style(50, seed=1)


def test_refusals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"infinite_mnist_style\(further=\.\.\.\)"):
        datasets.infinite_mnist_style(0)
    monkeypatch.setattr(mnist, "SHIPPED", tmp_path / "none.npz")
    with pytest.raises(FileNotFoundError, match="install tallchain again"):
        datasets.mnist_1_7()
