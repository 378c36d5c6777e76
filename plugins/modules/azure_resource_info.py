#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_resource_info
short_description: Read Azure resources of any type
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Reads several resources of different types in one task. A resource that does not exist is no error, its result is
    empty.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: Nothing is changed.
  idempotent:
    support: full
options:
  resources:
    description:
      - Resources to read, by names of your choice. Each is a dictionary of C(id), the resource ID, and C(api_version),
        the version of the REST API of its type. Both are required, other keys are refused.
    type: dict
    required: true
seealso:
  - module: hpcai.gpu_cluster.azure_resource
  - module: azure.azcollection.azure_rm_resource_info
"""
EXAMPLES = r"""
- name: Read the CycleCloud VM and its network interface
  hpcai.gpu_cluster.azure_resource_info:
    resources:
      vm:
        id: "{{ group_id }}/providers/Microsoft.Compute/virtualMachines/train-cyclecloud"
        api_version: "2024-07-01"
      nic:
        id: "{{ group_id }}/providers/Microsoft.Network/networkInterfaces/train-cyclecloud"
        api_version: "2024-05-01"
  vars:
    group_id: /subscriptions/{{ subscription }}/resourceGroups/train-rg
  register: azure

- name: Stop unless the CycleCloud VM exists
  ansible.builtin.assert:
    that: azure.resources.vm | length > 0
    fail_msg: The CycleCloud VM of this cluster does not exist.

- name: Read the registration of a resource provider
  hpcai.gpu_cluster.azure_resource_info:
    resources:
      compute:
        id: /subscriptions/{{ subscription }}/providers/Microsoft.Compute
        api_version: "2021-04-01"
  register: provider
"""
RETURN = r"""
resources:
  description:
    - By the names of O(resources), each resource as Azure describes it, or an empty dictionary where it does not exist.
  returned: always
  type: dict
  sample:
    vm:
      id: "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg/providers/\
        Microsoft.Compute/virtualMachines/train-cyclecloud"
      name: train-cyclecloud
      type: Microsoft.Compute/virtualMachines
      location: southcentralus
      properties: {provisioningState: Succeeded}
    nic: {}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client

SPEC: dict[str, dict[str, t.Any]] = {**client.SPEC, "resources": {"type": "dict", "required": True}}


def perform(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Read resources by their names; one that is not there is empty."""
    resources = sorted(params["resources"].items())
    wrong = [
        name for name, resource in resources if not isinstance(resource, dict) or set(resource) != {"id", "api_version"}
    ]
    if wrong:
        raise client.AzureError(f"resources {', '.join(wrong)} need id and api_version, and nothing else")
    arm = client.connect(params)
    return {
        "resources": {name: arm.get(resource["id"], str(resource["api_version"])) or {} for name, resource in resources}
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity, azure-mgmt-core"), exception=client.MISSING)
    try:
        result = perform(module.params)
    except client.AzureError as exc:
        module.fail_json(msg=f"Azure cannot be read: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
