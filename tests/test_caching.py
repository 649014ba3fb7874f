"""Programs kept on disk: found by the next process, and only where they are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import tallchain as tc

PROGRAM = """
import jax, tallchain as tc
before = dict(jax.config.values)
events = []
jax.monitoring.register_event_listener(lambda event, **facts: events.append(event))
import tallchain
assert dict(jax.config.values) == before  # importing it changes nothing
print(tc.cache_programs())
jax.jit(lambda x: x * 3 + 1)(2.0)
print(sum(event.endswith("cache_hits") for event in events), sum(event.endswith("cache_misses") for event in events))
"""


def run(folder: Path, **settings: str) -> list[str]:
    unset = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    environment = unset | {"TALLCHAIN_CACHE": str(folder)} | settings
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_next_process_finds_the_programs(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert first[0] == second[0] == str(tmp_path / "programs")
    assert first[1].split()[0] == "0"
    assert second[1].split()[1] == "0"
    assert int(second[1].split()[0]) > 0


def test_a_folder_that_jax_has_already_is_kept(tmp_path: Path) -> None:
    assert run(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"))[0] == str(tmp_path / "mine")
    assert not (tmp_path / "programs").exists()


@pytest.fixture
def _settings_are_restored() -> object:
    names = [name for name in jax.config.values if "cache" in name]
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("_settings_are_restored")
def test_a_folder_of_ones_own_and_one_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tc.cache_programs(tmp_path / "here") == tmp_path / "here"
    assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "here")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert tc.cache_programs(tmp_path / "read only") is None
    (tmp_path / "file").touch()
    assert tc.cache_programs(tmp_path / "file" / "below") is None
    assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "here")
