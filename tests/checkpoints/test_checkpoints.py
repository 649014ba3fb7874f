"""Runs that go on from a checkpoint make the draws of a run that was not interrupted; others are refused."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from killed import KINDS, kill_until_done, numbers_of
from tallchain.checkpoints import Folder

CHAINS, DRAWS = 8, 60
DATA = np.random.default_rng(SEED).normal(size=2000).astype(np.float32)
POSTERIOR = tc.Posterior(lambda t: -0.5 * t["b"] ** 2 - t["a"] @ t["a"], lambda t, x: -0.5 * (x - t["b"]) ** 2)
KERNEL = tc.MetropolisHastings(POSTERIOR, tc.Shuffled(DATA, 50), proposal=tc.RandomWalk(0.05))
START = {"b": np.float32(0), "a": np.zeros(2, np.float32)}  # not in the order in which JAX has them


def sample(folder: Path | None = None, **changes: Any) -> tc.Trace:
    options: dict[str, Any] = {"num_chains": CHAINS, "scan": 0, "progress": False, "chunk_size": 4}
    options |= {"key": jax.random.key(SEED), "kernel": KERNEL, "initial": START, "num_samples": DRAWS}
    return tc.sample(**options | {"checkpoint": folder} | changes)


def stop_after(draws: int) -> Callable[[int, int], None]:
    def report(done: int, _: int) -> None:
        if done >= draws:
            raise KeyboardInterrupt

    return report


def assert_same(one: tc.Trace, other: tc.Trace) -> None:
    there = numbers_of(other)
    for name, of in numbers_of(one).items():
        np.testing.assert_array_equal(of, there[name], err_msg=name)


@pytest.fixture(scope="module")
def whole() -> tc.Trace:
    return sample()


@pytest.mark.filterwarnings("ignore:Chains? .* left out")  # how far they are is a matter of time
def test_a_run_goes_on_from_wherever_it_stopped(tmp_path: Path, whole: tc.Trace) -> None:
    for stop in (1, 100, 300):
        part = sample(tmp_path, progress=stop_after(stop))
        assert part.is_interrupted
        chains = np.setdiff1d(np.arange(CHAINS), list(part.left_out))
        np.testing.assert_array_equal(part.position["a"], whole.position["a"][chains, : part.num_draws])
    assert not sample(tmp_path).is_interrupted
    found = sample(tmp_path)  # nothing is left to do
    assert_same(found, whole)
    assert list(found.position) == ["b", "a"]
    assert found.seconds > 0
    assert found.compile_seconds >= 0
    assert found.decisions == whole.decisions


def test_resume_needs_only_the_folder_and_the_kernel(tmp_path: Path, whole: tc.Trace) -> None:
    sample(tmp_path, progress=stop_after(200))
    found = tc.resume(tmp_path, KERNEL, scan=0, progress=False)
    assert_same(found, whole)
    assert list(found.position) == ["b", "a"]


@pytest.mark.parametrize(
    "options",
    [
        {"thin": 3, "num_warmup": 10},
        {"keep": "moments", "thin": 2},
        pytest.param({"adapt": True, "num_warmup": 80}, marks=pytest.mark.slow),
    ],
    ids=["thinned", "moments", "adapted"],
)
def test_whatever_is_recorded(tmp_path: Path, options: dict[str, Any]) -> None:
    expected = sample(**options)
    for stop in (50, 250, 450):
        with contextlib.suppress(KeyboardInterrupt):  # in the warm-up, there is no trace
            sample(tmp_path, progress=stop_after(stop), **options)
    found = sample(tmp_path, **options)
    assert_same(found, expected)
    assert found.warmup == expected.warmup
    assert found.decisions == expected.decisions
    if expected.moments is not None and found.moments is not None:
        assert found.moments.num_draws == expected.moments.num_draws
        np.testing.assert_allclose(found.moments.mean, expected.moments.mean, atol=1e-5)
        np.testing.assert_allclose(found.moments.sd, expected.moments.sd, rtol=1e-4)
        np.testing.assert_allclose(found.moments.covariance, expected.moments.covariance, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Chains? .* left out")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_samples": 61}, "num_samples: 60 in the checkpoint, 61 in this call"),
        ({"key": jax.random.key(SEED + 1)}, "key: "),
        ({"initial": START | {"b": np.float32(1)}}, "initial"),
        ({"kernel": tc.MetropolisHastings(POSTERIOR, tc.Shuffled(DATA + 1, 50), proposal=tc.RandomWalk(0.05))}, "data"),
        ({"kernel": tc.MetropolisHastings(POSTERIOR, tc.Shuffled(DATA, 50), proposal=tc.RandomWalk(0.06))}, "proposal"),
        ({"num_chains": 4}, "num_chains: 8 in the checkpoint, 4 in this call"),
        ({"keep": "moments"}, "keep: "),
        ({"checkpoint": 3}, "must be the name of a folder; got 3"),
    ],
)
def test_another_run_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    sample(tmp_path, progress=stop_after(1))
    with pytest.raises((tc.CheckpointError, TypeError), match=said):
        sample(**{"checkpoint": tmp_path} | changes)


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample(tmp_path, progress=stop_after(100))
    monkeypatch.setattr("tallchain.resuming.versions", lambda: {"jax": "0.0.1"})
    with pytest.raises(tc.CheckpointError, match=r"jax: \S+ in the checkpoint, 0\.0\.1 in this call"):
        sample(tmp_path)


def test_a_folder_in_use_or_of_others_is_refused(tmp_path: Path) -> None:
    with Folder("other", tmp_path / "used"), pytest.raises(tc.CheckpointError, match="another process is working"):
        sample(tmp_path / "used")
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(tc.CheckpointError, match=r"has other files, such as 'thesis\.tex'"):
        sample(tmp_path)
    with pytest.raises(tc.CheckpointError, match="is a file; a checkpoint is a folder"):
        sample(tmp_path / "thesis.tex")
    with pytest.raises(tc.CheckpointError, match="cannot be written"):
        sample(Path("/proc/run"))
    with pytest.raises(tc.CheckpointError, match="holds no checkpoint"):
        tc.resume(tmp_path / "nothing", KERNEL)


def test_files_that_were_changed_are_refused(tmp_path: Path) -> None:
    sample(tmp_path, progress=stop_after(200))
    for name, said in (("state", "changed"), ("manifest", "changed"), ("draws.bin", "draws of chain 0 is not right")):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        with pytest.raises(tc.CheckpointError, match=said):
            sample(tmp_path)
        (tmp_path / name).write_bytes(whole[: len(whole) // 20])
        with pytest.raises(tc.CheckpointError, match=r"cut short or changed"):
            sample(tmp_path)
        (tmp_path / name).write_bytes(whole)
    os.remove(tmp_path / "draws.bin")
    with pytest.raises(tc.CheckpointError, match="is gone"):
        sample(tmp_path)


def test_a_state_of_another_run_is_refused(tmp_path: Path) -> None:
    sample(tmp_path / "a", progress=stop_after(200))
    sample(tmp_path / "b", progress=stop_after(200), key=jax.random.key(SEED + 1))
    os.replace(tmp_path / "a" / "state", tmp_path / "b" / "state")
    with pytest.raises(tc.CheckpointError, match="belongs to another run"):
        sample(tmp_path / "b", key=jax.random.key(SEED + 1))


@pytest.mark.parametrize("what", ["draws", "state"])
def test_a_full_disk_loses_no_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tc.Trace, what: str) -> None:
    """While draws are written, and while the state is."""
    calls = 0

    def fail(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return before(*given, **named)

    target = (os, "pwrite" if what == "draws" else "replace")
    before = getattr(*target)
    if what == "state":
        calls = 18  # the manifest, and one state
    with monkeypatch.context() as patched:
        patched.setattr(*target, fail)
        with pytest.raises(
            tc.SamplingError, match=r"the checkpoint .* cannot be written: No space left on device"
        ) as raised:
            sample(tmp_path)
    kept = raised.value.trace
    assert kept.num_draws >= 4
    np.testing.assert_array_equal(kept.position["a"], whole.position["a"][:, : kept.num_draws])
    assert_same(sample(tmp_path), whole)


def test_draws_outlive_their_folder(tmp_path: Path, whole: tc.Trace) -> None:
    def remove(done: int, _: int) -> None:
        if done > 200:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

    with pytest.raises(tc.SamplingError, match="cannot be written: No such file or directory") as raised:
        sample(tmp_path / "run", progress=remove)
    kept = raised.value.trace
    assert kept.num_draws >= 4
    np.testing.assert_array_equal(kept.position["a"], whole.position["a"][:, : kept.num_draws])


def test_a_folder_of_links_is_not_followed(tmp_path: Path) -> None:
    """A folder from somebody else must not write to other files, wait for ever, or fill the memory."""
    precious = tmp_path / "precious"
    precious.write_text("thesis")
    sample(tmp_path / "run", progress=stop_after(100))
    for name in ("draws.bin", "lock", "manifest", "state"):
        file, aside = tmp_path / "run" / name, tmp_path / "aside"
        file.rename(aside)
        file.symlink_to(precious)
        with pytest.raises(tc.CheckpointError, match=f"{name} is a link"):
            sample(tmp_path / "run")
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(tc.CheckpointError, match=f"{name} is no plain file"):
            sample(tmp_path / "run")
        aside.rename(file)
    (tmp_path / "run" / ".state.part").symlink_to(precious)
    sample(tmp_path / "run")
    assert precious.read_text() == "thesis"


def test_too_little_room_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(tc.CheckpointError, match=r"take 1\.\de-05 GB, and .* has 1e-06 GB of room"):
        sample(tmp_path)


def test_a_trace_goes_on(whole: tc.Trace) -> None:
    more = sample(initial=whole, key=jax.random.key(SEED + 1), num_chains=1)
    both = whole.extend(more)
    assert both.num_draws == 2 * DRAWS
    assert list(both.position) == ["b", "a"]
    np.testing.assert_array_equal(both.position["b"][:, DRAWS:], more.position["b"])
    assert both.decisions == whole.decisions + more.decisions
    moved = more.position["a"][:, 0] - whole.position["a"][:, -1]
    assert np.all(np.abs(moved) < 0.5)  # a step or none
    for wrong, said in (
        ({"initial": whole}, "made with this key"),
        ({"initial": whole, "key": jax.random.key(5), "num_chains": 3}, "the trace has 8 chains"),
    ):
        with pytest.raises(ValueError, match=said):
            sample(**wrong)
    with pytest.raises(TypeError, match="must be a Trace; got 3"):
        whole.extend(3)  # ty: ignore[invalid-argument-type]
    with pytest.raises(ValueError, match="the chains of both must be the same; got 8 and 4"):
        whole.extend(sample(num_chains=4))


@pytest.mark.parametrize("num_chains", [1, 4])
def test_numbers_that_could_be_a_vector_go_on(tmp_path: Path, num_chains: int) -> None:
    """Four numbers could be one position of four coordinates, for this posterior; where a run goes on, they are not."""
    posterior = tc.Posterior(lambda t: -jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
    kernel = tc.MetropolisHastings(posterior, tc.Shuffled(DATA, 50), proposal=tc.RandomWalk(0.05))
    part = sample(tmp_path, kernel=kernel, initial=0.0, num_chains=num_chains)
    assert_same(tc.resume(tmp_path, kernel, scan=0, progress=False), part)
    more = sample(kernel=kernel, initial=part, num_chains=1, key=jax.random.key(1))
    assert part.extend(more).position.shape == (num_chains, 2 * DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_twenty_times(tmp_path: Path, kind: str) -> None:
    """At random: while importing, compiling, drawing and writing."""
    here = str(Path(__file__).parents[1] / "killed.py")
    subprocess.run([sys.executable, here, kind, "-", str(tmp_path / "whole.npz")], check=True)
    times = kill_until_done(kind, tmp_path / "run", tmp_path / "found.npz", kills=20, seconds=5.0, seed=SEED)
    print(f"{kind}: killed after {', '.join(f'{each:.1f}' for each in times)} s")
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "found.npz") as found:
        assert set(whole.files) == set(found.files)
        for name in whole.files:
            np.testing.assert_array_equal(found[name], whole[name], err_msg=name)
