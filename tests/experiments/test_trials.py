"""Trials side by side: kept as they go, and continued after an interruption as if there had been none."""

import functools
import os
import signal
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import tallchain as tc
from conftest import SEED
from tallchain.checking.trace import Trace
from tallchain.experiments import trials

DATA = {"x": np.random.default_rng(SEED).normal(size=2000).astype("float32")}


@functools.cache  # so that it is compiled once
def make() -> tuple[tc.MetropolisHastings, np.ndarray]:
    posterior = tc.Posterior(
        lambda theta: jnp.zeros(()), lambda theta, row: -0.5 * (row["x"] - theta[0]) ** 2, temperature=100.0
    )
    kernel = tc.MetropolisHastings(posterior, tc.Shuffled(DATA, 50), proposal=tc.RandomWalk(0.2))
    return kernel, np.linspace(-0.2, 0.2, 3, dtype="float32")[:, None]


def keep(trace: Trace) -> trials.Arrays:
    return trials.rows_and_verdicts(trace) | {"position": trace.position}


def jobs(**config: int) -> list[trials.Job]:
    return [
        trials.Job(name, config, 3, 25, make, keep, (SEED, number), segment=10)
        for number, name in enumerate(("first", "second"))
    ]


def without_seconds(found: dict[str, trials.Arrays]) -> dict[str, trials.Arrays]:
    return {job: {name: of[name] for name in of if name != "seconds"} for job, of in found.items()}


@pytest.fixture(scope="module")
def whole() -> dict[str, trials.Arrays]:
    return trials.run_jobs(jobs(), None)


def test_trials_and_draws_are_the_axes(whole: dict[str, trials.Arrays]) -> None:
    assert {name: of["position"].shape for name, of in whole.items()} == {"first": (3, 25, 1), "second": (3, 25, 1)}
    rows = trials.rows_of(whole["first"])
    by_hand = [np.mean(whole["first"]["rows_read"][trial]) for trial in range(3)]
    assert rows.trials == pytest.approx(by_hand)
    assert rows.sd == pytest.approx(np.sqrt(np.sum((by_hand - np.mean(by_hand)) ** 2) / 2))
    assert rows.scanned == 0
    # A draw of a segment moves on from the last one of the segment before: rejected, it stays.
    for of in whole.values():
        moved = np.any(np.diff(of["position"], axis=1) != 0, axis=2)
        np.testing.assert_array_equal(moved, of["is_accepted"][:, 1:])


@pytest.mark.parametrize(("stop", "num_kept"), [(60, 0), (600, 1), (1300, 3)])
def test_an_interruption_loses_one_segment(
    whole: dict[str, trials.Arrays], tmp_path: Path, stop: int, num_kept: int
) -> None:
    """Stopped after so many thousandths of a job, the same call goes on, and finds what it would have found."""

    def interrupt(done: int, total: int, what: str) -> None:
        assert total == 2000
        if done >= stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trials.run_jobs(jobs(), tmp_path, interrupt)
    kept = {path.name for path in tmp_path.iterdir()}
    assert len(kept) == num_kept
    seen: list[tuple[int, str]] = []
    found = trials.run_jobs(jobs(), tmp_path, lambda done, total, what: seen.append((done, what)))
    for name, of in without_seconds(found).items():
        for part, values in of.items():
            np.testing.assert_array_equal(values, whole[name][part])
    assert (1000, "second, 3 repetitions, 0 of 25 draws") in seen
    assert seen[-1] == (2000, "done")


def test_ctrl_c_in_the_last_chunk_of_a_segment_is_not_swallowed(tmp_path: Path) -> None:
    def press(done: int, total: int, what: str) -> None:
        if done == 400 and not list(tmp_path.iterdir()):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trials.run_jobs(jobs(), tmp_path, press)
    assert len(list(tmp_path.iterdir())) <= 1


def test_another_number_of_trials_is_another_run(tmp_path: Path) -> None:
    trials.run_jobs(jobs(), tmp_path)
    kernel, starts = make()
    fewer = [
        trials.Job(job.name, job.config, 2, 25, lambda: (kernel, starts[:2]), keep, job.seed, segment=10)
        for job in jobs()
    ]
    assert trials.run_jobs(fewer, tmp_path)["first"]["position"].shape == (2, 25, 1)


def test_draws_of_another_configuration_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials.run_jobs(jobs(rows=1), tmp_path)
    with monkeypatch.context() as patch:
        patch.delattr(trials, "sample")
        again = trials.run_jobs(jobs(rows=1), tmp_path)
        assert trials.seconds_of(again) > 0  # what it took then
        with pytest.raises(NameError):
            trials.run_jobs(jobs(rows=2), tmp_path)


def test_half_a_file_is_none(tmp_path: Path, whole: dict[str, trials.Arrays]) -> None:
    trials.run_jobs(jobs(), tmp_path)
    path = tmp_path / "second-10.npz"
    path.write_bytes(path.read_bytes()[:100])
    found = without_seconds(trials.run_jobs(jobs(), tmp_path))
    np.testing.assert_array_equal(found["second"]["position"], whole["second"]["position"])


def test_two_jobs_of_one_name() -> None:
    with pytest.raises(ValueError, match="same name"):
        trials.run_jobs([jobs()[0], jobs()[0]], None)
