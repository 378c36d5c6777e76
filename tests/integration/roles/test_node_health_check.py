# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmd runs: only a fault that the agent names takes a node from its jobs, and nothing hangs."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import play_here
from patience import patience
from stand_in import answer, stand_in

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/node_health_check"
FAULT = "fail gpu_xid (hardware): Xid 79"
TOOLS = ("cat", "cp", "date", "grep", "mkdir", "mktemp", "mv", "rm", "sh", "sleep", "tail", "timeout")


def variables(role: str) -> list[dict[str, t.Any]]:
    return [
        {"ansible.builtin.include_vars": str(ROOT / f"roles/{role}/{name}/main.yml")} for name in ("defaults", "vars")
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the role writes: the programs for each checker, and the agent's configuration."""
    folder = tmp_path_factory.mktemp("role")
    (folder / "templates").symlink_to(ROLE / "templates")
    files = [("hpcai-node-health.j2", ""), ("hpcai-node-health.service.j2", ""), ("hpcai-node-health.j2", "nhc")]
    tasks = variables("node_health_check")
    for name, program in files:
        template = {"src": name, "dest": str(folder / f"{name}{program}")}
        tasks += [{"set_fact": {"node_health_check_program": program or "auto"}}, {"template": template}]
    copy = {"content": "{{ __node_health_check_files[0] }}", "dest": str(folder / "config.json")}
    tasks += [{"set_fact": {"node_health_check_program": "healthagent"}}, {"copy": copy}]
    drains = "{{ __node_health_check_reconcile_files[0] }}"
    tasks += [{"copy": {"content": drains, "dest": str(folder / "reconcile.json")}}]
    given = {
        "__node_health_check_healthagent": {"rc": 4},
        "cluster_sku": "nc80adis_h100_v5",
        "cluster_shared_dir": "/shared",
        "node_health_check_suites": {"prolog": {"budget": 2}},
        "slurm_health_check_interval": 600,
    }
    play_here(folder, tasks, given)
    return folder


class Node:
    """A node with an agent of the test's own."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder, self.bin, self.run = folder, folder / "bin", folder / "run"
        self.bin.mkdir()
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name) or name)
        answer(self.bin / "logger", calls=folder / "log")
        answer(self.bin / "systemctl", calls=folder / "systemctl")
        changes = {
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin": str(self.bin),
            "/usr/local/sbin/hpcai-agent": str(self.bin / "hpcai-agent"),
            "/usr/local/lib/hpcai/nhc": str(self.bin),
            "/run/hpcai/agent": str(folder),
            "/run/hpcai": str(self.run),
        }
        for old, new in changes.items():
            text = text.replace(old, new)
        self.wrapper, self.agent = self.bin / "hpcai-node-health", self.bin / "hpcai-agent"
        self.wrapper.write_text(text)
        self.wrapper.chmod(0o755)

    def call(self, event: str = "") -> subprocess.CompletedProcess[str]:
        argv = [str(self.wrapper), *([event] if event else [])]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=patience(30), env={})

    def said(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def node(made: Path, tmp_path: Path) -> Node:
    return Node(tmp_path, (made / "hpcai-node-health.j2").read_text())


@pytest.mark.parametrize("event", ["prolog", "epilog", "boot"])
def test_a_fault_that_the_agent_names_takes_the_node_from_its_jobs(node: Node, event: str) -> None:
    answer(node.agent, f"{FAULT}\n", status=1)
    done = node.call(event)
    assert done.returncode == 1 and "Xid 79" in done.stdout + done.stderr and "Xid 79" in node.said("log")


@pytest.mark.parametrize("event", ["prolog", "epilog"])
def test_a_node_that_must_not_drain_itself_takes_its_job_and_says_so_aloud(node: Node, event: str) -> None:
    """Slurm's log, syslog and the controller hear of it; the exit status would have Slurm drain the node."""
    held = "error self_drain (infra): this node has a fault and does not drain itself"
    answer(node.agent, f"{FAULT}\n{held}\n", status=3)
    done = node.call(event)
    assert done.returncode == 0
    assert all("Xid 79" in text and "does not drain itself" in text for text in (done.stderr, node.said("log")))
    assert node.said("systemctl") == "start --no-block hpcai-health-publish.service\n"


@pytest.mark.parametrize(
    ("values", "strict"),
    [
        ({}, 0),
        ({"out": f"{FAULT}\n"}, 0),
        ({"err": "Traceback\n", "status": 1}, 2),
        ({"status": 2}, 2),
        ({"status": 127}, 127),
        ({"signal": "KILL"}, 137),
    ],
)
def test_an_agent_that_is_broken_drains_nobody_and_admits_nobody(
    node: Node, values: dict[str, t.Any], strict: int
) -> None:
    answer(node.agent, **values)
    assert node.call("prolog").returncode == node.call("epilog").returncode == 0
    assert node.call("boot").returncode == node.call().returncode == strict


def test_an_agent_that_is_gone_drains_nobody(node: Node) -> None:
    assert node.call("prolog").returncode == 0
    assert node.call("boot").returncode == 127 and "no verdict" in node.said("log")


def test_nothing_hangs_with_an_agent_that_hangs(node: Node) -> None:
    """What it left behind holds a file, and no pipe that slurmd would wait for."""
    stand_in(node.agent, "stubborn.sh")
    begin = time.monotonic()
    assert node.call("prolog").returncode == 0
    assert time.monotonic() - begin < patience(60) and "137" in node.said("log")


def test_the_periodic_suite_tells_the_controller_by_another_unit(node: Node) -> None:
    answer(node.agent)
    assert node.call().returncode == 0
    assert node.said("systemctl") == "start --no-block hpcai-health-publish.service\n"
    for event in ("prolog", "epilog", "boot"):
        node.call(event)
    assert node.said("systemctl").count("\n") == 1
    assert node.call("daily").returncode == 2
    assert not list(node.run.iterdir())


def test_nhc_is_asked_and_the_agent_runs_whatever_becomes_of_it(made: Path, tmp_path: Path) -> None:
    node = Node(tmp_path, (made / "hpcai-node-health.j2nhc").read_text())
    stand_in(node.agent, "agent_that_ran.sh", directory=tmp_path)
    stand_in(node.bin / "hpcai-nhc", "nhc_that_fails.sh", agent=node.agent)
    assert node.call().returncode == 1
    assert node.said("ran") == "agent\n"
    assert (node.run / "nhc").read_text().splitlines()[0].split()[1] == "1"
    (node.bin / "hpcai-nhc").unlink()
    time.sleep(0.1)
    assert node.call().returncode == 127
    assert node.said("ran") == "agent\nagent\n"


def test_the_configuration_is_one_that_the_agent_takes(made: Path) -> None:
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check as config

    written = json.loads((made / "config.json").read_text())
    found = config.check(json.loads(written["content"]))
    assert (found.node, found.mailbox, found.mailbox_user) == ("localhost", "/shared/.hpcai/health", "slurm")
    assert found.suites["prolog"].budget == 2 and "healthagent" in (found.suites["periodic"].checks or ())
    assert found.profile["profile"] == "nc80adis_h100_v5"


def test_the_controller_waits_for_reports_as_long_as_slurm_has_nodes_wait(made: Path) -> None:
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import request

    written = json.loads((made / "reconcile.json").read_text())
    found = request.settings(json.loads(written["content"]))
    assert (found.stale, found.max_share, found.dry_run) == (1800, 0.05, False)


def test_the_gate_has_its_place_and_a_limit(made: Path) -> None:
    unit = (made / "hpcai-node-health.service.j2").read_text()
    assert "After=local-fs.target hpcai-scratch.service hpcai-gpu-clocks.service" in unit
    assert "Before=hpcai-node-ready.target slurmd.service" in unit
    assert "TimeoutStartSec=75" in unit and "ExecStart=/usr/local/sbin/hpcai-node-health boot" in unit
    gates = yaml.safe_load((ROOT / "roles/boot_order/defaults/main.yml").read_text())["boot_order_gates"]
    assert "hpcai-node-health.service" in gates


@pytest.mark.parametrize(
    ("given", "version", "settings"),
    [
        ({}, "26.05.0", {}),
        (
            {"cluster_health_check": True},
            "22.05.8",
            {
                "HealthCheckProgram": "/usr/local/sbin/hpcai-node-health",
                "HealthCheckInterval": "300",
                "HealthCheckNodeState": "ANY,CYCLE",
                "Prolog": "/etc/slurm/prolog.d/*",
                "PrologFlags": "Alloc",
                "SchedulerParameters": "nohold_on_prolog_fail",
            },
        ),
        ({"cluster_containers": True}, "24.11.5", {"Prolog": "/etc/slurm/prolog.d/*", "PrologFlags": "Alloc"}),
    ],
)
def test_what_slurm_is_told(given: dict[str, t.Any], version: str, settings: dict[str, str], tmp_path: Path) -> None:
    keys = (
        "HealthCheckProgram HealthCheckInterval HealthCheckNodeState"
        " Prolog PrologFlags SchedulerParameters SuspendExcStates"
    )
    (tmp_path / "templates").symlink_to(ROOT / "roles/slurm/templates")
    template = {"src": "slurm.conf.j2", "dest": str(tmp_path / "slurm.conf")}
    names = {
        "slurm_cluster_name": "c",
        "slurm_controller_hosts": ["ctl"],
        "slurm_node_hosts": [],
    }
    play_here(
        tmp_path,
        [*variables("slurm"), {"ansible.builtin.template": template}],
        {**names, "__slurm_installed": {"version": version}, **given},
    )
    found = dict(line.split("=", 1) for line in (tmp_path / "slurm.conf").read_text().splitlines() if "=" in line)
    assert {key: value for key, value in found.items() if key in keys.split()} == settings


def test_nodes_are_ready_before_slurm_is_told() -> None:
    steps = [
        one["ansible.builtin.import_playbook"] for one in yaml.safe_load((ROOT / "playbooks/configure.yml").read_text())
    ]
    order = [steps.index(f"configure_steps/{name}.yml") for name in ("health", "slurm", "reconcile")]
    assert order == sorted(order)
    plays = yaml.safe_load((ROOT / "playbooks/configure_steps/health.yml").read_text())
    step = next(play for play in plays if play["name"] == "Install the health checks of the nodes")
    assert {"slurm", "slurm_controller", "slurm_compute"} <= set(step["tags"])
    assert step["tasks"][-1]["ansible.builtin.import_role"]["name"] == "hpcai.gpu_cluster.node_health_check"
