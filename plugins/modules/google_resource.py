#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster needs of Google besides instances."""

from __future__ import annotations

DOCUMENTATION = r"""
module: google_resource
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Keep a network, a firewall rule or a service account of Google Cloud
description:
  - Calls C(gcloud) on the host that it runs on, with the account that is logged in there.
  - What is there is left as it is, but for the sources and targets of a firewall rule.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  project: {description: Google's id of the project., type: str, required: true}
  kind:
    description: What it is. V(role_binding) gives the member that O(name) says a role of the project.
    type: str
    required: true
    choices: [network, subnet, firewall_rule, router, nat, service_account, role_binding]
  name: {description: Its name., type: str, required: true}
  properties:
    description: What it is made with, flags of C(gcloud ... create) without their dashes, such as C(source-ranges).
    type: dict
    default: {}
  state: {description: Whether there shall be one., type: str, choices: [present, absent], default: present}
  gcloud: {description: The program., type: str, default: gcloud}
"""
EXAMPLES = r"""
- name: Let the cluster's machines talk to each other
  hpcai.gpu_cluster.google_resource:
    project: example-1
    kind: firewall_rule
    name: train-internal
    properties: {network: train, direction: INGRESS, allow: [all], source-tags: [train], target-tags: [train]}
"""
RETURN = r"""
command: {description: What was run or would be in check mode., returned: success, type: list, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.gcloud import Gcloud, GcloudError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.resources import KINDS, perform


def main() -> None:
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "project": text,
            "kind": {**text, "choices": list(KINDS)},
            "name": text,
            "properties": {"type": "dict", "default": {}},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "gcloud": {"type": "str", "default": "gcloud"},
        },
        supports_check_mode=True,
    )
    given = module.params
    gcloud = Gcloud(given["project"], module.get_bin_path(given["gcloud"], required=True))
    try:
        result = perform(gcloud, given["kind"], given["name"], given["properties"], given["state"], module.check_mode)
    except GcloudError as exc:
        module.fail_json(msg=f"{given['kind']} {given['name']} cannot be {given['state']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
