# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped template, made into Slurm's files by the rules of CycleCloud's project, with a real slurmctld."""

from __future__ import annotations

import json
import re
import socket
import typing as t
from pathlib import Path

import jinja2
import pytest
from conftest import ROOT
from cyclecloud_emulator import (
    commands,
    life,
    limits,
    machine,
    node,
    records,
    rows,
    slurm_conf,
    store,
    template,
)
from real_slurm import STARTED, Slurmctld, slurmctld

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_request, slurm_project

Json = t.Dict[str, t.Any]
IMAGE = "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026070901"
ARRAYS = [
    {"name": "ndv4", "machine_type": "Standard_ND96asr_v4", "image": IMAGE, "max_nodes": 4, "default": True},
    {"name": "cpu", "machine_type": "Standard_D8ads_v5", "image": IMAGE, "max_nodes": 1, "hpc": False},
]
DATABASE = {"url": "train.mysql.database.azure.com", "user": "slurm"}


@pytest.fixture(scope="module")
def daemon() -> Slurmctld:
    return slurmctld()


def shipped() -> str:
    folder = ROOT / "roles/cyclecloud_cluster/templates"
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(folder), trim_blocks=True)
    environment.filters["bool"] = bool
    text = environment.get_template("slurm.txt.j2")
    return text.render(ansible_managed="x", cyclecloud_cluster_node_arrays=ARRAYS)


def made(text: str, **more: t.Any) -> dict[str, str]:
    """Return the files that a scheduler of this template has."""
    request = {
        "name": "Train 1",
        "builtin": "",
        "template": text,
        "region": "eastus",
        "subnet_id": "rg/vnet/compute",
        "credentials": "azure",
        "node_arrays": ARRAYS,
        "scheduler": {"machine_type": "Standard_D8ads_v5"},
        "login": {},
        "shared": {"size_gb": 10, "sched_size_gb": 5},
        "slurm": {"version": "25.11.5", "node_prefix": "train-"},
        "autoscale": True,
        "node_identity": "",
        "tags": {},
        "max_scaleset_size": 100,
        "project": {},
        "specs": [],
        "locker": "",
        **more,
    }
    sections = template.parse(text)
    values, unknown = template.parameters(sections, cluster_request.build(request))
    assert unknown == []
    nodes = template.nodes(template.cluster(sections, None), values)
    arrays = {name: node for name, node in nodes.items() if node["kind"] == "nodearray"}
    head = slurm_conf.Head(request["name"], socket.gethostname(), "127.0.0.1")
    return slurm_conf.files(nodes["scheduler"], arrays, head, limits.machine)


def test_slurmctld_starts_with_the_shipped_template(daemon: Slurmctld, tmp_path: Path) -> None:
    files = made(shipped())
    assert "LaunchParameters=use_interactive_step\n" in files["slurm.conf"]
    assert "PartitionName=ndv4 Nodes=train-ndv4-[1-4] Default=YES" in files["azure.conf"]
    said = daemon.start(tmp_path, files)
    assert STARTED.search(said), said


def test_slurmctld_refuses_a_template_without_launch_parameters(daemon: Slurmctld, tmp_path: Path) -> None:
    """That is what the test above is for: the project writes the line in any case, and Slurm takes no empty one."""
    text = re.sub(r"^\s*slurm\.launch_parameters = .*\n", "", shipped(), flags=re.MULTILINE)
    said = daemon.start(tmp_path, made(text))
    assert "fatal" in said and "LaunchParameters=" in said and not STARTED.search(said), said


def test_slurmctld_starts_with_accounting(daemon: Slurmctld, tmp_path: Path) -> None:
    files = made(shipped(), accounting=DATABASE, accounting_password="geheim")
    assert "StorageHost=train.mysql.database.azure.com\nStorageLoc=train_1_acct_db\n" in files["slurmdbd.conf"]
    assert files["slurm.conf"].rstrip().endswith("JobAcctGatherType=jobacct_gather/cgroup")
    assert files["accounting.conf"].startswith("AccountingStorageType=accounting_storage/slurmdbd\n")
    files["accounting.conf"] = "AccountingStorageType=accounting_storage/none\n"  # no slurmdbd runs here
    said = daemon.start(tmp_path, files)
    assert STARTED.search(said), said


# What the emulator is strict about where the template is imported.


@pytest.fixture
def server(tmp_path: Path) -> store.Store:
    made = store.Store(tmp_path / "state.json", speed=0)
    made.state["accounts"]["azure"] = {"Name": "azure", "_since": 0}
    return made


VALUES = {
    "Region": "eastus",
    "SubnetId": "rg/vnet/compute",
    "Credentials": "azure",
    "configuration_slurm_version": "25.11.5",
    "SchedulerMachineType": "Standard_D8ads_v5",
    "SchedulerImageName": IMAGE,
    "LoginMachineType": "Standard_D8ads_v5",
    "LoginImageName": IMAGE,
    "NodeNamePrefix": "train-",
    **{f"{array['name']}{end}": IMAGE for array in ARRAYS for end in ("MachineType", "ImageName")},
    **{f"{array['name']}MaxNodes": 1 for array in ARRAYS},
}


@pytest.mark.parametrize(
    "version, state", [("4.0.10", "Ready"), ("", "Ready"), ("4.0.9", "Failed"), ("4.0.11", "Failed")]
)
def test_nodes_of_a_project_that_the_server_has_not_fail(server: store.Store, version: str, state: str) -> None:
    text = slurm_project.with_version(shipped(), version)
    machine.make(server, "c1", text, None, VALUES, force=False)
    machine.start(server, "c1")
    for dummy in range(4):
        server.advance(1000)
        life.tick(server)
    node = server.state["clusters"]["c1"]["nodes"]["scheduler"]
    assert node["Status"] == state, node["StatusMessage"]
    assert state == "Ready" or f"cyclecloud/slurm:default:{version}" in node["StatusMessage"]


def test_a_dropped_record_adds_a_project(server: store.Store, tmp_path: Path) -> None:
    record = {"AdType": "Cloud.Project", "Name": "slurm", "Version": "4.0.11", "Url": "https://example.org/4.0.11"}
    (tmp_path / "slurm.json").write_text(json.dumps([record]))
    assert records.drop(server, tmp_path) == ["slurm.json"]
    query = 'SELECT Version FROM Cloud.Project WHERE Name=="Slurm"'
    versions = [row["Version"] for row in records.execute(server, rows.rows(server), query)]
    assert sorted(versions) == ["4.0.10", "4.0.11"]


def test_an_unknown_kind_of_parameter_is_refused(server: store.Store) -> None:
    text = shipped().replace("ParameterType = Record", "ParameterType = Tags")
    with pytest.raises(store.UserError, match=r"NodeTags.*unknown ParameterType 'Tags'"):
        machine.make(server, "c1", text, None, VALUES, force=False)


def test_parameters_are_exported_in_another_form(server: store.Store) -> None:
    machine.make(server, "c1", shipped(), None, {**VALUES, "NodeTags": {"a": "b"}}, force=False)
    export = commands.COMMANDS["export_parameters"]
    exported = json.loads(export(None, server, {"name": "c1"}))
    assert exported["ndv4MaxNodes"] == "1.0" and exported["Autoscale"] == "True" and exported["NodeTags"] == {"a": "b"}
    server.settings({"export": ""})
    assert json.loads(export(None, server, {"name": "c1"}))["ndv4MaxNodes"] == 1


class Asked:
    """The command cycle_server, answered by the emulator's records."""

    def __init__(self, server: store.Store) -> None:
        self.server = server

    def query(self, text: str) -> list[Json]:
        return records.execute(self.server, rows.rows(self.server), text)


def test_the_project_is_read_from_the_emulated_server(server: store.Store) -> None:
    request = {"builtin": "slurm_template", "template": "", "slurm": {"node_prefix": "x-"}}
    project = slurm_project.resolve(t.cast(t.Any, Asked(server)), request, {})
    assert (project.version, project.slurm, project.warnings) == ("4.0.10", "25.11.5", [])
    assert project.declared is not None and project.declared["NodeTags"].kind == "Record"
    values = cluster_request.build(
        {
            **request,
            "name": "c1",
            "region": "eastus",
            "subnet_id": "rg/vnet/compute",
            "credentials": "azure",
            "node_arrays": [{**ARRAYS[0], "name": "gpu", "zone": "1"}],
            "scheduler": {"machine_type": "Standard_D8ads_v5"},
            "login": {},
            "shared": {"size_gb": 10, "sched_size_gb": 5},
            "slurm": {"version": project.slurm, "node_prefix": "x-"},
            "autoscale": True,
            "node_identity": "",
            "tags": {},
            "max_scaleset_size": 100,
            "project": {},
            "specs": [],
            "locker": "",
            "accounting": DATABASE,
        }
    )
    assert cluster_request.unknown(values, project.declared) == []
    server.settings({"projects": {**server.state["settings"]["projects"], "slurm": ["4.0.11", "4.0.10"]}})
    kept = slurm_project.resolve(t.cast(t.Any, Asked(server)), request, {"project": "4.0.10", "slurm": "25.11.5"})
    assert kept.version == "4.0.10" and "the server has 4.0.11" in kept.warnings[-1]


# What azslurmd makes of nodes that Slurm and CycleCloud see differently.

ZOMBIE = "NodeAddr=n1 NodeHostName=n1 State=down Reason=cyclecloud_zombie_node"
NO_NODE = "NodeAddr=n1 NodeHostName=n1 State=down Reason=cyclecloud_no_node"


@pytest.mark.parametrize(
    "state, reason, status, told",
    [
        ("IDLE+CLOUD", "", "Ready", ""),
        ("IDLE+CLOUD+POWERED_DOWN", "", "", ""),
        ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "", "", ""),
        ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "", "Ready", ""),
        ("IDLE+CLOUD", "", "", NO_NODE),
        ("IDLE+CLOUD+POWERING_DOWN", "", "Ready", ZOMBIE),
        ("IDLE+CLOUD+POWERING_DOWN", "", "Terminating", ""),
        ("DOWN+CLOUD+POWERING_DOWN", "cyclecloud_zombie_node", "Ready", ""),
        ("DOWN+CLOUD+POWERED_DOWN", "cyclecloud_zombie_node", "", "Reason=(null)"),
        ("IDLE+CLOUD+POWERED_DOWN", "cyclecloud_no_node", "", "Reason=(null)"),
        ("DOWN+CLOUD", "cyclecloud_no_node", "Ready", "State=idle Reason=(null)"),
        ("DOWN+CLOUD", "somebody's", "Ready", ""),
    ],
)
def test_azslurmd_makes_nodes_down_that_one_side_has(
    state: str, reason: str, status: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(*argv: str, **dummy: t.Any) -> str:
        if argv[1] == "show":
            return f"NodeName=n1 CPUAlloc=0 State={state}{f' Reason={reason}' if reason else ''} [root@2026]\n"
        asked.append(" ".join(argv[3:]))
        return ""

    monkeypatch.setattr(node, "run", run)
    node._converge({"n1": {"Name": "n1", "Status": status}} if status else {})
    assert asked == ([told] if told else [])
