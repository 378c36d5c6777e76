#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read and judge a node's GPUs, and how they are wired
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Reads C(nvidia-smi) (three calls) and sysfs, and returns GPUs, topology, CPU masks and one check record per check.
  - Compares with what it is told, never with what the node itself says. Where nothing is expected, checks are
    V(unjudged); a node without GPUs of which none are expected is V(skipped). A GPU that does not answer is named by
    its index, PCI bus id and NUMA node as far as they are known.
  - Where C(nvidia-smi) is absent, hangs or prints nonsense, what needs it is V(error). The module fails only for
    options that make no sense.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
  - hpcai.gpu_cluster.measure.sysfs
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  gpus: {type: int, default: 0, description: "Number of GPUs that must answer; with V(0) any number may."}
  model: {type: str, description: "What every GPU's name must contain, such as V(A100-SXM4-40GB)."}
  topology:
    type: list
    elements: dict
    default: []
    description: 'C(topology.gpus) of the profile, a list of C({pci_domain: "000b", numa_node: 3}).'
  checks:
    type: list
    elements: str
    default: &checks [gpu_count, gpu_model, gpu_ecc, gpu_remap, gpu_pcie, gpu_nvlink, gpu_throttle, gpu_temperature,
      gpu_topology, gpu_pinning]
    choices: *checks
    description: Checks to run, in this order.
  processes:
    type: dict
    description: Process ids and the index, or the list of indexes, of their GPUs, instead of those that use a GPU now.
  split_cpus: {type: bool, default: false, description: Share each node's CPUs out among its GPUs in C(cpu_masks).}
  program: {type: path, description: The nvidia-smi to use; by default the one in E(PATH) or the usual places.}
  timeout: {type: float, default: 60, description: Seconds for each call; after one that does not end there is none.}
  environment: {type: dict, default: {}, description: Variables for nvidia-smi.}
"""

EXAMPLES = r"""
- name: Check the GPUs against the profile of the machine type
  hpcai.gpu_cluster.gpu_info:
    gpus: "{{ sku.gpu.count }}"
    model: "{{ sku.gpu.model }}"
    topology: "{{ sku.topology.gpus | default(omit) }}"
    expect: "{{ sku.expect }}"
  vars:
    sku: "{{ lookup('hpcai.gpu_cluster.sku_profile', cluster_sku) }}"
  register: node
"""

RETURN = r"""
gpus:
  {type: list, elements: dict, returned: success, description: "GPUs that answer; what a driver does not say is null.",
   sample: [{index: 0, bus_id: "00000001:00:00.0", name: NVIDIA A100-SXM4-40GB, temperature_c: 31.0, throttle: []}]}
missing:
  {type: list, elements: dict, returned: success, description: GPUs that do not answer.,
   sample: [{index: 4, bus_id: "0000000B:00:00.0", numa_node: 3, why: there is no GPU in PCI domain 000b}]}
driver: {type: str, returned: success, description: Version of the driver., sample: 550.90.07}
cuda: {type: str, returned: success, description: Highest CUDA version of that driver., sample: "12.4"}
topology:
  {type: dict, returned: success, description: "NUMA nodes with their CPUs, and which GPU and adapter is on which.",
   sample: {numa: [{node: 1, cpus: 24-47}], gpus: [{index: 0, numa_node: 1, cpus: 24-47, nics: [mlx5_ib0]}], nics: []}}
binding:
  {type: dict, returned: success, description: "How to start a rank per GPU, see the filter cpu_masks; or why not.",
   sample: {map_by: "ppr:2:numa", visible_devices: [2, 3, 0, 1, 6, 7, 4, 5], masks: [ffffff000000], reason: ""}}
cpu_masks: {type: list, elements: str, returned: success, description: One CPU mask per GPU., sample: [ffffff000000]}
argv:
  {type: list, elements: list, returned: success, description: Command lines., sample: [[/usr/bin/nvidia-smi, -q, -x]]}
checks: {type: list, elements: dict, returned: success, description: One check record per check.}
"""

import socket
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import info
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import request as asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.read import read


def main() -> None:
    module = AnsibleModule(argument_spec=asked.spec(info.CHECKS), supports_check_mode=True)
    params = module.params
    begin, start = time.time(), time.monotonic()
    try:
        options = asked.options(params, socket.gethostname().split(".")[0])
        users, variables = asked.users(params["processes"]), asked.variables(params["environment"])
        reading = read(params["program"], params["timeout"], variables)
        seen = info.see(reading, options, params["sysfs"], users)
        seconds = time.monotonic() - start
        result = info.result(seen, options, params["checks"], begin, seconds, params["split_cpus"])
    except ValueError as exc:
        module.fail_json(msg=f"Cannot judge GPUs: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
