#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_runbook
short_description: Publish a runbook of PowerShell or Python in an Azure Automation account
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Creates or updates a runbook with the text of a script, and publishes it. The modules of C(azure.azcollection) take
    no text.
  - It compares the published script itself, description, tags and region, and whether the runbook is published. The
    SHA-256 digest of the script is the description and is written last, so a publication that was interrupted is
    repeated.
  - A draft that somebody did not publish stays, with a warning, as long as everything else is as requested. A runbook
    of another type is refused.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows what differs; of the script the digest.
  idempotent:
    support: full
options:
  account:
    description:
      - Resource ID of the Automation account, which has to exist.
    type: str
    required: true
  name:
    description:
      - Name of the runbook.
    type: str
    required: true
  location:
    description:
      - Region of the Automation account.
    type: str
    required: true
  content:
    description:
      - Text of the script.
    type: str
    required: true
  type:
    description:
      - Language of the script, as Azure names it. Azure does not change it later.
      - V(PowerShell) without O(runtime_environment) is Windows PowerShell 5.1, V(PowerShell72) is PowerShell 7.2.
        V(Python) needs O(runtime_environment).
    type: str
    choices:
      - PowerShell
      - PowerShell72
      - Python
    default: PowerShell
  runtime_environment:
    description:
      - Name of the account's runtime environment that the runbook runs in, which has to exist. It decides the version
        of the language and the packages. Without it Azure's own for O(type) is used.
    type: str
    default: ""
  tags:
    description:
      - Tags of the runbook. They replace all tags that it has when it is published.
    type: dict
    default: {}
seealso:
  - module: hpcai.gpu_cluster.azure_resource
    description: Creates the account, schedules, and the link of a schedule to a runbook.
"""
EXAMPLES = r"""
- name: Publish a runbook in Windows PowerShell
  hpcai.gpu_cluster.azure_runbook:
    account: "{{ account.resource.id }}"
    name: report
    location: southcentralus
    content: "{{ lookup('ansible.builtin.file', 'report.ps1') }}"
    tags:
      created-by: hpcai.gpu_cluster
      hpcai-cluster: train

- name: Publish a runbook in Python 3.10
  hpcai.gpu_cluster.azure_runbook:
    account: "{{ account.resource.id }}"
    name: expire-train
    location: southcentralus
    type: Python
    runtime_environment: python-3-10
    content: "{{ lookup('ansible.builtin.file', 'expire.py') }}"

- name: Publish a short script in an account that exists already
  hpcai.gpu_cluster.azure_runbook:
    account: "/subscriptions/{{ subscription }}/resourceGroups/ops-rg/providers/\
      Microsoft.Automation/automationAccounts/ops"
    name: list-groups
    location: eastus
    content: |
      Connect-AzAccount -Identity
      Get-AzResourceGroup | Select-Object ResourceGroupName, Location
"""
RETURN = r"""
id:
  description:
    - Resource ID of the runbook.
  returned: always
  type: str
  sample: "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/train-expire-rg/providers/\
    Microsoft.Automation/automationAccounts/train-expire/runbooks/expire"
digest:
  description:
    - SHA-256 digest of O(content), in hexadecimal digits.
  returned: always
  type: str
  sample: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, runbook

# The first that is no preview and knows runtime environments.
VERSION = "2024-10-23"
SPEC: dict[str, dict[str, t.Any]] = {
    **client.SPEC,
    "account": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "location": {"type": "str", "required": True},
    "content": {"type": "str", "required": True},
    "tags": {"type": "dict", "default": {}},
    "type": {"type": "str", "choices": ["PowerShell", "PowerShell72", "Python"], "default": "PowerShell"},
    "runtime_environment": {"type": "str", "default": ""},
}


def publish(
    arm: client.Arm, runbook_id: str, body: client.Json, content: str, description: str, kind: runbook.RunbookKind
) -> None:
    """Upload and publish. The digest is written last, so what is cut short is done again."""
    properties = {"runbookType": kind.type, "logVerbose": False, "logProgress": False, "draft": {}}
    environment = {"runtimeEnvironment": kind.environment} if kind.environment else {}
    arm.put(runbook_id, VERSION, {**body, "properties": {**properties, **environment}})
    arm.upload(f"{runbook_id}/draft/content", VERSION, content.encode(), "text/powershell")
    arm.post(f"{runbook_id}/publish", VERSION)
    arm.patch(runbook_id, VERSION, {"properties": {"description": description}})


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Publish the script where the published one, its kind or its place differ."""
    runbook_id = f"{params['account']}/runbooks/{params['name']}"
    kind = runbook.RunbookKind(params["type"], params["runtime_environment"])
    description = runbook.mark(params["content"])
    digest = runbook.digest(params["content"])
    body = {"name": params["name"], "location": params["location"], "tags": params["tags"]}
    arm = client.connect(params)
    observed = arm.get(runbook_id, VERSION)
    published = arm.text(f"{runbook_id}/content", VERSION) if observed else None
    plan = runbook.plan(body, params["content"], kind, observed, published)
    if plan.differences and not check_mode:
        publish(arm, runbook_id, body, params["content"], description, kind)
    after = {
        "runbook": "present",
        "description": description,
        "script": f"sha256:{digest}",
        "state": runbook.PUBLISHED,
        "environment": kind.environment,
        **body,
    }
    diff = {"before": plan.differences, "after": {name: after[name] for name in plan.differences}}
    changed = bool(plan.differences)
    return {"changed": changed, "id": runbook_id, "digest": digest, "diff": diff, "warnings": plan.warnings}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    if client.MISSING:
        module.fail_json(msg=missing_required_lib("azure-identity and azure-mgmt-core"), exception=client.MISSING)
    name = module.params["name"]
    try:
        result = perform(module.params, module.check_mode)
    except client.AzureError as exc:
        module.fail_json(msg=f"Runbook {name} is not published: {exc}")
    for message in result.pop("warnings"):
        module.warn(f"Runbook {name}: {message}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
