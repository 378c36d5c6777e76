#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_tests
short_description: Measure and judge NCCL collectives with nccl-tests
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs nccl-tests for one collective after another, on the GPUs of one node or of many, and judges the result.
  - What is no proof is no pass, although the program may say OK and end with 0. Ranks that each ran alone, fewer ranks
    or nodes than asked for, a table that lacks sizes, an option that was not understood, unchecked results and a busbw
    that does not fit the number of ranks have the verdict V(error); wrong values and sockets in place of InfiniBand
    have V(fail).
  - Limits apply to the busbw of one size or to the peak. The mean over all sizes, which nccl-tests calls average, is
    reported under another name and is never compared with them.
  - A single rank, check mode, a machine without GPU, GPUs in use and nodes that jobs have give V(skipped).
    The module itself fails only for options that make no sense.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.launch
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.gpus
  - hpcai.gpu_cluster.measure.node
attributes:
  check_mode: {support: partial, details: [It measures nothing then and says so.]}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  collectives:
    {type: list, elements: str, default: [all_reduce], description: What to measure, choices: [all_gather, all_reduce,
      alltoall, broadcast, gather, hypercube, reduce, reduce_scatter, scatter, sendrecv]}
  path:
    {type: str, description: "Directory of the programs, or the program of a single collective. Other nodes and
      containers are taken to have it there. Without it E(PATH) and the usual places of this machine are searched,
      in a container C(all_reduce_perf_mpi) is on its E(PATH)."}
  min_size: {type: str, default: "8", description: "Smallest size in bytes, or with C(K), C(M), C(G)."}
  max_size: {type: str, default: 8G, description: Largest size.}
  factor: {type: int, default: 2, description: From one size to the next.}
  iterations: {type: int, default: 20, description: Timed operations per size.}
  warmup: {type: int, default: 5, description: Untimed operations per size.}
  gpus_per_rank: {type: int, default: 1, description: GPUs of each process; all of the node with O(launcher=local).}
  datatype: {type: str, default: float, description: Type of the elements as nccl-tests names it.}
  check: {type: bool, default: true, description: Check results for wrong values. Without it nothing passes.}
  arguments: {type: list, elements: str, default: [], description: Further arguments of nccl-tests.}
  infiniband: {type: bool, default: false, description: Several nodes are connected by InfiniBand and must use it.}
  topology_file: {type: str, description: "Topology file of the machine type, for E(NCCL_TOPO_FILE)."}
  debug:
    {type: str, default: INFO, choices: [NONE, VERSION, WARN, INFO, TRACE],
     description: "E(NCCL_DEBUG), which tells the network that was used from V(INFO) on."}
  log: {type: path, description: "Directory in which the whole log of each collective is kept."}
  timeout: {type: float, default: 600, description: "Seconds for each collective, the wait for nodes included."}
  min_nodes: {type: int, default: 1, description: "With fewer nodes nothing is measured and the verdict is V(skipped)."}
  busy: {type: list, elements: str, default: [], description: "Nodes left out because they have jobs, for the record."}
"""

EXAMPLES = r"""
- name: Measure inside one node
  hpcai.gpu_cluster.nccl_tests:
    collectives: [all_reduce, alltoall]
    gpus_per_rank: 8
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"

- name: Measure between two nodes in a container, each rank on the CPUs of its GPU
  hpcai.gpu_cluster.nccl_tests:
    launcher: srun
    nodes: 2
    ranks_per_node: 8
    cpu_masks: "{{ node.topology | hpcai.gpu_cluster.cpu_masks }}"
    container_image: nvcr.io#nvidia/pytorch:24.05-py3
    topology_file: /opt/microsoft/ndv4/topo.xml
    infiniband: true
    environment: {NCCL_IB_PCI_RELAXED_ORDERING: "1"}
"""

RETURN = r"""
checks: {type: list, elements: dict, returned: success, description: One check record per collective.}
runs:
  {type: list, elements: dict, returned: success, description: One entry per collective without its rows, sample: [
    {collective: all_reduce, program: all_reduce_perf, version: 2.17.6, nccl_version: 2.27.3, ranks: 16, nodes: 2,
     rc: 0, tables: 1, complete: true, ok: true, correct: true, validated: true, out_of_bounds: 0, average_busbw: 56.1,
     peak_busbw: 188.7, notes: [], cause: null, network: InfiniBand, gpu_direct: true}]}
rows:
  {type: list, elements: dict, returned: success, description: "One entry per collective and size, in GB/s.", sample: [
    {collective: all_reduce, size: 8589934592, count: 2147483648, type: float, redop: sum, root: null, time_us: 86020.0,
     algbw: 99.86, busbw: 187.24, wrong: 0, in_place: {time_us: 86110.0, algbw: 99.75, busbw: 187.04, wrong: 0}}]}
peak: {type: dict, returned: success, description: Highest busbw per collective, sample: {all_reduce: 188.7}}
average: {type: dict, returned: success, description: Mean busbw over all sizes, sample: {all_reduce: 56.1}}
correct: {type: dict, returned: success, description: Whether all values were right, sample: {all_reduce: true}}
ranks:
  {type: list, elements: dict, returned: success, description: Ranks of NCCL and their GPUs, sample: [
    {rank: 0, host: gpu-001, device: 0, bus_id: "0001:00:00", name: NVIDIA A100-SXM4-40GB}]}
nodes: {type: list, elements: str, returned: success, description: Nodes that took part, sample: [gpu-001, gpu-002]}
argv: {type: dict, returned: success, description: Command line per collective.}
environment: {type: dict, returned: success, description: "Variables that were set, and no others."}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import request, run


def main() -> None:
    module = AnsibleModule(argument_spec={**_launch.SPEC, **request.SPEC}, supports_check_mode=True)
    try:
        result = run.perform(module.params, module.check_mode, module.tmpdir)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot run nccl-tests: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
