#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_expiry
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Set, put off or cancel the day on which a cluster is taken down
description:
  - Writes the tag C(expires-on) of the cluster's resource groups, and C(expires-on-by), by which C(provision.yml) knows
    that the day is not its own and leaves it alone. Who deletes what is due (a run of C(destroy.yml) with
    C(azure_teardown_due_only), or Azure Automation) reads the day again before it deletes anything.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.azure]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: partial, details: "O(days) counts from now, so each run puts it off further."}
options:
  cluster: {description: Name of the cluster., type: str, required: true}
  state: {description: Whether it shall expire., type: str, choices: [present, absent], default: present}
  expires_on:
    description: "When, as V(2026-12-01) (midnight UTC) or V(2026-12-01T18:00:00+01:00)."
    type: str
  days: {description: "When, in days from now.", type: float}
"""
EXAMPLES = r"""
- name: Keep it for another week
  hpcai.gpu_cluster.azure_expiry:
    cluster: train
    days: 7
"""
RETURN = r"""
expires_on: {description: "When, empty for never.", returned: always, type: str, sample: "2026-12-01T00:00:00Z"}
groups: {description: Ids of its resource groups., returned: always, type: list, elements: str}
"""

import datetime

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import arguments, client, expiry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.ownership import ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import TeardownError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown_read import RESOURCES, groups


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **arguments.SPEC,
            "cluster": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "expires_on": {"type": "str"},
            "days": {"type": "float"},
        },
        mutually_exclusive=[("expires_on", "days")],
        required_if=[("state", "present", ("expires_on", "days"), True)],
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity and azure-mgmt-core"), exception=client.MISSING)
    params = module.params
    now = datetime.datetime.now(datetime.timezone.utc)
    try:
        arm = client.connect(params)
        known = [group for group in groups(arm) if ours(group, params["cluster"])]
        if not known and params["state"] == "present":
            raise TeardownError("there is no resource group with its tags, so nothing that could expire")
        before = {group.id: group.tags.get(expiry.TAG, "") for group in known}
        after = ""
        if params["state"] == "present":
            after = expiry.wanted(min(before.values()), now, params["expires_on"] or "", params["days"] or 0)
        mark = expiry.by(expiry.EXPIRE, after)
        stale = [one.id for one in known if before[one.id] != after or one.tags.get(expiry.BY_TAG) != mark]
        for group in [] if module.check_mode else stale:
            tags = expiry.tags((arm.get(group, RESOURCES) or {}).get("tags") or {}, after)
            arm.patch(group, RESOURCES, {"tags": tags})
    except (arguments.AzureError, TeardownError) as exc:
        module.fail_json(msg=f"The expiry of {params['cluster']} cannot be set: {exc}")
    marks = {group.id: group.tags.get(expiry.BY_TAG, "") for group in known}
    diff = {
        "before": {expiry.TAG: before, expiry.BY_TAG: marks},
        "after": {expiry.TAG: dict.fromkeys(before, after), expiry.BY_TAG: dict.fromkeys(before, mark)},
    }
    module.exit_json(changed=bool(stale), expires_on=after, groups=list(before), diff=diff)


if __name__ == "__main__":
    main()
