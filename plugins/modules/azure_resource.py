#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_resource
short_description: Create, change or delete any Azure resource, with a true check mode
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Manages resources for which C(azure.azcollection) has no module of their own. Other than
    M(azure.azcollection.azure_rm_resource) it reads in check mode and reports what it would change.
  - It reads the resource and compares only what O(body) names. A list is compared as a whole and in its order, a region
    without regard to case and spaces, a resource ID without regard to case.
  - It waits until Azure has finished a change, for up to two hours per request.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows the part of the resource that O(body) names.
  idempotent:
    support: full
options:
  id:
    description:
      - Resource ID, starting with C(/subscriptions/).
    type: str
    required: true
  api_version:
    description:
      - Version of the REST API of the resource type, such as V(2024-07-01).
    type: str
    required: true
  body:
    description:
      - Properties of the resource as the REST API names them. It is ignored with O(state=absent). When it is empty, a
        resource that exists is left as it is.
      - A resource that differs is written with C(PUT). The request holds O(body) and the tags that the resource has in
        addition; other properties that O(body) leaves out are not sent, unless O(whole) is set, and Azure may reset
        them.
    type: dict
    default: {}
  state:
    description:
      - V(present) creates or changes the resource. V(absent) deletes it; a resource that does not exist is no error.
    type: str
    choices:
      - present
      - absent
    default: present
  whole:
    description:
      - Whether to send all properties of the existing resource along with O(body). Agreements to marketplace terms need
        this.
    type: bool
    default: false
  update:
    description:
      - Whether a resource that exists and differs from O(body) is written. With V(false) it is left as it is, whatever
        it says. The link of a schedule to a runbook of Azure Automation, for example, cannot be changed once made.
    type: bool
    default: true
  action:
    description:
      - Name of an action of the resource, such as V(register). Where the resource does not agree with O(body), the
        module sends C(POST) to this action instead of writing the resource, and reads until it agrees.
      - It is ignored with O(state=absent).
    type: str
    default: ""
  wait:
    description:
      - Seconds after O(action) until the resource has to agree with O(body). When it does not, the module fails.
    type: int
    default: 900
  interval:
    description:
      - Seconds between two readings while it waits for O(action).
    type: float
    default: 10
seealso:
  - module: hpcai.gpu_cluster.azure_resource_info
  - module: azure.azcollection.azure_rm_resource
"""
EXAMPLES = r"""
- name: Create a user-assigned identity
  hpcai.gpu_cluster.azure_resource:
    id: "/subscriptions/{{ subscription }}/resourceGroups/train-rg/providers/\
      Microsoft.ManagedIdentity/userAssignedIdentities/train-locker"
    api_version: "2024-11-30"
    body:
      location: southcentralus
      tags:
        team: training
  register: identity

- name: Register the resource provider of virtual machines
  hpcai.gpu_cluster.azure_resource:
    id: /subscriptions/{{ subscription }}/providers/Microsoft.Compute
    api_version: "2021-04-01"
    body:
      registrationState: Registered
    action: register
    wait: 1800

- name: Accept the terms of a marketplace image
  hpcai.gpu_cluster.azure_resource:
    id: "/subscriptions/{{ subscription }}/providers/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/\
      publishers/azurecyclecloud/offers/azure-cyclecloud/plans/cyclecloud8-gen2/agreements/current"
    api_version: "2021-01-01"
    body:
      properties:
        accepted: true
    whole: true

- name: Delete a resource group with everything in it
  hpcai.gpu_cluster.azure_resource:
    id: /subscriptions/{{ subscription }}/resourceGroups/train-schedule-rg
    api_version: "2021-04-01"
    state: absent
"""
RETURN = r"""
resource:
  description:
    - The resource as Azure describes it after the task. In check mode it is the resource as it is now. It is empty when
      the resource does not exist or was deleted.
  returned: always
  type: dict
  sample:
    id: "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg/providers/\
      Microsoft.ManagedIdentity/userAssignedIdentities/train-locker"
    name: train-locker
    type: Microsoft.ManagedIdentity/userAssignedIdentities
    location: southcentralus
    tags: {team: training}
    properties:
      clientId: 11111111-1111-1111-1111-111111111111
      principalId: 22222222-2222-2222-2222-222222222222
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, ownership

SPEC: dict[str, dict[str, t.Any]] = {
    **client.SPEC,
    "id": {"type": "str", "required": True},
    "api_version": {"type": "str", "required": True},
    "body": {"type": "dict", "default": {}},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "whole": {"type": "bool", "default": False},
    "update": {"type": "bool", "default": True},
    "action": {"type": "str", "default": ""},
    "wait": {"type": "int", "default": 900},
    "interval": {"type": "float", "default": 10},
}


def act(arm: client.Arm, params: t.Mapping[str, t.Any], there: t.Mapping[str, t.Any] | None) -> client.Json:
    """Create, change, delete or act on the resource; return what Azure has of it then, empty if it is gone."""
    resource_id, version, body = params["id"], params["api_version"], params["body"]
    if params["state"] == "absent":
        arm.delete(resource_id, version)
        return {}
    if not params["action"]:
        return arm.put(resource_id, version, ownership.request_body(body, there, params["whole"]))
    arm.post(f"{resource_id}/{params['action']}", version)
    deadline = time.monotonic() + params["wait"]
    while True:
        now = arm.get(resource_id, version) or {}
        if ownership.fits(body, now):
            return now
        if time.monotonic() > deadline:
            raise client.AzureError(
                f"{resource_id} is {ownership.part(body, now)} still, {params['wait']} s after {params['action']}"
            )
        time.sleep(params["interval"])


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Bring a resource to its state, where it is not there."""
    body = params["body"] if params["state"] == "present" else {}
    arm = client.connect(params)
    there = arm.get(params["id"], params["api_version"])
    if params["state"] == "present":
        changed = there is None or (params["update"] and not ownership.fits(body, there))
    else:
        changed = there is not None
    after = act(arm, params, there) if changed and not check_mode else there
    before = there and (ownership.part(body, there) if body else {"id": params["id"]})
    diff = {"before": before or {}, "after": (body if changed else before) or {}}
    return {"changed": changed, "resource": after or {}, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity, azure-mgmt-core"), exception=client.MISSING)
    try:
        result = perform(module.params, module.check_mode)
    except client.AzureError as exc:
        module.fail_json(msg=f"{module.params['id']} cannot be {module.params['state']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
