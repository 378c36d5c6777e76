# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab with a cloud: what every lab has, the cloud's instances, and what goes wrong in it."""

from __future__ import annotations

import json
import os
import shlex
import ssl
import subprocess
import typing as t
import urllib.request
from pathlib import Path

import pytest
import yaml
from cluster_lab import ROOT, Lab

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/elastic")))
LAB = yaml.safe_load((SCENARIO / "vars/lab.yml").read_text())
# An upper bound for a machine that is busy with other things; nothing is measured by it.
WAIT = 300


class ElasticLab(Lab):
    """One lab, its nodes that come and go, and its jobs on them."""

    def faults(self, **what: t.Any) -> None:
        """Have the cloud refuse instances, or have them never boot."""
        (STATE / "cloud/faults.json").write_text(json.dumps(what))

    def queue(self, node: str, command: str = "hostname", options: str = "") -> str:
        """Queue a job for one elastic node."""
        part = "hasty" if node == "e3" else "cloud"
        return self.submit(command, f"--partition={part} --nodelist={node} --requeue {options}")

    def retry(self, job: str) -> None:
        """Let a requeued job try again at once: Slurm would have it wait two minutes, if it still does."""
        self.root(f"scontrol update jobid={job} starttime=now || scontrol show job -o {job} | grep -v JobState=PENDING")

    def job(self, job: str, field: str) -> str:
        found = self.root(f"scontrol show job -o {job}")
        return next(word.split("=", 1)[1] for word in found.split() if word.startswith(f"{field}="))

    def node(self, name: str) -> tuple[set[str], str]:
        """A node's states and its reason."""
        line = self.root(f"scontrol show node -a -o {name}")
        states = next(word.split("=", 1)[1] for word in line.split() if word.startswith("State="))
        return set(states.split("+")), line.partition(" Reason=")[2].rpartition(" [")[0]

    def instance(self, name: str, *command: str) -> str:
        """Run a command in an instance, without the network."""
        argv = ["podman", "exec", self.container(name), *command]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def exists(self, name: str) -> bool:
        argv = ["podman", "container", "exists", self.container(name)]
        return subprocess.run(argv, check=False).returncode == 0

    def take(self, name: str) -> None:
        """Take an instance away, as a cloud does with what is preemptible."""
        argv = ["podman", "rm", "--force", "--time=0", self.container(name)]
        subprocess.run(argv, check=True, capture_output=True)

    def told(self, name: str, reason: str) -> bool:
        """Whether a node had a reason; it is cleared when the node is tried again."""
        text = f"node {name} reason set to: {reason}"
        return self.host("ctl").run(f"grep -F {shlex.quote(text)} /var/log/slurm/slurmctld.log").rc == 0

    def cloud(self, method: str, name: str, cluster: str) -> None:
        """Ask the cloud for an instance as somebody else would."""
        token = (STATE / "cloud/token").read_text().strip()
        settings = json.loads((STATE / "cloud/settings.json").read_text())
        url = f"https://{settings['host']}:{settings['port']}/instances/{name}"
        body = json.dumps({"cluster": cluster, "user_data": "#!/bin/sh\n"}).encode()
        request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"}, method=method)
        context = ssl.create_default_context(cafile=str(STATE / "cloud/certificate.pem"))
        urllib.request.urlopen(request, timeout=60, context=context).close()

    def result(self, name: str) -> dict[str, t.Any]:
        """How the bundle ended in an instance or on a node."""
        return t.cast("dict[str, t.Any]", json.loads(self.instance(name, "cat", "/var/lib/hpcai/node/result.json")))

    def log(self) -> str:
        """What the power programs did."""
        return t.cast("str", self.root("cat /var/log/slurm/hpcai-power.log"))

    def converge(self) -> subprocess.Popen[str]:
        """Start the scenario's converge once more."""
        return self.start(SCENARIO / "converge.yml")


@pytest.fixture(scope="session")
def lab() -> ElasticLab:
    return ElasticLab(SCENARIO, STATE)


@pytest.fixture(scope="session")
def jobs(lab: ElasticLab) -> dict[str, str]:
    """A job for every elastic node, and one that stays; the cloud refuses the second, and the third never boots."""
    lab.faults(refuse={"e2": "Quota 'CPUS' exceeded"}, never_boot=["e3"])
    short = {name: lab.queue(name) for name in ("e1", "e2", "e3")}
    return {**short, "long": lab.queue("e1", "sleep 3600"), "e4": lab.queue("e4", "sleep 3600")}
