# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say which CycleCloud; the same as SPEC of module_utils/cyclecloud/rest.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  url:
    description:
      - Address of CycleCloud, such as V(https://cyclecloud.example.org). E(CYCLECLOUD_URL) of the machine on which the
        module runs is used when it is not set; without either the module fails.
      - Plain C(http) is refused except to the same machine (V(localhost)), and a redirect is reported, not followed,
        because both would give the password away.
    type: str
  username:
    description:
      - Name of a CycleCloud user. E(CYCLECLOUD_USERNAME) is used when it is not set; without either the module fails.
    type: str
  password:
    description:
      - Password of the user O(username). E(CYCLECLOUD_PASSWORD) is used when it is not set; without either the module
        fails.
    type: str
  ca_path:
    description:
      - PEM file with the CA that verifies the certificate of the server, which is self-signed until another one is
        installed. E(CYCLECLOUD_CA_PATH) is used when it is not set, then the CAs that the system trusts.
    type: path
  validate_certs:
    description:
      - Whether the certificate of the server is verified. V(false) gives the password to anyone who answers at that
        address.
    type: bool
    default: true
  timeout:
    description:
      - Seconds that one request may take. A request that got no answer is tried three times in all; one that changes
        nodes is not sent again when CycleCloud has it.
    type: float
    default: 60
  cluster:
    description:
      - Name of the cluster in CycleCloud.
    type: str
    required: true
"""
