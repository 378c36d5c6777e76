#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_host_keys_info
short_description: Read the SSH host keys of Azure machines before the first login
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Has Azure's agent on the machine print C(/etc/ssh/ssh_host_*_key.pub) by the run command C(RunShellScript). The
    answer comes through Azure Resource Manager, so that nobody on the cluster's network can answer in the machine's
    place.
  - The machine has to run, with Azure's agent. The identity needs
    C(Microsoft.Compute/virtualMachines/runCommand/action), and for machines of a scale set
    C(Microsoft.Compute/virtualMachineScaleSets/virtualMachines/runCommand/action), which Virtual Machine Contributor
    and Contributor have. Azure accepts one run command per machine at a time.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
attributes:
  check_mode:
    support: full
    details: The keys are read in check mode, too.
  diff_mode:
    support: N/A
    details: Nothing is changed.
  idempotent:
    support: full
options:
  machine:
    description:
      - Resource ID of the virtual machine, which may be one of a scale set. Give either this, or O(subnet) with
        O(address) or O(addresses).
    type: str
  subnet:
    description:
      - Subnet in which machines have O(address) or O(addresses), as C(<resource group>/<network>/<subnet>) or as a
        resource ID.
    type: str
  address:
    description:
      - Private IP address of the machine. Azure gives an address once in a subnet, so that nobody else can have it.
    type: str
  addresses:
    description:
      - Private IP addresses of several machines, which are asked at the same time. That the keys of some of them cannot
        be read is no failure; see RV(problems).
    type: list
    elements: str
  known:
    description:
      - Values of RV(hosts[].vm_id) whose keys are known already. They are not read again.
    type: list
    elements: str
    default: []
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_cluster
notes:
  - Tested with an emulator of Azure Resource Manager; not yet run against Azure.
"""
EXAMPLES = r"""
- name: Read the host keys of the CycleCloud machine
  hpcai.gpu_cluster.azure_host_keys_info:
    machine: "{{ group_id }}/providers/Microsoft.Compute/virtualMachines/train-cyclecloud"
  vars:
    group_id: /subscriptions/{{ subscription }}/resourceGroups/train-rg
  register: server

- name: Know that machine from now on
  ansible.builtin.known_hosts:
    name: cyclecloud.example.org
    key: "cyclecloud.example.org {{ item }}"
  loop: "{{ server.host_keys }}"

- name: Read the host keys of the scheduler by the address that CycleCloud gives
  hpcai.gpu_cluster.azure_host_keys_info:
    subnet: train-rg/train-vnet/compute
    address: 10.80.1.4
  register: scheduler

- name: Read the host keys of nodes that are up
  hpcai.gpu_cluster.azure_host_keys_info:
    subnet: train-rg/train-vnet/compute
    addresses: [10.80.4.5, 10.80.4.6]
  register: nodes
"""
RETURN = r"""
machine:
  description:
    - Resource ID of the virtual machine.
  returned: success, without O(addresses)
  type: str
  sample: "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg/providers/\
    Microsoft.Compute/virtualMachines/train-scheduler"
host_keys:
  description:
    - Public host keys, each as type and key in base64. Comments are left out.
  returned: success, without O(addresses)
  type: list
  elements: str
  sample:
    - ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGC5EmSxTKWqtnSx5nFMFh0Xxk8o4hYlXQqSvKu7JcW
hosts:
  description:
    - The machines whose keys were read, or are known by O(known).
  returned: with O(addresses)
  type: list
  elements: dict
  contains:
    address:
      description:
        - The address, as it was given.
      type: str
    machine:
      description:
        - Resource ID of the virtual machine.
      type: str
    vm_id:
      description:
        - Number of this one machine. A machine that is made again, or another one at the same address, has another.
      type: str
    host_keys:
      description:
        - Its public host keys; none where O(known) has RV(hosts[].vm_id).
      type: list
      elements: str
  sample:
    - address: 10.80.4.5
      machine: "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg/providers/\
        Microsoft.Compute/virtualMachineScaleSets/train-ndv4/virtualMachines/0"
      vm_id: 5b1c2a0e-3f0e-4a53-9a55-6f4f5c0f3f11
      host_keys:
        - ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGC5EmSxTKWqtnSx5nFMFh0Xxk8o4hYlXQqSvKu7JcW
problems:
  description:
    - Why there are no keys of an address, by address.
  returned: with O(addresses)
  type: dict
  sample:
    10.80.4.7: Azure's agent on the machine does not answer
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, host_keys

SPEC: dict[str, dict[str, t.Any]] = {
    **client.SPEC,
    "machine": {"type": "str"},
    "subnet": {"type": "str"},
    "address": {"type": "str"},
    "addresses": {"type": "list", "elements": "str"},
    "known": {"type": "list", "elements": "str", "default": []},
}


def perform(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Read the keys of one machine, or of all addresses: there, only what concerns all of them is a failure."""
    arm = client.connect(params)
    if params["addresses"] is None:
        machine = params["machine"] or host_keys.find(arm, params["subnet"], params["address"])
        return {"machine": machine, "host_keys": host_keys.read(arm, machine)}
    machines, problems = host_keys.find_all(arm, params["subnet"], params["addresses"])
    keys, unread = host_keys.read_all(arm, [machine for machine in machines if machine.vm_id not in params["known"]])
    hosts = [
        {
            "address": machine.address,
            "machine": machine.id,
            "vm_id": machine.vm_id,
            "host_keys": keys.get(machine.address, []),
        }
        for machine in machines
        if machine.address not in unread
    ]
    return {"hosts": hosts, "problems": {**problems, **unread}}


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC,
        required_one_of=[("machine", "address", "addresses")],
        mutually_exclusive=[("machine", "subnet"), ("machine", "address", "addresses")],
        required_by={"address": "subnet", "addresses": "subnet"},
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity, azure-mgmt-core"), exception=client.MISSING)
    machine, subnet, address = (module.params[name] for name in ("machine", "subnet", "address"))
    try:
        result = perform(module.params)
    except client.AzureError as exc:
        subject = machine or (f"the machine at {address}" if address else f"machines in {subnet}")
        module.fail_json(msg=f"The SSH host keys of {subject} cannot be read through Azure: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
