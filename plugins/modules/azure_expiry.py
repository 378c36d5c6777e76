#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_expiry
short_description: Set, postpone or cancel the time at which a cluster is taken down
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Writes the tag C(expires-on) of the resource groups of a cluster. It deletes nothing.
  - C(destroy.yml) with C(azure_teardown_due_only), or a runbook of Azure Automation, deletes a cluster that has
    expired, and reads the tag again before it does so.
  - The tag C(expires-on-by) records that the time was set here. C(provision.yml) then leaves it alone.
  - The other tags of the groups stay.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: partial
    details: O(days) counts from the time of the task, so each run postpones the expiry further.
options:
  cluster:
    description:
      - Name of the cluster, as it stands in the tag C(hpcai-cluster) of its resource groups. With O(state=present) it
        is an error when there is no such group.
    type: str
    required: true
  state:
    description:
      - V(present) sets the expiry to O(expires_on) or O(days), one of which is required. V(absent) removes it, so that
        the cluster stays until somebody deletes it.
    type: str
    choices:
      - present
      - absent
    default: present
  expires_on:
    description:
      - Time of the expiry with its offset from UTC, as V(2026-12-01T18:00:00+01:00) or V(2026-12-01T17:00:00Z), or a
        date, as V(2026-12-01), which is its midnight in UTC. A time that has passed is refused, unless it is the one
        that is set.
    type: str
  days:
    description:
      - Time of the expiry in days from now. Fractions are allowed, V(0) and negative numbers are refused.
    type: float
seealso:
  - module: hpcai.gpu_cluster.azure_teardown_info
    description: Lists the clusters that have an expiry.
  - module: hpcai.gpu_cluster.azure_teardown
"""
EXAMPLES = r"""
- name: Take the cluster down on the first of December, at midnight UTC
  hpcai.gpu_cluster.azure_expiry:
    cluster: train
    expires_on: "2026-12-01"

- name: Keep the cluster for another week
  hpcai.gpu_cluster.azure_expiry:
    cluster: train
    days: 7
  register: expiry

- name: Cancel the expiry
  hpcai.gpu_cluster.azure_expiry:
    cluster: train
    state: absent
"""
RETURN = r"""
expires_on:
  description:
    - Time of the expiry in UTC, empty when there is none. In check mode the time that would be set.
  returned: always
  type: str
  sample: "2026-12-01T00:00:00Z"
groups:
  description:
    - Resource IDs of the resource groups of the cluster.
  returned: always
  type: list
  elements: str
  sample:
    - /subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg
"""

import datetime
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.ownership import OWN_TAG, ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import RESOURCES, TeardownError, groups

SPEC = {
    **client.SPEC,
    "cluster": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "expires_on": {"type": "str"},
    "days": {"type": "float"},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Write the date of expiry on the resource groups of a cluster, or take it from them."""
    now = datetime.datetime.now(datetime.timezone.utc)
    arm = client.connect(params)
    known = [group for group in groups(arm) if ours(group, params["cluster"])]
    if not known and params["state"] == "present":
        raise TeardownError(
            f"there is no resource group with its tags and its own name in {OWN_TAG}, so nothing that could expire;"
            " provision.yml makes one, and writes that tag on one that an earlier version made"
        )
    before = {group.id: group.tags.get(teardown.TAG, "") for group in known}
    after = ""
    if params["state"] == "present":
        after = teardown.new_expiry(min(before.values()), now, params["expires_on"] or "", params["days"] or 0)
    mark = teardown.by(teardown.EXPIRE, after)
    marks = {group.id: group.tags.get(teardown.BY_TAG, "") for group in known}
    stale = [group.id for group in known if (before[group.id], marks[group.id]) != (after, mark)]
    for identifier in [] if check_mode else stale:
        tags = teardown.tags((arm.get(identifier, RESOURCES) or {}).get("tags") or {}, after)
        arm.patch(identifier, RESOURCES, {"tags": tags})
    diff = {
        "before": {teardown.TAG: before, teardown.BY_TAG: marks},
        "after": {teardown.TAG: dict.fromkeys(before, after), teardown.BY_TAG: dict.fromkeys(before, mark)},
    }
    return {"changed": bool(stale), "expires_on": after, "groups": list(before), "diff": diff}


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC,
        mutually_exclusive=[("expires_on", "days")],
        required_if=[("state", "present", ("expires_on", "days"), True)],
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity and azure-mgmt-core"), exception=client.MISSING)
    try:
        result = perform(module.params, module.check_mode)
    except (client.AzureError, TeardownError) as exc:
        module.fail_json(msg=f"The expiry of {module.params['cluster']} cannot be set: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
