#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_host_keys_info
short_description: Read the SSH host keys of an Azure machine before the first login
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Has Azure's agent on the machine print C(/etc/ssh/ssh_host_*_key.pub) by the run command C(RunShellScript). The
    answer comes through Azure Resource Manager, so that nobody on the cluster's network can answer in the machine's
    place.
  - The machine has to run, with Azure's agent. The identity needs
    C(Microsoft.Compute/virtualMachines/runCommand/action), which Virtual Machine Contributor and Contributor have.
    Azure accepts one run command per machine at a time.
  - Machines of a scale set in uniform mode are not supported.
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
      - Resource ID of the virtual machine. Give either this, or O(subnet) and O(address).
    type: str
  subnet:
    description:
      - Subnet in which the machine has O(address), as C(<resource group>/<network>/<subnet>) or as a resource ID.
    type: str
  address:
    description:
      - Private IP address of the machine. Azure gives an address once in a subnet, so that nobody else can have it.
    type: str
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
"""
RETURN = r"""
machine:
  description:
    - Resource ID of the virtual machine.
  returned: success
  type: str
  sample: "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg/providers/\
    Microsoft.Compute/virtualMachines/train-scheduler"
host_keys:
  description:
    - Public host keys, each as type and key in base64. Comments are left out.
  returned: success
  type: list
  elements: str
  sample:
    - ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGC5EmSxTKWqtnSx5nFMFh0Xxk8o4hYlXQqSvKu7JcW
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, host_keys
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import SPEC


def main() -> None:
    text = {"type": "str"}
    module = AnsibleModule(
        argument_spec={**SPEC, "machine": text, "subnet": text, "address": text},
        required_one_of=[("machine", "subnet")],
        mutually_exclusive=[("machine", "subnet"), ("machine", "address")],
        required_together=[("subnet", "address")],
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity, azure-mgmt-core"), exception=client.MISSING)
    params = module.params
    try:
        arm = client.connect(params)
        machine = params["machine"] or host_keys.find(arm, params["subnet"], params["address"])
        keys = host_keys.read(arm, machine)
    except client.AzureError as exc:
        subject = params["machine"] or f"the machine at {params['address']}"
        module.fail_json(msg=f"The SSH host keys of {subject} cannot be read through Azure: {exc}")
    module.exit_json(changed=False, machine=machine, host_keys=keys)


if __name__ == "__main__":
    main()
