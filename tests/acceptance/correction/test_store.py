"""Files of correction tables: read back as written, never believed when damaged."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tables import assert_same
from tallchain import files
from tallchain.acceptance import correction
from tallchain.acceptance.correction import (
    minimax,
    ridge,
    store,
)

pytestmark = pytest.mark.usefixtures("table_cache")


@pytest.mark.parametrize(("method", "arguments"), [(minimax, (1.25, 5.0)), (ridge, (1.0, 50, 10.0, 5.0))])
def test_cached_table_is_read_back_identical(
    method, arguments, table_cache: Path, request: pytest.FixtureRequest
) -> None:
    computed = method(*arguments)
    (file,) = table_cache.iterdir()
    assert file.suffix == ".npz"
    request.getfixturevalue("no_solving")
    assert_same(method(*arguments), computed)


@pytest.mark.parametrize("damage", [b"", b"not a zip file", None], ids=["empty", "garbage", "truncated"])
def test_corrupt_file_is_replaced(damage: bytes | None, table_cache: Path) -> None:
    computed = minimax(1.25, 5.0)
    (file,) = table_cache.iterdir()
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2] if damage is None else damage)
    assert_same(minimax(1.25, 5.0), computed)
    assert file.read_bytes()[:4] == good[:4]


def test_flipped_bytes_are_not_believed(table_cache: Path) -> None:
    computed = minimax(1.25, 5.0)
    (file,) = table_cache.iterdir()
    good = bytearray(file.read_bytes())
    for place in range(40, len(good), 97):
        file.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        found = store.load(file, file.stem)
        assert found is None or np.array_equal(found.weights, computed.weights)


def test_another_version_reads_no_stale_file(table_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minimax(1.25, 5.0)
    monkeypatch.setattr(correction, "_VERSION", correction._VERSION + 1)
    minimax(1.25, 5.0)
    assert len(list(table_cache.iterdir())) == 2


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the folder should be: unwritable for everyone, root included."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TALLCHAIN_CACHE", str(tmp_path / "file"))
    assert minimax(1.25, 5.0).sigma == 1.25


def test_machine_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLCHAIN_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert files.cache_folder() is None
    assert minimax(1.25, 5.0).sigma == 1.25


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TALLCHAIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_folder() == tmp_path / "tallchain"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert files.cache_folder() == Path.home() / ".cache" / "tallchain"


def test_failed_write_leaves_nothing_behind(table_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez_compressed", disk_full)
    assert minimax(1.25, 5.0).sigma == 1.25
    assert list(table_cache.iterdir()) == []


def test_build_script_names_what_ships() -> None:
    path = Path(__file__).parents[3] / "scripts" / "build_correction_tables.py"
    spec = importlib.util.spec_from_file_location("build_correction_tables", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    keys = [correction.minimax_key(*setting) for setting in script.MINIMAX]
    keys += [correction.ridge_key(*setting) for setting in script.RIDGE]
    keys += [correction.law_key(law, script.REACH) for law in script.LAWS]
    assert all(store.load(store.SHIPPED, key) is not None for key in keys)
    with np.load(store.SHIPPED) as file:
        assert {name.split("/")[0] for name in file.files} == set(keys)
