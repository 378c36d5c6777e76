# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of a node as systemd sees them together, and the program that slurmd asks before it starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import types
import typing as t
from pathlib import Path

import jinja2
import pytest
import yaml
from patience import patience
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lines import one_line
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._systemd import Service, ServiceError

ROLES = Path(__file__).resolve().parents[3] / "roles"
GATES = yaml.safe_load((ROLES / "boot_order/defaults/main.yml").read_text())["boot_order_gates"]
UNITS = {
    "hpcai-node-ready.target": "boot_order/templates/hpcai-node-ready.target.j2",
    "slurmd.service.d/hpcai-boot-order.conf": "boot_order/templates/hpcai-boot-order.conf.j2",
    "hpcai-gpu-clocks.service": "gpu_clocks/templates/hpcai-gpu-clocks.service.j2",
    "hpcai-scratch.service": "nvme_scratch/templates/hpcai-scratch.service.j2",
}
# As distributions and vendors ship them, without what does not concern the order.
RUN = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
OTHERS = {
    "slurmd.service": f"[Unit]\nAfter=munge.service network-online.target remote-fs.target\n{RUN}",
    "munge.service": RUN,
    "nvidia-fabricmanager.service": f"[Unit]\nAfter=network-online.target\n{RUN}",
    "hpcai-node-health.service": f"[Unit]\nAfter=hpcai-gpu-clocks.service\n{RUN}",
}


def render(template: str) -> str:
    """Render a template of a role with the role's defaults; programs are ones that every machine has."""
    role = ROLES / template.split("/", 1)[0]
    variables: dict[str, t.Any] = {}
    for name in ("defaults/main.yml", "vars/main.yml"):
        variables.update(yaml.safe_load((role / name).read_text()))
    programs = {key: "/bin/true" for key in variables if key.endswith("_program")}
    environment = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters["comment"] = "# {}".format
    environment.filters["hpcai.gpu_cluster.one_line"] = one_line
    given = {**variables, **programs, "ansible_managed": "managed", "__nvme_scratch_budget": 630}
    return environment.from_string((ROLES / template).read_text()).render(given)


class Node:
    """A directory of units, which systemd-analyze takes for all that the machine has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, template in UNITS.items():
            self.write(name, render(template))
        for name, text in OTHERS.items():
            self.write(name, text)
        for name in ("multi-user.target", "basic.target", "sysinit.target", "local-fs.target", "remote-fs.target"):
            self.write(name, f"[Unit]\nDescription={name}\n")
        for name in ("shutdown.target", "network-online.target", "system.slice", "-.slice", "sockets.target"):
            self.write(name, f"[Unit]\nDescription={name}\n")
        self.wants(
            "multi-user.target", "slurmd.service", *GATES, "hpcai-node-ready.target", "nvidia-fabricmanager.service"
        )

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def wants(self, target: str, *units: str) -> None:
        """Do what `systemctl enable` does."""
        for unit in units:
            link = self.folder / f"{target}.wants" / unit
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(self.folder / unit)

    def verify(self) -> str:
        environment = {**os.environ, "SYSTEMD_UNIT_PATH": str(self.folder), "SYSTEMD_LOG_LEVEL": "warning"}
        command = ["systemd-analyze", "verify", "--man=no", "multi-user.target"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=patience(60)
        )
        return done.stderr


@pytest.fixture
def node(tmp_path: Path) -> Node:
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze")
    return Node(tmp_path)


def test_systemd_finds_nothing_wrong(node: Node) -> None:
    assert node.verify() == ""


def test_a_gate_that_is_not_installed_is_no_trouble(node: Node) -> None:
    for gate in GATES:
        (node.folder / gate).unlink()
        (node.folder / "multi-user.target.wants" / gate).unlink()
    assert node.verify() == ""


def test_a_vendor_s_unit_after_multi_user_target_is_found(node: Node) -> None:
    """The module looks for these words, and the role asks it to."""
    fabric = OTHERS["nvidia-fabricmanager.service"].replace("network-online.target", "multi-user.target")
    node.write("nvidia-fabricmanager.service", fabric)
    assert "ordering cycle" in node.verify()
    role = yaml.safe_load((ROLES / "boot_order/tasks/present.yml").read_text())
    assert role[0]["hpcai.gpu_cluster.service_current"]["no_cycles"] == "{{ boot_order_verify | bool }}"
    module = t.cast(
        "t.Any", types.SimpleNamespace(params={"name": "x"}, run_command=lambda argv: (1, "", node.verify()))
    )
    with pytest.raises(ServiceError, match=r"would leave out a unit of this node.*nvidia-fabricmanager.service"):
        Service(module).refuse_cycles()
    node.write("nvidia-fabricmanager.service", OTHERS["nvidia-fabricmanager.service"])
    Service(module).refuse_cycles()


def test_each_gate_is_before_slurmd_without_the_others() -> None:
    """Whichever roles a site uses."""
    for name in ("hpcai-scratch.service", "hpcai-gpu-clocks.service"):
        before = next(line for line in render(UNITS[name]).splitlines() if line.startswith("Before="))
        assert {"slurmd.service", "hpcai-node-ready.target"} <= set(before.partition("=")[2].split())


def test_slurmd_only_waits_for_the_gates() -> None:
    """With Wants or Requires a start of slurmd would run gates again that an administrator let pass."""
    words = {line.partition("=")[0] for line in render(UNITS["slurmd.service.d/hpcai-boot-order.conf"]).splitlines()}
    assert not words & {"Wants", "Requires", "Requisite", "BindsTo"}
    assert "After" in words


@pytest.mark.parametrize(
    "states, jobs, ready, said",
    [
        ({}, False, True, ""),
        ({"hpcai-scratch.service": "active", "hpcai-gpu-clocks.service": "active"}, False, True, ""),
        ({"hpcai-scratch.service": "failed"}, False, False, "hpcai-scratch.service: failed."),
        ({"hpcai-node-health.service": "activating"}, False, False, "hpcai-node-health.service: activating."),
        ({"hpcai-scratch.service": ""}, False, False, "no answer from systemd"),
        ({"hpcai-scratch.service": "failed"}, True, True, "jobs run here"),
    ],
)
def test_what_slurmd_is_told(states: dict[str, str], jobs: bool, ready: bool, said: str, tmp_path: Path) -> None:
    (tmp_path / "states").write_text("".join(f"{gate} {state}\n" for gate, state in states.items()))
    stand_in(tmp_path / "systemctl", "systemctl_states.sh", states=tmp_path / "states")
    # As pgrep -f: a keeper of control groups that Slurm leaves running is no job.
    steps = "slurmstepd: [5.batch]" if jobs else "/usr/sbin/slurmstepd infinity"
    stand_in(tmp_path / "pgrep", "pgrep_full.sh", process=steps)
    (tmp_path / "ask").write_text(render("boot_order/templates/hpcai-node-ready.j2"))
    (tmp_path / "ask").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([str(tmp_path / "ask")], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0, done.stdout) == (ready, "")
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)


# What the vendor's installer puts beside ours (templates/slurmd.override of Azure/cyclecloud-slurm), where it matters.
VENDOR = "[Unit]\nAfter=munge.service\n[Service]\nRestart=always\nRestartSec=10s\n"


def gate() -> tuple[str, str]:
    """Return the drop-in that the bundle's gate writes: its name and its text."""
    script = (ROLES / "node_bundle/files/gate.sh").read_text()
    path = script.split("gate=", 1)[1].split("\n", 1)[0]
    return Path(path).name, script.split("<<'GATE'\n", 1)[1].split("\nGATE\n", 1)[0] + "\n"


def test_a_closed_gate_fails_no_start_and_no_vendor_s_drop_in_comes_after_it(node: Node) -> None:
    """CycleCloud's converge starts slurmd at every boot, and a start that fails makes the node Failed."""
    name, text = gate()
    node.write(f"slurmd.service.d/{name}", text)
    node.write("slurmd.service", "[Service]\nType=simple\nExecStart=/bin/true\n")
    node.write("slurmd.service.d/override.conf", VENDOR)
    assert node.verify() == ""
    assert max(path.name for path in (node.folder / "slurmd.service.d").iterdir()) == name
    assert "ConditionPathExists=/run/hpcai/node-ready" in text.splitlines()
    assert "Exec" not in text
