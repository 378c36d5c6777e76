# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Azure, as whom: the same as SPEC of module_utils/azure/client.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  auth_source:
    description:
      - Where the credentials come from. Without it E(ANSIBLE_AZURE_AUTH_SOURCE) applies, then V(auto).
      - V(auto) takes each value from its option, then from its environment variable, then from
        C(~/.azure/credentials). The file is read when O(profile) is set, and its profile C(default) when neither an
        option nor a variable names a subscription. A complete service principal (O(client_id), O(tenant), and
        O(secret) or O(x509_certificate_path)) is used; with anything less the login of C(az login) is.
      - V(cli) uses the login of C(az login).
      - V(env) uses environment variables and ignores all options that have one.
      - V(credential_file) uses O(profile), or the profile C(default), and ignores environment variables.
      - V(msi) uses the managed identity of the machine on which the module runs.
      - With V(env) and V(credential_file) an incomplete service principal is an error.
    type: str
    choices:
      - auto
      - cli
      - env
      - credential_file
      - msi
  profile:
    description:
      - Name of the section of C(~/.azure/credentials) to read. E(AZURE_PROFILE) is used when it is not set.
    type: str
  subscription_id:
    description:
      - ID of the subscription. E(AZURE_SUBSCRIPTION_ID) is used when it is not set, then the profile. It is an error
        when none of them has it; the subscription that C(az account set) selected is not used.
    type: str
  tenant:
    description:
      - Tenant ID or domain of the service principal. E(AZURE_TENANT) is used when it is not set.
    type: str
  client_id:
    description:
      - Application (client) ID of the service principal, or with O(auth_source=msi) the client ID of a user-assigned
        identity. E(AZURE_CLIENT_ID) is used when it is not set.
    type: str
  secret:
    description:
      - Client secret of the service principal. E(AZURE_SECRET) is used when it is not set.
    type: str
  x509_certificate_path:
    description:
      - PEM file with certificate and private key of the service principal, used when there is no O(secret).
        E(AZURE_X509_CERTIFICATE_PATH) is used when it is not set.
    type: path
  cloud_environment:
    description:
      - V(AzureCloud), V(AzureUSGovernment), V(AzureChinaCloud), or the C(https) URL of a metadata endpoint, as Azure
        Stack has it. E(AZURE_CLOUD_ENVIRONMENT) is used when it is not set, then V(AzureCloud).
    type: str
  adfs_authority_url:
    description:
      - Login server to use instead of the one of the cloud. E(AZURE_ADFS_AUTHORITY_URL) is used when it is not set.
    type: str
  cert_validation_mode:
    description:
      - V(validate) verifies TLS certificates, V(ignore) accepts any certificate and is unsafe.
      - E(AZURE_CERT_VALIDATION_MODE) is used when it is not set, then V(validate).
    type: str
    choices:
      - validate
      - ignore
  disable_instance_discovery:
    description:
      - Whether to skip the request to Microsoft that verifies the login server, for clouds that cannot reach it.
        E(AZURE_DISABLE_INSTANCE_DISCOVERY) is used when it is not set, then V(false).
    type: bool
requirements:
  - azure-identity
  - azure-mgmt-core
notes:
  - Options and environment variables are those of C(azure.azcollection), so that credentials are set once.
  - Tested with the emulator in C(tests/emulators/azure); not yet run against Azure itself.
"""
