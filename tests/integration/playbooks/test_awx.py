# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site_template fills a strict stand-in of AWX with one command, and changes nothing the second time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter
from awx_server import Awx, Server

ROOT = Path(__file__).resolve().parents[3]

URL = "https://git.example.org/ops/gpu-cluster.git"
SECRETS = {
    "AZURE_SUBSCRIPTION_ID": "00000000-0000-4000-8000-000000000001",
    "AZURE_TENANT": "00000000-0000-4000-8000-000000000002",
    "AZURE_CLIENT_ID": "00000000-0000-4000-8000-000000000003",
    "AZURE_SECRET": "azure~secret",
    "CYCLECLOUD_USERNAME": "hpcadmin",
    "CYCLECLOUD_PASSWORD": "cyclecloud~secret",
    "CYCLECLOUD_URL": "https://10.0.1.4:8443",
    "CYCLECLOUD_CERTIFICATES": "-----BEGIN CERTIFICATE-----",
    "HPCAI_MACHINE_USER": "hpcadmin",
    "HPCAI_MACHINE_KEY": "machine~secret",
    "HPCAI_MUNGE_KEY": "munge~secret" * 4,
    "HPCAI_REGISTRY_USER": "hpcadmin",
    "HPCAI_REGISTRY_MACHINE": "nvcr.io",
    "HPCAI_REGISTRY_LOGIN": "$oauthtoken",
    "HPCAI_REGISTRY_PASSWORD": "registry~secret",
    "HPCAI_STORAGE_ACCOUNT": "account",
    "HPCAI_STORAGE_KEY": "storage~secret",
}
OPTIONS = ["-e", f"site_scm_url={URL}", "-e", '{"site_credentials_used": ["munge_key", "registry", "storage"]}']


def run(project: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ANSIBLE_", "HPCAI_", "CONTROLLER_", "AZURE_"))
    }
    # Modules of awx.awx read all of this machine's certificates for each request, here by HTTP: most of their time.
    environment = {**kept, **SECRETS, "ANSIBLE_NOCOLOR": "1", "SSL_CERT_FILE": os.devnull, **more}
    return ansible_playbook(
        *arguments, "-e", f"ansible_python_interpreter={interpreter()}", cwd=project, env=environment
    )


class Filled(t.NamedTuple):
    awx: Awx
    first: subprocess.CompletedProcess[str]
    second: subprocess.CompletedProcess[str]
    requests_of_second: list[tuple[str, str, t.Any]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template as a fork, with the collection where requirements.yml would bring it."""
    folder = tmp_path_factory.mktemp("project") / "gpu-cluster"
    shutil.copytree(ROOT / "site_template", folder)
    (folder / "collections/ansible_collections").symlink_to(ROOT / ".build/collections/ansible_collections")
    return folder


@pytest.fixture(scope="module")
def filled(project: Path) -> t.Iterator[Filled]:
    awx = Awx({URL: ROOT / "site_template"})
    with Server(awx) as server:
        told = {"CONTROLLER_HOST": server.url, "CONTROLLER_USERNAME": "admin", "CONTROLLER_PASSWORD": awx.password}
        first = run(project, "awx/apply.yml", *OPTIONS, **told)
        before = len(awx.requests)
        second = run(project, "awx/apply.yml", *OPTIONS, **told)
        yield Filled(awx, first, second, awx.requests[before:])


def test_one_command_fills_it(filled: Filled) -> None:
    assert filled.first.returncode == 0, filled.first.stdout + filled.first.stderr
    made = filled.awx.tables
    assert {one["name"] for one in made["workflow_job_templates"].values()} == {"hpcai bring up", "hpcai take down"}
    assert {one["name"] for one in made["schedules"].values()} == {"hpcai nightly certify", "hpcai hourly expiry sweep"}
    assert {one["source"] for one in made["inventory_sources"].values()} == {"scm", "azure_rm"}


def test_what_provision_prints_reaches_the_credential_of_cyclecloud(filled: Filled) -> None:
    (found,) = (one for one in filled.awx.tables["credentials"].values() if one["name"] == "hpcai CycleCloud")
    assert found["inputs"]["url"] == SECRETS["CYCLECLOUD_URL"]
    assert found["inputs"]["certificates"] == SECRETS["CYCLECLOUD_CERTIFICATES"]


def test_the_second_run_changes_nothing(filled: Filled) -> None:
    assert filled.second.returncode == 0, filled.second.stdout + filled.second.stderr
    assert re.search(r"changed=0 ", filled.second.stdout), filled.second.stdout
    writes = [
        (method, path)
        for method, path, dummy in filled.requests_of_second
        if method != "GET" and "/tokens/" not in path
    ]
    assert writes == []


def test_no_secret_is_in_the_output(filled: Filled) -> None:
    for done in (filled.first, filled.second):
        assert not [value for value in SECRETS.values() if "~secret" in value and value in done.stdout + done.stderr]


def workflow(awx: Awx, name: str) -> dict[str, dict[str, set[str]]]:
    (key,) = (key for key, one in awx.tables["workflow_job_templates"].items() if one["name"] == name)
    nodes = {
        key_: one
        for key_, one in awx.tables["workflow_job_template_nodes"].items()
        if one["workflow_job_template"] == key
    }
    return {
        one["identifier"]: {
            link: {nodes[end]["identifier"] for end in awx.links.get(("workflow_job_template_nodes", number, link), [])}
            for link in ("success_nodes", "failure_nodes", "always_nodes")
        }
        for number, one in nodes.items()
    }


def test_nothing_is_made_or_deleted_before_somebody_approved(filled: Filled) -> None:
    for name, dear in (("hpcai bring up", "provision"), ("hpcai take down", "destroy")):
        parents = [
            (node, link) for node, links in workflow(filled.awx, name).items() for link in links if dear in links[link]
        ]
        assert parents == [("approve", "success_nodes")]


def test_the_report_is_drawn_whatever_fails(filled: Filled) -> None:
    links = workflow(filled.awx, "hpcai bring up")
    assert links["provision"] == {"success_nodes": {"configure"}, "failure_nodes": {"report"}, "always_nodes": set()}
    assert links["certify"] == {"success_nodes": {"train"}, "failure_nodes": {"report"}, "always_nodes": set()}
    assert links["train"]["always_nodes"] == {"report"}


def test_a_name_for_the_deletion_does_not_reach_the_list(filled: Filled) -> None:
    """A workflow's answers are extra variables of all its jobs, before the approval too."""
    (key,) = (
        key for key, one in filled.awx.tables["workflow_job_templates"].items() if one["name"] == "hpcai take down"
    )
    asked = {question["variable"] for question in filled.awx.surveys[key]["spec"]}
    assert asked == {"site_destroy_cluster"}
    assert "site_destroy_cluster" not in (ROOT / "playbooks/destroy.yml").read_text(encoding="utf-8")


def test_all_playbooks_are_found(project: Path) -> None:
    """Each thin playbook, by the collection's full name, with both inventories."""
    files = sorted(str(path.relative_to(project)) for path in (project / "playbooks").glob("*.yml"))
    for inventory in ("azure", "machines"):
        done = run(project, "-i", f"inventories/{inventory}/hosts", "--list-tasks", *files)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ERROR" not in done.stderr, done.stderr
