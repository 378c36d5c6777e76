#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_account
short_description: Have a cloud account in CycleCloud, with its locker and the region's machine types
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs on the CycleCloud VM. CycleCloud validates the credentials before the account is made or edited.
  - An account is edited, never deleted and made again, for clusters hang on it. Secrets cannot be read back; so what
    was set is noted, a secret by a salted fingerprint.
  - Waits for the locker, trying a failed one again at most every two minutes, and for the machine types.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
  - hpcai.gpu_cluster.cyclecloud_server.cli
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name: {description: Name of the account., type: str, default: azure}
  subscription: {description: Subscription ID., type: str, required: true}
  tenant: {description: Tenant ID., type: str, required: true}
  environment: {description: Cloud., type: str, choices: [public, usgov, china, germany], default: public}
  location: {description: Region., type: str, required: true}
  resource_group: {description: Resource group of clusters., type: str, required: true}
  storage_account: {description: Storage account of the locker., type: str, required: true}
  container: {description: Its container., type: str, default: cyclecloud}
  locker_auth: {description: How nodes read the locker., type: str, choices: [ManagedIdentity, SharedAccessKey],
    default: ManagedIdentity}
  locker_identity: {description: Resource ID of the identity of nodes., type: str, default: ""}
  default: {description: Whether it is the default account., type: bool, default: true}
  accept_marketplace_terms: {description: Accept terms of marketplace images., type: bool, default: false}
  identity: {description: As whom CycleCloud acts., type: str, choices: [managed_identity, service_principal],
    default: managed_identity}
  application_id: {description: The service principal., type: str, default: ""}
  application_secret: {description: Its secret., type: str, default: ""}
  identity_timeout: {description: Seconds for a managed identity and its roles to be known., type: int, default: 300}
  locker_timeout: {description: Seconds for the locker., type: int, default: 1800}
  machine_types_timeout: {description: Seconds for machine types., type: int, default: 1800}
"""
EXAMPLES = r"""
- name: Have the account
  hpcai.gpu_cluster.cyclecloud_account:
    subscription: 00000000-0000-0000-0000-000000000000
    tenant: 00000000-0000-0000-0000-000000000000
    location: eastus
    resource_group: ndv4-rg
    storage_account: ndv4abcd1234
    locker_auth: SharedAccessKey
"""
RETURN = r"""
account: {description: The account without secrets., type: dict, returned: success, sample: {Name: azure}}
locker: {description: Its locker., type: str, returned: success, sample: azure-storage}
machine_types: {description: How many machine types the region has; 0 in check mode before., type: int,
  returned: success, sample: 812}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.account import SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.account_task import bring
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import CliError


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = bring(module.params, module.check_mode)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"Cloud account {module.params['name']} is not ready: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
