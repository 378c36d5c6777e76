# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stages as AWX runs them: each by ansible-runner in a private data directory of its own, with the tarball and
site_template and nothing else. What they hand on lies on the cluster, which is a directory here.

There is no Slurm: certify and train end at their first question to it, which is what has to reach the report.

HPCAI_TEST_IMAGE names an image, such as tests/tools/execution_environment.py builds, in which the jobs run then, as AWX
starts them; nothing of this machine is in it but the tarball, the project and the cluster's directory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from execution_environment import LIMITS

from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.plugin_utils.report_fleet import invented, store

pytest.importorskip("ansible_runner")
ROOT = Path(__file__).resolve().parents[3]
IMAGE = os.environ.get("HPCAI_TEST_IMAGE", "")
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
Json = t.Dict[str, t.Any]


def clean(home: Path) -> dict[str, str]:
    """The environment of a container: programs and no more."""
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8"} | {
        name: os.environ[name] for name in ("PYTHONPATH", "TMPDIR") if name in os.environ
    }


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tarball, installed."""
    place = tmp_path_factory.mktemp("installed")
    galaxy = [sys.executable, "-m", "ansible.cli.galaxy", "collection"]
    for words in (["build", str(ROOT), "--output-path", str(place)], ["install", "--no-deps", "-p", str(place)]):
        tarball = [str(path) for path in place.glob("*.tar.gz")] if words[0] == "install" else []
        subprocess.run([*galaxy, *words, *tarball], cwd=place, env=clean(place), check=True, capture_output=True)
    return place


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
        options = ["--user=root", *LIMITS, "--network=none", *(f"--volume={mount}" for mount in mounts)]
        isolated = ["--process-isolation", "--process-isolation-executable=podman", f"--container-image={IMAGE}"]
        return [*isolated, *(f"--container-option={option}" for option in options)] if IMAGE else []

    def job(self, playbook: str, *options: str, workflow: int = 41) -> tuple[int, str, list[Json]]:
        """Run a stage where nothing is left of the one before; return how it ended, what it said, and its events."""
        self.jobs += 1
        place = self.folder / f"job{self.jobs}"
        shutil.copytree(ROOT / "site_template", place / "project")
        (place / "project/playbooks/configure_here.yml").write_text(CONFIGURE)
        (place / "project/collections/ansible_collections").symlink_to(self.collections / "ansible_collections")
        python = "/usr/bin/python3" if IMAGE else sys.executable
        own = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": python}
        groups = ("slurm_controller", "slurm_login", "slurm_compute")
        host = {"hosts": {"head": own}}
        (place / "inventory").mkdir()
        (place / "inventory/hosts.json").write_text(json.dumps({"all": {"children": dict.fromkeys(groups, host)}}))
        (place / "env").mkdir()
        variables = {
            "awx_workflow_job_id": workflow,
            "awx_job_id": workflow + self.jobs,
            "cluster_name": "train",
            "cluster_sku": "",
            "cluster_shared_dir": str(self.shared),
            "cluster_user": "nobody",
            "certification_profile": "lab",
            "certification_user": "root",
            "run_results_dir": str(self.results),
            **self.artifacts,
        }
        (place / "env/extravars").write_text(json.dumps(variables))
        home = place / "home"
        home.mkdir()
        run = [
            sys.executable,
            "-m",
            "ansible_runner",
            "run",
            str(place),
            "-p",
            f"playbooks/{playbook}.yml",
            "-i",
            "job",
        ]
        more = [*self.isolation(), *([f"--cmdline={' '.join(options)}"] if options else [])]
        done = subprocess.run([*run, *more], env=clean(home), capture_output=True, text=True, check=False)
        assert {path.name for path in home.iterdir()} <= {".ansible"}, "a job keeps things in its home"
        events = [json.loads(path.read_text()) for path in sorted((place / "artifacts/job/job_events").glob("*.json"))]
        for event in events:
            self.artifacts |= event.get("event_data", {}).get("artifact_data") or {}
        shutil.rmtree(place)
        return done.returncode, done.stdout + done.stderr, events


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, collections: Path) -> Site:
    """A workflow: a stage that succeeds, two that fail, and the report that is drawn of them in the end."""
    site = Site(tmp_path_factory.mktemp("site"), collections)
    store(invented(5), site.shared / "certification/20261121T210000Z")
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
