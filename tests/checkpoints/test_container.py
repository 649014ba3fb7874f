"""Files of checkpoints: what was written comes back, and nothing else is taken for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tallchain.checkpoints.container import CheckpointError, read, write
from tallchain.checkpoints.draws import DrawsFile

ARRAYS = {
    "numbers": np.arange(6.0).reshape(2, 3),
    "one": np.float32(0.1),
    "none": np.zeros((0, 4), np.int64),
    "truth": np.array([True, False]),
    "words": np.arange(5, dtype=np.uint32)[::2],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "state", {"name": "a", "count": [1, 2]}, ARRAYS)
    return tmp_path / "state"


def test_what_was_written_comes_back(path: Path) -> None:
    facts, arrays = read(path)
    assert facts == {"name": "a", "count": [1, 2]}
    assert arrays.keys() == ARRAYS.keys()
    for name, of in ARRAYS.items():
        assert arrays[name].dtype == of.dtype
        np.testing.assert_array_equal(arrays[name], of)
    assert [each.name for each in path.parent.iterdir()] == ["state"]


def test_a_file_that_was_cut_short_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in (*range(40), len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="cut short or changed"):
            read(path)


def test_a_file_that_was_changed_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CheckpointError, match="state"):
            read(path)


def test_nothing_is_run_when_a_file_is_read(path: Path) -> None:
    """Objects need a pickle, which there is none of; a forged header asks for what is not there."""
    with pytest.raises((TypeError, ValueError)):
        write(path, {}, {"object": np.array([{}], object)})
    for dtype, shape in (("|O", [1]), ("<f8", [10**12]), ("<f8", [-1]), ("<U5", [1]), ("nonsense", [1])):
        forge(path, {"facts": {}, "arrays": [["a", dtype, shape]]})
        with pytest.raises(CheckpointError, match="cut short or changed"):
            read(path)


def test_a_large_file_of_nothing_is_not_read(path: Path) -> None:
    for begin in (b"", path.read_bytes()[:31]):
        with path.open("wb") as file:
            file.write(begin)
            file.truncate(2**42)
        with pytest.raises(CheckpointError, match="cut short or changed"):
            read(path)


def test_nests_that_are_too_deep_are_refused(path: Path) -> None:
    from tallchain.checkpoints import container

    text = b"[" * 100_000
    whole = container._MAGIC + len(text).to_bytes(8, "little") + text
    path.write_bytes(whole + container.hashlib.blake2b(whole, digest_size=16).digest())
    with pytest.raises(CheckpointError, match="cut short or changed"):
        read(path)


def forge(path: Path, header: object) -> None:
    from tallchain.checkpoints import container

    text = json.dumps(header).encode()
    whole = container._MAGIC + len(text).to_bytes(8, "little") + text + bytes(8)
    path.write_bytes(whole + container.hashlib.blake2b(whole, digest_size=16).digest())


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        read(tmp_path / "nothing")


@pytest.mark.parametrize("most", [0, 2**28])
def test_draws_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Mapped into memory, and read as a whole."""
    monkeypatch.setattr("tallchain.checkpoints.draws._IN_MEMORY", most)
    words = np.random.default_rng(0).integers(0, 2**32, (3, 10, 2), dtype=np.uint32)
    file = DrawsFile(tmp_path / "draws", (3, 10, 2))
    file.write(1, 0, words[1, :4])
    file.write(0, 0, words[0, :1])
    file.write(1, 4, words[1, 4:5])
    file.flush()
    found, counts = file.array, np.array([1, 5, 0])
    np.testing.assert_array_equal(found[1, :5], words[1, :5])
    np.testing.assert_array_equal(found[0, :1], words[0, :1])
    assert not found[2].any()
    again = DrawsFile(tmp_path / "draws", (3, 10, 2), file.sums)
    again.check(counts)
    again.write(2, 0, words[2])
    again.check(np.array([1, 5, 10]))
    with pytest.raises(CheckpointError, match="chain 1 is not right"):
        again.check(np.array([1, 6, 10]))
    for each in (file, again):
        each.close()
    np.testing.assert_array_equal(found[1, :5], words[1, :5])  # after the file was closed
