"""The command `tallchain audit`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from commands import call, text
from tallchain import cli
from tallchain.checking import Audit


def test_help_explains_every_option() -> None:
    help_text = text(call("audit", "--help").output)
    for name in cli.audit.__annotations__.keys() - {"return"}:
        assert re.search(rf"--{name.replace('_', '-')}\b[^-]* [A-Z]\w*", help_text), name


def test_command_prints_and_saves(broken: Audit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = {}

    def audit(kernel: Any, trace: Any, **options: Any) -> Audit:
        asked.update(options, kernel=kernel, trace=trace)
        return broken

    monkeypatch.setattr(cli.tallchain, "sample", lambda *_, **__: "a trace")
    monkeypatch.setattr(cli.tallchain, "audit", audit)
    path = tmp_path / "new" / "numbers.json"
    result = call("audit", "--rows", 1000, "--decisions", 77, "--test", "paper", "--no-progress", "--output", path)
    assert result.exit_code == 0, result.output
    assert asked["num_decisions"] == 77
    assert asked["num_trials"] is None
    assert asked["trace"] == "a trace"
    assert asked["kernel"].acceptance.stopping.terms.grows
    assert "ERROR FOUND" in result.output
    assert "theta_1" in result.output
    assert json.loads(path.read_text())["num_decisions"] == 200
    assert path.with_suffix(".png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("option", "value"), [("--decisions", 1), ("--trials", 1), ("--output", "a.csv"), ("--picture", "a.docx")]
)
def test_command_refuses_a_bad_option_by_name(option: str, value: object, tmp_path: Path) -> None:
    result = call("audit", "--rows", 1000, "--output", tmp_path / "a.json", option, value)
    assert result.exit_code == 2
    assert option in text(result.output)


@pytest.mark.slow
def test_command_from_end_to_end(tmp_path: Path) -> None:
    options = ("--rows", 20_000, "--chains", 16, "--draws", 500, "--warmup", 200, "--decisions", 50, "--trials", 100)
    result = call("audit", *options, "--no-progress", "--output", tmp_path / "a.json")
    assert result.exit_code == 0, result.output
    assert "sweeps over all rows" in result.output
    assert json.loads((tmp_path / "a.json").read_text())["num_rows"] == 20_000
