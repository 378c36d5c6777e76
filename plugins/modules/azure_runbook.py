#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_runbook
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Publish a PowerShell runbook in an account of Azure Automation
description:
  - Uploads the text itself, which C(azure.azcollection) cannot. The digest of what was published last stands in the
    runbook's description; while it is the same nothing is sent.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.azure]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  account: {description: Identifier of the automation account., type: str, required: true}
  name: {description: Name of the runbook., type: str, required: true}
  location: {description: Region of the account., type: str, required: true}
  content: {description: The script., type: str, required: true}
  tags: {description: Its tags., type: dict, default: {}}
"""
EXAMPLES = r"""
- name: Publish a runbook
  hpcai.gpu_cluster.azure_runbook:
    account: "{{ account['resource']['id'] }}"
    name: expire
    location: southcentralus
    content: "{{ lookup('ansible.builtin.file', 'expire.ps1') }}"
"""
RETURN = r"""
id: {description: Its identifier., returned: always, type: str}
digest: {description: SHA-256 of the script., returned: always, type: str}
"""

import hashlib

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import arguments, client

VERSION = "2023-11-01"


def publish(arm: client.Arm, place: str, body: client.Json, content: str, said: str) -> None:
    """Upload and publish. The digest is written last, so what is cut short is done again."""
    properties = {"runbookType": "PowerShell", "logVerbose": False, "logProgress": False, "draft": {}}
    arm.put(place, VERSION, {**body, "properties": properties})
    arm.upload(f"{place}/draft/content", VERSION, content.encode(), "text/powershell")
    arm.post(f"{place}/publish", VERSION)
    arm.patch(place, VERSION, {"properties": {"description": said}})


def main() -> None:
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            **arguments.SPEC,
            "account": text,
            "name": text,
            "location": text,
            "content": text,
            "tags": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity and azure-mgmt-core"), exception=client.MISSING)
    params = module.params
    place = f"{params['account']}/runbooks/{params['name']}"
    digest = hashlib.sha256(params["content"].encode()).hexdigest()
    said = f"hpcai.gpu_cluster sha256:{digest}"
    body = {"name": params["name"], "location": params["location"], "tags": params["tags"]}
    try:
        arm = client.connect(params)
        before = ((arm.get(place, VERSION) or {}).get("properties") or {}).get("description") or ""
        if before != said and not module.check_mode:
            publish(arm, place, body, params["content"], said)
    except arguments.AzureError as exc:
        module.fail_json(msg=f"Runbook {params['name']} is not published: {exc}")
    diff = {"before": f"{before}\n", "after": f"{said}\n"}
    module.exit_json(changed=before != said, id=place, digest=digest, diff=diff)


if __name__ == "__main__":
    main()
