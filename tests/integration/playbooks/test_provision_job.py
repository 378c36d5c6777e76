# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWX's jobs from an empty subscription and back to it, in the image, against the emulated Azure and CycleCloud.

provision makes the cluster, the inventory source finds its scheduler in a container of its own, where report reads
what provision kept, and destroy takes everything away. Jobs get what AWX's credentials give them. The machines are
those of the scenario azure, in a lab of their own: one that plays the CycleCloud machine, and a scheduler that
CycleCloud has made.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import typing as t
import urllib.request
from pathlib import Path

import pytest
import yaml
from patience import patience
from stage_jobs import IMAGE, Job, Json, in_image, install, private_directory, run_job

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = ROOT / "extensions/molecule/azure"
STATE = ROOT / ".build/jobs-azure"
SUBNET = "10.213.62.0/24"
LAB: Json = {
    "lab_name": "jobs-azure",
    "lab_subnet": SUBNET,
    "lab_state_dir": str(STATE),
    "lab_compute_nodes": 1,
    "lab_elastic_names": ["scheduler"],
}
PASSWORD = "Rehearse-7f3kQ9zW-only"  # of the emulated CycleCloud's first user
RESULTS = "/var/lib/hpcai/results"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcai.gpu_cluster"
pytestmark = pytest.mark.skipif(
    not IMAGE, reason="this job runs in the execution environment: make execution-environment"
)


def playbook(*words: str) -> None:
    """Run a playbook of the lab or of the scenario."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HPCAI_REPORT_DIR": str(STATE / "report")}
    done = subprocess.run(
        [sys.executable, "-m", "ansible.cli.playbook", "-e", json.dumps(LAB), *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience(900),
        check=False,
    )
    assert done.returncode == 0, done.stdout


def on_scheduler(*words: str) -> str:
    command = ["podman", "exec", "hpcai-jobs-azure-scheduler", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Site:
    """A site's project and credentials, and its jobs."""

    def __init__(self, folder: Path, collections: Path) -> None:
        self.folder, self.collections, self.number = folder, collections, 0
        self.artifacts: Json = {}
        self.azure = json.loads((STATE / "azure/environment.json").read_text())
        self.url = json.loads((STATE / "azure/azure.json").read_text())["url"]
        self.cyclecloud: dict[str, str] = {"CYCLECLOUD_USERNAME": "hpcadmin", "CYCLECLOUD_PASSWORD": PASSWORD}
        self.certificates = folder / "certificates.pem"
        self.inventory = folder / "azure"
        self._change()

    def _change(self) -> None:
        """Change the lines of the template's inventory that are marked, and say where this machine's packages are."""
        shutil.copytree(ROOT / "site_template/inventories/azure", self.inventory)
        variables = self.inventory / "group_vars/all.yml"
        text = variables.read_text()
        for name, value in {
            "azure_infra_server_ssh_public_key": (STATE / "ssh_key.pub").read_text().strip(),
            "azure_infra_allowed_sources": [SUBNET],
        }.items():
            text = re.sub(rf"^{name}: .*$", f"{name}: {json.dumps(value)}", text, flags=re.MULTILINE)
        variables.write_text(text)
        given = yaml.safe_load((SCENARIO / "vars/site.yml").read_text())
        kept = ("cyclecloud_server_repository", "cyclecloud_server_packages", "cyclecloud_server_heap")
        rehearsed = {name: value for name, value in given.items() if name.startswith(kept)}
        rehearsed["cyclecloud_cluster_wait"] = given["cyclecloud_cluster_wait"]
        rehearsed["cyclecloud_server_repository_key_sha256"] = sha256(STATE / "shared/cyclecloud/repository/key.asc")
        (self.inventory / "group_vars/all").mkdir()
        variables.rename(self.inventory / "group_vars/all/site.yml")
        (self.inventory / "group_vars/all/rehearsal.yml").write_text(json.dumps(rehearsed))

    def leftovers(self) -> list[str]:
        """Return the identifiers of all that was made in Azure and is there still."""
        trust = ssl.create_default_context(cafile=str(STATE / "azure/tls/ca.pem"))
        request = urllib.request.Request(f"{self.url}/_emulator/state", headers={"X-Emulator": "1"})
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        with opener.open(request, timeout=patience(60)) as answer:
            return sorted(json.load(answer)["leftovers"])

    def isolation(self) -> list[str]:
        CACHE.mkdir(parents=True, exist_ok=True)
        tls = STATE / "azure/tls"
        mounts = (f"{self.collections}:{self.collections}:ro", f"{CACHE}:/cache:rw", f"{tls}:{tls}:ro")
        return in_image("--network=host", *(f"--volume={mount}" for mount in mounts))

    def job(self, playbook: str, **variables: t.Any) -> Job:
        """Run a job: the project, the inventory, and what credentials and AWX's settings set."""
        self.number += 1
        place = self.folder / f"job{self.number}"
        private_directory(place, self.collections)
        shutil.copytree(self.inventory, place / "inventory", dirs_exist_ok=True)
        (place / "env/ssh_key").write_text((STATE / "ssh_key").read_text())
        credentials = {**self.azure, **self.cyclecloud}
        if self.certificates.exists():  # AWX puts it where the job sees it
            shutil.copy(self.certificates, place / "env/certificates.pem")
            credentials["CYCLECLOUD_CA_PATH"] = "/runner/env/certificates.pem"
        settings = {"ANSIBLE_HOST_KEY_CHECKING": "False", "HPCAI_CACHE_DIR": "/cache"}
        (place / "env/envvars").write_text(json.dumps({**credentials, **settings}))
        meta = {"awx_workflow_job_id": 41, "awx_job_id": 41 + self.number}
        job = run_job(place, playbook, {**meta, **self.artifacts, **variables}, self.isolation())
        self.artifacts |= job.artifacts()
        return job


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Site]:
    playbook("lab/down.yml")
    try:
        playbook("lab/up.yml")
        hosts = ("-i", "lab/inventory", "-i", str(STATE / "hosts.yml"))
        playbook(*hosts, str(SCENARIO / "prepare.yml"))
        yield Site(tmp_path_factory.mktemp("site"), install(tmp_path_factory.mktemp("installed")))
    finally:
        playbook(str(SCENARIO / "cleanup.yml"))


def printed(job: Job) -> dict[str, str]:
    """Return what the job has shown of CycleCloud, which an administrator copies into its credential."""
    (told,) = (
        event["event_data"]["res"]["msg"]
        for event in job.events
        if event["event"] == "runner_on_ok" and "CYCLECLOUD_URL" in str(event["event_data"]["res"].get("msg", ""))
    )
    return t.cast("dict[str, str]", told)


def test_from_an_empty_subscription_and_back(site: Site) -> None:
    """Each job in a container of its own."""
    job = site.job("provision")
    assert job.rc == 0, job.text
    assert any(found.endswith("/virtualMachines/train-scheduler") for found in site.leftovers()), site.leftovers()
    kept = json.loads(on_scheduler("cat", f"{RESULTS}/run.json"))
    assert [(stage["run"], stage["stage"], stage["state"]) for stage in kept["stages"]] == [
        ("awx-41", "provision", "done")
    ]
    assert site.artifacts["hpcai_provision"]["place"] == f"scheduler:{RESULTS}"

    told = printed(job)
    site.cyclecloud["CYCLECLOUD_URL"] = told["CYCLECLOUD_URL"]
    site.certificates.write_text(told["CYCLECLOUD_CERTIFICATES"])
    job = site.job("report")
    assert job.rc == 0, job.text
    page = on_scheduler("cat", f"{RESULTS}/report.html")
    assert "awx-41" in page and "provision" in page

    job = site.job("destroy_approved", site_destroy_cluster="train")
    assert job.rc == 0, job.text
    assert site.leftovers() == []
    assert PASSWORD not in job.text
