# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Azure, as whom: the same as SPEC of module_utils/azure/arguments.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  auth_source:
    description:
      - Where credentials come from. By default (C(auto)) options, then variables, then the profile C(default) of
        C(~/.azure/credentials), then C(az login).
      - V(msi) is the identity of the machine itself. Also E(ANSIBLE_AZURE_AUTH_SOURCE).
    type: str
    choices: [auto, cli, env, credential_file, msi]
  profile: {description: "Profile of C(~/.azure/credentials). Also E(AZURE_PROFILE).", type: str}
  subscription_id: {description: "The subscription. Also E(AZURE_SUBSCRIPTION_ID).", type: str}
  tenant: {description: "Tenant of the service principal. Also E(AZURE_TENANT).", type: str}
  client_id:
    description: Application of the service principal, or a user-assigned identity. Also E(AZURE_CLIENT_ID).
    type: str
  secret: {description: "Secret of the service principal. Also E(AZURE_SECRET).", type: str}
  x509_certificate_path:
    description: Certificate and key of the service principal instead, as PEM. Also E(AZURE_X509_CERTIFICATE_PATH).
    type: path
  cloud_environment:
    description:
      - V(AzureCloud), V(AzureUSGovernment), V(AzureChinaCloud), or the https URL of a metadata endpoint. The default is
        V(AzureCloud). Also E(AZURE_CLOUD_ENVIRONMENT).
    type: str
  adfs_authority_url:
    description: Login server instead of the cloud's own. Also E(AZURE_ADFS_AUTHORITY_URL).
    type: str
  cert_validation_mode:
    description: V(ignore) trusts any certificate and is unsafe. Also E(AZURE_CERT_VALIDATION_MODE).
    type: str
    choices: [validate, ignore]
  disable_instance_discovery:
    description: Do not ask Microsoft about the login server. Also E(AZURE_DISABLE_INSTANCE_DISCOVERY).
    type: bool
requirements:
  - azure-identity
  - azure-mgmt-core
notes:
  - Options and variables are those of C(azure.azcollection), so credentials are set once.
  - Has only ever met the emulator in C(tests/emulators/azure), not Azure itself.
"""
