#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_teardown_info
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: List what a teardown of a cluster would delete in Azure, or which clusters are due
description:
  - Reads what M(hpcai.gpu_cluster.azure_teardown) would delete, and what forbids it. Changes nothing.
  - A resource group or a resource belongs to a cluster by its tags C(created-by) (C(hpcai.gpu_cluster)) and
    C(hpcai-cluster) (the cluster's name); C(hpcai-resource) has to be its own type and name where the group has one, as
    a policy may have copied the others. Everything else stays.
  - Without O(cluster) it only lists the clusters that have an expiry.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.azure]
attributes:
  check_mode: {support: full, details: It only reads.}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  cluster: {description: Name of the cluster., type: str}
  nodes_cluster: {description: "Its name in CycleCloud, by default the same.", type: str}
  also: {description: Ids of what others made in its groups that may go too., type: list, elements: str, default: []}
  role_assignments:
    description: Ids of role assignments that were recorded when they were made.
    type: list
    elements: str
    default: []
"""
EXAMPLES = r"""
- name: Look what belongs to a cluster
  hpcai.gpu_cluster.azure_teardown_info:
    cluster: train
  register: found
"""
RETURN = r"""
plan:
  description: Ids of what would be deleted, what is in the groups, C(refusals) that forbid it, C(notes) on the rest.
  returned: with O(cluster)
  type: dict
  sample:
    {locks: [], assignments: [], resources: [], groups: [/subscriptions/s/resourceGroups/train-rg],
     contents: {train-rg: [Microsoft.Network/virtualNetworks train-vnet]}, refusals: [], notes: []}
listing: {description: The same as lines for people., returned: with O(cluster), type: list, elements: str}
server:
  description: The CycleCloud machine; empty where there is none.
  returned: with O(cluster)
  type: dict
  sample: {name: train-cyclecloud, user: hpcadmin, address: 10.80.0.4, private_address: 10.80.0.4, public_address: ""}
vaults: {description: Deleted key vaults that keep their names., returned: with O(cluster), type: list, elements: str}
clusters:
  description: Every cluster of the subscription that has an expiry.
  returned: always
  type: list
  elements: dict
  sample: [{cluster: train, expires: "2026-12-01T00:00:00Z", due: false, problem: ""}]
"""

import datetime
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import arguments, client, expiry, teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown_leftovers import listing, server, vaults
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown_read import asked, groups, read


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **arguments.SPEC,
            "cluster": {"type": "str"},
            "nodes_cluster": {"type": "str"},
            "also": {"type": "list", "elements": "str", "default": []},
            "role_assignments": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity and azure-mgmt-core"), exception=client.MISSING)
    name = module.params["cluster"]
    try:
        arm = client.connect(module.params)
        now = datetime.datetime.now(datetime.timezone.utc)
        answer: dict[str, t.Any] = {"clusters": [due._asdict() for due in expiry.clusters(groups(arm), now)]}
        if name:
            seen, complete = read(arm, asked(module.params))
            plan = teardown.plan(seen, complete)
            kept, notes = vaults(arm, seen, name)
            plan.notes.extend(notes)
            answer.update(plan=plan._asdict(), listing=listing(plan), server=server(arm, seen, name), vaults=kept)
    except (arguments.AzureError, teardown.TeardownError) as exc:
        module.fail_json(msg=f"Cannot say what there is of {name or 'any cluster'}: {exc}")
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
