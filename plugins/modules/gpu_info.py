#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read and judge the GPUs of a node and how they are connected
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Reads C(nvidia-smi) (three calls) and sysfs, and returns the GPUs of a node, the topology of GPUs, NUMA nodes and
    network adapters, CPU masks for one rank per GPU, and one check record per check. Nothing on the node is changed.
  - GPUs are compared with the options and with O(expect), never with what the node itself reports. Where neither
    expects anything of a check, its verdict is V(unjudged).
  - GPUs that do not answer are named by index, PCI bus id and NUMA node as far as these are known.
  - On a node without GPUs, of which none are expected, all checks are V(skipped). Where C(nvidia-smi) hangs or prints
    something else than GPUs, the checks that need it are V(error), and so they are where it is missing although GPUs
    are expected or on the PCI bus. The module itself fails only for invalid options.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
  - hpcai.gpu_cluster.measure.sysfs
attributes:
  check_mode:
    support: full
    details:
      - The module only reads, in check mode as well.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  gpus:
    description:
      - Number of GPUs that must answer. Fewer fail the check C(gpu_count) as a hardware fault, more fail it as a
        configuration fault.
      - With V(0) any number may answer, but no fewer than O(topology) has entries.
    type: int
    default: 0
  model:
    description:
      - Text that the name of every GPU must contain, such as V(A100-SXM4-40GB). Upper and lower case are the same.
      - Without it the check C(gpu_model) compares no names.
    type: str
  topology:
    description:
      - NUMA node on which each GPU must be, by PCI domain, as the list C(topology.gpus) of a SKU profile. Each entry
        has C(pci_domain), a hexadecimal string that must be quoted such as V("000b"), and C(numa_node). Other keys are
        ignored.
      - Where all GPUs share one PCI domain, as on bare metal, entries are matched in PCI order, which needs as many
        entries as GPUs.
      - With an empty list the check C(gpu_topology) is V(unjudged), or V(error) if O(expect) has an entry for it.
    type: list
    elements: dict
    default: []
  checks:
    description:
      - Checks to run, in this order. Each returns one check record.
      - C(gpu_count) compares the number of GPUs that answer, and fails for a GPU that needs a reset or a recovery
        action. C(gpu_model) compares names and memory, fails for a corrupted infoROM and warns about MIG mode if
        O(model) is set.
      - C(gpu_ecc) has the uncorrected and corrected memory errors, C(gpu_remap) remapped rows and retired pages,
        C(gpu_pcie) the width and the highest generation of the PCIe link, C(gpu_throttle) the throttle reasons that are
        faults, C(gpu_temperature) the temperature of each GPU.
      - C(gpu_nvlink) counts the active NVLinks of each GPU, and fails where the NVLink fabric is not ready or one GPU
        is connected otherwise than the majority.
      - C(gpu_topology) compares NUMA nodes with O(topology). C(gpu_pinning) compares the CPUs that each process may run
        on with those of its GPUs, and is V(skipped) while no process uses a GPU.
    type: list
    elements: str
    default:
      - gpu_count
      - gpu_model
      - gpu_ecc
      - gpu_remap
      - gpu_pcie
      - gpu_nvlink
      - gpu_throttle
      - gpu_temperature
      - gpu_topology
      - gpu_pinning
    choices:
      - gpu_count
      - gpu_model
      - gpu_ecc
      - gpu_remap
      - gpu_pcie
      - gpu_nvlink
      - gpu_throttle
      - gpu_temperature
      - gpu_topology
      - gpu_pinning
  processes:
    description:
      - Processes for the check C(gpu_pinning), as a mapping of process id to the index, or the list of indexes, of the
        GPUs that belong to it, for example the ranks of a job.
      - By default the processes that compute on a GPU at the moment, as C(nvidia-smi) lists them.
    type: dict
  split_cpus:
    description:
      - Divide the CPUs of each NUMA node among its GPUs in RV(cpu_masks) and RV(binding), so that no two masks overlap.
      - With V(false) every GPU gets all CPUs of its NUMA node.
    type: bool
    default: false
  program:
    description:
      - Path of C(nvidia-smi), or the directory that holds it. By default E(PATH) is searched, then V(/usr/bin),
        V(/usr/local/bin), V(/usr/local/nvidia/bin), V(/usr/lib/wsl/lib) and V(/run/nvidia/driver/usr/bin).
    type: path
  timeout:
    description:
      - Seconds for each call of C(nvidia-smi). After a call that does not end in time no further call is made, since it
        would hang as well.
    type: float
    default: 60
  environment:
    description:
      - Environment variables for C(nvidia-smi). Quote values that YAML would read as booleans; booleans, null, lists
        and dictionaries are refused.
    type: dict
    default: {}
requirements:
  - nvidia-smi of the NVIDIA driver
seealso:
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
  - plugin: hpcai.gpu_cluster.cpu_masks
    plugin_type: filter
  - module: hpcai.gpu_cluster.gpu_bandwidth
  - module: hpcai.gpu_cluster.gpu_clocks
"""

EXAMPLES = r"""
- name: Check the GPUs of a node against the profile of its machine type
  hpcai.gpu_cluster.gpu_info:
    gpus: "{{ sku.gpu.count }}"
    model: "{{ sku.gpu.model }}"
    topology: "{{ sku.topology.gpus | default(omit) }}"
    expect: "{{ sku.expect }}"
    profile: Standard_ND96asr_v4
  vars:
    sku: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4') }}"
  register: gpu

- name: Stop where a check of the GPUs failed or did not work
  ansible.builtin.assert:
    that: gpu.checks | selectattr('verdict', 'in', ['fail', 'error']) | length == 0
    fail_msg: "{{ gpu.checks | selectattr('verdict', 'in', ['fail', 'error']) | map(attribute='reason') | join('; ') }}"

- name: Read the topology alone, with CPU masks that do not overlap
  hpcai.gpu_cluster.gpu_info:
    checks: [gpu_topology]
    split_cpus: true
  register: topology

- name: Check that eight GPUs answer and that their memory errors are within the limits of a profile
  hpcai.gpu_cluster.gpu_info:
    gpus: 8
    checks: [gpu_count, gpu_ecc, gpu_remap]
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96isr_H100_v5').expect }}"
    timeout: 30

- name: Check that the two ranks of a job run on the CPUs of their GPUs
  hpcai.gpu_cluster.gpu_info:
    checks: [gpu_pinning]
    processes:
      "41230": 0
      "41231": 1
"""

RETURN = r"""
checks:
  description: One check record per entry of O(checks), in the same order.
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
      description: O(name), by default the short host name.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: gpu_ecc
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 1.84
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
      sample: "volatile_uncorrected (gpu=4): 2 errors, expected <= 0"
    scope:
      description: Indexes of the GPUs that the finding is about, as C(gpu). Empty if it is about none in particular.
      type: dict
      sample: {gpu: [4]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - Metrics about one GPU have its index as the label C(gpu).
      type: list
      elements: dict
      sample:
        - name: volatile_uncorrected
          value: 2
          unit: errors
          gpu: 4
          expected: <= 0
          source: limits of a site
          ratio: null
          verdict: fail
    samples:
      description: What was read of each GPU or process, whatever the verdict is.
      type: list
      elements: dict
      sample: [{gpu: 4, bus_id: "0000000B:00:00.0", volatile_uncorrected: 2, aggregate_uncorrected: 2, enabled: true}]
    evidence:
      description: Lines that C(nvidia-smi) printed about GPUs that do not answer or need attention.
      type: str
      sample: ""
    context:
      description: Program that measured, its version and command line, O(profile), and what else explains the values.
      type: dict
      sample:
        tool: nvidia-smi
        version: 550.90.07
        driver: 550.90.07
        cuda: "12.4"
        profile: Standard_ND96asr_v4
        argv: [[/usr/bin/nvidia-smi, -q, -x]]
gpus:
  description:
    - GPUs that answer, in the order of their indexes. Values that the driver does not report are null.
  type: list
  elements: dict
  returned: success
  contains:
    index:
      description: Index as C(nvidia-smi) and CUDA (with E(CUDA_DEVICE_ORDER=PCI_BUS_ID)) number the GPUs.
      type: int
      sample: 0
    bus_id:
      description: PCI bus id in the form of C(nvidia-smi).
      type: str
      sample: "00000001:00:00.0"
    name:
      description: Product name.
      type: str
      sample: NVIDIA A100-SXM4-40GB
    architecture:
      description: Architecture.
      type: str
      sample: Ampere
    uuid:
      description: UUID.
      type: str
      sample: GPU-b01e9f90-c60c-4ad1-2052-154833662357
    serial:
      description: Serial number.
      type: str
      sample: "1563221012345"
    minor:
      description: Minor number of the device file, the V(0) of V(/dev/nvidia0).
      type: int
      sample: 0
    vbios:
      description: Version of the VBIOS.
      type: str
      sample: 92.00.45.00.03
    persistence:
      description: Whether persistence mode is on.
      type: bool
      sample: true
    mig:
      description: Whether MIG mode is on.
      type: bool
      sample: false
    virtualization:
      description: Virtualization mode.
      type: str
      sample: Pass-Through
    performance_state:
      description: Performance state.
      type: str
      sample: P0
    reset_required:
      description: Whether the GPU requires a reset.
      type: bool
      sample: false
    recovery_action:
      description: Recovery action that the driver recommends.
      type: str
      sample: None
    memory_total_mib:
      description: Memory in MiB.
      type: float
      sample: 40960.0
    memory_used_mib:
      description: Used memory in MiB.
      type: float
      sample: 4.0
    temperature_c:
      description: Temperature of the GPU in degrees Celsius.
      type: float
      sample: 31.0
    memory_temperature_c:
      description: Temperature of the memory in degrees Celsius.
      type: float
      sample: 29.0
    power_w:
      description: Power draw in watts.
      type: float
      sample: 54.1
    power_limit_w:
      description: Power limit in watts.
      type: float
      sample: 400.0
    throttle_mask:
      description: Bit mask of the reasons why the clocks are below their maximum.
      type: int
      sample: 1
    throttle:
      description: Names of these reasons.
      type: list
      elements: str
      sample: [gpu_idle]
    clocks:
      description: Current clocks in MHz.
      type: dict
      sample: {graphics_mhz: 210.0, sm_mhz: 210.0, memory_mhz: 1215.0}
    max_clocks:
      description: Highest clocks in MHz.
      type: dict
      sample: {graphics_mhz: 1410.0, sm_mhz: 1410.0, memory_mhz: 1215.0}
    application_clocks:
      description: Application clocks in MHz.
      type: dict
      sample: {graphics_mhz: 1095.0, sm_mhz: null, memory_mhz: 1215.0}
    pcie:
      description: PCIe link. C(generation) drops while a GPU is idle, C(width) does not.
      type: dict
      sample: {generation: 4, generation_max: 4, width: 16.0, width_max: 16.0, replays: 0}
    ecc:
      description:
        - Memory errors since the driver was loaded (volatile) and in the life of the GPU (aggregate), of SRAM and DRAM
          together. C(counts) has them separately.
      type: dict
      sample:
        enabled: true
        volatile_corrected: 0
        volatile_uncorrected: 0
        aggregate_corrected: 0
        aggregate_uncorrected: 0
        sram_threshold_exceeded: false
        counts: {volatile_sram_uncorrected: 0}
    repairs:
      description: Remapped rows (A100 and newer) and retired pages (V100 and older).
      type: dict
      sample:
        remapped_correctable: 0
        remapped_uncorrectable: 0
        remap_pending: false
        remap_failed: false
        retired_pages: null
        retirement_pending: null
    fabric:
      description:
        - State of the NVLink fabric of GPUs behind NVSwitch, otherwise null values.
        - C(status) is the error of the registration with the fabric manager, C(health) the summary that newer
          drivers give, and C(conditions) are those of NVML's health mask that are not as they should be.
      type: dict
      sample:
        state: Completed
        status: Success
        clique_id: "32766"
        cluster_uuid: 1b968348-93db-416a-b5e5-3fa2bb9f0c5b
        health: Limited Capacity
        conditions: {bandwidth: Degraded}
    processes:
      description: Processes on the GPU. C(kind) is V(C) for compute, V(G) for graphics, V(M+C) for compute through MPS.
      type: list
      elements: dict
      sample: [{pid: 41230, kind: C, name: python3, memory_mib: 38012.0}]
missing:
  description: GPUs that do not answer, with what is known of them. Unknown values are null.
  type: list
  elements: dict
  returned: success
  contains:
    index:
      description: Index among all GPUs of the node.
      type: int
    bus_id:
      description: PCI bus id.
      type: str
    numa_node:
      description: NUMA node according to O(topology).
      type: int
    why:
      description: Reason for counting it as missing.
      type: str
  sample: [{index: 4, bus_id: "0000000B:00:00.0", numa_node: 3, why: there is no GPU in PCI domain 000b}]
driver:
  description: Version of the NVIDIA driver, null if it could not be read.
  type: str
  returned: success
  sample: 550.90.07
cuda:
  description: Highest CUDA version that the driver supports, null if it could not be read.
  type: str
  returned: success
  sample: "12.4"
topology:
  description:
    - NUMA nodes, GPUs and RDMA adapters of the node, as the modules M(hpcai.gpu_cluster.gpu_bandwidth),
      M(hpcai.gpu_cluster.hpl) and M(hpcai.gpu_cluster.infiniband_bandwidth) and the filter
      P(hpcai.gpu_cluster.cpu_masks#filter) take it.
  type: dict
  returned: success
  contains:
    numa:
      description: NUMA nodes with their CPUs.
      type: list
      elements: dict
      sample: [{node: 0, cpus: 0-23}, {node: 1, cpus: 24-47}]
    gpus:
      description: NUMA node (null if unknown) and CPUs (empty if unknown) of each GPU, and its nearest adapters.
      type: list
      elements: dict
      sample: [{index: 0, bus_id: "00000001:00:00.0", numa_node: 1, cpus: 24-47, nics: [mlx5_ib0]}]
    nics:
      description: RDMA adapters.
      type: list
      elements: dict
      sample: [{name: mlx5_ib0, bus_id: "00000101:00:00.0", numa_node: 1, link_layer: InfiniBand}]
binding:
  description: How to start one rank per GPU on the CPUs of its NUMA node.
  type: dict
  returned: success
  contains:
    masks:
      description: One CPU mask per GPU in the order of indexes, for launchers that give rank N the GPU N.
      type: list
      elements: str
      sample: [ffffff000000, ffffff000000, ffffff, ffffff]
    map_by:
      description: Value of C(mpirun --map-by), or null where the GPUs are spread unevenly over NUMA nodes.
      type: str
      sample: ppr:2:numa
    visible_devices:
      description: Indexes of the GPUs in the order of the ranks that RV(binding.map_by) places.
      type: list
      elements: int
      sample: [2, 3, 0, 1, 6, 7, 4, 5]
    rank_masks:
      description: CPU masks in the order of RV(binding.visible_devices).
      type: list
      elements: str
      sample: [ffffff, ffffff, ffffff000000, ffffff000000]
    reason:
      description: Why masks or RV(binding.map_by) cannot be derived, otherwise empty.
      type: str
      sample: ""
    environment:
      description: Variables that make CUDA number the GPUs in this order.
      type: dict
      sample: {CUDA_DEVICE_ORDER: PCI_BUS_ID, CUDA_VISIBLE_DEVICES: "2,3,0,1,6,7,4,5"}
cpu_masks:
  description: The same as RV(binding.masks). Empty if the CPUs of a GPU are unknown.
  type: list
  elements: str
  returned: success
  sample: [ffffff000000, ffffff000000, ffffff, ffffff]
argv:
  description: Command lines that were run.
  type: list
  elements: list
  returned: success
  sample: [[/usr/bin/nvidia-smi, -q, -x], [/usr/bin/nvidia-smi, topo, -m], [/usr/bin/nvidia-smi, nvlink, -s]]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import info


def main() -> None:
    module = AnsibleModule(argument_spec=info.SPEC, supports_check_mode=True)
    try:
        result = info.perform(module.params)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot judge GPUs: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
