"""Several processes: the draws of one, and an end for all if one of them fails, hangs or does something else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import SEED
from killed import KINDS_OF_SEVERAL
from tallchain.checkpoints import container

pytest.importorskip("typer")
SCRIPT = Path(__file__).with_name("crew_script.py")


def launched(what: str, output: Path, processes: int, devices: int = 1) -> subprocess.CompletedProcess[str]:
    return launch(processes, [SCRIPT, what, output], XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}")


def launch(processes: int, words: list[Any], **environment: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    command = [sys.executable, "-m", "tallchain", "launch", "--processes", str(processes), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def same_draws(what: str, folder: Path) -> None:
    one, several = (folder / name for name in ("one", "several"))
    for output, processes, devices in ((one, 1, 1), (several, 2, 2)):
        done = launched(what, output, processes, devices)
        assert done.returncode == 0, done.stderr
    with np.load(f"{one}-0.npz") as wanted:
        for rank in (0, 1):
            with np.load(f"{several}-{rank}.npz") as found:
                for name, values in wanted.items():
                    if name == "devices":
                        assert list(found[name]) == [2, 2]
                    elif name.startswith("about"):  # by rounding, and by the place of the bins
                        np.testing.assert_allclose(found[name], values, rtol=2e-3, atol=1e-6)
                    elif name == "notes":
                        assert "on one device" in str(values)
                        assert "on 4 devices of 2 processes" in str(found[name])
                    else:
                        np.testing.assert_array_equal(found[name], values)


def test_two_processes_with_two_devices_give_the_draws_of_one(tmp_path: Path) -> None:
    """Rows divided among four devices, and chains alone."""
    same_draws("draws", tmp_path)


@pytest.mark.slow
def test_so_do_long_runs(tmp_path: Path) -> None:
    """From a checkpoint that only one process sees; and moments, which each process gathers of its own chains."""
    same_draws("long", tmp_path)


@pytest.mark.slow
def test_what_the_first_process_refuses_is_refused_by_all(tmp_path: Path) -> None:
    done = launched("refused", tmp_path / "out", 2)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        said = np.load(tmp_path / f"out-{rank}.npz")["said"].tolist()
        for text, words in zip(
            said,
            (
                "holds another run. num_chains: 32 in the checkpoint, 16 in this call",
                "cannot be written",
                "another process is working on the checkpoint",
                "the checksum of the draws of chain 0 is not right",
                "state was cut short or changed",
                "manifest was cut short or changed",
            ),
            strict=True,
        ):
            assert words in text
            assert text.startswith("process 0: " if rank else "")


@pytest.mark.slow
def test_so_does_a_mixed_model(tmp_path: Path) -> None:
    same_draws("mixed", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words", "most"),
    [
        ("data", "is not the same on all processes: kernel.source.data", 60),
        ("scan", "is not the same on all processes: scan: 8 in process 1, 0 in this call", 60),
        ("schedule", "is not the same on all processes: schedule.scale: ", 60),
        ("raise", "process 1 failed: SamplingError: Sampling failed: RuntimeError('out of luck')", 60),
        ("first", "CrewError: process 0 failed: SamplingError: Sampling failed: RuntimeError('out of luck')", 60),
        ("kill", "process 1 was ended by signal 9", 90),
        ("hang", "process 1 has not come to 'a chunk of draws' within 10 s: it hangs", 120),
    ],
)
def test_all_end_if_one_fails(tmp_path: Path, what: str, words: str, most: float) -> None:
    began = time.monotonic()
    done = launched(what, tmp_path / what, 2)
    assert done.returncode != 0
    assert words in done.stderr
    assert time.monotonic() - began < most
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_all_are_told_that_the_disk_of_the_first_is_full(tmp_path: Path) -> None:
    done = launched("full", tmp_path / "out", 2)
    assert done.returncode != 0
    for said in ("CheckpointError(", "CrewError("):
        assert f'SamplingError: Sampling failed: {said}"' in done.stderr
    assert done.stderr.count("No space left on device") > 2


def made_in(folder: Path) -> int:
    """How many draws a checkpoint has, of all chains."""
    return sum(int(container.read(state)[1]["draw"].sum()) for state in folder.rglob("state"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_OF_SEVERAL)
def test_a_run_that_is_killed_goes_on(tmp_path: Path, kind: str) -> None:
    """At random: while importing, compiling, drawing and writing."""
    chance, script, out = random.Random(SEED), SCRIPT.with_name("killed.py"), tmp_path / "RANK.npz"
    one = launch(1, [script, kind, "-", tmp_path / "whole.npz"])
    assert one.returncode == 0, one.stderr
    for who in ("01", "1", "01", "0", "01", "01"):
        seconds, began = chance.uniform(3.0, 12.0), time.monotonic()
        launch(2, [script, kind, tmp_path / "run", out], KILLED=f"{who} {seconds}")
        assert time.monotonic() - began < seconds + 60
        print(f"{kind}: killed after {seconds:.1f} s, {made_in(tmp_path / 'run')} draws were made")
    done = launch(2, [script, kind, tmp_path / "run", out])
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "whole.npz") as whole:
        for rank in (0, 1):
            with np.load(tmp_path / f"{rank}.npz") as found:
                for name, values in whole.items():
                    np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.slow
def test_an_interrupt_of_one_ends_the_run_of_all(tmp_path: Path) -> None:
    done = launched("interrupt", tmp_path / "out", 2)
    assert done.returncode == 0, done.stderr
    held = [np.load(tmp_path / f"out-{rank}.npz") for rank in (0, 1)]
    assert all(of["is_interrupted"] for of in held)
    np.testing.assert_array_equal(held[0]["position"], held[1]["position"])
