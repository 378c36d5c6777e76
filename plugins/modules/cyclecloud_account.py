#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_account
short_description: Create or edit a cloud account in CycleCloud, with its locker
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Runs as root on the CycleCloud VM, with the login of the command line there.
  - CycleCloud validates the credentials before the account is created or edited. An account is never deleted, because
    clusters belong to it.
  - The options are compared with those that the last run set; changes that somebody made in CycleCloud are not seen.
  - It then waits until CycleCloud has created the locker and knows the machine types of the region. A locker that
    failed is tried again, at most every two minutes.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
  - hpcai.gpu_cluster.cyclecloud_server.cli
attributes:
  check_mode:
    support: full
    details: It does not wait. Where the command line is not installed yet, a new account is reported.
  diff_mode:
    support: full
    details: The secret is hidden.
  idempotent:
    support: full
options:
  name:
    description:
      - Name of the account in CycleCloud. Its locker is called C(<name>-storage).
    type: str
    default: azure
  subscription:
    description:
      - ID of the Azure subscription.
    type: str
    required: true
  tenant:
    description:
      - ID of the tenant.
    type: str
    required: true
  environment:
    description:
      - Azure cloud of the subscription.
    type: str
    choices:
      - public
      - usgov
      - china
      - germany
    default: public
  location:
    description:
      - Default region, whose machine types the module waits for.
    type: str
    required: true
  resource_group:
    description:
      - Resource group in which CycleCloud creates the resources of clusters.
    type: str
    required: true
  storage_account:
    description:
      - Storage account of the locker, 3 to 24 lowercase letters and digits. It must not have a hierarchical namespace.
    type: str
    required: true
  container:
    description:
      - Blob container of the locker in that storage account.
    type: str
    default: cyclecloud
  locker_auth:
    description:
      - How nodes read the locker. V(ManagedIdentity) needs O(locker_identity), V(SharedAccessKey) needs a storage
        account that allows shared keys.
    type: str
    choices:
      - ManagedIdentity
      - SharedAccessKey
    default: ManagedIdentity
  locker_identity:
    description:
      - Resource ID of the user-assigned identity with which nodes read the locker. Required by
        O(locker_auth=ManagedIdentity), ignored otherwise.
    type: str
    default: ""
  default:
    description:
      - Whether it is the default account of CycleCloud.
    type: bool
    default: true
  accept_marketplace_terms:
    description:
      - Whether CycleCloud accepts the terms of marketplace images when it creates nodes.
    type: bool
    default: false
  identity:
    description:
      - Credentials with which CycleCloud acts in Azure, either the managed identity of its VM or a service principal,
        which requires O(application_id) and O(application_secret).
    type: str
    choices:
      - managed_identity
      - service_principal
    default: managed_identity
  application_id:
    description:
      - Application (client) ID of the service principal. It is refused with O(identity=managed_identity).
    type: str
    default: ""
  application_secret:
    description:
      - Secret of the service principal. It is refused with O(identity=managed_identity). CycleCloud does not return it,
        so a change is recognized by a salted fingerprint.
    type: str
    default: ""
  identity_timeout:
    description:
      - Seconds for which the validation is repeated with O(identity=managed_identity), because a new identity and its
        roles are not known everywhere at once. A service principal is validated once.
    type: int
    default: 300
  locker_timeout:
    description:
      - Seconds within which the locker has to be created.
    type: int
    default: 1800
  machine_types_timeout:
    description:
      - Seconds within which CycleCloud has to know machine types of the region. For those of a cluster
        M(hpcai.gpu_cluster.cyclecloud_cluster) waits.
    type: int
    default: 1800
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_site
  - module: hpcai.gpu_cluster.cyclecloud_cluster
  - module: hpcai.gpu_cluster.azure_role_assignments
    description: Gives the identities of CycleCloud and of its nodes their roles.
"""
EXAMPLES = r"""
- name: Create the account with the managed identity of the VM
  hpcai.gpu_cluster.cyclecloud_account:
    subscription: 00000000-0000-0000-0000-000000000000
    tenant: 11111111-1111-1111-1111-111111111111
    location: southcentralus
    resource_group: train-rg
    storage_account: trainlocker7f3a
    locker_identity: "{{ locker_identity.resource.id }}"
  become: true
  register: account

- name: Create an account with a service principal in Azure Government
  hpcai.gpu_cluster.cyclecloud_account:
    name: gov
    subscription: 00000000-0000-0000-0000-000000000000
    tenant: 11111111-1111-1111-1111-111111111111
    environment: usgov
    location: usgovvirginia
    resource_group: train-rg
    storage_account: trainlocker7f3a
    locker_auth: SharedAccessKey
    identity: service_principal
    application_id: 22222222-2222-2222-2222-222222222222
    application_secret: "{{ vault_application_secret }}"
    default: false
  become: true

- name: Create an account whose clusters use a marketplace image with terms, in a busy region
  hpcai.gpu_cluster.cyclecloud_account:
    subscription: 00000000-0000-0000-0000-000000000000
    tenant: 11111111-1111-1111-1111-111111111111
    location: eastus
    resource_group: train-rg
    storage_account: trainlocker7f3a
    locker_auth: SharedAccessKey
    accept_marketplace_terms: true
    locker_timeout: 3600
    machine_types_timeout: 3600
  become: true
"""
RETURN = r"""
account:
  description:
    - The account with the field names of CycleCloud, without the secret.
  returned: success
  type: dict
  sample:
    Name: azure
    Provider: azure
    ProviderId: 00000000-0000-0000-0000-000000000000
    AzureRMSubscriptionId: 00000000-0000-0000-0000-000000000000
    AzureRMTenantId: 11111111-1111-1111-1111-111111111111
    AzureRMUseManagedIdentity: true
    Environment: public
    DefaultAccount: true
    Location: southcentralus
    AzureResourceGroup: train-rg
    RMStorageAccount: trainlocker7f3a
    RMStorageContainer: cyclecloud
    AcceptMarketplaceTerms: false
    LockerAuthMode: SharedAccessKey
locker:
  description:
    - Name of the locker.
  returned: success
  type: str
  sample: azure-storage
machine_types:
  description:
    - Number of machine types that CycleCloud knows in the region, always 0 in check mode.
  returned: success
  type: int
  sample: 812
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.account import SPEC, bring
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import CliError


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = bring(module.params, module.check_mode)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"Cloud account {module.params['name']} is not ready: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
