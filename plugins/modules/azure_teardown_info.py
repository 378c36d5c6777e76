#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_teardown_info
short_description: List what a teardown would delete in Azure, and which clusters have expired
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Reads what M(hpcai.gpu_cluster.azure_teardown) would delete and what forbids it. Changes nothing.
  - A resource group or resource belongs to a cluster when its tag C(created-by) is C(hpcai.gpu_cluster) and its tag
    C(hpcai-cluster) is the name of the cluster, and its tag C(hpcai-resource) holds its own name, because a policy may
    have copied the other tags. That is C(resourceGroups/<group>) or C(<group>/<type>/<name>). What CycleCloud makes has
    C(cyclecloud/<cluster>) there, which counts unless its resource group has the same value.
  - In a resource group of the cluster, what has C(ClusterName) of CycleCloud, is managed by something of the cluster or
    is a part of it belongs to the cluster as well.
  - Everything else stays. It refuses the teardown when it is in a resource group of the cluster; a resource group that
    has the first two tags and no C(hpcai-resource) refuses it, too.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  cluster:
    description:
      - Name of the cluster. Without it only RV(clusters) is returned.
    type: str
  nodes_cluster:
    description:
      - Name of the cluster in CycleCloud, which is the value of the tag C(ClusterName) of its nodes. The default is
        O(cluster).
    type: str
  also:
    description:
      - Resource IDs of resources in the groups of the cluster that others made, or that do not prove the opposite, and
        that may be deleted with the groups.
      - The ID of a resource group counts where the group has the tags C(created-by) and C(hpcai-cluster) of the
        cluster and lacks its own name in C(hpcai-resource), as an earlier version made it. No other group is deleted
        whole.
    type: list
    elements: str
    default: []
  role_assignments:
    description:
      - Resource IDs of role assignments that were recorded when they were made.
    type: list
    elements: str
    default: []
seealso:
  - module: hpcai.gpu_cluster.azure_teardown
  - module: hpcai.gpu_cluster.azure_expiry
"""
EXAMPLES = r"""
- name: Read what belongs to the cluster train
  hpcai.gpu_cluster.azure_teardown_info:
    cluster: train
    nodes_cluster: ndv4
  register: teardown

- name: Show what a teardown would delete
  ansible.builtin.debug:
    var: teardown.listing

- name: Stop when something forbids the teardown
  ansible.builtin.assert:
    that: teardown.plan.refusals | length == 0
    fail_msg: "{{ teardown.plan.refusals | join('; ') }}"

- name: Read the clusters of the subscription that have an expiry
  hpcai.gpu_cluster.azure_teardown_info:
  register: subscription

- name: Show the names of those that have expired
  ansible.builtin.debug:
    msg: "{{ subscription.clusters | selectattr('due') | map(attribute='cluster') | join(', ') }}"
"""
RETURN = r"""
plan:
  description:
    - What a teardown would delete and what forbids it.
  returned: with O(cluster)
  type: dict
  contains:
    locks:
      description:
        - Resource IDs of locks that the collection set.
      returned: always
      type: list
      elements: str
      sample: []
    assignments:
      description:
        - Resource IDs of role assignments.
      returned: always
      type: list
      elements: str
      sample:
        - "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.Authorization/roleAssignments/\
          6f1cd1bd-7a1f-5a55-bb4c-1cf2ed52c1b0"
    resources:
      description:
        - Resource IDs of resources of the cluster that are in resource groups of others, in the order of deletion.
      returned: always
      type: list
      elements: str
      sample: []
    groups:
      description:
        - Resource IDs of the resource groups of the cluster.
      returned: always
      type: list
      elements: str
      sample:
        - /subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg
    contents:
      description:
        - By the name of each of these groups, type and name of every resource in it.
      returned: always
      type: dict
      sample:
        train-rg:
          - Microsoft.Compute/virtualMachines train-cyclecloud
          - Microsoft.Network/virtualNetworks train-vnet
    refusals:
      description:
        - What forbids the teardown and what to do about it. M(hpcai.gpu_cluster.azure_teardown) fails unless it is
          empty.
      returned: always
      type: list
      elements: str
      sample:
        - >-
          CanNotDelete lock keep on /subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg is not
          ours (no note): ask who set it; it goes with az lock delete --ids ...
    notes:
      description:
        - Resources that have tags of the cluster and would stay, and why deleted key vaults could not be listed.
      returned: always
      type: list
      elements: str
      sample: []
listing:
  description:
    - What would be deleted, as lines in the order of deletion. The contents of a resource group follow it, indented.
  returned: with O(cluster)
  type: list
  elements: str
  sample:
    - >-
      resource group /subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-rg with everything in it
    - "  Microsoft.Network/virtualNetworks train-vnet"
server:
  description:
    - The VM C(<cluster>-cyclecloud), empty when it does not exist.
  returned: with O(cluster)
  type: dict
  contains:
    name:
      description:
        - Name of the VM.
      returned: when the VM exists
      type: str
      sample: train-cyclecloud
    user:
      description:
        - Name of its administrator.
      returned: when the VM exists
      type: str
      sample: hpcadmin
    address:
      description:
        - Public address, or the private one where it has no public one.
      returned: when the VM exists
      type: str
      sample: 10.80.0.4
    private_address:
      description:
        - Private address.
      returned: when the VM exists
      type: str
      sample: 10.80.0.4
    public_address:
      description:
        - Public address, empty where it has none.
      returned: when the VM exists
      type: str
      sample: ""
vaults:
  description:
    - Resource IDs of deleted key vaults of the cluster. Their names cannot be used again until they are purged.
  returned: with O(cluster)
  type: list
  elements: str
  sample: []
clusters:
  description:
    - Every cluster of the subscription that has an expiry, sorted by name.
  returned: always
  type: list
  elements: dict
  contains:
    cluster:
      description:
        - Name of the cluster.
      returned: always
      type: str
      sample: train
    expires:
      description:
        - The earliest expiry of its resource groups in UTC, empty when a tag cannot be read.
      returned: always
      type: str
      sample: "2026-12-01T00:00:00Z"
    due:
      description:
        - Whether that time has passed. It is V(false) when a tag cannot be read.
      returned: always
      type: bool
      sample: false
    problem:
      description:
        - Why the tag cannot be read, else empty.
      returned: always
      type: str
      sample: ""
"""

import datetime
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, teardown

SPEC: dict[str, dict[str, t.Any]] = {
    **client.SPEC,
    "cluster": {"type": "str"},
    "nodes_cluster": {"type": "str"},
    "also": {"type": "list", "elements": "str", "default": []},
    "role_assignments": {"type": "list", "elements": "str", "default": []},
}


def perform(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return all clusters that may expire, and of one all that its teardown would delete and keep."""
    arm = client.connect(params)
    now = datetime.datetime.now(datetime.timezone.utc)
    result: dict[str, t.Any] = {"clusters": [due._asdict() for due in teardown.clusters(teardown.groups(arm), now)]}
    name = params["cluster"]
    if name:
        seen, complete = teardown.read_subscription(arm, teardown.teardown_request(params))
        plan = teardown.plan(seen, complete)
        kept, notes = teardown.vaults(arm, seen, name)
        plan.notes.extend(notes)
        result.update(plan=plan._asdict(), listing=teardown.listing(plan), vaults=kept)
        result["server"] = teardown.server(arm, seen, name)
    return result


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity and azure-mgmt-core"), exception=client.MISSING)
    try:
        result = perform(module.params)
    except (client.AzureError, teardown.TeardownError) as exc:
        module.fail_json(msg=f"Cannot say what there is of {module.params['cluster'] or 'any cluster'}: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
