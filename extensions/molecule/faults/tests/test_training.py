# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A training that is interrupted goes on where it was, and one without a scheduler leaves nothing behind."""

from __future__ import annotations

import base64
import json
import re
import typing as t

from cluster_lab import Lab, eventually, finished
from patience import patience

NAME = "interrupted"
STEPS = 240
EVERY = 20
INTERRUPTED = {
    "training_job_name": NAME,
    "training_job_steps": STEPS,
    "training_job_checkpoint_every": EVERY,
    "training_job_arguments": ["--pause", "0.25"],
    # Slurm looks every 30 s, and so warns 10 to 40 s after the start.
    "training_job_options": {"time": "00:04:00"},
    "training_job_signal_seconds": 200,
}


BROKEN = """
import socket, time
print("hello from", socket.gethostname())
time.sleep(5)
time.sleep(600) if socket.gethostname() != "BAD" else 1 / 0
"""


class Training:
    """One job of role training_job as its directory and Slurm show it."""

    def __init__(self, lab: Lab, job: str) -> None:
        self.lab, self.job = lab, job
        self.folder = f"/shared/training/{lab.run('id -un').stdout.strip()}/{NAME}"

    def journal(self) -> list[dict[str, t.Any]]:
        text = self.lab.run(f"cat {self.folder}/checkpoints/{self.job}/journal.jsonl").stdout
        return [json.loads(line) for line in text.splitlines()]

    def events(self, name: str) -> list[dict[str, t.Any]]:
        return [event for event in self.journal() if event["event"] == name]

    def lost(self) -> int:
        """Count the steps that were done before the last start and are done again after it."""
        journal = self.journal()
        last = max(number for number, event in enumerate(journal) if event["event"] == "start")
        before = [event["step"] for event in journal[:last] if event["event"] == "step"]
        return int(before[-1] - journal[last]["step"])

    def trained(self, steps: int, starts: int) -> bool:
        """Say whether so many steps were done in the last of so many starts."""
        begun, done = self.events("start"), self.events("step")
        return len(begun) == starts and done[-1]["step"] >= begun[-1]["step"] + steps

    def back_in_the_queue(self) -> None:
        """Wait until Slurm would start it again after its pause of two minutes, and let it start now."""
        state = f"squeue -h -j {self.job} -o %T"
        eventually(lambda: self.lab.run(state).stdout.strip() == "PENDING", 240, f"job {self.job} back in the queue")
        self.lab.root(f"scontrol update JobId={self.job} StartTime=now TimeLimit=10")


def launch(lab: Lab, **variables: t.Any) -> tuple[int, str]:
    """Train on the compute nodes without Slurm."""
    return lab.play("launch_ddp.yml", **{"ddp_launch_timeout": round(patience(120)), **variables})


def nothing_left(lab: Lab) -> bool:
    """Say whether no compute node has a process of such a training."""
    return all(lab.host(name).run("pgrep -f '[d]dp_node.py|[t]orch.distributed'").rc == 1 for name in lab.compute)


def test_a_training_without_a_scheduler_names_the_rank_that_failed(healthy: Lab) -> None:
    bad = healthy.compute[-1]
    folder = "/shared/training/trainer/broken"
    text = base64.b64encode(BROKEN.replace("BAD", bad).encode()).decode()
    healthy.root(f"install -d -o trainer {folder} && echo {text} | base64 -d > {folder}/broken.py")
    settings = {"ddp_launch_name": "broken", "ddp_launch_script": f"{folder}/broken.py"}
    code, output = launch(healthy, **settings)
    assert code != 0
    assert re.search(rf"run-1 failed: rank \d on {bad} ended with 1\. Its last lines:", output), output[-3000:]
    assert "ZeroDivisionError" in output
    said = healthy.run(f"cat {folder}/run-1/ranks/rank-*.txt").stdout
    assert said.count("hello from") == len(healthy.compute)
    assert nothing_left(healthy)


def test_an_interrupted_training_goes_on_from_its_checkpoint(healthy: Lab) -> None:
    run = healthy.start("train.yml", **INTERRUPTED)

    def queued() -> str:
        return str(healthy.run(f"squeue -h --name={NAME} -o %A").stdout.strip())

    training = Training(healthy, eventually(queued, 60, "the job in the queue"))
    healthy.runs(training.job)  # it is in the queue before its first start, too
    # Its time is nearly over: it keeps what it has.
    training.back_in_the_queue()
    assert training.events("stop")[-1]["signal"] == "USR1"
    kept = training.events("checkpoint")[-1]["step"]
    # Somebody puts it back into the queue.
    eventually(lambda: training.trained(5, starts=2), 180, "steps of the second start")
    assert training.events("start")[-1] == {"event": "start", "step": kept, "lost": 0, "ranks": len(healthy.compute)}
    healthy.run(f"scontrol requeue {training.job}")
    training.back_in_the_queue()
    # A node dies and comes back; what no checkpoint holds is lost. That is nothing when it dies just after one.
    eventually(lambda: training.trained(EVERY + 5, starts=3), 180, "steps of the third start")
    for action in ("kill", "start"):
        healthy.podman(action, healthy.compute[-1])
    training.back_in_the_queue()
    status, output = finished(run)
    assert status == 0, output[-3000:]
    result = json.loads(healthy.run(f"cat {training.folder}/result-{training.job}.json").stdout)
    starts = training.events("start")
    assert (result["restarts"], result["resumed_from"]) == (3, starts[-1]["step"])
    assert result["lost_steps"] == starts[-1]["lost"] == training.lost() <= EVERY + 5
    assert len(result["loss"]) == STEPS
    # Every step of the last start is counted on from the checkpoint, with the losses of a training without a break.
    steps = [event["step"] for event in training.events("step")]
    assert steps[-(STEPS - starts[-1]["step"]) :] == list(range(starts[-1]["step"] + 1, STEPS + 1))
    again = {event["step"]: event["loss"] for event in training.events("step")}
    assert [again[step + 1] for step in range(STEPS)] == result["loss"]
