#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hpl
short_description: Measure and judge double precision speed with HPL (Linpack)
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs HPL, NVIDIA's (C(hpl.sh) or C(xhpl), also from its container) or netlib's, with one rank per GPU, and judges
    the speed and the residuals of the solution. HPL ends with 0 when the solution is wrong; here that is V(fail).
  - What is no proof is no pass. An output that breaks off, a solution that was not checked, another problem than the
    one asked for, mixed precision, and a speed that does not fit size and time have the verdict V(error). So has a
    speed above an expectation with V(<=), which is the peak of the hardware.
  - If O(n) is not given, N = floor(sqrt(F * M / 8) / NB) * NB, where M is the memory of all GPUs in bytes, F is
    O(memory_fraction) and NB is O(nb). The grid is the one nearest to a square, with P >= Q.
  - Check mode, a machine without GPU if neither O(n) nor O(dat) is given, GPUs in use and nodes that jobs have
    give V(skipped). The module itself fails only for options that make no sense.
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
  path:
    {type: str, description: "The program, or its directory. Other nodes and containers are taken to have it there.
      Without it E(PATH) and usual places of this machine are searched; in a container it is C(/workspace/hpl.sh)."}
  dat: {type: path, description: "Existing input file. C(xhpl) wants it to be called C(HPL.dat)."}
  n: {type: int, description: Order of the matrix.}
  nb: {type: int, default: 1024, description: "Block size. CPUs want less, such as 256."}
  p: {type: int, description: Rows of the grid of ranks.}
  q: {type: int, description: Columns of the grid of ranks.}
  gpus: {type: int, description: "GPUs of all nodes. The default is one per rank where the problem is made for GPUs."}
  gpu_memory_mib:
    {type: int, description: "Memory of one GPU in MiB, to derive O(n). With O(launcher=local) the default is that of
      the smallest GPU of this machine."}
  memory_fraction: {type: float, default: 0.8, description: Part of the GPU memory for the matrix.}
  directory:
    {type: path, description: "Where the input file is written; it is removed again. All nodes must see it, so it is
      needed with another O(launcher) than V(local)."}
  log: {type: path, description: File in which the whole output is kept.}
  arguments: {type: list, elements: str, default: [], description: Further arguments of the program.}
  topology:
    {type: dict, description: "C(topology) of M(hpcai.gpu_cluster.gpu_info), from which C(hpl.sh) is told the GPU, CPUs
      and memory of each rank of a node (C(--gpu-affinity), C(--cpu-affinity), C(--mem-affinity)). It replaces
      O(cpu_masks)."}
  timeout: {type: float, default: 1800, description: "Seconds, the wait for nodes included."}
"""

EXAMPLES = r"""
- name: Run NVIDIA's HPL on the eight GPUs of one node
  hpcai.gpu_cluster.hpl:
    launcher: srun
    hosts: [gpu-001]
    ranks_per_node: 8
    container_image: nvcr.io#nvidia/hpc-benchmarks:24.03
    gpu_memory_mib: 40536
    directory: /shared/scratch
    topology: "{{ node.topology }}"
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
"""

RETURN = r"""
checks: {type: list, elements: dict, returned: success, description: One check record.}
rows:
  type: list
  elements: dict
  returned: success
  description: One entry per solved system; mixed is true for HPL-AI and HPL-MxP.
  sample:
    - {variant: WC0, n: 264192, nb: 1024, p: 4, q: 2, seconds: 107.91, gflops: 113900.0, gflops_per_gpu: 14240.0,
       gflops_factorization: null, mixed: false}
residuals:
  {type: list, elements: dict, returned: success, description: "One entry per check of a solution.",
   sample: [{value: 0.000413709218, passed: true}]}
problem:
  {type: dict, returned: success, description: "What was to be solved, null if O(dat) says it.",
   sample: {n: 264192, nb: 1024, p: 4, q: 2}}
dat: {type: str, returned: success, description: "The input file that was written, null if O(dat) was given."}
argv: {type: list, elements: str, returned: success, description: Command line that was run.}
environment: {type: dict, returned: success, description: "Variables that were set, and no others."}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import problem, run


def main() -> None:
    module = AnsibleModule(argument_spec={**_launch.SPEC, **problem.SPEC}, supports_check_mode=True)
    try:
        result = run.perform(module.params, module.check_mode, module.tmpdir)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot run HPL: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
