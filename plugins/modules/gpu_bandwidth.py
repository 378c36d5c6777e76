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
  - Measures copies from host to device (C(h2d)), from device to host (C(d2h)) and inside the device (C(d2d)) with
    C(bandwidthTest), or with C(nvbandwidth) where that does not exist. Each GPU is measured by a process of its own
    that sees no other GPU, on the CPUs and the memory of the GPU's NUMA node, with pinned host memory and the copy
    engines.
  - All values are GB/s of 10^9 bytes, and each byte that was copied counts once. Inside the device C(bandwidthTest)
    itself counts it twice, as read and as written; half of what it prints is returned, which is what C(nvbandwidth)
    (test C(device_local_copy), since version 0.7) prints.
  - A value that cannot be trusted is not returned. A sum over several GPUs, another GPU than the intended one, an
    output that ends early and a program that hangs leave that GPU without a value, and the record names it with the
    verdict V(error). The other GPUs are measured nevertheless. An uncorrectable memory error or wrong data that the
    program reports is V(fail).
  - In check mode, on a machine without GPUs of which none are expected, on nodes that have jobs, and while other
    programs compute on the GPUs, the verdict is V(skipped). The module itself fails only for invalid options.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.launch
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.gpus
  - hpcai.gpu_cluster.measure.node
  - hpcai.gpu_cluster.measure.sysfs
attributes:
  check_mode:
    support: partial
    details:
      - In check mode nothing is measured, and the verdict is V(skipped).
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  tool:
    description:
      - Program that measures. V(auto) is C(bandwidthTest) where it exists, otherwise C(nvbandwidth).
      - With V(auto), a command is started first in a container, or on the other node if O(path) is a directory that
        this machine does not have, to see which of the two is there. If it finds neither, C(nvbandwidth) is started.
    type: str
    default: auto
    choices: [auto, bandwidthTest, nvbandwidth]
  path:
    description:
      - The program, or the directory that holds it. With O(launcher=mpirun), O(launcher=srun) or O(container_image) the
        other nodes and the container are assumed to have it at this path.
      - By default E(PATH) and the usual directories of this machine are searched, first that of the role
        C(gpu_test_tools), V(/opt/gpu_test_tools/bin). In a container the program is started from its E(PATH).
      - If there is no such program, the verdict is V(error).
    type: str
  directions:
    description:
      - Copies to measure, each at most once. V(h2d) is host to device, V(d2h) device to host, V(d2d) inside the device.
      - Versions of C(nvbandwidth) before 0.7 cannot measure V(d2d). It is then left out and noted in the record, and is
        an error only if O(expect) has a limit for it.
    type: list
    elements: str
    default: [h2d, d2h, d2d]
    choices: [h2d, d2h, d2d]
  gpus:
    description:
      - Number of GPUs to measure, or the list of their indexes, such as V(8) or V([0, 1]). A GPU in the list that is
        not there is an error.
      - The default is all GPUs of O(topology), or all that C(nvidia-smi) lists on this machine.
      - With O(launcher=mpirun) and O(launcher=srun) either this or O(topology) is needed.
    type: raw
  topology:
    description:
      - GPUs with their NUMA nodes and CPUs, as RV(hpcai.gpu_cluster.gpu_info#module:topology) of
        M(hpcai.gpu_cluster.gpu_info) describes them.
      - With O(launcher=local) the default is what sysfs and C(nvidia-smi) report on this machine. With another launcher
        processes are not bound to CPUs without it.
    type: dict
  mode:
    description:
      - V(sequential) measures one GPU after the other, V(parallel) all at the same time, which shows what they share,
        such as the memory of the host.
    type: str
    default: sequential
    choices: [sequential, parallel]
  size:
    description:
      - Bytes of one copy, at least 1048576 (1 MiB). For C(nvbandwidth) it is rounded down to whole MiB.
      - The default is 256000000 for C(bandwidthTest). C(nvbandwidth) uses its own default.
    type: int
  bind:
    description:
      - Bind each process to the NUMA node of its GPU, with C(numactl) where it works, otherwise with C(taskset) or by
        its own CPU affinity. With O(launcher=srun) C(--cpu-bind) of C(srun) does it. Only C(numactl) binds the memory,
        too.
      - A GPU whose NUMA node is unknown is measured without binding.
    type: bool
    default: true
  arguments:
    description:
      - Further arguments for the program.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Seconds for each GPU. The time that Slurm needs to allocate the node is included.
    type: float
    default: 120
requirements:
  - nvbandwidth, or bandwidthTest of the CUDA samples, for example from the role C(gpu_test_tools)
notes:
  - Processes are started one per GPU on a single node, so that O(nodes) and O(ranks_per_node) must be 1, and
    O(cpu_masks) and O(visible_devices) are refused.
seealso:
  - module: hpcai.gpu_cluster.gpu_info
  - module: hpcai.gpu_cluster.gpu_test_tools
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Measure all GPUs of a node, one after the other
  hpcai.gpu_cluster.gpu_bandwidth:
    gpus: 8
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
    profile: Standard_ND96asr_v4
  register: bandwidth

- name: Show what each GPU reached from host to device
  ansible.builtin.debug:
    msg: "{{ dict(bandwidth.gpus | map(attribute='gpu') | zip(bandwidth.gpus | map(attribute='h2d'))) }}"

- name: Measure the host copies of all GPUs at the same time
  hpcai.gpu_cluster.gpu_bandwidth:
    mode: parallel
    directions: [h2d, d2h]

- name: Measure two GPUs again with nvbandwidth and larger copies
  hpcai.gpu_cluster.gpu_bandwidth:
    gpus: [2, 3]
    tool: nvbandwidth
    path: /opt/gpu_test_tools/bin
    size: 1073741824

- name: Read the topology of a compute node
  hpcai.gpu_cluster.gpu_info:
  register: gpu
  delegate_to: gpu-001

- name: Measure that node through Slurm
  hpcai.gpu_cluster.gpu_bandwidth:
    launcher: srun
    hosts: [gpu-001]
    launcher_options:
      partition: gpu
    topology: "{{ gpu.topology }}"
    tool: nvbandwidth
    path: /opt/gpu_test_tools/bin
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
"""

RETURN = r"""
checks:
  description: One check record.
  type: list
  elements: dict
  returned: success
  contains:
    schema:
      description: Version of the format of the record.
      type: int
      sample: 1
    run:
      description: Value of O(run), null without it.
      type: str
      sample: nightly-2026-11-02
    node:
      description: O(name), by default the first of O(hosts) or the short host name.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: gpu_bandwidth
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 34.2
    verdict:
      description:
        - V(pass), V(warn) and V(fail) say how the metrics compare with what is expected.
        - V(unjudged) means that something was measured and nothing was expected, V(skipped) that there was nothing to
          measure, V(error) that the check itself did not work, which says nothing about the hardware.
      type: str
      sample: fail
    class:
      description:
        - What a V(warn) or V(fail) is attributed to, V(hardware), V(fabric), V(config) or V(software). With V(error) it
          is V(infra), with the other verdicts null.
      type: str
      sample: hardware
    reason:
      description: What is wrong, or why nothing was measured, in one line. Empty where there is nothing to explain.
      type: str
      sample: "h2d (gpu=2): 12.4 GB/s, expected > 20"
    scope:
      description: Indexes of the GPUs that the finding is about, as C(gpu).
      type: dict
      sample: {gpu: [2]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - They are C(h2d), C(d2h) and C(d2d) in GB/s, with the index of the GPU as the label C(gpu).
      type: list
      elements: dict
      sample:
        - name: h2d
          value: 12.4
          unit: GB/s
          gpu: 2
          expected: "> 20"
          source: health checks of Azure
          ratio: 0.62
          verdict: fail
    samples:
      description: Values, NUMA node, binding and problem of every GPU.
      type: list
      elements: dict
      sample: [{gpu: 2, h2d: 12.4, d2h: 26.31, d2d: 1174.92, numa_node: 0, binding: numactl, problem: null}]
    evidence:
      description: End of the output for each GPU with a problem.
      type: str
      sample: ""
    context:
      description:
        - Program that measured, its version and command line, O(profile), and what else explains the values.
        - Where no program is installed, C(missing) has the names that were looked for.
      type: dict
      sample:
        tool: nvbandwidth
        version: "0.8"
        path: /opt/gpu_test_tools/bin/nvbandwidth
        mode: sequential
        launcher: local
        profile: Standard_ND96asr_v4
        notes: []
gpus:
  description: One entry per planned GPU. Values are null where nothing could be measured.
  type: list
  elements: dict
  returned: success
  contains:
    gpu:
      description: Index of the GPU.
      type: int
      sample: 2
    uuid:
      description: UUID, null if C(nvidia-smi) was not available.
      type: str
      sample: GPU-6d8f0c1e-77a2-4f0e-9c55-2a1b3c4d5e6f
    bus_id:
      description: PCI bus id.
      type: str
      sample: "00000003:00:00.0"
    name:
      description: Product name as the program printed it.
      type: str
      sample: NVIDIA A100-SXM4-40GB
    h2d:
      description: GB/s from host to device. Only present if O(directions) has it.
      type: float
      sample: 26.14
    d2h:
      description: GB/s from device to host. Only present if O(directions) has it.
      type: float
      sample: 26.31
    d2d:
      description: GB/s inside the device. Only present if O(directions) has it.
      type: float
      sample: 1174.92
    numa_node:
      description: NUMA node of the GPU.
      type: int
      sample: 0
    cpus:
      description: CPUs of that NUMA node, empty if unknown.
      type: str
      sample: 0-23
    binding:
      description: How the process was bound, V(numactl), V(taskset), V(own), V(srun) or V(none).
      type: str
      sample: numactl
    argv:
      description: Command line. Empty if nothing was started.
      type: list
      elements: str
      sample:
        - /usr/bin/numactl
        - --physcpubind=0-23
        - --membind=0
        - /opt/gpu_test_tools/bin/nvbandwidth
        - -t
        - host_to_device_memcpy_ce
        - device_to_host_memcpy_ce
        - device_local_copy
    environment:
      description: Environment variables that were set for the process.
      type: dict
      sample: {CUDA_DEVICE_ORDER: PCI_BUS_ID, CUDA_VISIBLE_DEVICES: GPU-6d8f0c1e-77a2-4f0e-9c55-2a1b3c4d5e6f}
    seconds:
      description: Duration of the process.
      type: float
      sample: 4.2
    problem:
      description: Why a value is missing or not to be trusted, null otherwise.
      type: str
      sample: nvbandwidth printed no number for d2d
tool:
  description: Program that measured, null if none was started.
  type: str
  returned: success
  sample: nvbandwidth
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth


def main() -> None:
    module = AnsibleModule(argument_spec={**_launch.SPEC, **bandwidth.SPEC}, supports_check_mode=True)
    try:
        result = bandwidth.perform(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot measure GPUs: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
