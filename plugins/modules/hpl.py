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
  - Runs HPL with one rank per GPU, either NVIDIA's (C(hpl.sh) or C(xhpl), also in its container) or netlib's, and
    judges the speed and the residuals of the solution. HPL ends with 0 even if the solution is wrong. Here that is
    V(fail).
  - A result that proves nothing is no pass. An output that ends early, a solution that was not checked, another problem
    than the requested one, mixed precision, and a speed that does not fit size and time have the verdict V(error). So
    has a speed above a limit with V(<=) of O(expect), since such a limit is the peak of the hardware.
  - Without O(n) the order of the matrix is N = floor(sqrt(F * M / 8) / NB) * NB, where M is the memory of all GPUs in
    bytes, F is O(memory_fraction) and NB is O(nb). Without O(p) and O(q) the grid is the one nearest to a square, with
    P >= Q.
  - In check mode, on a machine without GPUs if neither O(n) nor O(dat) is set and nothing is expected, while other
    programs compute on the GPUs, and on nodes that have jobs the verdict is V(skipped). The module itself fails only
    for invalid options.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.launch
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.gpus
  - hpcai.gpu_cluster.measure.node
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
  path:
    description:
      - The program, C(hpl.sh) or C(xhpl), or on this machine the directory that holds it. With O(launcher=mpirun) and
        O(launcher=srun) the other nodes are assumed to have it at this path. A directory that this machine does not
        have is assumed to hold C(xhpl).
      - By default E(PATH) of this machine is searched, then V(/opt/gpu_test_tools/bin), V(/workspace),
        V(/opt/nvidia/hpc-benchmarks*), V(/opt/hpl*) and V(/opt/hpl*/bin).
      - With O(container_image) it must be the program in the container. The default is V(/workspace/hpl.sh).
      - If there is no such program, the verdict is V(error).
    type: str
  dat:
    description:
      - Existing input file that describes the problem. O(n), O(p), O(q) and O(gpu_memory_mib) are then refused.
      - C(xhpl) only reads a file that is called C(HPL.dat), C(hpl.sh) one of any name.
    type: path
  n:
    description:
      - Order of the matrix. By default it is derived from the memory of the GPUs.
    type: int
  nb:
    description:
      - Block size. V(1024) suits GPUs; on CPUs smaller blocks such as V(256) are usual.
    type: int
    default: 1024
  p:
    description:
      - Rows of the grid of ranks. P times Q must be the number of ranks. By default it follows from O(q).
    type: int
  q:
    description:
      - Columns of the grid of ranks. By default it follows from O(p).
    type: int
  gpus:
    description:
      - Number of GPUs on all nodes, to derive O(n) and the speed of one GPU (C(tflops_per_gpu)).
      - The default is one per rank. With O(n) or O(dat) there is no default, and the speed of one GPU is only returned
        if HPL prints it.
    type: int
  gpu_memory_mib:
    description:
      - Memory of one GPU in MiB, to derive O(n).
      - With O(launcher=local) the default is that of the smallest GPU of this machine. The other launchers need this,
        O(n) or O(dat).
    type: int
  memory_fraction:
    description:
      - Part of the memory of the GPUs for the matrix, more than 0 and at most 1. The rest is for panels and libraries.
    type: float
    default: 0.8
  directory:
    description:
      - Existing directory in which a new directory with C(HPL.dat) is created, and removed after the run. All nodes
        must see it under the same path.
      - The default is a temporary directory of this machine, so that O(launcher=mpirun) and O(launcher=srun) need this
        unless O(dat) is set.
    type: path
  log:
    description:
      - File in which the output is kept. By default it is deleted after it was read.
    type: path
  arguments:
    description:
      - Further arguments for the program.
    type: list
    elements: str
    default: []
  topology:
    description:
      - Topology of a node as RV(hpcai.gpu_cluster.gpu_info#module:topology) of M(hpcai.gpu_cluster.gpu_info). C(hpl.sh)
        gets the GPU, the CPUs and the memory of each rank from it (C(--gpu-affinity), C(--cpu-affinity),
        C(--mem-affinity)). It must have as many GPUs as O(ranks_per_node), and replaces O(cpu_masks), which is refused
        beside it.
      - C(xhpl) has no such arguments and is started without them.
    type: dict
  timeout:
    description:
      - Seconds for the run. The time that Slurm needs to allocate the nodes is included.
    type: float
    default: 1800
requirements:
  - HPL, for example from NVIDIA's container image C(nvcr.io/nvidia/hpc-benchmarks)
notes:
  - With O(launcher=srun) the option C(mpi=pmix) is set for C(srun) unless O(launcher_options) has C(mpi).
  - In a container the directory of the input file is mounted without being listed in O(container_mounts).
seealso:
  - module: hpcai.gpu_cluster.gpu_info
  - module: hpcai.gpu_cluster.gpu_clocks
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
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
    topology: "{{ gpu.topology }}"
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
    profile: Standard_ND96asr_v4
  register: linpack

- name: Show the speed in TFLOP/s
  ansible.builtin.debug:
    msg: "{{ linpack.rows | map(attribute='gflops') | max / 1000 }}"
  when: linpack.rows | length > 0

- name: Run HPL over two nodes with a matrix of a given order
  hpcai.gpu_cluster.hpl:
    launcher: srun
    hosts: [gpu-001, gpu-002]
    ranks_per_node: 8
    container_image: nvcr.io#nvidia/hpc-benchmarks:24.03
    n: 260096
    p: 4
    q: 4
    directory: /shared/scratch

- name: Run netlib's HPL on the CPUs of one node with an input file of your own
  hpcai.gpu_cluster.hpl:
    launcher: mpirun
    hosts: [cpu-001]
    ranks_per_node: 4
    path: /opt/hpl/bin/xhpl
    dat: /shared/hpl/HPL.dat
    log: /var/log/hpl.log
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
      description: Node that was measured, null for several nodes.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: hpl
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 131.7
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
      sample: "tflops: 81.4 TFLOP/s, expected >= 90.4"
    scope:
      description: Always empty.
      type: dict
      sample: {}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - They are C(tflops), C(tflops_per_gpu) if the number of GPUs is known, and C(residual_failures), which must be
          0.
      type: list
      elements: dict
      sample:
        - name: tflops
          value: 81.4
          unit: TFLOP/s
          expected: ">= 90.4"
          source: one ND96asr_v4
          ratio: 0.9
          verdict: fail
    samples:
      description: The entry of RV(rows) with the highest speed.
      type: list
      elements: dict
      sample: [{variant: WC0, n: 184320, nb: 1024, p: 4, q: 2, seconds: 51.3, gflops: 81400.0}]
    evidence:
      description: End of the output if the run had a problem.
      type: str
      sample: ""
    context:
      description:
        - Program that measured, its version and command line, O(profile), and what else explains the values.
        - Where no program is installed, C(missing) has the names that were looked for.
      type: dict
      sample:
        tool: HPL
        version: 24.3.0
        launcher: srun
        affinity: "--gpu-affinity 0:1:2:3:4:5:6:7"
        log: null
        profile: Standard_ND96asr_v4
rows:
  description: One entry per solved system of equations.
  type: list
  elements: dict
  returned: success
  contains:
    variant:
      description: Code of the variant that HPL prints.
      type: str
      sample: WC0
    n:
      description: Order of the matrix.
      type: int
      sample: 184320
    nb:
      description: Block size.
      type: int
      sample: 1024
    p:
      description: Rows of the grid of ranks.
      type: int
      sample: 4
    q:
      description: Columns of the grid of ranks.
      type: int
      sample: 2
    seconds:
      description: Duration of the solution.
      type: float
      sample: 43.3
    gflops:
      description: Speed in GFLOP/s, in mixed precision with refinement included.
      type: float
      sample: 96500.0
    gflops_per_gpu:
      description: Speed of one GPU in GFLOP/s, null if HPL does not print it.
      type: float
      sample: 12060.0
    gflops_factorization:
      description: Speed without refinement in mixed precision, otherwise null.
      type: float
      sample: null
    mixed:
      description: Whether HPL computed in mixed precision (HPL-AI, HPL-MxP).
      type: bool
      sample: false
residuals:
  description: One entry per check of a solution. C(value) is null if it is no finite number.
  type: list
  elements: dict
  returned: success
  sample: [{value: 0.000413709218, passed: true}]
problem:
  description: Requested problem, null if O(dat) was set or nothing was run.
  type: dict
  returned: success
  sample: {n: 184320, nb: 1024, p: 4, q: 2}
dat:
  description: Text of the C(HPL.dat) that was written, null if O(dat) was set or nothing was run.
  type: str
  returned: success
  sample: |
    HPLinpack benchmark input file
    Written by hpcai.gpu_cluster
    HPL.out      output file name (if any)
argv:
  description: Command line that was run. Empty if nothing was started.
  type: list
  elements: str
  returned: success
  sample: [/usr/bin/srun, --nodes=1, --ntasks=8, /workspace/hpl.sh, --dat, /shared/scratch/hpcai-hpl-x1y2/HPL.dat]
environment:
  description: Environment variables that were set for the ranks, with those of O(environment).
  type: dict
  returned: success
  sample: {OMPI_MCA_coll_hcoll_enable: "0"}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import run


def main() -> None:
    module = AnsibleModule(argument_spec={**_launch.SPEC, **run.SPEC}, supports_check_mode=True)
    try:
        result = run.perform(module.params, module.check_mode, module.tmpdir)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot run HPL: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
