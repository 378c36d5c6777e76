#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_role_assignments
short_description: Assign Azure roles to identities, users and groups, each once
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Makes the role assignments that are missing. An assignment counts as present under any name when scope, role and
    principal agree; the scope has to be the same, an assignment at a higher scope does not count.
  - A new assignment gets a name that follows from scope, role and principal, so that two runs at the same time make
    one.
  - When the directory does not know a new principal yet, the module tries again for O(wait) seconds.
  - It never removes an assignment.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  assignments:
    description:
      - Assignments that have to exist. With an unknown role or, outside check mode, an empty principal nothing is
        changed and the module fails.
    type: list
    elements: dict
    required: true
    suboptions:
      scope:
        description:
          - Resource ID of the subscription, resource group or resource at which the role is assigned.
        type: str
        required: true
      role:
        description:
          - GUID of a role definition, or one of the built-in roles V(Contributor), V(Reader),
            V(Managed Identity Operator), V(Network Contributor), V(Storage Blob Data Contributor) and
            V(Storage Blob Data Reader).
        type: str
        required: true
      principal:
        description:
          - Object ID of the principal. For an identity this is its principal ID, not its client ID.
          - In check mode it may be empty, for an identity that an earlier task would make.
        type: str
        required: true
      kind:
        description:
          - Type of the principal. Managed identities are service principals. Azure needs the type to accept a
            principal that was made a moment ago.
        type: str
        choices:
          - ServicePrincipal
          - User
          - Group
        default: ServicePrincipal
      description:
        description:
          - Description that a new assignment gets. It is not compared, and the description of an existing assignment
            stays.
        type: str
        default: ""
  wait:
    description:
      - Seconds that the module keeps trying, for all assignments together, while the directory does not know a
        principal.
    type: int
    default: 300
  interval:
    description:
      - Seconds between two attempts.
    type: float
    default: 10
seealso:
  - module: hpcai.gpu_cluster.azure_compute_preflight
    description: Reports whether the identity may make role assignments.
"""
EXAMPLES = r"""
- name: Let the CycleCloud VM create nodes in the subscription
  hpcai.gpu_cluster.azure_role_assignments:
    assignments:
      - scope: /subscriptions/{{ subscription }}
        role: Contributor
        principal: "{{ cyclecloud_identity.resource.properties.principalId }}"
        description: hpcai.gpu_cluster train

- name: Let nodes read the locker and CycleCloud attach their identity
  hpcai.gpu_cluster.azure_role_assignments:
    assignments:
      - scope: "{{ storage_account_id }}"
        role: Storage Blob Data Reader
        principal: "{{ locker_identity.resource.properties.principalId }}"
      - scope: "{{ locker_identity.resource.id }}"
        role: Managed Identity Operator
        principal: "{{ cyclecloud_identity.resource.properties.principalId }}"
    wait: 600

- name: Let a team of users see the resource group, by the GUID of the role
  hpcai.gpu_cluster.azure_role_assignments:
    assignments:
      - scope: /subscriptions/{{ subscription }}/resourceGroups/train-rg
        role: acdd72a7-3385-48ef-bd42-f606fba81ae7
        principal: "{{ training_group_object_id }}"
        kind: Group
"""
RETURN = r"""
ids:
  description:
    - Resource IDs of the assignments, in the order of O(assignments). In check mode those that are missing are left
      out.
  returned: always
  type: list
  elements: str
  sample:
    - "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.Authorization/roleAssignments/\
      6f1cd1bd-7a1f-5a55-bb4c-1cf2ed52c1b0"
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import assignments, client

ASSIGNMENT = {
    "scope": {"type": "str", "required": True},
    "role": {"type": "str", "required": True},
    "principal": {"type": "str", "required": True},
    "kind": {"type": "str", "choices": ["ServicePrincipal", "User", "Group"], "default": "ServicePrincipal"},
    "description": {"type": "str", "default": ""},
}
SPEC: dict[str, dict[str, t.Any]] = {
    **client.SPEC,
    "assignments": {"type": "list", "elements": "dict", "required": True, "options": ASSIGNMENT},
    "wait": {"type": "int", "default": 300},
    "interval": {"type": "float", "default": 10},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Make the assignments that Azure lacks; one that is refused keeps all from being made."""
    requests = [assignments.AssignmentRequest(**assignment) for assignment in params["assignments"]]
    refused = assignments.refusals(requests)
    if not check_mode:
        refused += [
            f"nobody is named for {request.role} on {request.scope}" for request in requests if not request.principal
        ]
    if refused:
        raise client.AzureError(f"nothing was changed, {'; '.join(refused)}")
    deadline = time.monotonic() + params["wait"]

    def wait() -> bool:
        time.sleep(params["interval"])
        return time.monotonic() < deadline

    arm = client.connect(params)
    there = [assignments.find(arm, request) for request in requests]
    after = list(there)
    if not check_mode:
        after = [present or assignments.make(arm, request, wait) for present, request in zip(there, requests)]
    lines = [
        f"{request.role} for {request.principal or 'a new principal'} on {request.scope}\n" for request in requests
    ]
    diff = {"before": "".join(line for line, present in zip(lines, there) if present), "after": "".join(lines)}
    return {"changed": not all(there), "ids": [identifier for identifier in after if identifier], "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity, azure-mgmt-core"), exception=client.MISSING)
    try:
        result = perform(module.params, module.check_mode)
    except client.AzureError as exc:
        module.fail_json(msg=f"Roles cannot be assigned: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
