#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_teardown
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Delete what this collection made for a cluster in Azure, and nothing else
description:
  - "Deletes in this order, and waits for each: our locks, role assignments of the cluster's identities and those that
    say they are ours, single resources of ours in groups that are not, our resource groups with everything in them."
  - Reads everything again first. Whatever forbids it (a lock of an administrator, resources of others in our groups)
    is refused before anything is deleted.
  - What is gone already counts as done, so the same call goes on after an interruption.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.azure]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  cluster: {description: Name of the cluster., type: str, required: true}
  confirm: {description: "The name once more, by the one who wants it gone.", type: str, required: true}
  nodes_cluster: {description: "Its name in CycleCloud, by default the same.", type: str}
  parts:
    description: What to delete. Role assignments go after CycleCloud's cluster, which needs them.
    type: list
    elements: str
    choices: [locks, role_assignments, resources, groups]
    default: [locks, role_assignments, resources, groups]
  also: {description: Ids of what others made in its groups that may go too., type: list, elements: str, default: []}
  role_assignments:
    description: Ids of role assignments that were recorded when they were made.
    type: list
    elements: str
    default: []
"""
EXAMPLES = r"""
- name: Delete a cluster
  hpcai.gpu_cluster.azure_teardown:
    cluster: train
    confirm: "{{ confirm }}"
"""
RETURN = r"""
deleted: {description: "Ids, in order; in check mode what would be.", returned: always, type: list, elements: str}
gone: {description: Ids of what was gone when its turn came., returned: always, type: list, elements: str}
left: {description: Ids that were not deleted., returned: always, type: list, elements: str}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import arguments, client, teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown_read import asked, read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown_run import PARTS, Done, run, targets


def main() -> None:
    texts = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            **arguments.SPEC,
            "cluster": {"type": "str", "required": True},
            "confirm": {"type": "str", "required": True},
            "nodes_cluster": {"type": "str"},
            "parts": {"type": "list", "elements": "str", "choices": list(PARTS), "default": list(PARTS)},
            "also": texts,
            "role_assignments": texts,
        },
        supports_check_mode=True,
    )
    name = module.params["cluster"]
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity and azure-mgmt-core"), exception=client.MISSING)
    if module.params["confirm"] != name:
        module.fail_json(msg=f"Nothing was deleted: confirm is {module.params['confirm']!r}, the cluster is {name!r}")
    try:
        arm = client.connect(module.params)
        plan = teardown.plan(*read(arm, asked(module.params)))
    except (arguments.AzureError, teardown.TeardownError) as exc:
        module.fail_json(msg=f"Nothing of {name} was deleted, for it cannot be read what there is: {exc}")
    if plan.refusals:
        module.fail_json(msg=f"Nothing of {name} was deleted: {'; '.join(plan.refusals)}")
    going = targets(plan, module.params["parts"])
    done = Done(going, [], "", []) if module.check_mode else run(arm, going)
    diff = {"before": "".join(f"{one}\n" for one in going), "after": "".join(f"{one}\n" for one in done.left)}
    answer: dict[str, t.Any] = {
        "changed": bool(done.deleted),
        "deleted": done.deleted,
        "gone": done.gone,
        "left": done.left,
    }
    if done.failed:
        told = f"{name} is only partly deleted ({len(done.deleted)} of {len(going)}). {done.failed}"
        module.fail_json(msg=f"{told}. Then run the same again: it goes on with {len(done.left)}", diff=diff, **answer)
    module.exit_json(diff=diff, **answer)


if __name__ == "__main__":
    main()
