# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.filter.preflight import _specs
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight import findings

FACTS = {"memtotal_mb": 4000, "processor_count": 1, "processor_cores": 4, "processor_threads_per_core": 1}


def host(name: str, **changed: t.Any) -> dict[str, t.Any]:
    number = name.strip("abcdefghijklmnopqrstuvwxyz") or "9"
    known = {"node": name, "hostname": name, "address": f"10.0.0.{number}", "system": "Debian", "release": "12"}
    return {**known, "facts": {"hostname": name, **FACTS}, "slurm_node": {}, **changed}


GOOD: dict[str, t.Any] = {
    "cluster_name": "lab",
    "cluster_user": "trainer",
    "cluster_shared_dir": "/shared/home",
    "preflight_controller_hosts": ["ctl"],
    "preflight_database_hosts": ["ctl"],
    "preflight_login_hosts": ["ctl"],
    "preflight_compute_hosts": ["c1", "c2"],
    "preflight_play_hosts": ["ctl", "c1", "c2"],
    "preflight_supported_systems": {"Debian": ["12", 13], "Ubuntu": ["24.04"]},
    "preflight_shared_paths": ["/shared"],
    "shared_storage_mounts": [{"path": "/shared", "type": "nfs", "source": "files:/export"}],
    "slurm_partitions": [
        {"name": "batch", "nodes": "ALL", "default": True, "max_time": "1:00:00"},
        {"name": "one", "nodes": ["c1"], "options": {"PriorityTier": 10}},
        {"name": "range", "nodes": "c[1-2]", "max_time": "7-00"},
    ],
    "slurm_database_accounts": [{"name": "research"}, {"name": "team", "parent": "research"}],
    "slurm_database_users": [{"name": "trainer", "account": "research"}],
    "slurm_database_qos": [{"name": "long"}],
    "slurm_extra_settings": {"SlurmdTimeout": 300, "SlurmctldParameters": "idle_on_node_suspend,enable_configless"},
    "slurm_memory_headroom": "0.05",
    "hosts": {name: host(name) for name in ("ctl", "c1", "c2")},
}
A100 = {"sockets": 1, "cores_per_socket": 1, "threads_per_core": 1, "real_memory": 1000, "gres": "gpu:a100:8"}


def hosts(**changed: t.Any) -> dict[str, t.Any]:
    return {"hosts": {**GOOD["hosts"], **changed}}


def partition(**changed: t.Any) -> dict[str, t.Any]:
    return {"slurm_partitions": [{"name": "a", "nodes": "ALL", "default": True, **changed}]}


def extra(**settings: t.Any) -> dict[str, t.Any]:
    return {"slurm_extra_settings": settings}


def account(**changed: t.Any) -> dict[str, t.Any]:
    return {"slurm_database_accounts": [{"name": "research"}, {"name": "x", **changed}]}


def mount(**changed: t.Any) -> dict[str, t.Any]:
    return {"shared_storage_mounts": [{"path": "/shared", "type": "nfs", "source": "files:/export", **changed}]}


CASES: list[tuple[dict[str, t.Any], list[str]]] = [
    # the cluster and its hosts
    ({"cluster_name": "Lab"}, ["cluster_name", "'Lab'", "lower-case"]),
    ({"cluster_name": ""}, ["cluster_name", "''"]),
    ({"cluster_name": "x" * 41}, ["cluster_name", "40"]),
    ({"cluster_name": None}, ["cluster_name", "None"]),
    ({"cluster_name": True}, ["cluster_name", "True"]),
    ({"cluster_name": "a b"}, ["cluster_name"]),
    ({**partition(), "preflight_compute_hosts": []}, ["preflight_compute_hosts", "slurm_compute"]),
    ({"preflight_controller_hosts": []}, ["preflight_controller_hosts", "slurm_controller"]),
    ({"preflight_database_hosts": []}, ["preflight_database_hosts", "slurm_database"]),
    ({"preflight_database_hosts": ["ctl", "c1"]}, ["one host"]),
    ({"preflight_login_hosts": []}, ["preflight_login_hosts", "slurm_login"]),
    ({"preflight_controller_hosts": ["c1"]}, ["['c1']", "preflight_allow_shared_controller: true"]),
    ({"preflight_controller_hosts": ["ctl", "db"]}, ["slurm_state_is_shared"]),
    ({"preflight_controller_hosts": ["ctl", "db"], "slurm_state_is_shared": True}, ["slurm_state_dir", "/shared"]),
    ({"preflight_compute_hosts": ["c1", "c2", "c1"]}, ["'c1'", "listed twice"]),
    (hosts(c1=host("c1", node="c2")), ["'c2'", "c1, c2", "slurm_node.name"]),
    (hosts(c1=host("c1", hostname="ctl", node="ctl"), ctl=host("ctl")), ["'ctl'", "c1, ctl"]),
    (hosts(c1=host("c1", address="10.0.0.2")), ["ansible_host", "c1, c2"]),
    (hosts(c1=host("c1", address="10.0.0.9")), ["ansible_host", "c1, ctl"]),
    (hosts(c1=host("c1", release="11")), ["c1", "Debian 11", "Ubuntu 24.04"]),
    (hosts(c1=host("c1", system="Rocky", release="9")), ["Rocky 9", "Debian 12, 13"]),
    (hosts(c1=host("c1", node="bad_name"), c2=host("c2")), ["bad_name", "not a host name"]),
    (hosts(ctl=host("ctl", hostname="ip-10-0-0-9")), ["'ctl'", "calls itself ip-10-0-0-9"]),
    (hosts(ctl=host("ctl", facts={})), ["'ctl'", "could not be read"]),
    (
        hosts(ctl=host("ctl", facts={"nodename": "c0.lan"}, hostname="c0")),
        ["'ctl'", "calls itself c0.lan", "hostnamectl"],
    ),
    (
        {
            **hosts(
                **{"ctl.lan": host("ctl", facts={"nodename": "ctl"})},
                ctl=host("x", address="10.0.0.77"),
            ),
            "preflight_controller_hosts": ["ctl.lan"],
        },
        ["'ctl.lan'", "calls itself ctl", "set-hostname ctl.lan"],
    ),
    ({"preflight_reached_hosts": ["c1", "c2"]}, ["'ctl'", "could not be read"]),
    (
        hosts(c2=host("c2", facts={})),
        ["'c2'", "could not be read", "slurm_node for it, with sockets", "fact_caching = "],
    ),
    (hosts(c1=host("c1", facts={}), c2=host("c2", facts={})), ["['c1', 'c2']", "could not be read", "fact_caching = "]),
    (hosts(c2=host("c2", slurm_node={"socket": 2})), ["slurm_node of c2", "socket", "accepted: address"]),
    (hosts(c2=host("c2", slurm_node={"sockets": 0})), ["slurm_node.sockets of c2", "0"]),
    (hosts(c2=host("c2", slurm_node={"real_memory": "1.5T"})), ["slurm_node.real_memory of c2", "'1.5T'"]),
    (hosts(c2=host("c2", slurm_node="big")), ["slurm_node of c2", "'big'"]),
    # partitions
    (partition(nodes=["zz"]), ["slurm_partitions (a).nodes", "zz", "slurm_compute"]),
    (partition(nodes="c[1-3]"), ["slurm_partitions (a).nodes", "c3"]),
    (partition(nodes="c[1-"), ["slurm_partitions (a).nodes", "c[1-"]),
    (partition(nodes=[]), ["has no nodes"]),
    (partition(default=False), ["slurm_partitions", "exactly one"]),
    (partition(name="default"), ["slurm_partitions", "'default'"]),
    (partition(name="a b"), ["slurm_partitions", "'a b'"]),
    (partition(max_time="1 week"), ["max_time", "'1 week'", "7-00:00:00"]),
    (partition(max_time=3600), ["max_time", "3600", "without quotes"]),
    (partition(options={"Nodes": "c1"}), ["slurm_partitions (a).options.Nodes", "nodes"]),
    ({"slurm_partitions": [{"name": n, "nodes": "ALL", "default": True} for n in "ab"]}, ["several", "exactly one"]),
    (
        {"slurm_partitions": [{"name": "a", "nodes": "ALL", "default": first} for first in (True, False)]},
        ["defined twice"],
    ),
    ({"slurm_partitions": "batch"}, ["slurm_partitions is 'batch'", "a list, each a dictionary with name"]),
    ({"slurm_partitions": [{"name": "a"}]}, ["slurm_partitions", "nodes"]),
    ({"slurm_partitions": [{"name": "a", "nodes": "ALL", "defualt": True}]}, ["defualt", "default"]),
    ({"slurm_partition": [], "slurm_partitions": None}, ["slurm_partitions"]),
    # settings
    (extra(nodename="x"), ["slurm_extra_settings.nodename", "slurm_node"]),
    (extra(StateSaveLocation="/x"), ["slurm_extra_settings.StateSaveLocation", "slurm_state_dir"]),
    (extra(AccountingStoragePort=7000), ["slurm_extra_settings.AccountingStoragePort", "slurm_database_port"]),
    (extra(SlurmUser="root"), ["slurm_extra_settings.SlurmUser", "user slurm"]),
    (extra(AuthType="auth/none"), ["auth/munge"]),
    (extra(SlurmctldParameters="idle_on_node_suspend"), ["SlurmctldParameters", "enable_configless"]),
    (extra(SlurmctldPort=7000), ["SlurmctldPort", "slurm_compute_controller_port, now 6817"]),
    (extra(SelectType="select/linear"), ["SelectType", "CR_Memory"]),
    (extra(SlurmdTimeout=1, slurmdtimeout=2), ["slurmdtimeout", "different case"]),
    (extra(Prolog="/a\nEpilog=/b"), ["Prolog", "one line"]),
    (extra(**{"Slurmd Timeout": 1}), ["Slurmd Timeout", "no name of a setting"]),
    ({"slurm_extra_settings": ["SlurmdTimeout=1"]}, ["slurm_extra_settings", "a dictionary"]),
    ({"slurm_extra_setting": {"A": 1}, "slurm_extra_settings": 0}, ["slurm_extra_settings is 0"]),
    ({"slurm_required_mount": ["/shared"]}, ["slurm_required_mount", "read by no role", "slurm_required_mounts"]),
    ({"slurm_cgroup_settings": {"ConstrainCore": True}}, ["slurm_cgroup_settings", "ConstrainCore", "ConstrainCores"]),
    ({"slurm_memory_headroom": 1.5}, ["slurm_memory_headroom", "1.5"]),
    ({"slurm_memory_headroom": -0.1}, ["slurm_memory_headroom", "-0.1"]),
    ({"slurm_memory_headroom": "5%"}, ["slurm_memory_headroom", "'5%'", "a number"]),
    ({"slurm_memory_headroom": None}, ["slurm_memory_headroom", "None", "a number"]),
    ({"slurm_state_dir": "/tmp/state"}, ["slurm_state_dir", "/tmp/state"]),
    ({"slurm_topology": [{"name": "s", "nodes": ["c9"]}]}, ["slurm_topology (s).nodes", "c9"]),
    ({"slurm_topology": [{"name": "s"}]}, ["slurm_topology (s)", "either nodes or switches"]),
    ({"slurm_topology": [{"name": "s", "switches": ["t"]}]}, ["slurm_topology (s).switches", "'t'"]),
    ({"slurm_topology": [{"name": "s", "nodes": ["c1"]}]}, ["slurm_topology", "'c2'", "on no switch"]),
    ({"slurm_topology": [{"name": s, "nodes": ["c[1-2]"]} for s in "st"]}, ["slurm_topology", "on several switches"]),
    ({"slurm_topologies": [{"name": "a"}, {"name": "a"}]}, ["slurm_topologies (a)", "each one's own"]),
    ({"slurm_topologies": [{"name": "a", "plugin": "ring"}]}, ["slurm_topologies", "ring"]),
    (
        {"slurm_topologies": [{"name": "a", "switches": [{"name": "s", "nodes": ["c9"]}]}]},
        ["slurm_topologies (a).switches (s).nodes", "c9"],
    ),
    (
        {
            "slurm_topologies": [{"name": "racks", "plugin": "flat"}],
            "slurm_partitions": [{"name": "p", "nodes": "ALL", "default": True, "options": {"Topology": "rack"}}],
        },
        ["slurm_partitions (p).options.Topology", "'rack'", "racks"],
    ),
    ({"slurm_topology_source": "aws"}, ["slurm_topology_source", "slurm_topology_file"]),
    ({"slurm_topology_source": "infiniban"}, ["slurm_topology_source", "infiniband"]),
    ({"slurm_topology_source": "hosts"}, ["slurm_leaf", "c1, c2", "pod1/leaf3"]),
    (
        {"slurm_topology_source": "azure", **hosts(c1=host("c1", leaf="pg0"))},
        ["slurm_leaf", "for c2", "cc_placement_group"],
    ),
    (
        {"slurm_topology_source": "infiniband", "slurm_topology_names": {"lc1": "c9"}},
        ["slurm_topology_names.lc1", "'c9'"],
    ),
    (
        {"slurm_topology_source": "infiniband", "slurm_topology": [{"name": "s", "nodes": ["c[1-2]"]}]},
        ["slurm_topology_source", "never asked"],
    ),
    # generic resources
    (hosts(c1=host("c1", slurm_node=A100)), ["slurm_node.gres of c1", "gpu:a100:8", "has no gpu"]),
    (
        {
            **hosts(c1=host("c1", slurm_node=A100)),
            "slurm_gres": [{"name": "gpu", "type": "h100", "file": "/dev/n[0-7]"}],
        },
        ["no gpu of type a100"],
    ),
    (
        {
            **hosts(c1=host("c1", slurm_node=A100)),
            "slurm_gres": [{"name": "gpu", "type": "a100", "file": "/dev/n[0-3]"}],
        },
        ["slurm_node.gres of c1", "offers 4"],
    ),
    (
        {**hosts(c1=host("c1", slurm_node=A100)), "slurm_gres": [{"name": "gpu", "type": "a100", "count": 8}]},
        ["names no file"],
    ),
    (
        {**hosts(c1=host("c1", slurm_node=A100)), "slurm_gres": [{"name": "gpu", "type": "a100", "file": "/dev/n[0-"}]},
        ["slurm_node.gres of c1", "/dev/n[0-"],
    ),
    ({"slurm_gres": [{"name": "gpu", "fiel": "/dev/n0"}]}, ["slurm_gres", "'fiel'", "file"]),
    ({"slurm_gres": [{"type": "a100"}]}, ["slurm_gres", "has no name"]),
    # accounting
    ({"slurm_database_users": [{"name": "trainer", "account": "nope"}]}, ["(trainer).account", "nope", "research"]),
    ({"slurm_database_users": [{"name": "trainer"}]}, ["slurm_database_users", "account"]),
    ({"slurm_database_users": [{"name": "x", "account": "research"}]}, ["cluster_user", "'trainer'", "x"]),
    ({"cluster_user": None}, ["cluster_user", "None"]),
    (account(name="Research"), ["slurm_database_accounts", "'Research'", "lower case"]),
    (account(name="research"), ["slurm_database_accounts", "defined twice"]),
    (account(parent="nope"), ["slurm_database_accounts (x).parent", "nope", "research, root"]),
    (account(parent="x"), ["slurm_database_accounts (x).parent", "back to itself"]),
    (account(settings={"qos": ["normal", "urgent"]}), ["slurm_database_accounts (x)", "urgent", "long, normal"]),
    (account(setings={}), ["setings", "settings"]),
    ({"slurm_database_settings": {"DbdPort": 7000}}, ["slurm_database_settings.DbdPort", "slurm_database_port"]),
    ({"slurm_database_settings": {"StoragePass": "geheim"}}, ["StoragePass", "slurm_database_storage_password"]),
    (
        {"slurm_database_local": False, "slurm_database_storage_host": "db"},
        ["slurm_database_storage_password", "vault"],
    ),
    (
        {"slurm_database_local": False, "slurm_database_storage_password": "geheim"},
        ["slurm_database_storage_host", "localhost"],
    ),
    # storage
    (mount(source=None), ["shared_storage_mounts (/shared).source", "None", "server:/export"]),
    (mount(type="cifs"), ["shared_storage_mounts (/shared).source", "//server/share"]),
    (mount(type="nsf"), ["shared_storage_mounts", "nsf", "nfs, cifs"]),
    (mount(path="/"), ["shared_storage_mounts.path", "not /"]),
    (mount(credentials={"username": "u", "pasword": "geheim"}), ["credentials", "password"]),
    (mount(source="no share", state="present"), ["shared_storage_mounts", "present", "mounted, absent"]),
    ({"cluster_shared_dir": "shared"}, ["cluster_shared_dir", "not an absolute path"]),
    ({"cluster_shared_dir": "/elsewhere"}, ["cluster_shared_dir", "/elsewhere", "type: existing"]),
    ({"cluster_scratch_dir": "scratch"}, ["cluster_scratch_dir"]),
]


@pytest.fixture(scope="module")
def specs() -> dict[str, t.Any]:
    return _specs()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"slurm_extra_settings": {"MaxJobCount": "1\nSlurmUser=mallory"}}, "slurm_extra_settings.MaxJobCount"),
        ({"slurm_plugstack": ["required a.so\nrequired evil.so"]}, "slurm_plugstack[0]"),
        ({"boot_order_gates": ["a.service\nExecStart=/tmp/x"]}, "boot_order_gates[0]"),
        ({"node_tuning_sysctl": {"vm.x": "1\x1b"}}, "node_tuning_sysctl.vm.x"),
    ],
)
def test_a_newline_is_refused_before_anything_is_changed(
    change: dict[str, t.Any], path: str, specs: dict[str, t.Any]
) -> None:
    (text,) = findings({**GOOD, **change}, specs)
    assert text.startswith(f"{path} is '(hidden)': a newline or another control character")
    assert "mallory" not in text


def test_a_script_may_have_lines(specs: dict[str, t.Any]) -> None:
    assert findings({**GOOD, "node_bundle_before": ["a\nb"], "slurm_power_user_data": "#!/bin/sh\ntrue\n"}, specs) == []


def test_a_certificate_may_have_lines(specs: dict[str, t.Any]) -> None:
    files = [{"path": "/etc/cloud/ca.pem", "content": "-----BEGIN CERTIFICATE-----\nMIIB\n"}]
    assert findings({**GOOD, "slurm_power_files": files}, specs) == []
    accounting = {"url": "db.example.com", "user": "slurm", "certificate": files[0]["content"]}
    parameters = {"additional_slurm_config": "SuspendTime=60\nSuspendTimeout=600\n"}
    of_cyclecloud = {"cyclecloud_cluster_accounting": accounting, "cyclecloud_cluster_parameters": parameters}
    assert findings({**GOOD, "cluster_slurm": "cyclecloud", **of_cyclecloud}, specs) == []


def test_of_a_cluster_of_cyclecloud_what_nothing_reads_is_told(specs: dict[str, t.Any]) -> None:
    made = {"cluster_slurm": "cyclecloud", "cluster_name": "c", "cluster_sku": "of CycleCloud's choice"}
    assert findings(made, specs) == []
    wrong = {"cluster_share_dir": "/shared", "cluster_driver": "theirs", "cluster_python": "python3"}
    assert [text.split()[0] for text in findings({**made, **wrong}, specs)] == [
        "cluster_driver",
        "cluster_python",
        "cluster_share_dir",
    ]


def test_a_refusal_does_not_repeat_a_password_in_a_value(specs: dict[str, t.Any]) -> None:
    text = " ".join(findings({**GOOD, "slurm_partitions": "https://me:geheim@example.com/x"}, specs))
    assert "slurm_partitions" in text
    assert "geheim" not in text


def test_a_sound_inventory_passes(specs: dict[str, t.Any]) -> None:
    assert findings(GOOD, specs) == []


@pytest.mark.parametrize(("change", "words"), CASES, ids=lambda item: str(item)[:60])
def test_each_fault_is_named_once(change: dict[str, t.Any], words: list[str], specs: dict[str, t.Any]) -> None:
    found = findings({**GOOD, **change}, specs)
    assert len(found) == 1, found
    assert all(word in found[0] for word in words), found
    assert "geheim" not in found[0]
    assert "accepted: " in found[0]


@pytest.mark.parametrize(
    "change",
    [
        {"preflight_controller_hosts": ["c1"], "preflight_allow_shared_controller": True},
        {
            **hosts(c1=host("c1", slurm_node=A100)),
            "slurm_gres": [{"name": "gpu", "type": "a100", "file": "/dev/n[0-7]"}],
        },
        {**hosts(c1=host("c1", slurm_node=A100)), "slurm_gres": [{"autodetect": "nvml"}]},
        {**hosts(c2=host("c2", facts={}, slurm_node=A100 | {"gres": ""}))},
        {**hosts(c2=host("c2", facts={})), "preflight_play_hosts": ["c1"]},
        {
            **hosts(**{"ctl.lan": host("ctl", facts={"nodename": "ctl.lan"})}, ctl=host("x", address="10.0.0.77")),
            "preflight_controller_hosts": ["ctl.lan"],
            "preflight_play_hosts": ["ctl.lan"],
        },
        {"preflight_reached_hosts": ["ctl", "c1"]},
        {"slurm_database_users": []},
        {"slurm_site_notes": "mine"},
        {"slurm_cgroup_settings": {"CgroupMountpoint": "/sys/fs/cgroup", "SomethingNew": 1}},
        {"slurm_database_storage_password": "geheim"},
        {"slurm_state_is_shared": True, "preflight_controller_hosts": ["ctl", "x"], "slurm_state_dir": "/shared/s"},
        partition(nodes="c[1-2]", max_time="UNLIMITED"),
        extra(SelectType="select/linear", SelectTypeParameters="CR_Memory"),
    ],
    ids=lambda item: str(item)[:60],
)
def test_what_can_be_wanted_passes(change: dict[str, t.Any], specs: dict[str, t.Any]) -> None:
    assert findings({**GOOD, **change}, specs) == []


def test_all_faults_come_at_once(specs: dict[str, t.Any]) -> None:
    change = {"cluster_name": "Lab", "slurm_memory_headroom": 2, "preflight_controller_hosts": [], "slurm_gres": "x"}
    assert len(findings({**GOOD, **change}, specs)) == 4


def test_secrets_are_not_shown(specs: dict[str, t.Any]) -> None:
    mounts = [{"path": "/x", "type": "cifs", "typ": 1, "credentials": {"password": "geheim"}}]
    change = {"shared_storage_mounts": mounts, "slurm_database_storage_password": None}
    assert "geheim" not in " ".join(findings({**GOOD, **change}, specs))


def test_nodes_that_slurm_creates_are_in_no_inventory() -> None:
    elastic = [{"names": "e[1-4]"}]
    parts = [{"name": "cloud", "nodes": "e[1-4]", "default": True}]
    alone = {**GOOD, "preflight_compute_hosts": [], "slurm_elastic_nodes": elastic, "slurm_partitions": parts}
    alone.pop("slurm_memory_headroom", None)
    assert findings(alone) == []
    wrong = findings({**alone, "slurm_partitions": [{**parts[0], "nodes": "e[1-5]"}]})
    assert len(wrong) == 1 and "e5" in wrong[0]
