# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say which CycleCloud; the same as SPEC of module_utils/cyclecloud/options.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  url:
    description:
      - Address of CycleCloud, such as C(https://cyclecloud.example.org). The default is E(CYCLECLOUD_URL).
      - Plain http is refused except to the same machine, and a redirect is not followed.
    type: str
  username:
    description: Who asks. The default is E(CYCLECLOUD_USERNAME).
    type: str
  password:
    description: The password. The default is E(CYCLECLOUD_PASSWORD), of the machine that asks.
    type: str
  ca_path:
    description:
      - File with the CA of the server's certificate, which is self-signed where nothing else was installed.
      - The default is E(CYCLECLOUD_CA_PATH), or what the system trusts.
    type: path
  validate_certs:
    description: Whether the certificate is verified. V(false) gives the password to anyone who stands in between.
    type: bool
    default: true
  timeout:
    description: Seconds that one request may take.
    type: float
    default: 60
  cluster:
    description: Name of the cluster.
    type: str
    required: true
"""
