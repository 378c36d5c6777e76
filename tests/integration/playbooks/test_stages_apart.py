# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stages as AWX runs them (stage_jobs.py). What they hand on lies on the cluster, which is a directory here.

There is no Slurm: certify ends at its first question to it, which is what has to reach the report. Stages on nodes
are in test_stages_on_nodes.py. Where the jobs run in an image, nothing of this machine is in it but the tarball, the
project and the cluster's directory.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from stage_jobs import IMAGE, Job, Json, in_image, install, private_directory, run_job

from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.plugin_utils.report_fleet import invented, store

pytest.importorskip("ansible_runner")
# A play of the fork's own, in the place where a stage would be that does succeed.
CONFIGURE = """
- hosts: slurm_controller
  gather_facts: false
  vars: {run_stage: configure}
  tasks:
    - name: Measure
      ansible.builtin.debug: {msg: measured}
      changed_when: true
- import_playbook: hpcai.gpu_cluster.results_steps.keep
"""


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tarball, installed."""
    return install(tmp_path_factory.mktemp("installed"))


class Site:
    """A cluster, and the jobs of one workflow on it."""

    def __init__(self, folder: Path, collections: Path) -> None:
        self.folder, self.collections, self.jobs = folder, collections, 0
        self.results, self.shared = folder / "cluster/results", folder / "cluster/shared"
        self.artifacts: Json = {}
        self.shared.mkdir(parents=True)

    def isolation(self) -> list[str]:
        """Return what AWX tells ansible-runner of an image, and no network: the cluster is a directory."""
        mounts = (f"{self.collections}:{self.collections}:ro", f"{self.folder}/cluster:{self.folder}/cluster:rw")
        return in_image("--network=none", *(f"--volume={mount}" for mount in mounts))

    def job(self, playbook: str, *options: str, workflow: int = 41) -> Job:
        """Run a stage where nothing is left of the one before."""
        self.jobs += 1
        place = self.folder / f"job{self.jobs}"
        private_directory(place, self.collections)
        (place / "project/playbooks/configure_here.yml").write_text(CONFIGURE)
        python = "/usr/bin/python3" if IMAGE else sys.executable
        own = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": python}
        groups = ("slurm_controller", "slurm_login", "slurm_compute")
        host = {"hosts": {"head": own}}
        (place / "inventory/hosts.json").write_text(json.dumps({"all": {"children": dict.fromkeys(groups, host)}}))
        variables = {
            "awx_workflow_job_id": workflow,
            "awx_job_id": workflow + self.jobs,
            "cluster_name": "train",
            "cluster_sku": "",
            "cluster_shared_dir": str(self.shared),
            "cluster_user": "nobody",
            "certification_profile": "ND96asr_v4",
            "certification_user": "root",
            "run_results_dir": str(self.results),
            **self.artifacts,
        }
        more = [*self.isolation(), *([f"--cmdline={' '.join(options)}"] if options else [])]
        job = run_job(place, playbook, variables, more)
        self.artifacts |= job.artifacts()
        return job


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, collections: Path) -> Site:
    """A workflow: a stage that succeeds, two that fail, and the report that is drawn of them in the end."""
    site = Site(tmp_path_factory.mktemp("site"), collections)
    fleet = invented(5)
    fleet.certificate["cluster"] = "train"
    store(fleet, site.shared / "certification/20261121T210000Z")
    return site


def test_what_stages_found_reaches_the_report_of_another_container(site: Site) -> None:
    rc, text, dummy = site.job("configure_here")
    assert rc == 0, text
    rc, text, dummy = site.job("certify", "--skip-tags=pytorch")
    assert rc == 2 and "scontrol" in text, text
    record = json.loads((site.results / "run.json").read_text())
    assert [(stage["run"], stage["stage"], stage["state"]) for stage in record["stages"]] == [
        ("awx-41", "configure", "done"),
        ("awx-41", "certify", "failed"),
    ]
    assert "scontrol" in record["stages"][1]["failures"]["head"]
    assert site.artifacts["hpcai_configure"]["state"] == "done"
    certify = site.artifacts["hpcai_certify"]
    assert certify["run"] == "awx-41" and certify["state"] == "failed" and certify["place"] == f"head:{site.results}"
    assert len(json.dumps(site.artifacts)) < 2000

    rc, text, dummy = site.job("report")
    assert rc == 0, text
    page = (site.results / "report.html").read_text()
    assert "awx-41" in page and "scontrol" in page
    assert "20261121T210000Z" in page, "the certificate on the cluster is not in the report"
    assert {"report.jsonl", "report.prom", "report.xml"} <= {path.name for path in site.results.iterdir()}
    assert site.results.stat().st_mode & 0o777 == 0o750

    rc, text, events = site.job("list_failures")
    assert rc == 0, text
    (stages, checks) = [
        event["event_data"]["res"]["msg"]
        for event in events
        if event["event"] == "runner_on_ok" and event["event_data"]["task"].startswith("List ")
    ]
    assert [(stage["stage"], stage["run"]) for stage in stages] == [("certify", "awx-41")] and checks == []
    assert "scontrol" in stages[0]["failures"]["head"]


def test_a_cluster_that_is_away_does_not_fail_the_report(site: Site) -> None:
    shutil.rmtree(site.results)
    site.results.write_text("no directory")
    rc, text, dummy = site.job("configure_here", workflow=42)
    assert rc == 0 and "The run record was not kept" in text, text
