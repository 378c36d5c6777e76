#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_compute_preflight
short_description: Report everything in an Azure subscription that would keep nodes from starting
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Compares the nodes of a planned cluster with the subscription, and returns all findings at once.
  - It reads the quota of VM families, region and Spot, VM sizes with their restrictions, zones and capabilities,
    marketplace images and their terms, resource providers, and the permissions of the identity that it runs as.
  - It changes nothing, registers nothing, and does not fail for what it finds. Use RV(ready) to decide.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.azure
requirements:
  - azure-mgmt-compute >= 33
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: Nothing is changed.
  idempotent:
    support: full
options:
  location:
    description:
      - Region of the nodes, such as V(southcentralus). Case and spaces do not matter, V(South Central US) is the same.
    type: str
    required: true
  resource_group:
    description:
      - Name of the resource group that will hold the cluster. If it exists, permissions are read at the group, and a
        group in another region than O(location) blocks. If it is empty or does not exist, permissions are read at the
        subscription.
    type: str
    default: ""
  nodes:
    description:
      - Groups of equal nodes that are to run at the same time. With an empty list only providers, permissions and
        O(resource_group) are examined.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - Name of the group of nodes. It identifies the group in findings and results and must occur once.
        type: str
        required: true
      size:
        description:
          - VM size, such as V(Standard_ND96asr_v4).
        type: str
        required: true
      count:
        description:
          - Number of nodes. The quota needed is this number times the vCPUs of the size.
        type: int
        default: 1
      spot:
        description:
          - Whether the nodes are Spot VMs. They count against the one regional quota of all Spot VMs, and not against
            the quotas of family and region.
        type: bool
        default: false
      image:
        description:
          - Marketplace image as C(publisher:offer:sku:version), where the version may be V(latest), or the resource ID
            of an image. A resource ID is accepted and not examined. Without it no image is examined.
        type: str
        default: ""
      zone:
        description:
          - Availability zone that the nodes need, such as V(1). When it is empty, any zone will do.
        type: str
        default: ""
      gpus:
        description:
          - Number of GPUs that one node is expected to have. Another number blocks. Without it GPUs are not compared.
        type: int
      rdma:
        description:
          - Whether the size is expected to have InfiniBand (RDMA). The opposite blocks. Without it this is not
            compared.
        type: bool
      nvme:
        description:
          - Whether the size is expected to have local NVMe disks. The opposite blocks. Without it this is not compared.
        type: bool
      price:
        description:
          - Price of one node per hour in O(currency), for RV(cost). Prices are never read from Azure; groups without
            one are listed in RV(cost.without_price).
        type: float
      bundle:
        description:
          - Whether the nodes configure themselves from the bundle, so that O(bundle_machine) is about them. The
            CycleCloud machine and other machines that are configured over SSH do not.
        type: bool
        default: true
  providers:
    description:
      - Resource providers that the cluster needs. One that is not registered blocks only where the identity may not
        register it. Until C(Microsoft.Compute) is registered, sizes, quota and images cannot be read.
    type: list
    elements: str
    default:
      - Microsoft.Compute
      - Microsoft.Network
      - Microsoft.Storage
      - Microsoft.ManagedIdentity
  assignments:
    description:
      - Whether the identity will also make role assignments, so that the right to do so is examined with the others.
    type: bool
    default: true
  quota_blocks:
    description:
      - Whether missing quota blocks. Set it to V(false) once the nodes run, for the quota that they use is their own.
        Missing quota is then a warning.
    type: bool
    default: true
  accept_terms:
    description:
      - Whether the caller will accept the terms of images, so that terms that are not accepted are a warning instead of
        blocking. This module never accepts terms.
    type: bool
    default: false
  currency:
    description:
      - Currency of the prices in O(nodes[].price). It is returned in RV(cost.currency) and not converted.
    type: str
    default: USD
  bundle_machine:
    description:
      - Machine for which the bundle is made with which the nodes configure themselves (role node_bundle), V(x86_64) or
        V(aarch64). With it, sizes of another architecture block, and images whose operating system or Python cannot run
        the bundle. Images that are resource IDs are not judged. Empty examines neither.
    type: str
    default: ""
seealso:
  - module: hpcai.gpu_cluster.azure_resource
    description: Registers a resource provider and accepts the terms of an image.
  - module: hpcai.gpu_cluster.azure_role_assignments
"""
EXAMPLES = r"""
- name: Examine the subscription for four ND A100 v4 nodes
  hpcai.gpu_cluster.azure_compute_preflight:
    location: southcentralus
    resource_group: train-rg
    nodes:
      - name: gpu
        size: Standard_ND96asr_v4
        count: 4
        image: microsoft-dsvm:ubuntu-hpc:2204:latest
        gpus: 8
        rdma: true
        nvme: true
        price: 27.2
  register: preflight

- name: Stop when something blocks
  ansible.builtin.assert:
    that: preflight.ready
    fail_msg: "{{ preflight.text | join(' ') }}"

- name: Examine a scheduler, on-demand H100 nodes in zone 1 and Spot nodes together
  hpcai.gpu_cluster.azure_compute_preflight:
    location: eastus
    nodes:
      - name: scheduler
        size: Standard_D8s_v5
        image: almalinux:almalinux-x86_64:9-gen2:latest
        price: 0.384
      - name: gpu
        size: Standard_ND96isr_H100_v5
        count: 2
        zone: "1"
        gpus: 8
      - name: spot
        size: Standard_NC24ads_A100_v4
        count: 4
        spot: true
    currency: EUR
  register: preflight

- name: Examine a subscription in which the nodes run already and an administrator makes the role assignments
  hpcai.gpu_cluster.azure_compute_preflight:
    location: southcentralus
    resource_group: train-rg
    assignments: false
    quota_blocks: false
    nodes:
      - name: gpu
        size: Standard_ND96asr_v4
        count: 4
"""
RETURN = r"""
ready:
  description:
    - Whether no finding blocks.
  returned: always
  type: bool
  sample: false
findings:
  description:
    - What was found, first what blocks.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description:
        - What was examined, one of V(size), V(quota), V(image), V(bundle), V(terms), V(permissions), V(provider) and
          V(group).
      returned: always
      type: str
      sample: quota
    subject:
      description:
        - Names of the groups of nodes, the scope, or the provider that it is about.
      returned: always
      type: str
      sample: gpu
    problem:
      description:
        - What is wrong.
      returned: always
      type: str
      sample: "Standard NDASv4_A100 Family vCPUs in southcentralus: 384 cores are needed and 0 are free (0 of 0 used)."
    action:
      description:
        - What to do about it.
      returned: always
      type: str
      sample: >-
        Ask for at least 384 more in the portal (Subscriptions, Usage + quotas, Standard NDASv4_A100 Family vCPUs), or
        ask for fewer nodes.
    blocks:
      description:
        - Whether the nodes cannot start before it is mended. Otherwise it is a warning.
      returned: always
      type: bool
      sample: true
text:
  description:
    - RV(findings) as one line each, which begins with C(BLOCKS) or C(warns).
  returned: always
  type: list
  elements: str
  sample:
    - >-
      warns: provider of Microsoft.Storage: Microsoft.Storage is NotRegistered in this subscription. It is registered
      when it is needed, which takes some minutes.
unregistered:
  description:
    - Those of O(providers) that are not registered, sorted.
  returned: always
  type: list
  elements: str
  sample:
    - Microsoft.Storage
nodes:
  description:
    - O(nodes) with what Azure states about their sizes. A capability that Azure does not state is V(null).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description:
        - Name of the group of nodes.
      returned: always
      type: str
      sample: gpu
    size:
      description:
        - VM size.
      returned: always
      type: str
      sample: Standard_ND96asr_v4
    count:
      description:
        - Number of nodes.
      returned: always
      type: int
      sample: 4
    spot:
      description:
        - Whether they are Spot VMs.
      returned: always
      type: bool
      sample: false
    cores:
      description:
        - vCPUs of the whole group, 0 when the size is unknown.
      returned: always
      type: int
      sample: 384
    family:
      description:
        - VM family, to which a quota belongs.
      returned: when the region offers the size
      type: str
      sample: standardNDASv4_A100Family
    vcpus:
      description:
        - vCPUs of one node.
      returned: when the region offers the size
      type: int
      sample: 96
    gpus:
      description:
        - GPUs of one node.
      returned: when the region offers the size
      type: int
      sample: 8
    rdma:
      description:
        - Whether a node has InfiniBand (RDMA).
      returned: when the region offers the size
      type: bool
      sample: true
    nvme:
      description:
        - Whether a node has local NVMe disks.
      returned: when the region offers the size
      type: bool
      sample: true
    memory_gb:
      description:
        - Memory of one node in GiB, as Azure states it.
      returned: when the region offers the size
      type: int
      sample: 900
    architecture:
      description:
        - CPU architecture.
      returned: when the region offers the size
      type: str
      sample: x64
    generations:
      description:
        - Hyper-V generations of images that the size starts.
      returned: when the region offers the size
      type: list
      elements: str
      sample: [V2]
    zones:
      description:
        - Availability zones that are open to the subscription, empty where the size has no zones.
      returned: when the region offers the size
      type: list
      elements: str
      sample: ["1"]
images:
  description:
    - The marketplace images that exist, by the name that O(nodes[].image) gives them, with their version resolved, so
      that C(urn) pins an image.
    - C(plan) is empty for an image without a purchase plan, else it has C(name), C(product) and C(publisher).
      C(terms_accepted) is V(null) without a plan, or when Azure does not return the terms.
  returned: always
  type: dict
  sample:
    "microsoft-dsvm:ubuntu-hpc:2204:latest":
      urn: microsoft-dsvm:ubuntu-hpc:2204:22.04.2026060101
      publisher: microsoft-dsvm
      offer: ubuntu-hpc
      sku: "2204"
      version: 22.04.2026060101
      plan: {}
      terms_accepted:
      generation: V2
      architecture: x64
cost:
  description:
    - Cost of all groups of nodes that have a price, while all their nodes run.
  returned: always
  type: dict
  contains:
    hour:
      description:
        - Cost of one hour.
      returned: always
      type: float
      sample: 108.8
    day:
      description:
        - Cost of 24 hours.
      returned: always
      type: float
      sample: 2611.2
    month:
      description:
        - Cost of 730 hours.
      returned: always
      type: float
      sample: 79424.0
    currency:
      description:
        - The value of O(currency).
      returned: always
      type: str
      sample: USD
    items:
      description:
        - The groups with a price, each with C(name), C(count), C(price) of one node per hour and C(hour), the price of
          the group per hour.
      returned: always
      type: list
      elements: dict
      sample: [{name: gpu, count: 4, price: 27.2, hour: 108.8}]
    without_price:
      description:
        - Names of the groups that have no price and are missing from the sums.
      returned: always
      type: list
      elements: str
      sample: [spot]
"""

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, preflight


def main() -> None:
    module = AnsibleModule(argument_spec=preflight.SPEC, supports_check_mode=True)
    missing = client.MISSING or preflight.MISSING
    if missing:
        module.fail_json(msg=missing_required_lib("azure-mgmt-compute, azure-identity"), exception=missing)
    try:
        result = preflight.run_preflight(module.params)
    except client.AzureError as exc:
        module.fail_json(msg=f"The subscription cannot be looked at: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
