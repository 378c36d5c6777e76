# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers in job steps, as ordinary users ask for them."""

from __future__ import annotations

import base64
import time
import typing as t

import pytest
from conftest import IMAGE, MEMORY, SQUASHED, WITH_MPI, Lab, eventually, finished

SQUASH = f"--container-image={SQUASHED}"
# Says where it runs; the image has no Slurm.
WHERE = "hostname; grep ^ID= /etc/os-release; test -e /usr/sbin/slurmd || echo in a container"
# No rank sends anything before all have left MPI_Init: a message that comes to Open MPI 4.1's TCP transport before that
# may find nobody who takes it, and ends the rank by a segmentation fault (docs/testing.md).
MPI = """from mpi4py import MPI
import os, pathlib, platform, time
world = MPI.COMM_WORLD
there = pathlib.Path("/shared/images/ring-" + os.environ["SLURM_JOB_ID"] + "." + os.environ["SLURM_STEP_ID"])
there.mkdir(exist_ok=True)
(there / str(world.rank)).touch()
while len(list(there.iterdir())) < world.size:
    time.sleep(0.1)
print(platform.node(), world.rank, world.size, world.allreduce(world.rank + 1))
"""
# Leaves the other ranks as the role training_job does: with a model that still holds the process group when the
# interpreter ends, or before the others are done, gloo's threads abort with "terminate called".
DDP = """import gc, os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
def train():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + dist.get_rank())
    x = torch.randn(256, 16)
    losses = []
    for step in range(60):
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    other = weights.clone()
    dist.broadcast(other, 0)
    inside = not os.path.exists("/usr/sbin/slurmd")
    print(dist.get_rank(), dist.get_world_size(), losses[0] > 5, losses[-1] < 0.1, torch.equal(weights, other), inside)
dist.init_process_group("gloo", rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))
train()
gc.collect()
dist.barrier()
dist.destroy_process_group()
"""


def nodes(text: str) -> list[str]:
    return sorted(line for line in text.split("\n") if line.startswith("c") and " " not in line)


def script(lab: Lab, name: str, text: str) -> str:
    path = f"/shared/images/{name}"
    lab.root(f"echo {base64.b64encode(text.encode()).decode()} | base64 -d > {path}")
    return path


@pytest.mark.parametrize("image", [SQUASHED, IMAGE])
def test_a_step_on_two_nodes_runs_in_the_container(healthy: Lab, image: str) -> None:
    result = healthy.srun(WHERE, f"-N2 --container-image={image}")
    assert result.rc == 0, result.stderr
    assert nodes(result.stdout) == healthy.compute
    assert result.stdout.count("ID=debian") == 2 and result.stdout.count("in a container") == 2
    assert healthy.srun(WHERE, "-N1").stdout.count("in a container") == 0


def test_a_batch_script_runs_in_the_container(healthy: Lab) -> None:
    batch = f"#!/bin/sh\n#SBATCH {SQUASH} {MEMORY}\n#SBATCH --output=/shared/images/batch.out\n{WHERE}\n"
    path = script(healthy, "batch.sh", batch)
    result = healthy.run(f"sbatch --wait {path}")
    assert result.rc == 0, result.stderr
    said = healthy.root("cat /shared/images/batch.out; rm /shared/images/batch.*")
    assert "in a container" in said and "ID=debian" in said


def test_no_process_of_a_container_outlives_its_job(healthy: Lab) -> None:
    node = healthy.compute[0]
    # The image has busybox's programs alone; neither the shell nor grep has this number in its own command line.
    command = 'n=43; setsid sleep $n$n >/dev/null 2>&1 & until ps | grep "[s]leep $n$n"; do sleep 0.2; done'
    result = healthy.srun(command, f"{SQUASH} -w {node}")
    assert result.rc == 0 and result.stdout.strip(), result.stderr
    eventually(lambda: healthy.host(node).run("pgrep -f 'sleep 434[3]'").rc == 1, 30, "no process of the job is left")


@pytest.fixture(scope="module")
def torch(lab: Lab) -> str:
    """The environment that the role pytorch makes on the shared directory, as users have it; why there is none else."""
    play = {"hosts": "slurm_login[0]", "become": True, "gather_facts": False, "roles": ["hpcai.gpu_cluster.pytorch"]}
    status, output = finished(lab.role_play([{**play, "vars": {"ansible_pipelining": True}}]))
    return f"no PyTorch: {output[-1500:]}" if status else "/shared/pytorch/current/bin/python"


@pytest.fixture(scope="module")
def named(lab: Lab, torch: str) -> t.Iterator[str]:
    """A container on both nodes, imported once. It stays for as long as its user has a job there.

    The job has both nodes to itself, however few processors they have, and what follows are steps of it. So the
    environment, which is proved by a job of its own, is made before.
    """
    # By a step: without PrologFlags=Alloc the prolog of a batch job runs on its first node only.
    job = lab.submit("srun sleep 1800", "-N2 --ntasks-per-node=1 --exclusive --mem=0")
    lab.runs(job)
    inside = f"--jobid={job} --overlap --container-name=app"
    try:
        result = lab.srun("echo mine > /mark", f"-N2 {inside} --container-image={WITH_MPI}")
        assert result.rc == 0, result.stderr
        yield inside
    finally:
        lab.run(f"scancel {job}")


def test_a_container_with_a_name_is_imported_once(lab: Lab, named: str) -> None:
    begin = time.monotonic()
    result = lab.srun(f"cat /mark; {WHERE}", f"-N2 {named}")
    assert result.rc == 0, result.stderr
    assert result.stdout.count("mine") == 2 and result.stdout.count("in a container") == 2
    print(f"a step in a container that is there: {time.monotonic() - begin:.1f} s")


def test_mounts_are_there_and_read_only_ones_are(lab: Lab, named: str) -> None:
    mounts = "--container-mounts=/shared/images:/data:ro,/home/trainer:/mine"
    command = "ls /data; touch /data/x; echo kept > /mine/from-a-container; ls /shared"
    result = lab.srun(command, f"-w {lab.compute[0]} {named} {mounts}")
    assert "app.sqsh" in result.stdout
    assert "'/data/x': Read-only file system" in result.stderr and "cannot access '/shared'" in result.stderr
    kept = "/home/trainer/from-a-container"
    assert lab.root(f"stat -c %U {kept}; cat {kept}; rm {kept}", lab.compute[0]) == "trainer\nkept"


def test_root_in_the_container_is_the_user_outside(lab: Lab, named: str) -> None:
    mounts = "--container-mounts=/home/trainer:/mine,/etc/shadow:/shadow:ro"
    command = "id -u; touch /etc/made /mine/by-root && echo wrote; cat /shadow"
    result = lab.srun(command, f"-w {lab.compute[0]} {named} --container-remap-root {mounts}")
    assert result.stdout == "0\nwrote\n" and "/shadow: Permission denied" in result.stderr
    assert lab.root("stat -c %U /home/trainer/by-root; rm /home/trainer/by-root", lab.compute[0]) == "trainer"


def test_mpi_runs_across_nodes(lab: Lab, named: str) -> None:
    path = script(lab, "ring.py", MPI)
    options = f"-N2 --ntasks-per-node=2 --mpi=pmix {named} --container-mounts=/shared --time=3"
    result = lab.srun(f"python3 {path}", options)
    assert result.rc == 0, result.stdout + result.stderr
    ranks = sorted(line.split() for line in result.stdout.splitlines())
    assert [line[0] for line in ranks] == [node for node in lab.compute for dummy in range(2)]
    assert sorted(line[1] for line in ranks) == list("0123") and {(line[2], line[3]) for line in ranks} == {("4", "10")}


def test_ddp_trains_in_the_container(lab: Lab, named: str, torch: str) -> None:
    if not torch.startswith("/"):
        pytest.skip(f"DDP in a container was not tested: {torch}")
    path = script(lab, "ddp.py", DDP)
    options = f"-N2 --ntasks-per-node=2 {named} --container-mounts=/shared --time=3"
    rendezvous = f"MASTER_ADDR={lab.compute[0]} MASTER_PORT=29511"
    result = lab.srun(f"{rendezvous} {torch} {path}", options)
    assert result.rc == 0, result.stdout + result.stderr
    assert sorted(result.stdout.split("\n"))[1:] == [f"{rank} 4 True True True True" for rank in range(4)]


def test_files_of_others_stay_theirs(lab: Lab, named: str) -> None:
    node = lab.compute[0]
    lab.root("install -o guest -m 600 /dev/null /shared/images/secret; echo x > /shared/images/secret")
    result = lab.srun("cat /d/secret", f"{named} -w {node} --container-remap-root --container-mounts=/shared/images:/d")
    lab.root("rm /shared/images/secret")
    assert result.rc != 0 and "Permission denied" in result.stderr
    for path in ("/scratch/enroot/2001/data", "/run/pyxis/2001"):
        assert lab.host(node).file(path).is_directory
        assert lab.run(f"ls {path}", "guest", node).rc != 0
