# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""configure.yml on bad inventories: refused before any change, every fault in one message.

The hosts do not exist; a connection plugin says what their facts would be, and refuses all else.
"""

from __future__ import annotations

import copy
import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter

ROOT = Path(__file__).resolve().parents[3]
GROUPS = {"slurm_controller": ["ctl"], "slurm_database": ["ctl"], "slurm_login": ["ctl"], "slurm_compute": ["c1", "c2"]}
VARIABLES = {
    "cluster_name": "lab",
    "cluster_user": "trainer",
    "cluster_shared_dir": "/shared",
    "shared_storage_mounts": [{"path": "/shared", "type": "existing"}],
    "slurm_database_accounts": [{"name": "research"}],
    "slurm_database_users": [{"name": "trainer", "account": "research"}],
}
FACTS = {
    "distribution": "Debian",
    "distribution_major_version": "12",
    "memtotal_mb": 4000,
    "processor_cores": 4,
    "processor_count": 1,
    "processor_threads_per_core": 1,
}


class Ended(t.NamedTuple):
    """How a run of configure.yml ended."""

    rc: int
    text: str


class Inventory:
    """A sound inventory to be spoilt: groups, variables of all hosts, variables and facts of each."""

    def __init__(self) -> None:
        self.groups = copy.deepcopy(GROUPS)
        self.variables: dict[str, t.Any] = copy.deepcopy(VARIABLES)
        self.hosts: dict[str, dict[str, t.Any]] = {host: {} for host in ("ctl", "c1", "c2")}
        self.facts: dict[str, dict[str, t.Any]] = {host: {} for host in self.hosts}

    def write(self, directory: Path) -> None:
        known = {"ansible_connection": "known", "ansible_python_interpreter": interpreter()}
        hosts = {
            host: {"ansible_host": f"127.0.0.{number}", **known, **variables}
            for number, (host, variables) in enumerate(self.hosts.items(), start=2)
        }
        groups = {group: {"hosts": dict.fromkeys(names)} for group, names in self.groups.items()}
        tree = {"all": {"hosts": hosts, "vars": self.variables, "children": groups}}
        facts = {host: {**FACTS, "hostname": host, **own} for host, own in self.facts.items()}
        (directory / "hosts.json").write_text(json.dumps(tree))
        (directory / "facts.json").write_text(json.dumps(facts))


def configure(inventory: Inventory, directory: Path, *arguments: str) -> Ended:
    inventory.write(directory)
    environment = {
        **os.environ,
        "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).parent / "connection_plugins"),
        "HPCAI_REPORT_DIR": str(directory / "report"),
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        "ANSIBLE_HOST_PATTERN_MISMATCH": "warning",  # the default, which ansible-test changes
        "ANSIBLE_NOCOLOR": "1",
        "KNOWN_FACTS": str(directory / "facts.json"),
    }
    words = ("-i", directory / "hosts.json", *arguments, ROOT / "playbooks/configure.yml")
    done = ansible_playbook(*words, cwd=ROOT, env=environment)
    return Ended(done.returncode, done.stdout + done.stderr)


@pytest.fixture
def inventory() -> Inventory:
    return Inventory()


UNREACHED = "could not connect to host"  # how all ends that is sent to one after the first question


def no_compute(inventory: Inventory) -> list[str]:
    inventory.groups["slurm_compute"] = []
    return ["preflight_compute_hosts is []", "at least one host in inventory group slurm_compute"]


def no_hosts(inventory: Inventory) -> list[str]:
    inventory.groups = {group: [] for group in inventory.groups}
    return [f"at least one host in inventory group slurm_{name}" for name in ("compute", "controller", "database")]


def no_groups(inventory: Inventory) -> list[str]:
    inventory.groups = {"elsewhere": ["ctl", "c1", "c2"]}
    return ["preflight_controller_hosts is []", "preflight_compute_hosts is []"]


def everything_else(inventory: Inventory) -> list[str]:
    inventory.groups["slurm_compute"] += ["ctl"]
    inventory.facts["c2"]["hostname"] = "c1"
    inventory.facts["c1"]["distribution_major_version"] = "10"
    inventory.hosts["c2"]["slurm_node"] = {"gres": "gpu:a100:8"}
    inventory.variables |= {
        "cluster_name": "My Cluster",
        "cluster_shared_dir": "/data",
        "slurm_partitions": [
            {"name": "a", "nodes": "ALL", "default": True, "max_time": "1 week"},
            {"name": "b", "nodes": ["c7"], "default": True},
        ],
        "slurm_memory_headroom": 1.2,
        "slurm_extra_settings": {"SlurmctldParameters": "idle_on_node_suspend", "ClusterName": "other"},
        "slurm_database_users": [{"name": "trainer", "account": "physics"}],
        "slurm_gres": "{{ nowhere }}",
        "slurm_topology": "tree",
        "slurm_state_dirs": "/shared/slurm",
    }
    return [
        "cluster_name is 'My Cluster'",
        "preflight_allow_shared_controller: true",
        "node name is 'c1': the name of c1, c2",
        "operating system of c1 is 'Debian 10'",
        "slurm_node.gres of c2 is 'gpu:a100:8'",
        "cluster_shared_dir is '/data'",
        "slurm_partitions with default: true is ['a', 'b']",
        "slurm_partitions (a).max_time is '1 week'",
        "slurm_partitions (b).nodes is ['c7']",
        "slurm_memory_headroom is 1.2",
        "slurm_extra_settings.SlurmctldParameters is 'idle_on_node_suspend'",
        "slurm_extra_settings.ClusterName is 'other'",
        "slurm_database_users (trainer).account is 'physics'",
        "slurm_gres cannot be resolved: 'nowhere' is undefined",
        "slurm_topology is 'tree'",
        "slurm_state_dirs is '/shared/slurm': read by no role; accepted: slurm_state_dir",
    ]


OLD = {"schema": 1, "collection": "0.0.9", "slurm": "22.05.8", "date": "2026-01-01T00:00:00Z"}


def old_image(inventory: Inventory) -> list[str]:
    inventory.facts["c2"]["ansible_local"] = {"hpcai_image": OLD}
    inventory.variables |= {"slurm_version": "24.11", "preflight_allow_old_image": False}
    return ["c2: the image of 2026-01-01T00:00:00Z has hpcai.gpu_cluster 0.0.9", "Slurm 22.05.8, the cluster has 24.11"]


def plain(text: str) -> str:
    """Without YAML's wrapping and quoting."""
    return " ".join(text.split()).replace("''", "'")


def one_host_alone(inventory: Inventory) -> list[str]:
    """c1 is looked at for the whole cluster; what c2 has instead would else be found by its roles, half-way."""
    inventory.hosts["c2"] |= {"node_tuning_strict": "perhaps", "nvme_scratch_fewer": "{{ nowhere }}"}
    return ["c2: node_tuning_strict is 'perhaps'"]


def of_cyclecloud(inventory: Inventory) -> list[str]:
    inventory.groups["slurm_compute"] += ["ctl"]  # CycleCloud knows what it made
    inventory.variables |= {"cluster_slurm": "cyclecloud", "node_health_check_max_share": "much"}
    return ["node_health_check_max_share is 'much'"]


@pytest.mark.parametrize(
    "spoil", [no_compute, no_hosts, no_groups, old_image, one_host_alone, of_cyclecloud, everything_else]
)
def test_a_bad_inventory_is_refused(
    spoil: t.Callable[[Inventory], list[str]], inventory: Inventory, tmp_path: Path
) -> None:
    words = spoil(inventory)
    ended = configure(inventory, tmp_path)
    text = plain(ended.text)
    assert ended.rc != 0
    assert "Nothing was changed. Correct the inventory first:" in text
    assert [word for word in words if word not in text] == []
    assert UNREACHED not in text
    assert "PLAY [Share the munge key" not in text


def test_a_sound_inventory_is_let_through(inventory: Inventory, tmp_path: Path) -> None:
    text = configure(inventory, tmp_path).text
    assert "The inventory can become a working cluster" in text
    assert UNREACHED in text


def test_a_node_of_an_old_image_is_told_and_let_through(inventory: Inventory, tmp_path: Path) -> None:
    words = old_image(inventory)
    del inventory.variables["preflight_allow_old_image"]
    text = plain(configure(inventory, tmp_path).text)
    assert [word for word in words if word not in text] == []
    assert "The inventory can become a working cluster" in text and UNREACHED in text


@pytest.mark.parametrize("dead", ["ctl", "c2"])
def test_a_host_that_does_not_answer_stops_the_run(dead: str, inventory: Inventory, tmp_path: Path) -> None:
    del inventory.facts[dead]
    text = plain(configure(inventory, tmp_path).text)
    assert f"inventory host is '{dead}': its facts could not be read" in text
    assert "TASK [hpcai.gpu_cluster.munge" not in text


def test_a_run_for_one_node_does_not_ask_for_the_others(inventory: Inventory, tmp_path: Path) -> None:
    del inventory.facts["c2"], inventory.facts["ctl"]
    assert "The inventory can become a working cluster" in configure(inventory, tmp_path, "--limit", "c1").text


def gpu_node(inventory: Inventory, directory: Path) -> None:
    """c1 is a node of eight H100: this machine, where CUDA and NCCL are looked for in places that have neither."""
    inventory.groups["gpu"] = ["c1"]
    inventory.hosts["c1"] = {"ansible_connection": "local", "ansible_python_interpreter": interpreter()}
    inventory.variables |= {
        "cluster_sku": "dgx_h100",
        "gpu_test_tools_cuda_home": f"{directory}/cuda",
        "gpu_test_tools_nccl_home": f"{directory}/nccl",
        "gpu_test_tools_origins": ["source"],
        "gpu_test_tools_prefix": f"{directory}/tools",
    }


@pytest.mark.parametrize("driver", ["existing", "ours"])
def test_a_node_on_which_no_test_tool_can_be_built_is_refused(
    driver: str, inventory: Inventory, tmp_path: Path
) -> None:
    gpu_node(inventory, tmp_path)
    inventory.variables |= {"cluster_driver": driver, "nvidia_driver_cuda_toolkits": ["13.0"]}
    ended = configure(inventory, tmp_path)
    text = plain(ended.text)
    assert ended.rc != 0
    assert "nothing was changed." in text and "gpu_test_tools_cuda_home: the CUDA toolkit, if" in text
    assert f"NCCL's header and library is missing, looked in {tmp_path}/nccl" in text
    # The toolkit is what role nvidia_driver is about to bring, where the driver is ours.
    assert (f"nvcc is missing, looked in {tmp_path}/cuda/bin/nvcc" in text) is (driver == "existing")
    assert "PLAY [Share the munge key" not in text
    assert "changed=1" not in text


def test_a_driver_of_ours_without_a_toolkit_is_refused_as_well(inventory: Inventory, tmp_path: Path) -> None:
    gpu_node(inventory, tmp_path)
    inventory.variables |= {"cluster_driver": "ours"}
    assert f"nvcc is missing, looked in {tmp_path}/cuda/bin/nvcc" in plain(configure(inventory, tmp_path).text)


def test_a_node_that_gets_what_a_build_lacks_is_let_through(inventory: Inventory, tmp_path: Path) -> None:
    gpu_node(inventory, tmp_path)
    packages = ["make", "g++", "cmake", "libboost-program-options-dev", "libnccl-dev", "libopenmpi-dev"]
    inventory.variables |= {"gpu_test_tools_packages": packages, "gpu_test_tools_coming": ["cuda-toolkit"]}
    inventory.write(tmp_path)
    role = {"name": "hpcai.gpu_cluster.gpu_test_tools", "tasks_from": "check"}
    play = {"hosts": "gpu", "gather_facts": False, "tasks": [{"ansible.builtin.include_role": role}]}
    (tmp_path / "play.json").write_text(json.dumps([play]))
    done = ansible_playbook("-i", tmp_path / "hosts.json", tmp_path / "play.json", cwd=ROOT, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
