#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_role_assignments
short_description: Give Azure roles, once and only once
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Looks for each assignment first, under whatever name it has. What is missing is made under a name that follows from
    scope, role and principal, so two runs at once make one.
  - Names the kind of the principal, and waits for a directory that does not know a new principal yet.
  - Never takes a role away.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.azure]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  assignments:
    description: Who shall have which role where.
    type: list
    elements: dict
    required: true
    suboptions:
      scope: {description: Identifier of subscription or resource group or resource., type: str, required: true}
      role:
        description: Identifier of a role definition, or the name of a built-in one that the collection uses.
        type: str
        required: true
      principal:
        description: Object identifier. In check mode an empty one stands for one that does not exist yet.
        type: str
        required: true
      kind:
        description: What the principal is. Identities are service principals.
        type: str
        choices: [ServicePrincipal, User, Group]
        default: ServicePrincipal
      description: {description: Kept with the assignment., type: str, default: ""}
  wait: {description: Seconds to wait for the directory., type: int, default: 300}
  interval: {description: Seconds between attempts., type: float, default: 10}
"""
EXAMPLES = r"""
- name: Let the machine make nodes
  hpcai.gpu_cluster.azure_role_assignments:
    assignments:
      - scope: /subscriptions/{{ subscription }}
        role: Contributor
        principal: "{{ machine_principal }}"
"""
RETURN = r"""
ids:
  description: Identifiers of all of them; in check mode of those there are.
  returned: always
  type: list
  elements: str
"""

import time

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import assignments, client
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.arguments import SPEC

WISH = {
    "scope": {"type": "str", "required": True},
    "role": {"type": "str", "required": True},
    "principal": {"type": "str", "required": True},
    "kind": {"type": "str", "choices": ["ServicePrincipal", "User", "Group"], "default": "ServicePrincipal"},
    "description": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **SPEC,
            "assignments": {"type": "list", "elements": "dict", "required": True, "options": WISH},
            "wait": {"type": "int", "default": 300},
            "interval": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity, azure-mgmt-core"), exception=client.MISSING)
    wishes = [assignments.Wish(**one) for one in module.params["assignments"]]
    refused = assignments.refusals(wishes)
    if not module.check_mode:
        refused += [f"nobody is named for {wish.role} on {wish.scope}" for wish in wishes if not wish.principal]
    if refused:
        module.fail_json(msg=f"Nothing was changed: {'; '.join(refused)}")
    deadline = time.monotonic() + module.params["wait"]

    def wait() -> bool:
        time.sleep(module.params["interval"])
        return time.monotonic() < deadline

    try:
        arm = client.connect(module.params)
        there = [assignments.find(arm, wish) for wish in wishes]
        after = list(there)
        if not module.check_mode:
            after = [one or assignments.make(arm, wish, wait) for one, wish in zip(there, wishes)]
    except client.AzureError as exc:
        module.fail_json(msg=f"Roles cannot be assigned: {exc}")
    lines = [f"{wish.role} for {wish.principal or 'a new principal'} on {wish.scope}\n" for wish in wishes]
    diff = {"before": "".join(line for line, one in zip(lines, there) if one), "after": "".join(lines)}
    module.exit_json(changed=not all(there), ids=[one for one in after if one], diff=diff)


if __name__ == "__main__":
    main()
