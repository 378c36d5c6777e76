#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_bandwidth
short_description: Measure and judge the copy bandwidth of each GPU
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Measures copies from host to device, from device to host and inside the device with C(bandwidthTest), or with
    C(nvbandwidth) where that does not exist. Each GPU has a process of its own that sees no other, on the CPUs and the
    memory of the GPU's NUMA node, with pinned host memory and copy engines.
  - All numbers are GB/s of 10^9 bytes. Inside the device (C(d2d)) C(bandwidthTest) counts each byte twice, read and
    written, C(nvbandwidth) (test C(device_local_copy), since v0.7) once. Say in O(tool) which one a limit is meant for.
  - What is no proof is no pass. A sum over GPUs, a GPU that was measured in place of another, a table that breaks off
    and a program that hangs give that GPU, which is named, no number, and the record the verdict V(error); the other
    GPUs are measured all the same. An uncorrectable memory error or wrong data that a program reports is V(fail).
  - A machine without GPU of which none are expected, check mode, nodes that jobs have, and GPUs in use give V(skipped).
    The module itself fails only for options that make no sense.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.launch
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.gpus
  - hpcai.gpu_cluster.measure.node
  - hpcai.gpu_cluster.measure.sysfs
attributes:
  check_mode: {support: partial, details: [It measures nothing then and says so.]}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  tool:
    {type: str, default: auto, choices: [auto, bandwidthTest, nvbandwidth],
     description: "V(auto) takes C(bandwidthTest) where it exists, else C(nvbandwidth)."}
  path:
    {type: str, description: "The program, or its directory. Other nodes and containers are taken to have it there.
      Without it E(PATH) and the usual places of this machine are searched; in a container it is on its E(PATH)."}
  directions:
    {type: list, elements: str, default: [h2d, d2h, d2d], choices: [h2d, d2h, d2d], description: What to measure.}
  gpus:
    {type: raw, description: "How many GPUs are to be measured, or the list of their indexes. Those that are not there
      are errors. The default is all of O(topology), or all that this machine has."}
  topology:
    {type: dict, description: "GPUs, their NUMA nodes and CPUs, as M(hpcai.gpu_cluster.gpu_info) returns them. With
      O(launcher=local) it is read from this machine if not given; otherwise nothing is bound then."}
  mode:
    {type: str, default: sequential, choices: [sequential, parallel],
     description: "GPUs one by one, or all at once, which shows what they share."}
  size: {type: int, description: "Bytes per copy. The default is 256 MB for C(bandwidthTest), that of C(nvbandwidth)."}
  bind:
    {type: bool, default: true, description: "Bind each process to the NUMA node of its GPU, by C(numactl) where it
      works, else C(taskset), else by its own affinity; by C(--cpu-bind) with O(launcher=srun)."}
  arguments: {type: list, elements: str, default: [], description: Further arguments of the program.}
  timeout: {type: float, default: 120, description: "Seconds for each GPU, the wait for a node included."}
"""

EXAMPLES = r"""
- name: Measure all GPUs of a node, one by one
  hpcai.gpu_cluster.gpu_bandwidth:
    gpus: 8
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"

- name: Measure another node through Slurm
  hpcai.gpu_cluster.gpu_bandwidth:
    launcher: srun
    hosts: [gpu-001]
    topology: "{{ node.topology }}"
    tool: nvbandwidth
    path: /opt/gpu_test_tools/bin
"""

RETURN = r"""
checks: {type: list, elements: dict, returned: success, description: "One check record, with metrics for every GPU."}
gpus:
  type: list
  elements: dict
  returned: success
  description:
    - One entry per planned GPU. C(environment) are the variables that were set, and no others;
      C(problem) says why a number is missing or not to be trusted.
  sample:
    - {gpu: 2, uuid: GPU-6d8f0c1e-77a2-4f0e-9c55-2a1b3c4d5e6f, bus_id: "00000003:00:00.0", name: NVIDIA A100-SXM4-40GB,
       h2d: 26.14, d2h: 26.31, d2d: 1174.92, numa_node: 0, cpus: 0-23, binding: numactl, seconds: 4.2, problem: null,
       argv: [/usr/bin/numactl, --physcpubind=0-23, --membind=0, /opt/gpu_test_tools/bin/nvbandwidth, -t,
         host_to_device_memcpy_ce, device_to_host_memcpy_ce, device_local_copy],
       environment: {CUDA_DEVICE_ORDER: PCI_BUS_ID, CUDA_VISIBLE_DEVICES: GPU-6d8f0c1e-77a2-4f0e-9c55-2a1b3c4d5e6f}}
tool: {type: str, returned: success, description: Program that measured, sample: nvbandwidth}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth, bandwidth_run


def main() -> None:
    module = AnsibleModule(argument_spec={**_launch.SPEC, **bandwidth.SPEC}, supports_check_mode=True)
    try:
        result = bandwidth_run.perform(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot measure GPUs: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
