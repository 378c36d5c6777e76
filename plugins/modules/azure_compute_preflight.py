#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_compute_preflight
short_description: Say everything in an Azure subscription that would stop nodes from coming up
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Reads quota of families, region and Spot, sizes with their restrictions, zones and capabilities, images and their
    terms, registered providers and permissions, and tells all findings at once.
  - Changes nothing, and does not fail for what it finds; look at RV(ready).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.azure]
requirements: [azure-mgmt-compute >= 33]
attributes:
  check_mode: {support: full}
  diff_mode: {support: N/A, details: Nothing is changed.}
  idempotent: {support: full}
options:
  location: {description: "The region, such as V(southcentralus).", type: str, required: true}
  resource_group:
    description: Where all shall be made. If it exists, permissions are read there and its region is compared.
    type: str
    default: ""
  nodes:
    description: The nodes wanted.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Name of the group of equal nodes., type: str, required: true}
      size: {description: "VM size, such as V(Standard_ND96asr_v4).", type: str, required: true}
      count: {description: How many., type: int, default: 1}
      spot: {description: "At Spot prices: they count against the one quota for all Spot.", type: bool, default: false}
      image: {description: "publisher:offer:sku:version, where the version may be V(latest).", type: str, default: ""}
      zone: {description: Zone wanted., type: str, default: ""}
      gpus: {description: Expected GPUs of a node., type: int}
      rdma: {description: Whether InfiniBand is expected., type: bool}
      nvme: {description: Whether local NVMe is expected., type: bool}
      price: {description: What one node costs an hour., type: float}
  providers:
    description: Resource providers that have to be registered.
    type: list
    elements: str
    default: [Microsoft.Compute, Microsoft.Network, Microsoft.Storage, Microsoft.ManagedIdentity]
  assignments: {description: Whether role assignments are to be made., type: bool, default: true}
  quota_blocks: {description: "Whether missing quota blocks. Once nodes run, it does not.", type: bool, default: true}
  accept_terms: {description: "Whether you will accept terms of images: they do not block.", type: bool, default: false}
  currency: {description: "Currency of the prices, for the answer.", type: str, default: USD}
"""
EXAMPLES = r"""
- name: Ask for what would stop four nodes
  hpcai.gpu_cluster.azure_compute_preflight:
    location: southcentralus
    nodes:
      - name: gpu
        size: Standard_ND96asr_v4
        count: 4
        image: microsoft-dsvm:ubuntu-hpc:2204:latest
        gpus: 8
        price: 27.2
  register: preflight

- name: Stop if it is not possible
  ansible.builtin.assert:
    that: preflight.ready
    fail_msg: "{{ preflight.text | join(' ') }}"
"""
RETURN = r"""
ready: {description: Whether nothing blocks., returned: always, type: bool}
findings:
  description: First those that block, each with C(check), C(subject), C(problem), C(action) and C(blocks).
  returned: always
  type: list
  elements: dict
text: {description: The same as lines to read., returned: always, type: list, elements: str}
unregistered: {description: Providers to register., returned: always, type: list, elements: str}
nodes:
  description: What is known of the sizes; C(zones) are those left. A null is unknown.
  returned: always
  type: list
  elements: dict
  sample: [{name: gpu, size: Standard_ND96asr_v4, count: 4, cores: 384, gpus: 8, zones: ["1"]}]
images:
  description: By the name asked for, the pinned C(urn), its parts, C(plan) and C(terms_accepted).
  returned: always
  type: dict
cost:
  description: Of all nodes for an C(hour), C(day) and C(month), with C(currency), C(items) and C(without_price).
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.arguments import SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.preflight_ask import MISSING, OPTIONS, ask


def main() -> None:
    module = AnsibleModule(argument_spec={**SPEC, **OPTIONS}, supports_check_mode=True)
    if client.MISSING or MISSING:
        module.fail_json(
            msg=missing_required_lib("azure-mgmt-compute, azure-identity"), exception=client.MISSING or MISSING
        )
    try:
        result = ask(module.params)
    except client.AzureError as exc:
        module.fail_json(msg=f"The subscription cannot be looked at: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
