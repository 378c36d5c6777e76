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
    between two nodes, and judges the average in Gb/s (decimal) of one direction.
  - Server and client are started by one small program, here or by one C(srun) step of one task per node, on the CPUs of
    the NUMA node of their port. Of two nodes the first in Slurm's order has the servers. The program ends its servers
    with itself, so none is left behind.
  - The link layer is read from sysfs before, and from the output of the test afterwards. Another one than
    O(link_layer) gives no number, so that Ethernet never passes for InfiniBand.
  - A test that could not run is V(error), one that broke on the link (such as a port that is down or retries that were
    exceeded) V(fail). Check mode, nodes that jobs have, and a node without InfiniBand of which none is expected are
    V(skipped). The module itself fails only for options that make no sense.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.launch
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
  - hpcai.gpu_cluster.measure.sysfs
attributes:
  check_mode: {support: partial, details: [It measures nothing then and says so.]}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  test: {type: str, choices: [ib_write_bw, ib_read_bw, ib_send_bw], default: ib_write_bw, description: Program to run.}
  path: {type: str, description: "The program, or its directory. Without it E(PATH) on the nodes is searched."}
  devices:
    {type: list, elements: str, default: [], description: "Ports to measure, as V(mlx5_ib0) or V(mlx5_0:2). Without them
      all ports of the link layer that are up. Two nodes use the same names or the same order."}
  partner:
    {type: str, choices: [same, next], default: same, description: "On one node the other end of each port is the port
      itself, which measures adapter and PCIe, or the next port of the list, which measures cables, too."}
  size: {type: int, default: 8388608, description: Bytes of a message.}
  duration: {type: int, default: 5, description: Seconds of each test.}
  use_cuda: {type: bool, default: false, description: "Use memory of the GPU next to the port (GPUDirect RDMA)."}
  gpus: {type: dict, default: {}, description: "Index of the GPU of each port, such as V({mlx5_ib0: 0})."}
  topology:
    {type: dict, description: "Topology that M(hpcai.gpu_cluster.gpu_info) returned, which tells the GPU of each port."}
  link_layer:
    {type: str, choices: [InfiniBand, Ethernet], default: InfiniBand, description: "V(Ethernet) measures RoCE, which
      usually needs C(-x) with a GID index in O(arguments)."}
  arguments: {type: list, elements: str, default: [], description: "Further arguments, such as V(--perform_warm_up)."}
  python: {type: str, default: python3, description: "Interpreter on the nodes that C(srun) reaches, from Python 3.8."}
  timeout: {type: float, default: 600, description: "Seconds for everything, the wait for nodes included."}
"""

EXAMPLES = r"""
- name: Measure every port of a node against itself, from the memory of the GPU next to it
  hpcai.gpu_cluster.infiniband_bandwidth:
    use_cuda: true
    topology: "{{ gpus.topology }}"
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"

- name: Measure between two nodes through Slurm
  hpcai.gpu_cluster.infiniband_bandwidth:
    launcher: srun
    hosts: [gpu-001, gpu-002]
    test: ib_read_bw
"""

RETURN = r"""
checks:
  type: list
  elements: dict
  returned: success
  description: One check record with the metric C(bandwidth) of every port.
  sample:
    - {schema: 1, node: gpu-001, check: infiniband_bandwidth, verdict: pass, reason: "", scope: {}, metrics: [
        {name: bandwidth, value: 196.58, unit: Gb/s, nic: mlx5_ib0, test: ib_write_bw, expected: ">= 180",
         verdict: pass}]}
results:
  type: list
  elements: dict
  returned: success
  description: One entry per port with the command line of its client.
  sample:
    - {nic: mlx5_ib0, bandwidth: 196.58, host: gpu-001, server: gpu-001, partner: mlx5_ib0, link_layer: InfiniBand,
       numa_node: "1", cpus: 24-47, gpu: null, seconds: 7.2, rc: 0, problem: null, argv: [ib_write_bw, -d, mlx5_ib0]}
argv: {type: list, elements: str, returned: success, description: Command line that started the program.}
environment: {type: dict, returned: success, description: "Variables that were set, and no others.", sample: {}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import bandwidth, request


def main() -> None:
    module = AnsibleModule(argument_spec={**_launch.SPEC, **request.SPEC}, supports_check_mode=True)
    try:
        result = bandwidth.perform(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot measure InfiniBand: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
