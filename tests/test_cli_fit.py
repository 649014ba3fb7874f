"""The commands of a fit, from a table to the audit: what they print, write and return, and what they leave alone."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallchain
from commands import call, text
from conftest import SEED
from tallchain import fit_commands
from tallchain.checking.faults import SamplingError
from tallchain.fitting import running
from tallchain.fitting.saving import DRAWS, FACTS

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("formulaic")

N = 1_500
FILES = [DRAWS, FACTS, "report.html", "summary.csv"]
FORMULA = "late ~ distance + (1 | carrier)"
QUICK = ("--family", "bernoulli", "--draws", 200, "--chains", 4, "--no-progress")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, new rows of it, and one with missing values."""
    folder = tmp_path_factory.mktemp("tables")
    random = np.random.default_rng(SEED)
    rows = pd.DataFrame({"distance": random.normal(size=N), "carrier": random.choice(["A", "B", "C", "D", "E"], N)})
    chance = 1 / (1 + np.exp(-rows["distance"] + (rows["carrier"] == "B")))
    rows["late"] = (random.random(N) < chance).astype(int)
    rows.to_parquet(folder / "rows.parquet")
    rows.head(7).to_csv(folder / "new.csv", index=False)
    rows.assign(distance=rows["distance"].where(rows.index % 100 != 3)).to_csv(folder / "gaps.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def done(tables: Path) -> tuple[Path, str]:
    """The folder of a fit, and what the command printed."""
    result = call("fit", tables / "rows.parquet", FORMULA, *QUICK, "--output", tables / "fit")
    assert result.exit_code == 0, result.output
    return tables / "fit", result.output


@pytest.fixture
def folder(done: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(done[0], tmp_path / "fit"))


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work was begun")

    monkeypatch.setattr(running, "drawn", work)


def error_of(*arguments: object) -> str:
    """Return the one line that a command with bad input says."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert not result.stdout
    (line,) = result.stderr.splitlines()
    return line.removeprefix("Error: ")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- what they do ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["fit", "predict", "summary", "check"])
def test_help_explains_every_option_and_has_an_example(command: str) -> None:
    words = text(call(command, "--help").output)
    arguments = {"fit": {"rows", "formula"}, "predict": {"fit", "rows"}, "summary": {"fit"}, "check": {"fit", "rows"}}
    for name in getattr(fit_commands, command).__annotations__.keys() - {"return"} - arguments[command]:
        assert re.search(rf"--{name.replace('_', '-')}\b[^-]* [A-Z]\w*", words), name
    assert f"tallchain {command} f" in words


def test_fit_writes_a_folder_and_prints_the_summary(done: tuple[Path, str], tables: Path) -> None:
    folder, output = done
    assert names_in(folder) == FILES
    for words in (FORMULA, "(intercept)", "distance", "sd(carrier)", "carrier[E]", "trust", f"written    {folder}"):
        assert words in output
    found = json.loads((folder / FACTS).read_text())
    assert found["facts"]["formula"] == FORMULA
    assert found["facts"]["seed"] == 0
    assert found["facts"]["num_rows"] == N
    assert found["facts"]["checksum"] == tallchain.tables.open_table(tables / "rows.parquet").checksum()
    assert "distance" in pd.read_csv(folder / "summary.csv", index_col="parameter").index
    assert tallchain.Fit.load(folder).trace.num_chains == 4


def test_summary_says_the_same_again(done: tuple[Path, str]) -> None:
    folder, output = done
    result = call("summary", folder)
    assert result.exit_code == 0
    assert result.output.strip() == output.split("\n\nwritten")[0].strip()
    assert "carrier[C]" in call("summary", folder, "--effects").output
    facts = json.loads(call("summary", folder, "--json").stdout)
    assert facts == json.loads((folder / FACTS).read_text())["facts"]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_predict(done: tuple[Path, str], tables: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"new{ending}"
    result = call("predict", done[0], tables / "new.csv", "--output", path, "--interval", 0.5)
    assert result.exit_code == 0, result.output
    assert result.output.strip() == f"written    {path}: 7 rows"
    found = pd.read_csv(path) if ending == ".csv" else pd.read_parquet(path)
    expected = tallchain.Fit.load(done[0]).predict(tables / "new.csv", 0.5).to_pandas()
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-6)
    assert names_in(tmp_path) == [path.name]


def test_predict_draws_effects_of_new_groups_only_when_asked(
    done: tuple[Path, str], tables: Path, tmp_path: Path
) -> None:
    pd.read_csv(tables / "new.csv").assign(carrier="ZZ").to_csv(tmp_path / "other.csv", index=False)
    options = ("predict", done[0], tmp_path / "other.csv", "--output", tmp_path / "a.csv")
    assert "ZZ" in error_of(*options)
    assert names_in(tmp_path) == ["other.csv"]
    result = call(*options, "--new-levels", "draw")
    assert result.exit_code == 0
    assert "1 level of carrier was not in the fitted data: ZZ." in result.stdout
    assert len(pd.read_csv(tmp_path / "a.csv")) == 7


@pytest.mark.slow
def test_check_audits_and_writes_what_it_found(folder: Path, tables: Path) -> None:
    result = call("check", folder, tables / "rows.parquet", "--decisions", 10, "--json", "--no-progress")
    assert result.exit_code in (0, 3), result.output
    assert json.loads(result.stdout)["num_decisions"] == 10
    assert names_in(folder) == FILES
    again = tallchain.Fit.load(folder)
    assert again.facts.trust.audited_error is not None
    assert again.facts.trust.is_sound == (result.exit_code == 0)
    assert "an audit found" in str(again)


def test_missing_values_are_refused(tables: Path, tmp_path: Path, no_work: None) -> None:
    said = error_of("fit", tables / "gaps.csv", "late ~ distance", *QUICK, "--output", tmp_path / "fit")
    assert "'distance' 15 (the first in row 3)" in said
    assert names_in(tmp_path) == []


@pytest.mark.slow
def test_json_is_all_that_is_printed_and_missing_values_are_dropped_when_asked(tables: Path, tmp_path: Path) -> None:
    arguments = ("fit", tables / "gaps.csv", "late ~ distance", *QUICK, "--output", tmp_path / "fit")
    result = call(*arguments, "--drop-missing", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["num_dropped"] == 15
    assert facts["dropped"] == {"distance": 15}
    assert facts["num_rows"] == N - 15
    assert names_in(tmp_path / "fit") == FILES


def test_a_fit_is_replaced_only_when_asked(folder: Path, tables: Path, no_work: None) -> None:
    before = (folder / FACTS).read_bytes()
    said = error_of("fit", tables / "rows.parquet", FORMULA, *QUICK, "--output", folder)
    assert "has a fit already" in said
    assert "--overwrite" in said
    assert (folder / FACTS).read_bytes() == before


@pytest.mark.slow
def test_overwrite(folder: Path, tables: Path) -> None:
    options = ("--output", folder, "--overwrite", "--seed", 7)
    assert call("fit", tables / "rows.parquet", FORMULA, *QUICK, *options).exit_code == 0
    assert tallchain.Fit.load(folder).facts.seed == 7


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "options", "words"),
    [
        ("late ~ distanc", (), ["no column", "'distance'"]),
        ("late ~ import_(x)", (), ["import_"]),
        ("carrier ~ distance", (), ["two levels", "got 5"]),
        ("late ~ distance", ("--family", "bernouli"), ["bernoulli"]),
        ("late ~ distance", ("--weights", "wait"), ["no column", "wait"]),
        ("late ~ distance", ("--prior-sd", "-1"), ["sd"]),
        ("late ~ distance", ("--max-seconds", "0"), ["max_seconds"]),
    ],
)
def test_a_bad_call_is_refused_in_a_line(
    tables: Path, tmp_path: Path, no_work: None, formula: str, options: tuple[object, ...], words: list[str]
) -> None:
    said = error_of("fit", tables / "rows.parquet", formula, *QUICK, *options, "--output", tmp_path / "a" / "fit")
    assert all(word in said for word in words), said
    assert names_in(tmp_path) == []


def test_bad_files_are_refused_in_a_line(tables: Path, tmp_path: Path, no_work: None) -> None:
    whole = (tables / "rows.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.csv").touch()
    (tmp_path / "names.csv").write_text("late,distance\n")
    (tmp_path / "rows.xlsx").touch()
    for name, words in (
        ("cut.parquet", "not a whole Parquet file"),
        ("empty.csv", "is empty"),
        ("names.csv", "no rows"),
        ("rows.xlsx", "must end in"),
        ("cut.parque", "nearest: 'cut.parquet'"),
    ):
        assert words in error_of("fit", tmp_path / name, "late ~ distance", *QUICK, "--output", tmp_path / "fit")
    assert not (tmp_path / "fit").exists()


def test_no_fit_no_summary(tmp_path: Path, tables: Path) -> None:
    assert f"has no {FACTS}" in error_of("summary", tmp_path)
    assert f"has no {FACTS}" in error_of("predict", tmp_path, tables / "new.csv", "--output", tmp_path / "a.csv")
    assert f"has no {FACTS}" in error_of("check", tmp_path / "none", tables / "rows.parquet")
    assert names_in(tmp_path) == []


def test_another_table_is_not_audited(done: tuple[Path, str], tables: Path) -> None:
    assert "not the table that was fitted" in error_of("check", done[0], tables / "gaps.csv", "--no-progress")


def test_another_test_is_not_audited(done: tuple[Path, str], tables: Path) -> None:
    said = error_of("check", done[0], tables / "rows.parquet", "--no-progress", "--test", "metropolis")
    assert "Metropolis" in said


def test_the_ending_of_predictions(done: tuple[Path, str], tables: Path, tmp_path: Path) -> None:
    said = error_of("predict", done[0], tables / "new.csv", "--output", tmp_path / "a.xlsx")
    assert "--output must end in .csv or .parquet" in said


# ---- folders that cannot be written ------------------------------------------------------------


def test_a_folder_without_permission(
    tables: Path, tmp_path: Path, no_work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "fit"))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    said = error_of("fit", tables / "rows.parquet", FORMULA, *QUICK, "--output", tmp_path / "new" / "fit")
    assert "Permission denied" in said
    assert names_in(tmp_path) == []


def test_a_folder_below_a_file(tables: Path, tmp_path: Path, no_work: None) -> None:
    (tmp_path / "file").touch()
    for output in (tmp_path / "file" / "fit", tmp_path / "file"):
        said = error_of("fit", tables / "rows.parquet", FORMULA, *QUICK, "--output", output)
        assert said.startswith(f"{output} cannot be written: ")
    assert names_in(tmp_path) == ["file"]


def full_disk(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", ["tallchain.fitting.saving.datatree", "tallchain.fitting.page.page_of"])
def test_a_full_disk_leaves_the_fit_that_was_there(
    folder: Path, tables: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit must not cost the fit."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(step, full_disk)
    said = error_of("check", folder, tables / "rows.parquet", "--decisions", 10, "--no-progress")
    assert said.startswith(f"{folder} cannot be written: No space left on device.")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# ---- interruptions -----------------------------------------------------------------------------


def test_a_fault_keeps_the_draws(tables: Path, done: tuple[Path, str], tmp_path: Path, monkeypatch: Any) -> None:
    trace = tallchain.Fit.load(done[0]).trace

    def fail(*_: object, **__: object) -> None:
        raise SamplingError("The device has failed.", trace)

    monkeypatch.setattr(tallchain, "fit", fail)
    result = call("fit", tables / "rows.parquet", FORMULA, *QUICK, "--output", tmp_path / "fit")
    assert result.exit_code == 2
    assert "The device has failed." in result.stderr
    assert names_in(tmp_path / "fit") == [DRAWS]


def test_ctrl_c_before_the_first_draw(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["tallchain.fitting.fit"], "prepare", interrupt)
    result = call("fit", tables / "rows.parquet", FORMULA, *QUICK, "--output", tmp_path / "fit")
    assert result.exit_code == 130
    assert "nothing was written" in result.stderr
    assert names_in(tmp_path) == []


@pytest.mark.slow
def test_ctrl_c_keeps_the_draws(tables: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fit"
    arguments = ("fit", tables / "rows.parquet", FORMULA, *QUICK, "--draws", 10**6, "--output", folder)
    command = [sys.executable, "-m", "tallchain", *(str(each) for each in arguments if each != "--no-progress")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "draws" in line:
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "interrupted" in output
    assert names_in(folder) == FILES
    assert tallchain.Fit.load(folder).trace.is_interrupted
