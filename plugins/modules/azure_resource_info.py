#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_resource_info
short_description: Read Azure resources of any type
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Reads several resources with one login, and says which of them there are.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.azure]
attributes:
  check_mode: {support: full}
  diff_mode: {support: N/A, details: Nothing is changed.}
  idempotent: {support: full}
options:
  resources:
    description: By names of your choice, C(id) and C(api_version) of each.
    type: dict
    required: true
"""
EXAMPLES = r"""
- name: Look at the machine
  hpcai.gpu_cluster.azure_resource_info:
    resources:
      vm:
        id: /subscriptions/{{ subscription }}/resourceGroups/train-rg/providers/Microsoft.Compute/virtualMachines/train
        api_version: "2024-07-01"
  register: seen
"""
RETURN = r"""
resources:
  description: By the same names, what Azure says of each; nothing (an empty one) where there is none.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.arguments import SPEC


def main() -> None:
    module = AnsibleModule(
        argument_spec={**SPEC, "resources": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity, azure-mgmt-core"), exception=client.MISSING)
    wanted = module.params["resources"]
    wrong = sorted(
        name for name, one in wanted.items() if not isinstance(one, dict) or set(one) != {"id", "api_version"}
    )
    if wrong:
        module.fail_json(msg=f"resources: {', '.join(wrong)} need id and api_version, and nothing else")
    try:
        arm = client.connect(module.params)
        found = {name: arm.get(one["id"], str(one["api_version"])) or {} for name, one in sorted(wanted.items())}
    except client.AzureError as exc:
        module.fail_json(msg=f"Azure cannot be read: {exc}")
    module.exit_json(changed=False, resources=found)


if __name__ == "__main__":
    main()
