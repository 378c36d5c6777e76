#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: infiniband_bandwidth
short_description: Measure and judge the bandwidth of each InfiniBand port with perftest
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs C(ib_write_bw), C(ib_read_bw) or C(ib_send_bw) for one port after the other, on one node as a loopback or
    between two nodes, and judges the average of one direction in Gb/s (10^9 bits).
  - A small program starts server and client, on this machine or in a C(srun) step with one task per node, each on the
    CPUs of the NUMA node of its port. Of two nodes the first in Slurm's order runs the servers. The program ends its
    servers before it ends, so that none is left behind.
  - The link layer is read from sysfs before the measurement and from the output of the test afterwards. With another
    one than O(link_layer) there is no value, so that Ethernet is never taken for InfiniBand.
  - A test that could not run is V(error). A test that failed because of the link, such as a port that is down or
    retries that were exceeded, is V(fail). In check mode, on nodes that have jobs, and on a node without InfiniBand of
    which none is expected the verdict is V(skipped). The module itself fails only for invalid options.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.launch
  - hpcai.gpu_cluster.measure
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
  test:
    description:
      - Program of perftest to run.
    type: str
    choices: [ib_write_bw, ib_read_bw, ib_send_bw]
    default: ib_write_bw
  path:
    description:
      - The program, or the directory that holds it, on the nodes that measure. By default their E(PATH) is searched.
    type: str
  devices:
    description:
      - Ports to measure, at most 16, as the name of the device such as V(mlx5_ib0), or with the number of the port such
        as V(mlx5_0:2). Of two nodes both must have ports of these names.
      - By default all ports of O(link_layer) that are up. Of two nodes the ports are then paired in their order.
    type: list
    elements: str
    default: []
  partner:
    description:
      - Other end of each port on a single node. V(same) is the port itself, which measures adapter and PCIe. V(next) is
        the next port of the list, which measures the cables and the switch, too.
      - Two nodes need V(same). The other end is then the port of the other node.
    type: str
    choices: [same, next]
    default: same
  size:
    description:
      - Bytes of a message, from 1 to 1073741824.
    type: int
    default: 8388608
  duration:
    description:
      - Seconds of the test of each port, at least 3.
    type: int
    default: 5
  use_cuda:
    description:
      - Send from and receive into the memory of the GPU next to the port (GPUDirect RDMA) instead of the memory of the
        host. It needs O(gpus) or O(topology), and a perftest that was built with CUDA.
    type: bool
    default: false
  gpus:
    description:
      - Mapping of ports, such as V(mlx5_ib0), to the indexes of their GPUs. It takes precedence over O(topology). Only
        used with O(use_cuda=true).
    type: dict
    default: {}
  topology:
    description:
      - Topology of the node as RV(hpcai.gpu_cluster.gpu_info#module:topology) of M(hpcai.gpu_cluster.gpu_info), from
        which each port gets a GPU that is near to it. Only used with O(use_cuda=true).
    type: dict
  link_layer:
    description:
      - Link layer that the ports must have. V(Ethernet) measures RoCE, which usually needs C(-x) with a GID index in
        O(arguments).
    type: str
    choices: [InfiniBand, Ethernet]
    default: InfiniBand
  arguments:
    description:
      - Further arguments for the test, such as V(--perform_warm_up). Those that the module sets itself, and those that
        change the meaning or the form of the output, such as C(-a), C(-b) and C(-n), are refused.
    type: list
    elements: str
    default: []
  python:
    description:
      - Python interpreter, 3.8 or later, on the nodes of the C(srun) step. It is not used with O(launcher=local).
    type: str
    default: python3
  timeout:
    description:
      - Seconds for all ports together. The time that Slurm needs to allocate the nodes is included.
    type: float
    default: 600
requirements:
  - perftest on the nodes that measure
notes:
  - O(launcher) is V(local) for one node or V(srun) for one or two nodes. V(mpirun), another O(ranks_per_node) than 1,
    O(cpu_masks) and O(visible_devices) are refused.
  - Between two nodes the clients connect by TCP to ports between 61000 and 65479 of the first node.
seealso:
  - module: hpcai.gpu_cluster.infiniband_info
  - module: hpcai.gpu_cluster.gpu_info
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Measure every port of a node against itself, in the memory of the GPU next to it
  hpcai.gpu_cluster.infiniband_bandwidth:
    use_cuda: true
    topology: "{{ gpu.topology }}"
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
    profile: Standard_ND96asr_v4

- name: Measure each port of a node against the next one
  hpcai.gpu_cluster.infiniband_bandwidth:
    partner: next
    duration: 10

- name: Measure reads between two nodes through Slurm
  hpcai.gpu_cluster.infiniband_bandwidth:
    launcher: srun
    hosts: [gpu-001, gpu-002]
    launcher_options:
      partition: gpu
    test: ib_read_bw
  register: fabric

- name: Show the bandwidth of each port in Gb/s
  ansible.builtin.debug:
    msg: "{{ dict(fabric.results | map(attribute='nic') | zip(fabric.results | map(attribute='bandwidth'))) }}"

- name: Measure one port with RoCE
  hpcai.gpu_cluster.infiniband_bandwidth:
    link_layer: Ethernet
    devices: [mlx5_0]
    arguments: ["-x", "3"]
"""

RETURN = r"""
checks:
  description: One check record about all ports.
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
      description: Node that was measured, null for two nodes.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: infiniband_bandwidth
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 63.8
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
      sample: fabric
    reason:
      description: What is wrong, or why nothing was measured, in one line. Empty where there is nothing to explain.
      type: str
      sample: "bandwidth (nic=mlx5_ib5 test=ib_write_bw): 97.4 Gb/s, expected >= 180"
    scope:
      description: Ports at fault as C(nic), and names of two nodes as C(pair).
      type: dict
      sample: {nic: [mlx5_ib5]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - C(bandwidth) of each port in Gb/s, with the labels C(nic) and C(test).
      type: list
      elements: dict
      sample:
        - name: bandwidth
          value: 97.4
          unit: Gb/s
          nic: mlx5_ib5
          test: ib_write_bw
          expected: ">= 180"
          source: health checks of Azure
          ratio: 0.541
          verdict: fail
    samples:
      description: The entries of RV(results).
      type: list
      elements: dict
      sample: [{nic: mlx5_ib5, bandwidth: 97.4, host: gpu-001, partner: mlx5_ib5, problem: null}]
    evidence:
      description: End of the output of the ports with a problem.
      type: str
      sample: ""
    context:
      description:
        - Program that measured, its version and command line, O(profile), and what else explains the values.
        - Where no program is installed, C(missing) has the names that were looked for.
      type: dict
      sample: {tool: perftest, version: null, test: ib_write_bw, gpu_direct: false, profile: Standard_ND96asr_v4}
results:
  description: One entry per port. Empty if nothing was measured.
  type: list
  elements: dict
  returned: success
  contains:
    nic:
      description: Port, as in O(devices).
      type: str
      sample: mlx5_ib0
    bandwidth:
      description: Average of one direction in Gb/s, null if it could not be measured.
      type: float
      sample: 196.58
    host:
      description: Node of the client.
      type: str
      sample: gpu-001
    server:
      description: Node of the server.
      type: str
      sample: gpu-001
    partner:
      description: Port of the server on a single node, null for two nodes.
      type: str
      sample: mlx5_ib0
    link_layer:
      description: Link layer of the port in sysfs.
      type: str
      sample: InfiniBand
    numa_node:
      description: NUMA node of the port.
      type: str
      sample: "1"
    cpus:
      description: CPUs of that NUMA node, to which the client was bound.
      type: str
      sample: 24-47
    gpu:
      description: Name of the GPU whose memory the test used, as it printed it, null without O(use_cuda).
      type: str
      sample: NVIDIA A100-SXM4-40GB
    seconds:
      description: Duration of the client.
      type: float
      sample: 7.2
    rc:
      description: Exit status of the client, null if it did not end in time.
      type: int
      sample: 0
    argv:
      description: Command line of the client.
      type: list
      elements: str
      sample:
        - ib_write_bw
        - -d
        - mlx5_ib0
        - -i
        - "1"
        - -p
        - "45123"
        - -s
        - "8388608"
        - -D
        - "5"
        - -f
        - "1"
        - -F
        - --report_gbits
        - localhost
    problem:
      description: Why there is no value, null otherwise.
      type: str
      sample: null
argv:
  description: Command line that started the program on the nodes. Empty if nothing was started.
  type: list
  elements: str
  returned: success
  sample: [/usr/bin/srun, --job-name=infiniband_bandwidth, --nodes=2, --ntasks=2, python3, "-"]
environment:
  description: Environment variables that were set, with those of O(environment).
  type: dict
  returned: success
  sample: {CUDA_DEVICE_ORDER: PCI_BUS_ID}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import bandwidth


def main() -> None:
    module = AnsibleModule(argument_spec={**_launch.SPEC, **bandwidth.SPEC}, supports_check_mode=True)
    try:
        result = bandwidth.perform(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot measure InfiniBand: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
