# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of CycleCloud: its template and parameters, and what is done when commands fail or nobody knows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import jinja2
import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import (
    account,
    cluster,
    cluster_request,
    cluster_state,
    slurm_project,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cluster_state import Waiter
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import Cli, CliError, Json, Notes

ROLE = Path(__file__).resolve().parents[5] / "roles/cyclecloud_cluster"
IMAGE = "microsoft-dsvm:ubuntu-hpc:2204:22.04.2026010100"
ARRAYS = [
    {"name": "ndv4", "machine_type": "Standard_ND96asr_v4", "image": IMAGE, "max_nodes": 4, "gpus": 8},
    {
        "name": "ndv5",
        "machine_type": "Standard_ND96isr_H100_v5",
        "image": IMAGE,
        "max_nodes": 2,
        "gpus": 8,
        "spot": True,
    },
]
SUBNET = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v/subnets/c"


def shipped(arrays: t.Sequence[dict[str, t.Any]] | None = None) -> str:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(ROLE / "templates"), trim_blocks=True)
    environment.filters["bool"] = bool
    values = {
        **defaults,
        "ansible_managed": "x",
        "cyclecloud_cluster_node_arrays": ARRAYS if arrays is None else arrays,
    }
    return environment.get_template("slurm.txt.j2").render(**values)


KINDS = ("Standard_ND96asr_v4", "Standard_ND96isr_H100_v5", "Standard_D8ads_v5")


def want(**others: t.Any) -> Json:
    base = {
        "name": "ndv4",
        "state": "started",
        "template": shipped(),
        "builtin": "",
        "region": "eastus",
        "subnet_id": SUBNET,
        "credentials": "azure",
        "node_arrays": ARRAYS,
        "scheduler": {"machine_type": "Standard_D8ads_v5"},
        "login": {},
        "shared": {"size_gb": 10, "sched_size_gb": 5},
        "slurm": {"version": "25.11.5", "node_prefix": "n-"},
        "autoscale": True,
        "node_identity": "",
        "tags": {},
        "max_scaleset_size": 100,
        "parameters": {},
        "secret_parameters": {},
        "project": {},
        "specs": [],
        "locker": "azure-storage",
        "drift": "correct",
        "until": "slurm",
        "ssh": "ssh",
        "wait": {"ready": 1, "slurm": 1, "poll": 0},
        "home": "/nowhere",
        "program": "/nowhere",
        "config": "/nowhere",
    }
    return {**base, **others}


def test_shipped_template_reads_only_what_it_declares() -> None:
    text = shipped()
    declared = cluster_request.declared_parameters(text)
    assert cluster_request.used_parameters(text) <= set(declared)
    assert set(declared) <= cluster_request.used_parameters(text)
    assert cluster_request.clusters(text) == ["hpcai-slurm"]
    assert declared["Region"].required and declared["ndv5Spot"].default == "false"


# What the template of CycleCloud's Slurm project 4.0.9 sets (templates/slurm.txt of Azure/cyclecloud-slurm).
SETTINGS = {
    "defaults": """slurm.version slurm.insiders slurm.user.uid slurm.user.gid munge.user.uid munge.user.gid
        slurm.slurmrestd.user.uid slurm.slurmrestd.user.gid slurm.enable_healthchecks slurm.accounting.enabled
        slurm.accounting.url slurm.accounting.user slurm.accounting.password slurm.accounting.certificate
        slurm.accounting.storageloc slurm.additional.config slurm.ha_enabled slurm.launch_parameters
        cyclecloud.hosts.standalone_dns.enabled cyclecloud.hosts.simple_vpc_dns.enabled cyclecloud.converge_on_boot
        cyclecloud.mounts.sched.disabled cyclecloud.mounts.shared.disabled cyclecloud.exports.sched.disabled
        cyclecloud.exports.shared.disabled cyclecloud.exports.sched.samba.enabled
        cyclecloud.exports.shared.samba.enabled cyclecloud.exports.defaults.samba.enabled
        cshared.server.legacy_links_disabled cyclecloud.monitoring.enabled cyclecloud.monitoring.identity_client_id
        cyclecloud.monitoring.ingestion_endpoint cluster.identities.default slurm.node_prefix
        slurm.use_nodename_as_hostname""",
    "scheduler": """slurm.role cyclecloud.mounts.nfs_sched.disabled cyclecloud.mounts.nfs_shared.disabled
        slurm.secondary_scheduler_name""",
    "login": "slurm.role autoscale.enabled",
    "compute": "slurm.role slurm.autoscale",
    "ndv4": "slurm.default_partition slurm.hpc slurm.partition",
}
# Sections of settings, with what each of them sets.
SECTIONS = {
    "defaults": {
        **{
            f"cyclecloud.mounts.{mount}": "type mountpoint export_path address options"
            for mount in ("nfs_shared", "nfs_sched", "additional_nfs")
        },
    },
    "scheduler": {
        **{f"cyclecloud.mounts.{mount}": "disabled mountpoint fs_type" for mount in ("ourssched", "oursshared")},
        "cyclecloud.exports.ourssched": "disabled export_path options samba.enabled type",
        "cyclecloud.exports.oursshared": "disabled export_path samba.enabled type",
    },
}


def configured(text: str) -> dict[str, dict[str, str]]:
    """Return the settings of each node of a template, those of named sections with the name before them."""
    nodes: dict[str, dict[str, str]] = {}
    node, prefix = "", None
    for line in text.partition("[parameters ")[0].splitlines():
        section = re.fullmatch(r"\s*(\[+)\s*([^\s\]]+)\s*(.*?)\s*\]+", line)
        if section and len(section[1]) == 2:
            node, prefix = section[3], None
        elif section:
            prefix = section[3] if section[2] == "configuration" else None
        elif prefix is not None and "=" in line and not line.strip().startswith("#"):
            name, dummy, value = line.partition("=")
            nodes.setdefault(node, {})[f"{prefix}.{name.strip()}".lstrip(".")] = value.strip()
    return nodes


def test_shipped_template_has_the_settings_of_cycleclouds_own() -> None:
    """One of them is fatal where it lacks: the project writes what is not set as an empty line of slurm.conf."""
    nodes = configured(shipped())
    for node, names in SETTINGS.items():
        assert set(names.split()) <= set(nodes[node]), node
    for node, sections in SECTIONS.items():
        for section, names in sections.items():
            assert {f"{section}.{name}" for name in names.split()} <= set(nodes[node]), section
    assert nodes["defaults"]["slurm.launch_parameters"] == "$configuration_slurm_launch_parameters"
    declared = cluster_request.declared_parameters(shipped())
    assert declared["configuration_slurm_launch_parameters"].default == "use_interactive_step"
    assert declared["EnableNodeHealthChecks"].default == "false" and declared["NodeTags"].kind == "Record"


def test_parameters_fit_the_shipped_template() -> None:
    values = cluster_request.build(want())
    declared = cluster_request.declared_parameters(shipped())
    assert cluster_request.unknown(values, declared) == [] and cluster_request.lacking(values, declared) == []
    assert values["SubnetId"] == "rg/v/c" and values["ndv5Spot"] is True and values["SchedulerImageName"] == IMAGE


def test_parameters_fit_the_built_in_template() -> None:
    arrays = [{**ARRAYS[0], "name": "gpu", "zone": "2"}]
    values = cluster_request.build(want(builtin="slurm_template_4.0.9", node_arrays=arrays))
    assert values["GPUMachineType"] == "Standard_ND96asr_v4"
    # The template reads the zones of its node arrays only with this.
    assert values["GPUAvailabilityZone"] == ["2"] and values["DefineNodesAvailabilityZone"] is True
    values = cluster_request.build(want(builtin="slurm_template_4.0.9", node_arrays=[{**ARRAYS[0], "name": "gpu"}]))
    assert values["DefineNodesAvailabilityZone"] is False and "GPUAvailabilityZone" not in values


def test_own_project_comes_first_and_only_on_compute_nodes() -> None:
    project = {"name": "hpcai-node", "spec": "node", "version": "1.0.7"}
    specs = [{"project": "site", "version": "1.0.0", "nodes": ["scheduler", "compute"]}]
    values = cluster_request.build(want(project=project, specs=specs))
    assert list(values["ndv4ClusterInitSpecs"]) == ["hpcai-node:node:1.0.7", "site:default:1.0.0"]
    assert list(values["SchedulerClusterInitSpecs"]) == ["site:default:1.0.0"]
    assert values["LoginClusterInitSpecs"] == {}


@pytest.mark.parametrize(
    "change, text",
    [
        ({"name": "a b"}, "cluster name"),
        ({"subnet_id": "x"}, "neither"),
        ({"node_arrays": []}, "no node array"),
        ({"node_arrays": [ARRAYS[0], ARRAYS[0]]}, "2 times"),
        ({"node_arrays": [{**ARRAYS[0], "name": "ND-4"}]}, "small letters"),
        ({"node_arrays": [{**ARRAYS[0], "name": "login"}]}, "is taken"),
        ({"node_arrays": [{**ARRAYS[0], "max_nodes": 0}]}, "1 or more"),
        ({"node_arrays": [{**ARRAYS[0], "image": "a:b:c:latest"}]}, "not pinned"),
        ({"node_arrays": [{**ARRAYS[0], "machine_type": "ND96"}]}, "no VM size"),
        ({"builtin": "slurm_template_4.0.9"}, "only hpc, htc and gpu"),
        ({"scheduler": {"machine_type": "x", "image": "latest"}}, "scheduler: image"),
    ],
)
def test_wrong_wishes(change: Json, text: str) -> None:
    assert cluster_request.problems(want()) == []
    assert text in "; ".join(cluster_request.problems(want(**change)))


@pytest.mark.parametrize(
    "wanted, have, same",
    [
        (4, "4", True),
        (4, "4.0", True),
        (True, "true", True),
        ("", None, True),
        ({}, None, True),
        ("A", "a", False),
        (4, 5, False),
        (4, "4.5", False),
        ("22.04", "22.040", False),
    ],
)
def test_exported_values_are_compared_leniently(wanted: t.Any, have: t.Any, same: bool) -> None:
    assert cluster_request.same(wanted, have) is same


def test_secrets_are_hidden_in_a_diff() -> None:
    assert cluster_request.lines({"a": 1, "b": "geheim"}, ["a", "b"], {"b"}) == "a = 1\nb = (hidden)\n"


def node(name: str, role: str, status: str, **others: t.Any) -> Json:
    told = {"Configuration": {"slurm": {"role": role}}, "TargetState": "Started", "PrivateIp": "10.0.0.4"}
    return {"Name": name, "NodeId": name, "Status": status, **told, **others}


def test_readiness() -> None:
    heads = [node("scheduler", "scheduler", "Ready"), node("login-1", "login", "Preparing")]
    seen = cluster_state.head_readiness({"nodes": heads}, 2)
    assert seen.waiting == ["login-1 is Preparing", "1 of 2 login nodes are there"] and not seen.failed
    seen = cluster_state.head_readiness({"nodes": [node("scheduler", "scheduler", "Failed", StatusMessage="quota")]}, 0)
    assert seen.failed == ["scheduler failed: quota"]
    assert cluster_state.head_readiness({"nodes": []}, 0).waiting == ["there is no scheduler yet"]


class Fake:
    """A server and both commands over one state; ``faults`` maps a command to what becomes of its next call."""

    def __init__(self) -> None:
        self.there, self.on, self.values = False, False, {}
        self.calls: list[str] = []
        self.faults: dict[str, str] = {}
        self.projects = [("slurm", "4.0.9"), ("slurm", "4.0.10"), ("healthagent", "2.0.2"), ("monitoring", "1.0.3")]
        self.template: list[Json] = [{"Name": "configuration_slurm_version", "DefaultValue": "25.11.5"}]
        self.asked: list[str] = []
        self.normalised: Json = {}
        self.gpus, self.empty = 8, 0
        self.tables = {name: set(KINDS) for name in account.MachineTypes.TABLES}

    def run(self, argv: list[str], *dummy: t.Any) -> Outcome:
        words = argv[1:]
        if words[0] == "execute":
            return Outcome(0, json.dumps(self.records(words[-1])), "", 0.0)
        if words[0] == "run_action":
            return Outcome(0, "", "", 0.0)
        self.calls.append(words[0])
        fault = self.faults.pop(words[0], "")
        if fault == "before":
            return Outcome(1, "", "Error: Connection reset by peer", 0.0)
        if fault == "refused":
            return Outcome(1, "", "Error: no such credentials", 0.0)
        if fault == "pretended":
            return Outcome(0, "", "", 0.0)
        if words[0] == "delete_cluster" and not self.there:
            return Outcome(1, "", "Error: there is no such cluster", 0.0)
        out = self.act(words)
        return Outcome(1, "", "Error: Connection reset by peer", 0.0) if fault == "after" else Outcome(0, out, "", 0.0)

    def records(self, query: str) -> list[Json]:
        table = query.split()[3]
        if table in self.tables:
            return [{"Name": name} for name in self.tables[table]]
        self.asked.append(query)
        if "Cloud.Project" in query:
            return [{"Name": name, "Version": version} for name, version in self.projects]
        return self.template

    def act(self, words: list[str]) -> str:
        if words[0] in ("import_cluster", "create_cluster"):
            self.there, self.values = True, json.loads(Path(words[words.index("-p") + 1]).read_text())
            self.text = Path(words[words.index("-f") + 1]).read_text() if "-f" in words else words[1]
        if words[0] == "start_cluster":
            self.on = True
        if words[0] == "terminate_cluster":
            self.on = False
        if words[0] == "delete_cluster":
            self.there = False
        exported = {key: self.normalised.get(key, value) for key, value in self.values.items()}
        return json.dumps(exported) if words[0] == "export_parameters" else ""

    def exists(self, dummy: str) -> bool:
        return self.there

    def started(self, dummy: str) -> bool:
        return self.on

    def status(self, dummy: str) -> Json:
        machine = {
            "definition": {"machineType": "Standard_ND96asr_v4"},
            "availableCount": 4,
            "activeCount": 0,
            "virtualMachine": {"gpuCount": self.gpus, "vcpuCount": 96},
        }
        other = {**machine, "definition": {"machineType": "Standard_ND96isr_H100_v5"}}
        self.empty -= 1
        first = [] if self.empty >= 0 else [machine]
        arrays = [{"name": "ndv4", "buckets": first}, {"name": "ndv5", "buckets": [other]}]
        nodes = [node("scheduler", "scheduler", "Ready")] if self.on else []
        return {"targetState": "Started" if self.on else "Off", "nodearrays": arrays, "nodes": nodes}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(cluster.Scheduler, "await_slurm", lambda *dummy: None)
    monkeypatch.setattr("time.sleep", lambda dummy: None)
    return Fake()


def do(fake: Fake, tmp_path: Path, check: bool = False, **others: t.Any) -> Json:
    wanted = want(state_dir=str(tmp_path), **others)
    work = cluster.absent if wanted["state"] == "absent" else cluster.present
    return work(Cli(wanted, fake.run), wanted, t.cast(t.Any, fake), check)


def test_cluster_is_made_once(fake: Fake, tmp_path: Path) -> None:
    assert do(fake, tmp_path, check=True)["changed"] and not fake.there
    first = do(fake, tmp_path)
    assert first["changed"] and first["cluster"]["state"] == "ready"
    assert first["cluster"]["node_arrays"]["ndv4"]["gpus_per_node"] == 8
    assert not do(fake, tmp_path)["changed"]
    assert fake.calls.count("import_cluster") == fake.calls.count("start_cluster") == 1
    assert not list(tmp_path.glob("ndv4.*"))


def held(state_dir: Path) -> bool:
    """Whether another process would have to wait for the lock of the modules on this server."""
    ask = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    done = subprocess.run([sys.executable, "-c", ask, str(state_dir / "lock")], capture_output=True, text=True)
    assert done.returncode == 0 or "BlockingIOError" in done.stderr, done.stderr
    return done.returncode != 0


def test_no_other_run_changes_the_server_meanwhile(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose connection was lost may still run when it is begun again; both write the files that are imported.
    Once the cluster is started there is nothing but waiting, which a run that mends something does not wait for."""
    seen: dict[str, bool] = {}
    run, status = fake.run, fake.status
    monkeypatch.setattr(fake, "run", lambda argv, *more: [seen.update({argv[1]: held(tmp_path)}), run(argv, *more)][1])
    monkeypatch.setattr(fake, "status", lambda name: [seen.update(status=held(tmp_path)), status(name)][1])
    do(fake, tmp_path)
    asked = ("import_cluster", "start_cluster", "execute", "export_parameters")
    assert {name: seen[name] for name in asked} == dict.fromkeys(asked, True)
    assert seen["status"] is False
    seen.clear()
    do(fake, tmp_path / "other", check=True)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("command", ["import_cluster", "start_cluster"])
def test_success_that_nobody_heard_of_counts(fake: Fake, tmp_path: Path, command: str) -> None:
    fake.faults[command] = "after"
    assert do(fake, tmp_path)["cluster"]["state"] == "ready"
    assert fake.calls.count(command) == 1 and not do(fake, tmp_path)["changed"]


@pytest.mark.parametrize("command", ["import_cluster", "start_cluster"])
@pytest.mark.parametrize("fault", ["before", "refused"])
def test_next_run_completes_what_failed(fake: Fake, tmp_path: Path, command: str, fault: str) -> None:
    fake.faults[command] = fault
    with pytest.raises(CliError, match=command):
        do(fake, tmp_path)
    assert do(fake, tmp_path)["changed"] and not do(fake, tmp_path)["changed"]


def killed(*dummy: t.Any) -> None:
    raise KeyboardInterrupt


def test_scale_is_made_good(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scaled: list[int] = []
    do(fake, tmp_path)
    monkeypatch.setattr(cluster.Scheduler, "scale", killed)
    with pytest.raises(KeyboardInterrupt):
        do(fake, tmp_path, max_scaleset_size=50)
    monkeypatch.setattr(cluster.Scheduler, "scale", lambda dummy: scaled.append(1))
    assert do(fake, tmp_path, max_scaleset_size=50)["changed"] and scaled == [1]
    assert not do(fake, tmp_path, max_scaleset_size=50)["changed"] and scaled == [1]
    assert fake.calls.count("import_cluster") == 2


def test_drift(fake: Fake, tmp_path: Path) -> None:
    do(fake, tmp_path)
    fake.values["ndv4MaxNodes"] = 99
    told = do(fake, tmp_path, drift="report")
    assert not told["changed"] and "ndv4MaxNodes" in told["warnings"][0]
    assert fake.values["ndv4MaxNodes"] == 99
    monkey = do(fake, tmp_path, check=True)
    assert monkey["changed"] and "ndv4MaxNodes = 99" in monkey["diff"][0]["before"]


def test_secret_parameters(fake: Fake, tmp_path: Path) -> None:
    secret = {"configuration_slurm_accounting_password": "geheim-123"}
    do(fake, tmp_path, secret_parameters=secret)
    assert fake.values["configuration_slurm_accounting_password"] == "geheim-123"
    assert not do(fake, tmp_path, secret_parameters=secret)["changed"]
    assert not any("geheim-123" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    other = do(fake, tmp_path, check=True, secret_parameters={"configuration_slurm_accounting_password": "x"})
    assert other["changed"] and "geheim" not in str(other)


@pytest.mark.parametrize("name", ["", "--force", "a b"])
def test_what_is_no_name_is_not_deleted(fake: Fake, tmp_path: Path, name: str) -> None:
    fake.there = True
    with pytest.raises(CliError, match="is not deleted"):
        do(fake, tmp_path, state="absent", name=name)
    assert fake.calls == []


def test_missing_gpus_stop_the_run(fake: Fake, tmp_path: Path) -> None:
    fake.gpus = 0
    with pytest.raises(CliError, match=r"after 0 s of waiting for the node arrays: .*sees 0 GPUs"):
        do(fake, tmp_path, wait={"arrays": 0})


def test_arrays_that_are_not_filled_in_yet_are_waited_for(fake: Fake, tmp_path: Path) -> None:
    """The first look after the start stopped the run: no such machine type in this region."""
    fake.empty = 3
    assert do(fake, tmp_path)["cluster"]["node_arrays"]["ndv4"]["gpus_per_node"] == 8


@pytest.mark.parametrize("table", account.MachineTypes.TABLES)
def test_a_type_that_is_in_one_table_only_keeps_the_cluster_from_being_imported(
    fake: Fake, tmp_path: Path, table: str
) -> None:
    fake.tables[table].discard("Standard_ND96asr_v4")
    with pytest.raises(CliError, match=rf"knows no Standard_ND96asr_v4 in {table} after 0 s \(region"):
        do(fake, tmp_path, wait={"machine_types": 0})
    assert fake.calls == [] and not fake.there
    fake.tables[table].add("STANDARD_ND96ASR_V4")
    assert do(fake, tmp_path)["changed"]


def test_cluster_goes(fake: Fake, tmp_path: Path) -> None:
    do(fake, tmp_path)
    assert do(fake, tmp_path, state="absent")["changed"] and not fake.there
    assert not do(fake, tmp_path, state="absent")["changed"]


def test_a_server_whose_command_line_was_never_set_up_keeps_no_teardown(tmp_path: Path) -> None:
    """provision.yml that ended there has made no cluster; one that was begun is not passed over."""
    places = {"home": str(tmp_path), "state_dir": str(tmp_path), "program": str(tmp_path / "cyclecloud")}
    request = want(state="absent", config=str(tmp_path / "config.ini"), **places)
    assert cluster.perform(request, False)["changed"] is False
    Notes(str(tmp_path), "cluster-ndv4").save({"pending": ["start"]})
    with pytest.raises(CliError, match="holds no login"):
        cluster.perform(request, False)


def test_a_cluster_that_is_still_there_is_not_deleted(fake: Fake, tmp_path: Path) -> None:
    do(fake, tmp_path)
    fake.faults["delete_cluster"] = "pretended"
    with pytest.raises(CliError, match="ended without an error CycleCloud has the cluster still: look"):
        do(fake, tmp_path, state="absent")
    assert do(fake, tmp_path, state="absent")["changed"] and not fake.there


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_deletion_whose_answer_was_lost_is_made_good(
    fake: Fake, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda dummy: None)
    do(fake, tmp_path)
    fake.faults["delete_cluster"] = fault
    assert do(fake, tmp_path, state="absent")["changed"] and not fake.there


def test_waiting_ends_with_what_is_missing(fake: Fake) -> None:
    with pytest.raises(CliError, match="there is no scheduler yet"):
        Waiter(t.cast(t.Any, fake), "x", {"ready": 0, "poll": 0}).nodes(0)


def specs(text: str) -> set[tuple[str, str]]:
    return set(slurm_project.specs(text))


def test_template_has_the_version_of_the_server(fake: Fake, tmp_path: Path) -> None:
    assert specs(shipped()) == {("slurm", ""), ("healthagent", ""), ("monitoring", "")}
    do(fake, tmp_path)
    assert specs(fake.text) == {("slurm", "4.0.10"), ("healthagent", ""), ("monitoring", "")}
    assert fake.values["configuration_slurm_version"] == "25.11.5"
    assert any('ClusterName == "slurm_template_4.0.10"' in query for query in fake.asked)


def test_cluster_stays_with_its_project(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.Scheduler, "scale", lambda dummy: None)
    do(fake, tmp_path)
    fake.projects += [("slurm", "4.0.11")]
    fake.template = [{"Name": "configuration_slurm_version", "DefaultValue": "26.05.1"}]
    later = do(fake, tmp_path)
    assert not later["changed"] and "the server has 4.0.11" in "".join(later["warnings"])
    slurm = {"node_prefix": "n-", "project": "4.0.11"}
    assert do(fake, tmp_path, slurm=slurm)["changed"]
    assert ("slurm", "4.0.11") in specs(fake.text) and fake.values["configuration_slurm_version"] == "26.05.1"
    assert not do(fake, tmp_path, slurm=slurm)["changed"]


@pytest.mark.parametrize(
    "slurm, text",
    [
        ({"project": "4.0.8"}, r"has Slurm project 4.0.10, 4.0.9 in Cloud.Project, not 4.0.8: .*project_url"),
        ({"project": "4.0.8", "project_url": "http://x/4.0.8"}, "an https address"),
        ({"project": "4.0.8", "project_url": "https://x/4.0.8"}, "slurm.version is needed"),
    ],
)
def test_project_that_the_server_has_not(fake: Fake, tmp_path: Path, slurm: Json, text: str) -> None:
    with pytest.raises(CliError, match=text):
        do(fake, tmp_path, slurm={"node_prefix": "n-", **slurm})
    assert fake.calls == [] and not fake.there


def test_record_of_a_project_is_given_to_the_server(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Json] = []

    def put(dummy: t.Any, records: list[Json], timeout: float) -> None:
        given.extend(records)
        fake.projects += [(record["Name"], record["Version"]) for record in records]

    monkeypatch.setattr(slurm_project.WatchedFolder, "put", put)
    url = "https://github.com/Azure/cyclecloud-slurm/releases/4.0.12"
    slurm = {"node_prefix": "n-", "project": "4.0.12", "project_url": url, "version": "25.11.6"}
    do(fake, tmp_path, check=True, slurm=slurm)
    assert not given
    do(fake, tmp_path, slurm=slurm)
    fields = {"Version": "4.0.12", "ProjectType": "scheduler", "Url": url, "AutoUpgrade": False}
    assert given == [{"AdType": "Cloud.Project", "Name": "slurm", **fields}]
    assert not do(fake, tmp_path, slurm=slurm)["changed"] and len(given) == 1


def test_projects_that_the_server_lacks_are_refused(fake: Fake, tmp_path: Path) -> None:
    fake.projects = [("slurm", "4.0.9"), ("healthagent", "2.0.2")]
    with pytest.raises(CliError, match=r"project monitoring, of which the server has no record: it has healthagent"):
        do(fake, tmp_path)
    fake.projects = []
    with pytest.raises(CliError, match=r"has no Slurm project in Cloud.Project: set slurm.project"):
        do(fake, tmp_path)
    assert fake.calls == []


def test_parameters_of_the_built_in_template_are_read_from_the_server(fake: Fake, tmp_path: Path) -> None:
    arrays = [{**ARRAYS[0], "name": "gpu", "zone": "2"}]
    given = {"template": "", "builtin": "slurm_template", "node_arrays": arrays, "state": "present"}
    values = cluster_request.build({**want(), **given, "builtin": "slurm_template_4.0.10"})
    fake.template += [{"Name": name} for name in values if name != "configuration_slurm_version"]
    do(fake, tmp_path, **given)
    assert fake.text == "slurm_template_4.0.10"
    with pytest.raises(CliError, match="configuration_new is not declared"):
        do(fake, tmp_path, **given, parameters={"configuration_new": True})
    fake.template += [{"Name": "configuration_new"}]
    assert do(fake, tmp_path, **given, parameters={"configuration_new": True})["changed"]
    fake.template = []
    with pytest.raises(CliError, match=r"slurm.version is needed"):
        do(fake, tmp_path / "other", **{**given, "name": "other"}, slurm={"node_prefix": "n-"})
    slurm = {"node_prefix": "n-", "version": "25.11.5"}
    result = do(fake, tmp_path / "other", **{**given, "name": "other"}, slurm=slurm)
    assert "lists no parameters of slurm_template_4.0.10" in "".join(result["warnings"])


def test_values_that_are_exported_in_another_form_are_no_drift(fake: Fake, tmp_path: Path) -> None:
    fake.normalised = {"ndv4MaxNodes": [4], "NodeTags": "[a=1]"}
    first = do(fake, tmp_path)
    assert first["cluster"]["state"] == "ready"
    assert "ndv4MaxNodes (4 was sent, [4] is exported)" in "".join(first["warnings"])
    assert not do(fake, tmp_path)["changed"]
    fake.normalised["ndv4MaxNodes"] = [9]
    assert do(fake, tmp_path, check=True)["changed"]


DATABASE = {"url": "train.mysql.database.azure.com", "user": "slurm"}


def test_accounting(fake: Fake, tmp_path: Path) -> None:
    given: Json = {"accounting": DATABASE, "accounting_password": "geheim-123"}
    result = do(fake, tmp_path, **given, parameters={"additional_slurm_config": "DefMemPerNode=1"})
    prefix = "configuration_slurm_accounting_"
    accounting = {key[len(prefix) :]: value for key, value in fake.values.items() if key.startswith(prefix)}
    assert accounting == {**DATABASE, "enabled": True, "storageloc": "", "password": "geheim-123"}
    assert fake.values["additional_slurm_config"] == "JobAcctGatherType=jobacct_gather/cgroup\nDefMemPerNode=1"
    assert "geheim" not in str(result)
    assert not any("geheim" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    given["accounting_password"] = "geheim-456"
    assert do(fake, tmp_path, check=True, **given)["changed"]


@pytest.mark.parametrize(
    "given, text",
    [
        ({"accounting": DATABASE}, "accounting_password is needed"),
        ({"accounting_password": "x"}, "accounting.url is needed"),
        ({"accounting": {**DATABASE, "host": "x"}, "accounting_password": "x"}, "accounting has host"),
        ({"accounting": {**DATABASE, "url": "mysql://x"}, "accounting_password": "x"}, "is no host name"),
        ({"accounting": {**DATABASE, "database": "a;b"}, "accounting_password": "x"}, "letters, digits and _"),
        ({"accounting": DATABASE, "accounting_password": "a#b"}, "slurmdbd.conf cuts off"),
    ],
)
def test_accounting_that_cannot_work(given: Json, text: str) -> None:
    assert text in "; ".join(cluster_request.problems(want(**given)))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Locker:
    """cycle_server with a locker that fails until it is tried again."""

    def __init__(self, clock: Clock, works: bool) -> None:
        self.clock, self.works, self.state, self.tries = clock, works, "Failed", []

    def query(self, text: str) -> list[Json]:
        return [{"State": self.state, "Message": "HNS"}] if "Locker" in text else []

    def server(self, *words: str) -> str:
        self.tries.append(self.clock.now)
        self.state = "Created" if self.works and "Retry:Cloud.Locker" in words else self.state
        return ""


def task(tmp_path: Path, works: bool) -> tuple[account.AccountTask, Locker]:
    clock = Clock()
    cli = Locker(clock, works)
    options = {
        "name": "azure",
        "subscription": "s",
        "tenant": "t",
        "environment": "public",
        "location": "eastus",
        "default": True,
        "resource_group": "rg",
        "storage_account": "store1",
        "container": "c",
        "locker_auth": "SharedAccessKey",
        "locker_identity": "",
        "accept_marketplace_terms": False,
        "identity": "managed_identity",
        "locker_timeout": 600,
        "machine_types_timeout": 500,
        "identity_timeout": 0,
        "state_dir": str(tmp_path),
    }
    return account.AccountTask(t.cast(t.Any, cli), options, clock), cli


def test_failed_locker_is_tried_again_after_two_minutes(tmp_path: Path) -> None:
    one, cli = task(tmp_path, works=True)
    assert one.await_locker() and len(cli.tries) == 1 and cli.tries[0] >= 1120


def test_locker_that_never_works_says_why(tmp_path: Path) -> None:
    one, cli = task(tmp_path, works=False)
    with pytest.raises(CliError, match=r"HNS.*hierarchical namespace"):
        one.await_locker()
    assert len(cli.tries) <= 5 and all(b - a >= 120 for a, b in zip(cli.tries, cli.tries[1:]))


def test_machine_types_that_never_come(tmp_path: Path) -> None:
    one, cli = task(tmp_path, works=False)
    with pytest.raises(CliError, match="no machine type in"):
        one.await_machine_types()
    assert len(cli.tries) == 5
