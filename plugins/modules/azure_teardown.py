#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_teardown
short_description: Delete what this collection made for a cluster in Azure, and nothing else
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Deletes everything that belongs to a cluster in the subscription, and waits until each deletion has finished, for up
    to two hours each. What belongs to a cluster is described with M(hpcai.gpu_cluster.azure_teardown_info).
  - The order is that of O(parts). Role assignments go before the identities that they belong to, and single resources
    that others use go after those that use them. What Azure reports as still in use is tried again after the others.
  - Everything is read again first. When anything forbids the teardown, such as a lock of an administrator or resources
    of others in a resource group of the cluster, the module fails before it deletes anything.
  - What no longer exists counts as done, so the same task continues after an interruption.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows the IDs that are deleted, one per line.
  idempotent:
    support: full
options:
  cluster:
    description:
      - Name of the cluster, as it stands in the tag C(hpcai-cluster) of its resources.
    type: str
    required: true
  confirm:
    description:
      - Name of the cluster once more, typed by whoever wants it deleted. The module fails without deleting anything
        when it differs from O(cluster), in check mode as well.
    type: str
    required: true
  nodes_cluster:
    description:
      - Name of the cluster in CycleCloud, which is the value of the tag C(ClusterName) of its nodes. The default is
        O(cluster).
    type: str
  parts:
    description:
      - What to delete. The order is always V(locks), V(role_assignments), V(resources), V(groups), whatever the order
        of this list.
      - V(locks) are locks whose notes name C(hpcai.gpu_cluster) and the cluster. V(role_assignments) are those of the
        identities of the cluster, those whose description names it, and O(role_assignments). V(resources) are
        resources of the cluster in resource groups of others. V(groups) are its resource groups with everything in
        them.
      - CycleCloud needs its role assignments until it has deleted its own cluster. Delete V(locks) before that and the
        rest after it.
    type: list
    elements: str
    choices:
      - locks
      - role_assignments
      - resources
      - groups
    default:
      - locks
      - role_assignments
      - resources
      - groups
  also:
    description:
      - Resource IDs of resources in the groups of the cluster that others made and that may be deleted with the groups.
        Any other resource of others refuses the teardown.
      - Or the ID of a resource group that has the cluster's tags but lacks its own name in C(hpcai-resource).
    type: list
    elements: str
    default: []
  role_assignments:
    description:
      - Resource IDs of role assignments that were recorded when they were made. They are deleted even when their
        principal no longer exists.
    type: list
    elements: str
    default: []
seealso:
  - module: hpcai.gpu_cluster.azure_teardown_info
  - module: hpcai.gpu_cluster.azure_expiry
"""
EXAMPLES = r"""
- name: Delete the cluster train, after its name was typed in answer to a prompt
  hpcai.gpu_cluster.azure_teardown:
    cluster: train
    confirm: "{{ confirm }}"

- name: Delete the locks of the cluster, so that CycleCloud can delete its nodes
  hpcai.gpu_cluster.azure_teardown:
    cluster: train
    confirm: "{{ confirm }}"
    nodes_cluster: ndv4
    parts:
      - locks

- name: Delete everything else of the cluster, and a disk that somebody else left in its group
  hpcai.gpu_cluster.azure_teardown:
    cluster: train
    confirm: "{{ confirm }}"
    nodes_cluster: ndv4
    parts:
      - role_assignments
      - resources
      - groups
    also:
      - /subscriptions/{{ subscription }}/resourceGroups/train-rg/providers/Microsoft.Compute/disks/scratch-copy
"""
RETURN = r"""
deleted:
  description:
    - Resource IDs that were deleted, in order. In check mode those that would be.
  returned: always
  type: list
  elements: str
  sample:
    - "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg/providers/\
      Microsoft.Authorization/locks/hpcai-keep"
    - /subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg
gone:
  description:
    - Resource IDs of what no longer existed when its turn came.
  returned: always
  type: list
  elements: str
  sample: []
left:
  description:
    - Resource IDs that were not deleted because the task failed before. Empty after success and in check mode.
  returned: always
  type: list
  elements: str
  sample: []
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import DeletedResource, TeardownError

SPEC: dict[str, dict[str, t.Any]] = {
    **client.SPEC,
    "cluster": {"type": "str", "required": True},
    "confirm": {"type": "str", "required": True},
    "nodes_cluster": {"type": "str"},
    "parts": {"type": "list", "elements": "str", "choices": list(teardown.PARTS), "default": list(teardown.PARTS)},
    "also": {"type": "list", "elements": "str", "default": []},
    "role_assignments": {"type": "list", "elements": "str", "default": []},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Delete what the plan names; what was raised was raised before anything was deleted."""
    name = params["cluster"]
    if params["confirm"] != name:
        raise TeardownError(f"confirm is {params['confirm']!r}, the cluster is {name!r}")
    try:
        arm = client.connect(params)
        plan = teardown.plan(*teardown.read_subscription(arm, teardown.teardown_request(params)))
    except (client.AzureError, TeardownError) as exc:
        raise TeardownError(f"what there is cannot be read: {exc}") from exc
    if plan.refusals:
        raise TeardownError("; ".join(plan.refusals))
    going = teardown.targets(plan, params["parts"])
    done = DeletedResource(going, [], "", []) if check_mode else teardown.run(arm, going)
    diff = {
        "before": "".join(f"{identifier}\n" for identifier in going),
        "after": "".join(f"{identifier}\n" for identifier in done.left),
    }
    failure = f"only partly deleted ({len(done.deleted)} of {len(going)}). {done.failed}" if done.failed else ""
    result = {"changed": bool(done.deleted), "deleted": done.deleted, "gone": done.gone, "left": done.left}
    return {**result, "diff": diff, "failure": failure}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    name = module.params["cluster"]
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity and azure-mgmt-core"), exception=client.MISSING)
    try:
        result = perform(module.params, module.check_mode)
    except TeardownError as exc:
        module.fail_json(msg=f"Nothing of {name} was deleted: {exc}")
    failure = result.pop("failure")
    if failure:
        again = f"Then run the same again: it goes on with {len(result['left'])}"
        module.fail_json(msg=f"{name} is {failure}. {again}", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
