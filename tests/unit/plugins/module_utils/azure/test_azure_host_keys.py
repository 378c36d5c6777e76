# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose machine an address is, and what counts as its host keys."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import host_keys
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import AzureError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGC5EmSxTKWqtnSx5nFMFh0Xxk8o4hYlXQqSvKu7JcW"
ECDSA = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBA=="
GROUP = "/subscriptions/s/resourceGroups/train-rg/providers"
SUBNET = f"{GROUP}/Microsoft.Network/virtualNetworks/train-vnet/subnets/compute"
MACHINE = f"{GROUP}/Microsoft.Compute/virtualMachines/train-scheduler"


def interface(address: str, subnet: str = SUBNET, machine: t.Any = MACHINE) -> dict[str, t.Any]:
    place = {"privateIPAddress": address, "subnet": {"id": subnet}}
    properties: dict[str, t.Any] = {"ipConfigurations": [{"name": "ip", "properties": place}]}
    if machine:
        properties["virtualMachine"] = {"id": machine}
    return {"id": f"{GROUP}/Microsoft.Network/networkInterfaces/nic-of-{address}", "properties": properties}


def answer(message: str, code: str = "ProvisioningState/succeeded") -> dict[str, t.Any]:
    return {"value": [{"code": code, "level": "Info", "displayStatus": "Provisioning succeeded", "message": message}]}


def test_the_machine_is_the_one_with_the_address_in_that_subnet() -> None:
    other = SUBNET.replace("/compute", "/other")
    interfaces = [
        interface("10.80.1.4", other, MACHINE.replace("scheduler", "impostor")),
        {"id": "half", "properties": {}},
        interface("10.80.1.40", machine=MACHINE.replace("scheduler", "login")),
        interface("10.80.1.4", SUBNET.upper()),
    ]
    assert host_keys.machine_at(interfaces, SUBNET, "10.80.1.4") == MACHINE


def test_a_machine_of_a_scale_set_is_one() -> None:
    machine = f"{GROUP}/Microsoft.Compute/virtualMachineScaleSets/train-ndv4/virtualMachines/12"
    assert host_keys.machine_at([interface("10.80.1.9", machine=machine)], SUBNET, "10.80.1.9") == machine
    assert host_keys.machine_id(machine) == machine


class Cloud:
    """Answers as the subscription would; a path that nobody expects is an error."""

    subscription = "s"

    def __init__(self, lists: dict[str, list[t.Any]], agents: t.Collection[str] = ()) -> None:
        self.lists, self.agents, self.asked = lists, agents, list[str]()

    def items(self, path: str, version: str) -> list[t.Any]:
        self.asked.append(path)
        assert not path.endswith("/networkInterfaces") or "ScaleSets" not in path or version == "2018-10-01"
        return list(self.lists[path])

    def get(self, path: str, version: str) -> t.Any:
        return {"properties": {"vmId": f"id-{path.rpartition('/')[2]}"}}

    def post(self, path: str, version: str, body: t.Any) -> t.Any:
        if path.removesuffix("/runCommand") not in self.agents:
            raise AzureError("the agent does not answer")
        return answer(f"Enable succeeded: \n[stdout]\n{KEY}\n\n[stderr]\n")


def test_machines_of_scale_sets_are_found_in_the_sets_of_that_subnet_alone() -> None:
    """Their interfaces are not among those of the subscription; an address of another subnet is somebody else's."""
    sets = f"{GROUP}/Microsoft.Compute/virtualMachineScaleSets"
    machines = [f"{sets}/train-ndv4/virtualMachines/{number}" for number in (0, 7)]

    def scale_set(name: str, subnet: str) -> dict[str, t.Any]:
        network = {"ipConfigurations": [{"name": "ip", "properties": {"subnet": {"id": subnet}}}]}
        profile = {"networkProfile": {"networkInterfaceConfigurations": [{"name": "nic", "properties": network}]}}
        return {"id": f"{sets}/{name}", "properties": {"virtualMachineProfile": profile}}

    every = "/subscriptions/s/providers"
    cloud = Cloud(
        {
            f"{every}/Microsoft.Network/networkInterfaces": [interface("10.80.4.4")],
            f"{every}/Microsoft.Compute/virtualMachineScaleSets": [
                scale_set("theirs", SUBNET.replace("train-vnet", "other-vnet")),
                scale_set("train-ndv4", SUBNET.upper()),
            ],
            f"{sets}/train-ndv4/networkInterfaces": [
                interface("10.80.4.5", machine=machines[0]),
                interface("10.80.4.6", machine=machines[1]),
            ],
        },
        agents=machines[:1],
    )
    arm = t.cast(t.Any, cloud)
    found, problems = host_keys.find_all(arm, "train-rg/train-vnet/compute", ["10.80.4.5", "10.80.4.6", "ndv4-9"])
    assert [(one.address, one.id, one.vm_id) for one in found] == [
        ("10.80.4.5", machines[0], "id-0"),
        ("10.80.4.6", machines[1], "id-7"),
    ]
    assert list(problems) == ["ndv4-9"] and "is no IP address" in problems["ndv4-9"]
    keys, unread = host_keys.read_all(arm, found)
    assert keys == {"10.80.4.5": [KEY]}
    assert unread == {"10.80.4.6": "the agent does not answer"}
    # The scheduler is a machine of its own: nobody lists scale sets for it.
    cloud.asked.clear()
    assert host_keys.find(arm, SUBNET, "10.80.4.4") == MACHINE
    assert cloud.asked == [f"{every}/Microsoft.Network/networkInterfaces"]


@pytest.mark.parametrize(
    ("interfaces", "told"),
    [
        ([], "no network interface of this subscription has 10.80.1.4"),
        ([interface("10.80.1.5")], "no network interface"),
        ([interface("10.80.1.4", machine=None)], "which is no interface of a virtual machine"),
        (
            [interface("10.80.1.4", machine=f"{GROUP}/Microsoft.Compute/virtualMachineScaleSets/s")],
            "no interface of a virtual machine",
        ),
    ],
)
def test_an_address_of_nobody_is_an_error(interfaces: list[t.Any], told: str) -> None:
    with pytest.raises(AzureError, match=told):
        host_keys.machine_at(interfaces, SUBNET, "10.80.1.4")


def test_the_keys_are_what_the_agent_printed() -> None:
    printed = f"Enable succeeded: \n[stdout]\n{ECDSA} root@train\n{KEY} root@train\n\n[stderr]\n"
    assert host_keys.keys_of(answer(printed), MACHINE) == [ECDSA, KEY]
    cut = f"Enable succeeded: \n[stdout]\nAAAAB3NzaC1yc2E= root@train\n{KEY}\n[stderr]\n"
    assert host_keys.keys_of(answer(cut), MACHINE) == [KEY]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Enable succeeded: \n[stdout]\n\n[stderr]\ncat: '/etc/ssh/ssh_host_*_key.pub': No such file", "No such file"),
        (f"Enable succeeded: \n[stdout]\n\n[stderr]\n{KEY}\n", "read no SSH host key"),
        ("Enable failed: failed to execute command: command terminated with exit status=1\n", "exit status=1"),
        (KEY, "read no SSH host key"),
        ("", "ProvisioningState/succeeded\\): nothing"),
    ],
)
def test_an_answer_without_keys_is_an_error(message: str, told: str) -> None:
    with pytest.raises(AzureError, match=told):
        host_keys.keys_of(answer(message), MACHINE)
    with pytest.raises(AzureError, match="no status"):
        host_keys.keys_of({}, MACHINE)


@pytest.mark.parametrize(
    "line",
    [
        "@cert-authority * " + KEY,
        f"scheduler {KEY}",
        f"{KEY}\r",
        f"  {KEY}",
        "ssh-dss AAAAB3NzaC1kc3MAAACBAJ1qDn1v",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA;reboot",
    ],
)
def test_a_line_that_is_no_key_is_none(line: str) -> None:
    """It would be a line of known_hosts."""
    assert not _lines.is_host_key(line)
    assert _lines.host_keys(f"{line}\n{ECDSA} a comment\n{ECDSA}\n") == [ECDSA]


def test_a_comment_cannot_be_a_second_line() -> None:
    assert _lines.is_host_key(f"{KEY} root@scheduler")
    assert not _lines.is_host_key(f"{KEY} root@scheduler\n* {ECDSA}")
    assert _lines.host_keys(f"{KEY} x\n") == [KEY]


@pytest.mark.parametrize("text", ["train-rg/train-vnet/compute", SUBNET])
def test_a_subnet_has_two_forms(text: str) -> None:
    assert host_keys.subnet_id(text, "s") == SUBNET


@pytest.mark.parametrize("text", ["", "compute", "a/b", "a/b/c/d", MACHINE, f"{SUBNET}/x", f"{SUBNET}?x=y/"])
def test_anything_else_is_no_subnet_and_no_machine(text: str) -> None:
    with pytest.raises(AzureError):
        host_keys.subnet_id(text, "s")
    with pytest.raises(AzureError):
        host_keys.machine_id(text.replace("/train-scheduler", ""))
