"""Packed tables: every row once, in random order, in shards of equal length; and nothing that only looks whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from conftest import SEED
from tallchain.sources import out_of_core
from tallchain.sources.manifest import Manifest, PackError, column_file
from tallchain.sources.out_of_core import checksum_of, pack_blocks

ROWS = 20_000


def blocks_of(count: int, size: int = 1000) -> Callable[[], Iterator[Mapping[str, np.ndarray]]]:
    """A sorted table: each column tells the number of its row."""

    def blocks() -> Iterator[Mapping[str, np.ndarray]]:
        for first in range(0, count, size):
            number = np.arange(first, min(first + size, count), dtype=np.int64)
            x = np.stack([number, -number], 1).astype(np.float32)
            yield {"number": number, "x": x, "y": (number % 2).astype(bool)}

    return blocks


def read(folder: Path, name: str) -> list[np.ndarray]:
    return [np.load(folder / shard.folder / f"{name}.npy") for shard in Manifest.read(folder).shards]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "rows"
    levels = {"y": ("no", "yes")}
    pack_blocks(blocks_of(ROWS), folder, num_rows=ROWS, num_shards=7, seed=SEED, levels=levels)
    return folder


def test_every_row_comes_once_and_its_columns_stay_together(packed: Path) -> None:
    number, x, y = (np.concatenate(read(packed, name)) for name in ("number", "x", "y"))
    np.testing.assert_array_equal(np.sort(number), np.arange(ROWS))
    np.testing.assert_array_equal(x, np.stack([number, -number], 1).astype(np.float32))
    np.testing.assert_array_equal(y, number % 2 == 1)
    manifest = Manifest.read(packed)
    assert manifest.num_rows == ROWS
    assert {shard.num_rows for shard in manifest.shards} == {ROWS // 7, ROWS // 7 + 1}
    assert manifest.columns["x"] == ("<f4", (2,), None)
    assert manifest.columns["y"].levels == ("no", "yes")
    for shard, of in zip(manifest.shards, read(packed, "x"), strict=True):
        assert shard.checksums["x"] == checksum_of(of)
    assert not [each for each in packed.parent.iterdir() if each != packed]


def test_sorted_rows_come_in_random_order(packed: Path) -> None:
    shards = read(packed, "number")
    assert min(stats.kstest(shard / ROWS, "uniform").pvalue for shard in shards) > 1e-4
    pairs = np.concatenate([np.stack([shard[:-1], shard[1:]]) for shard in shards], 1)
    assert abs(np.corrcoef(pairs)[0, 1]) < 4.5 / np.sqrt(ROWS)
    # In which shard a row is says nothing of the shard of the next.
    where = np.empty(ROWS, int)
    for number, shard in enumerate(shards):
        where[shard] = number
    table = np.histogram2d(where[:-1], where[1:], 7)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_the_check_of_order_finds_rows_that_were_not_shuffled() -> None:
    parts = np.array_split(np.arange(ROWS), 7)
    assert max(stats.kstest(part / ROWS, "uniform").pvalue for part in parts) < 1e-4


def test_every_division_into_shards_is_equally_likely(tmp_path: Path) -> None:
    """Of 4 rows in blocks of 3 and 1 into two shards: 6 divisions."""
    seen = []
    for seed in range(600):
        folder = tmp_path / str(seed)
        pack_blocks(blocks_of(4, 3), folder, num_rows=4, num_shards=2, seed=seed)
        seen.append(tuple(np.sort(read(folder, "number")[0])))
    counts = [seen.count(each) for each in sorted(set(seen))]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_seed_alone_determines_the_order(tmp_path: Path, packed: Path) -> None:
    for seed, is_same in ((SEED, True), (SEED + 1, False)):
        pack_blocks(blocks_of(ROWS), tmp_path / str(seed), num_rows=ROWS, num_shards=7, seed=seed)
        assert all(map(np.array_equal, read(tmp_path / str(seed), "number"), read(packed, "number"))) == is_same
        assert Manifest.read(tmp_path / str(seed)).checksum == Manifest.read(packed).checksum  # of the same rows


def test_memory_decides_how_many_shards_there_are(tmp_path: Path) -> None:
    found = pack_blocks(blocks_of(ROWS), tmp_path / "rows", num_rows=ROWS, memory=4 * 24 * 5000)
    assert len(found.shards) == 4
    assert len(pack_blocks(blocks_of(3), tmp_path / "few", num_rows=3, num_shards=9).shards) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_rows": ROWS - 1}, "have more rows than that"),
        ({"num_rows": ROWS + 1}, "the blocks have 20,000 rows"),
        ({"num_rows": 0}, "must be a whole number, at least 1; got 0"),
        ({"memory": "4GB"}, "must be a whole number"),
        ({"seed": -1}, "at least 0"),
        ({"blocks": lambda: iter([{"t": np.array(["a"])}])}, "column 't' must hold numbers; got <U1"),
        ({"blocks": lambda: iter([{"t": np.zeros(1)}, {"t": np.zeros(1, np.float32)}])}, "a block has columns"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    given = {"blocks": blocks_of(ROWS), "num_rows": ROWS} | options
    with pytest.raises((PackError, ValueError), match=said):
        pack_blocks(given.pop("blocks"), tmp_path / "rows", **given)
    assert not list(tmp_path.iterdir())


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    for output in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(PackError, match="exists already"):
            pack_blocks(blocks_of(3), output, num_rows=3)


def test_a_row_that_is_lost_on_the_way_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fromfile = np.fromfile
    monkeypatch.setattr(out_of_core.np, "fromfile", lambda *given: np.repeat(fromfile(*given)[:1], 3))
    with pytest.raises(PackError, match="their checksum differs"):
        pack_blocks(blocks_of(3), tmp_path / "rows", num_rows=3, num_shards=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "ended early"), ("{", "no manifest"), ('{"format": 9}', "format is not 1"), ("[]", "no man")],
)
def test_what_is_no_packed_table_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(PackError, match=said):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held.update(num_rows=ROWS + 1), "its shards have 20,000 rows, and the table 20,001"),
        (lambda held: held.update(num_rows=10**18), "its shards have 20,000 rows"),
        (lambda held: held["shards"].pop(), "its shards have"),
        (lambda held: held["shards"].clear(), "must have rows, columns and shards"),
        (lambda held: held["shards"][0].update(folder="../other"), "not in a folder of the table"),
        (lambda held: held["shards"][0].update(folder=held["shards"][1]["folder"]), "in one folder"),
        (lambda held: held["shards"][0].update(num_rows=-1), "has -1 rows"),
        (lambda held: held["shards"][0]["checksums"].pop("x"), "not all columns"),
        (lambda held: held["columns"]["x"].update(dtype="O"), "holds no numbers"),
        (lambda held: held["columns"]["x"].update(dtype="<f9"), "not understood"),
        (lambda held: held["columns"]["x"].update(shape=[-1]), "holds no numbers"),
        (lambda held: held.update(design=5), "its design is none"),
    ],
)
def test_a_manifest_that_does_not_agree_with_itself_is_refused(
    tmp_path: Path, packed: Path, change: Callable[[Any], Any], said: str
) -> None:
    held = json.loads((packed / "manifest.json").read_text())
    change(held)
    (tmp_path / "manifest.json").write_text(json.dumps(held))
    with pytest.raises(PackError, match=said):
        Manifest.read(tmp_path)


def test_names_of_columns_are_no_paths(tmp_path: Path) -> None:
    names = ["../up", "a/b", "..", "50%", "ü", "x\0y"]
    blocks = [{name: np.arange(3, dtype=np.int32) for name in names}]
    manifest = pack_blocks(lambda: blocks, tmp_path / "rows", num_rows=3)
    files = sorted(each.name for each in (tmp_path / "rows" / "00000").iterdir())
    assert files == sorted(map(column_file, manifest.columns))
    assert column_file("a/b") == "a%2Fb.npy"
    assert len(files) == len(names)
    for name in ("", "x" * 252, "\ud800"):
        with pytest.raises(PackError, match="Rename it"):
            column_file(name)


def test_where_a_table_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a link, but not in place of the current folder; and not with more files than a process may open."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    pack_blocks(blocks_of(3), tmp_path / "link", num_rows=3)
    assert (tmp_path / "link").is_symlink()
    assert Manifest.read(tmp_path / "real").num_rows == 3
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(PackError, match="the current folder"):
        pack_blocks(blocks_of(3), ".", num_rows=3)
    with pytest.raises(PackError, match=r"1,001 shards are too many; .* 2,016 bytes of memory do"):
        pack_blocks(blocks_of(20_001), tmp_path / "rows", num_rows=20_001, num_shards=1001)


def test_one_process_at_a_time_packs_into_a_folder(tmp_path: Path) -> None:
    """The first goes on unharmed."""

    def blocks() -> Iterator[Mapping[str, np.ndarray]]:
        with pytest.raises(PackError, match="another process is packing"):
            pack_blocks(blocks_of(3), tmp_path / "rows", num_rows=3)
        yield from blocks_of(ROWS)()

    assert pack_blocks(blocks, tmp_path / "rows", num_rows=ROWS).num_rows == ROWS
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]


def test_a_kill_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    """And the next run cleans up after it."""
    code = f"""
import os, sys, time
sys.path[:0] = {[str(Path(__file__).parents[1]), str(Path(__file__).parent)]!r}
from test_out_of_core import blocks_of
from tallchain.sources.out_of_core import pack_blocks
def report(what, rows):
    if what.startswith("shuffling"):
        print("ready", flush=True)
        time.sleep(60)
pack_blocks(blocks_of({ROWS}), {str(tmp_path / "rows")!r}, num_rows={ROWS}, num_shards=3, report=report)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == b"ready"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "rows").exists()
    assert len(list(tmp_path.iterdir())) == 1
    pack_blocks(blocks_of(ROWS), tmp_path / "rows", num_rows=ROWS, num_shards=3)
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]
    assert json.loads((tmp_path / "rows" / "manifest.json").read_text())["num_rows"] == ROWS
