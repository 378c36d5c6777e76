#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_resource
short_description: Make, change or delete any Azure resource, with a truthful check mode
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - For what C(azure.azcollection) has no module for. Its C(azure_rm_resource) is skipped in check mode.
  - Only what O(body) names is compared. Waits until Azure is done.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.azure]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  id: {description: "Its identifier, starting with C(/subscriptions/).", type: str, required: true}
  api_version: {description: Version of the interface of its type., type: str, required: true}
  body: {description: What it shall be., type: dict, default: {}}
  state: {description: Whether there shall be one., type: str, choices: [present, absent], default: present}
  whole:
    description: Send all that is there along with O(body), as agreements to marketplace terms want it.
    type: bool
    default: false
  action:
    description:
      - Act by this instead (such as V(register)) where it is not what O(body) says, and wait until it is.
    type: str
    default: ""
  wait: {description: Seconds that O(action) may take., type: int, default: 900}
  interval: {description: Seconds between looks., type: float, default: 10}
"""
EXAMPLES = r"""
- name: Make an identity
  hpcai.gpu_cluster.azure_resource:
    id: "{{ group }}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/train"
    api_version: "2024-11-30"
    body: {location: southcentralus}

- name: Register a provider
  hpcai.gpu_cluster.azure_resource:
    id: /subscriptions/{{ subscription }}/providers/Microsoft.Compute
    api_version: "2021-04-01"
    body: {registrationState: Registered}
    action: register
"""
RETURN = r"""
resource: {description: What is there then; in check mode what is there now., returned: always, type: dict}
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, compare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.arguments import SPEC


def act(arm: client.Arm, params: t.Mapping[str, t.Any], there: t.Mapping[str, t.Any] | None) -> client.Json:
    place, version, body = params["id"], params["api_version"], params["body"]
    if params["state"] == "absent":
        arm.delete(place, version)
        return {}
    if not params["action"]:
        return arm.put(place, version, compare.request(body, there, params["whole"]))
    arm.post(f"{place}/{params['action']}", version)
    deadline = time.monotonic() + params["wait"]
    while True:
        now = arm.get(place, version) or {}
        if compare.fits(body, now):
            return now
        if time.monotonic() > deadline:
            raise client.AzureError(
                f"{place} is {compare.part(body, now)} still, {params['wait']} s after {params['action']}"
            )
        time.sleep(params["interval"])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **SPEC,
            "id": {"type": "str", "required": True},
            "api_version": {"type": "str", "required": True},
            "body": {"type": "dict", "default": {}},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "whole": {"type": "bool", "default": False},
            "action": {"type": "str", "default": ""},
            "wait": {"type": "int", "default": 900},
            "interval": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity, azure-mgmt-core"), exception=client.MISSING)
    params = module.params
    body = params["body"] if params["state"] == "present" else {}
    try:
        arm = client.connect(params)
        there = arm.get(params["id"], params["api_version"])
        changed = (
            (there is None or not compare.fits(body, there)) if params["state"] == "present" else there is not None
        )
        after = act(arm, params, there) if changed and not module.check_mode else there
    except client.AzureError as exc:
        module.fail_json(msg=f"{params['id']} cannot be {params['state']}: {exc}")
    before = there and (compare.part(body, there) if body else {"id": params["id"]})
    diff = {"before": before or {}, "after": (body if changed else before) or {}}
    module.exit_json(changed=changed, resource=after or {}, diff=diff)


if __name__ == "__main__":
    main()
