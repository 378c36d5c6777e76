# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job script of role training_job, as a user of one's own script has it, on two hosts with PyTorch and gloo.

Slurm is a stand-in of some lines: its srun starts the tasks of a step on the hosts and hands signals on to them. By it
Open MPI starts its daemons, as on a cluster.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience
from plain_hosts import NAMES, SHARED, PlainHosts
from roles.test_training_scripts import job, play
from stand_in import stand_in
from trained import ROLES

PYTHON = SHARED / "pytorch/current/bin/python"
WITH_DEEPSPEED = SHARED / "pytorch/training/bin/python"

# What the README of the role documents for a script of one's own.
OWN = """
import argparse, math, os, signal, sys, torch
from training_run import Run, together

parser = argparse.ArgumentParser()
parser.add_argument("--spoil", type=int, default=-1, help="step at which rank 1 loses its loss")
parser.add_argument("--hang", type=int, default=-1, help="step in which rank 1 hangs")
args = parser.parse_args()

def train(device):
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = Run(model=model, optimizer=optimizer)
    if "HPCAI_DATA" in os.environ:
        place = os.environ["HPCAI_DATA"]
        print("data", open(place + "/words").read(), "in", os.path.realpath(place), "by", sys.prefix, flush=True)
    for step in run.steps(40):
        data = torch.randn(32, 8, generator=torch.Generator().manual_seed(step), device=device)
        loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        while step == args.hang and run.rank == 1:
            signal.pause()  # for a batch that never comes
        loss.backward()
        optimizer.step()
        print(f"my step {step}", flush=True)
        run.loss = math.nan if step == args.spoil and run.rank == 1 else loss.item()
        if SLOW:
            import time
            time.sleep(0.3)

together(train)
"""


class Job:
    """One job of the stand-in, over all its starts."""

    def __init__(self, hosts: PlainHosts, directory: Path, **variables: t.Any) -> None:
        self.directory = directory
        (directory / "bin").mkdir(parents=True)
        own = directory / "own.py"
        own.write_text(OWN.replace("SLOW", str(variables.pop("slow", False))))
        inputs = job(
            training_job_dir=str(directory),
            training_job_gpus_per_node=0,
            training_job_script=str(own),
            training_job_rank_output=True,
            training_job_checkpoint_every=10,
            training_job_python=variables.pop("training_job_python", str(PYTHON)),
            **variables,
        )
        content = "{{ lookup('ansible.builtin.template', '" + str(ROLES / "training_job/templates/job.sh.j2") + "') }}"
        (directory / "files").symlink_to(ROLES / "training_job/files")
        play(directory, ([{"ansible.builtin.copy": {"content": content, "dest": str(directory / "job.sh")}}], inputs))
        addresses = [hosts.address(name) for name in NAMES]
        stand_in(directory / "bin/srun", "srun_two_hosts.py")
        scontrol = {"hosts": " ".join(addresses), "calls": directory / "scontrol.txt"}
        stand_in(directory / "bin/scontrol", "scontrol_hostnames.sh", **scontrol)
        self.environment = {
            **os.environ,
            "PATH": f"{directory}/bin:{os.environ['PATH']}",
            "STAND_IN_HOSTS": json.dumps({name: (hosts.address(name), hosts.enter(name)) for name in NAMES}),
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "node[1-2]",
            "SLURM_JOB_NUM_NODES": "2",
            # What Open MPI knows its allocation by.
            "SLURM_JOBID": "7",
            "SLURM_NODELIST": ",".join(addresses),
            "SLURM_NNODES": "2",
            "SLURM_TASKS_PER_NODE": "2(x2)",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        # The script runs on the first node; it sees all processes here, so that its srun can enter the others.
        self.enter = [word for word in hosts.enter(NAMES[0]) if word not in ("--pid", "--mount")]

    def start(self, restarts: int = 0) -> subprocess.Popen[bytes]:
        environment = {**self.environment, "SLURM_RESTART_COUNT": str(restarts)}
        with (self.directory / "output.txt").open("ab") as output:
            argv = [*self.enter, "bash", str(self.directory / "job.sh")]
            return subprocess.Popen(argv, env=environment, stdout=output, stderr=subprocess.STDOUT)

    def end(self, running: subprocess.Popen[bytes]) -> int:
        try:
            return running.wait(patience(300))
        finally:
            running.kill()

    def output(self) -> str:
        return (self.directory / "output.txt").read_text(errors="replace")

    def result(self) -> t.Any:
        return json.loads((self.directory / "result-7.json").read_text())


@pytest.fixture(scope="module")
def stack(hosts: PlainHosts) -> PlainHosts:
    if not (PYTHON.parents[1] / "environment.tar").exists():
        done = hosts.stack(pytorch_archive=True)
        if done.returncode != 0:
            pytest.skip(f"no PyTorch to train with: {done.stdout[-500:]}")
    return hosts


@pytest.mark.parametrize("launcher", ["torchrun", "srun", "mpirun", "deepspeed"])
def test_each_launcher_of_the_template_trains(stack: PlainHosts, tmp_path: Path, launcher: str) -> None:
    inputs = {"training_job_launcher": launcher, "training_job_processes_per_node": 2}
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("no mpirun; make test-packages installs Open MPI")
    if launcher == "deepspeed":
        if not WITH_DEEPSPEED.exists():
            pytest.skip("no environment with DeepSpeed; the tests of packages build one")
        inputs["training_job_python"] = str(WITH_DEEPSPEED)
    made = Job(stack, tmp_path / "job", **inputs)
    assert made.end(made.start()) == 0, made.output()
    result = made.result()
    assert [rank["host"] for rank in result["ranks"]] == ["node1", "node1", "node2", "node2"]
    assert result["loss"][-1] < 0.2 * result["loss"][0]


def test_a_training_goes_on_after_preemption(stack: PlainHosts, tmp_path: Path) -> None:
    made = Job(stack, tmp_path / "job", slow=True)
    running = made.start()
    begin = time.monotonic()
    while "my step 15" not in made.output() and time.monotonic() - begin < patience(120):
        time.sleep(0.2)
    running.send_signal(signal.SIGUSR1)
    # Slurm would end the script, which waits a minute for it.
    while "requeue 7" not in (made.directory / "scontrol.txt").read_text() and time.monotonic() - begin < patience(240):
        time.sleep(0.2)
    assert "the training was told to make room: back into the queue" in made.output()
    running.kill()
    running.wait()
    assert made.end(made.start(1)) == 0, made.output()
    resumed = re.findall(r"begin at step (\d+)", made.output())
    assert resumed[0] == "0"
    assert 15 < int(resumed[1]) < 40
    assert len(made.result()["loss"]) == 40
    assert made.result()["resumed_from"] == int(resumed[1])


def test_a_loss_that_is_none_ends_it_with_the_rank_that_was_first(stack: PlainHosts, tmp_path: Path) -> None:
    made = Job(stack, tmp_path / "job", training_job_arguments=["--spoil", "12"])
    assert made.end(made.start()) != 0
    result = made.result()
    assert (result["rank"], result["host"], result["step"]) == (1, "node2", 12)
    assert result["problem"] == "the loss of rank 1 on node2 is nan at step 12"
    lines = (made.directory / "ranks/7/rank-1.txt").read_text().splitlines()
    assert "my step 12" in lines


def test_a_training_that_stands_still_is_ended_with_the_rank_that_the_others_wait_for(
    stack: PlainHosts, tmp_path: Path
) -> None:
    # A tenth of a second for each step, and the machine may be late.
    seconds = round(patience(5))
    made = Job(stack, tmp_path / "job", training_job_arguments=["--hang", "12"], training_job_stall=seconds)
    assert made.end(made.start()) != 0
    result = made.result()
    assert (result["rank"], result["host"], result["step"]) == (1, "node2", 12)
    assert result["problem"].startswith(f"no step for {seconds} s: rank 1 on node2 is at line ")
    lines = (made.directory / "ranks/7/rank-1.txt").read_text().splitlines()
    assert "my step 11" in lines
    assert "    signal.pause()  # for a batch that never comes" in lines


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_ranks_have_data_and_environment_on_scratch_or_where_a_node_has_no_room_on_the_shared_directory(
    stack: PlainHosts, tmp_path: Path, launcher: str
) -> None:
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("no mpirun; make test-packages installs Open MPI")
    (tmp_path / "words").write_text("abc")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name, room in zip(NAMES, ("size=2g", "size=1m")):
        mount = ["mount", "-t", "tmpfs", "-o", room, "none", str(scratch)]
        subprocess.run([*stack.enter(name), *mount], check=True)
    inputs = {"training_job_data": [str(tmp_path / "words")], "training_job_scratch_dir": str(scratch)}
    made = Job(stack, tmp_path / "job", training_job_launcher=launcher, **inputs)
    assert made.end(made.start()) == 0, made.output()
    texts = [(made.directory / f"ranks/7/rank-{rank}.txt").read_text() for rank in (0, 1)]
    ((data, prefix),), shared = (re.findall(r"data abc in (\S+) by (\S+)", text) for text in texts)
    assert data.startswith(f"{scratch}/hpcai-staged-")
    assert prefix.startswith(f"{scratch}/hpcai-staged-")
    assert shared == [(str(made.directory / "programs/7/data"), str(PYTHON.parents[1]))]
    assert re.search(r"node2 starts \S+ itself: \d+ MiB are needed in ", made.output())
    assert re.search(r"node2 reads \S+ itself: 0 MiB are needed in ", made.output())
