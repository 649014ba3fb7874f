"""How processes find each other: as Slurm, Open MPI and Kubernetes start them, on this machine; files of docs/several.

Slurm and Kubernetes are simulated by what they put into the environment. Open MPI is run where there is one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax._src.clusters import ompi_cluster, slurm_cluster

import tallchain as tc
from tallchain.joining import LAUNCHED

FILES = Path(__file__).parents[1] / "docs" / "several"
SCALE = (FILES.parent / "scale.md").read_text()
MINE = ("OMPI_", "PMI_", "SLURM_", "JOB_COMPLETION", "KUBERNETES_", "JAX_COORDINATOR", "TALLCHAIN_LAUNCHED")
MEET = """
from tallchain import crew
rank, met = crew.start(patience=60), crew.current()
print(rank, met.gather("names", str(rank).encode()) if met else "alone")
"""
REFUSED = """
import json, os, sys
from tallchain import crew
for said in json.loads(sys.argv[1]):
    os.environ.update(said)
    try:
        print(crew.start(), "started")
    except crew.CrewError as error:
        print(error)
    for name in said:
        del os.environ[name]
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def environment(**more: Any) -> dict[str, str]:
    """That of this process, without what a cluster has put there."""
    kept = {name: of for name, of in os.environ.items() if not name.startswith(MINE)}
    of_tests = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]]),
    }
    return kept | of_tests | {name: str(of) for name, of in more.items()}


def slurm(rank: int, port: int) -> dict[str, Any]:
    """What `srun --ntasks 2` sets: JAX takes the first node of the list, and a port by the number of the job."""
    place = {"SLURM_STEP_NODELIST": "localhost,node2", "SLURM_JOB_ID": 12, "SLURM_NTASKS": 2}
    return place | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "JAX_COORDINATOR_PORT": port}


def open_mpi(rank: int, port: int) -> dict[str, Any]:
    """What `mpirun -np 2` of Open MPI 4 sets: JAX takes the address of mpirun."""
    place = {"OMPI_MCA_orte_hnp_uri": "2041184256.0;tcp://127.0.0.1,192.0.2.1:57211", "OMPI_COMM_WORLD_SIZE": 2}
    return place | {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank,
        "JAX_COORDINATOR_PORT": port,
    }


def indexed_job(rank: int, port: int) -> dict[str, Any]:
    """What an Indexed Job sets; with the address by hand, as in kubernetes.yaml."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "JOB_COMPLETION_INDEX": rank,
        LAUNCHED: f"localhost:{port},2,{rank}",
    }


@pytest.mark.parametrize(
    "started",
    [pytest.param(slurm, marks=pytest.mark.slow), pytest.param(open_mpi, marks=pytest.mark.slow), indexed_job],
)
def test_processes_meet(started: Any) -> None:
    port = free_port()
    both = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", MEET],
            env=environment(**started(rank, port)),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [each.communicate(timeout=90)[0].splitlines()[-1] for each in both]
    assert said == ["0 [b'0', b'1']", "1 [b'0', b'1']"]


def test_an_environment_that_says_too_little_is_refused_at_once() -> None:
    """Without that, each of the processes would take itself for the only one, and do all the work."""
    cases = [
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_SIZE is 2"),  # Open MPI 5
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "start with `srun`"),  # without srun
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX is 0"),
        ({"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:1"}, "OMPI_COMM_WORLD_SIZE is not in the environment"),
        ({"JAX_COORDINATOR_ADDRESS": "localhost:1"}, "Number of processes must be defined"),
        ({LAUNCHED: "localhost:1,2"}, "must be ADDRESS:PORT,COUNT,RANK"),
        ({LAUNCHED: "localhost,2,0"}, "must be ADDRESS:PORT,COUNT,RANK"),
        ({LAUNCHED: "localhost:1,2,2"}, "from 0 to COUNT - 1"),
        ({"SLURM_NTASKS": "1"}, "0 started"),
        ({}, "0 started"),
    ]
    command = [sys.executable, "-W", "ignore", "-c", REFUSED, json.dumps([said for said, _ in cases])]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    for line, (_, words) in zip(done.stdout.splitlines(), cases, strict=True):
        assert words in line


def test_who_does_not_come_is_named_in_time() -> None:
    began, code = time.monotonic(), "from tallchain import crew; crew.start(patience=2)"
    place = {LAUNCHED: f"localhost:{free_port()},2,0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(**place), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "process 0 of 2 waits for the others at localhost:" in done.stderr
    assert "not all have come within 2 s" in done.stderr
    assert time.monotonic() - began < 30


def test_the_page_has_the_names_that_jax_reads() -> None:
    names = {
        *(of for name, of in vars(slurm_cluster).items() if name.isupper() and isinstance(of, str)),
        *(of for name, of in vars(ompi_cluster).items() if name.isupper() and isinstance(of, str)),
    } - {"SLURM_STEP_NUM_NODES"}  # which JAX names, and does not read
    assert set(re.findall(r"`((?:SLURM|OMPI)_\w+)`", SCALE)) == names
    assert set(slurm(0, 0)) | set(open_mpi(0, 0)) == names | {"JAX_COORDINATOR_PORT"}


# ---- the files ---------------------------------------------------------------------------------


def test_the_files_are_whole() -> None:
    for name in ("slurm.sbatch", "openmpi.sh"):
        subprocess.run(["bash", "-n", str(FILES / name)], check=True)
    assert {f"several/{path.name}" for path in FILES.iterdir()} == set(re.findall(r"\]\((several/[\w.]+)\)", SCALE))
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
    pod, name = job["spec"]["template"]["spec"], service["metadata"]["name"]
    assert pod["subdomain"] == name
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert job["spec"]["completionMode"] == "Indexed"
    count = job["spec"]["completions"]
    assert job["spec"]["parallelism"] == count
    assert f"{LAUNCHED}={job['metadata']['name']}-0.{name}:4321,{count}," in pod["containers"][0]["command"][-1]
    assert {each["name"] for each in pod["containers"][0]["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, a packed table, and the draws of two processes of `tallchain launch`."""
    made, random = tmp_path_factory.mktemp("several") / "here", np.random.default_rng(0)
    shutil.copytree(FILES, made)
    x = random.normal(size=(20_000, 3)).astype(np.float32)
    y = (random.random(20_000) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.float32)
    tc.pack({"x": x, "y": y}, made / "packed", progress=False)
    command = "python -m tallchain launch --processes 2 several.py packed launched"
    subprocess.run(["bash", "-c", command], cwd=made, env=environment(), check=True, timeout=300)
    assert "acceptance" in (made / "launched.txt").read_text()
    return made


def same_draws(folder: Path, name: str) -> None:
    with np.load(folder / f"{name}.npz") as found, np.load(folder / "launched.npz") as wanted:
        np.testing.assert_array_equal(found["position"], wanted["position"])
        assert np.abs(wanted["position"].mean((0, 1)) - [1, 0, 0]).max() < 0.1


@pytest.mark.slow
def test_the_job_of_kubernetes_runs(folder: Path) -> None:
    """Its command, with what an Indexed Job sets, and the names of this machine in place of those of the cluster."""
    yaml = pytest.importorskip("yaml")
    job = list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text()))[1]
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    command[-1] = command[-1].replace("several-0.several:4321,4", f"localhost:{free_port()},2")
    command[-1] = command[-1].replace("/data/packed /data/draws", "packed pods")
    both = [subprocess.Popen(command, cwd=folder, env=environment(JOB_COMPLETION_INDEX=rank)) for rank in (0, 1)]
    assert [each.wait(timeout=300) for each in both] == [0, 0]
    same_draws(folder, "pods")


@pytest.mark.slow
def test_the_step_of_slurm_runs(folder: Path) -> None:
    """The line of slurm.sbatch, with a stand-in for `srun` that starts two processes here as it does."""
    tasks = "".join(
        f"env {' '.join(f'{name}={of}' for name, of in slurm(rank, 0).items() if name != 'JAX_COORDINATOR_PORT')} "
        f'"${{@:2}}" & tasks+=($!)\n'
        for rank in (0, 1)
    )
    srun = folder / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/bash\ntasks=()\n{tasks}for each in "${{tasks[@]}}"; do wait "$each" || exit 1; done\n')
    srun.chmod(0o755)
    found = environment(JAX_COORDINATOR_PORT=free_port())
    subprocess.run(
        ["bash", "slurm.sbatch"], cwd=folder, env=found | {"PATH": f"{srun.parent}:{found['PATH']}"}, check=True
    )
    same_draws(folder, "draws")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no Open MPI")
@pytest.mark.parametrize("says_where", [True, False])
def test_open_mpi_runs(folder: Path, says_where: bool) -> None:
    """With two processes on this machine: as Open MPI 4 is started, and as those that do not say where they are."""
    script = (FILES / "openmpi.sh").read_text().replace("-np 4", "-np 2 --allow-run-as-root")
    script = script.replace("$(hostname):4321", f"localhost:{free_port()}")
    if not says_where:
        script = script.replace('*"Open MPI) 4."*)', "never)")
    (folder / "openmpi.sh").write_text(script)
    (folder / "hosts.txt").write_text("localhost slots=2\n")
    subprocess.run(["bash", "openmpi.sh"], cwd=folder, env=environment(), check=True, timeout=300)
    same_draws(folder, "draws")
