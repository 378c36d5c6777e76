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
  - Runs the programs of nccl-tests for one collective after another, on the GPUs of one node or of several, and judges
    correctness and busbw.
  - A result that proves nothing is no pass, although the program printed OK and ended with 0. Ranks that each ran
    alone, fewer ranks or nodes than requested, a table that lacks sizes, an option that the program did not understand,
    results that were not checked and a busbw that does not fit algbw and the number of ranks have the verdict V(error).
    Wrong values, and another network than InfiniBand with O(infiniband=true), have the verdict V(fail).
  - Limits of O(expect) apply to the busbw of one size, or to the highest busbw (C(busbw_peak)). The mean over all
    sizes, which nccl-tests prints as average bus bandwidth, depends on the choice of sizes. It is returned as
    C(sweep_mean) and never compared with a limit in GB/s.
  - With a single rank, in check mode, on a machine without GPUs of which none are expected, while other programs
    compute on the GPUs, and on nodes that have jobs the verdict is V(skipped). The module itself fails only for invalid
    options.
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
  collectives:
    description:
      - Collectives to measure, in this order and each at most once. Each returns one check record.
    type: list
    elements: str
    default: [all_reduce]
    choices: [all_gather, all_reduce, alltoall, broadcast, gather, hypercube, reduce, reduce_scatter, scatter, sendrecv]
  path:
    description:
      - Directory of the programs, or the program of a single collective (a file such as V(all_reduce_perf)). With
        O(launcher=mpirun), O(launcher=srun) or O(container_image) the other nodes and the container are assumed to have
        it at this path. In a directory, O(launcher=mpirun) and O(launcher=srun) take C(<collective>_perf_mpi), as the
        role C(gpu_test_tools) calls builds with MPI, where it exists, otherwise C(<collective>_perf), which must be
        built with MPI for more than one process.
      - By default E(PATH) of this machine is searched, then V(/opt/gpu_test_tools/bin), V(/opt/nccl-tests*/build),
        V(/usr/local/nccl-tests*/build) and V(/usr/local/bin). With O(launcher=mpirun) and O(launcher=srun) programs
        with MPI, which end with C(_perf_mpi), are preferred. In a container C(<collective>_perf_mpi) is started from
        its E(PATH).
      - If there is no such program, the verdict is V(error).
    type: str
  min_size:
    description:
      - Smallest size in bytes. The suffixes C(K), C(M) and C(G) are powers of 1024. Quote plain numbers.
    type: str
    default: "8"
  max_size:
    description:
      - Largest size in bytes, with the same suffixes. A run with O(check=true) needs about three buffers of this size
        on every GPU.
    type: str
    default: 8G
  factor:
    description:
      - Factor from one size to the next, at least 2. Only sizes that are reached from O(min_size) by this factor are
        measured.
    type: int
    default: 2
  iterations:
    description:
      - Timed operations per size, at least 1.
    type: int
    default: 20
  warmup:
    description:
      - Operations per size before those that are timed. V(0) is none.
    type: int
    default: 5
  gpus_per_rank:
    description:
      - GPUs of each process. With O(launcher=local) there is one process, so that this is the number of GPUs. With the
        other launchers O(ranks_per_node) processes with one GPU each are usual.
    type: int
    default: 1
  datatype:
    description:
      - Type of the elements, by its name in nccl-tests, such as V(float), V(half) or V(bfloat16).
    type: str
    default: float
  check:
    description:
      - Let nccl-tests check the results for wrong values. With V(false) the verdict is at best V(unjudged).
    type: bool
    default: true
  arguments:
    description:
      - Further arguments for nccl-tests. Those that the module sets by options of its own, C(-t) and C(-J) are refused.
    type: list
    elements: str
    default: []
  infiniband:
    description:
      - Require that NCCL uses InfiniBand between nodes. Another network in the log, such as sockets, is V(fail). A log
        that does not name the network is V(error), so that O(debug) must be V(INFO) or V(TRACE).
      - It has no effect on a single node.
    type: bool
    default: false
  topology_file:
    description:
      - Topology file of the machine type on the nodes, for E(NCCL_TOPO_FILE). Without it the variable is not set.
    type: str
  debug:
    description:
      - Value of E(NCCL_DEBUG). From V(INFO) on the log names the network. With V(NONE) the variable is not set.
      - Unless it is V(NONE), E(NCCL_DEBUG_SUBSYS) is V(INIT,NET,ENV). O(environment) replaces either.
    type: str
    default: INFO
    choices: [NONE, VERSION, WARN, INFO, TRACE]
  log:
    description:
      - Directory in which the output of each collective is kept as C(<collective>.log). It is created if it is absent,
        and logs of earlier runs are replaced. By default the output is deleted after it was read.
    type: path
  timeout:
    description:
      - Seconds for each collective. The time that Slurm needs to allocate the nodes is included.
    type: float
    default: 600
  min_nodes:
    description:
      - With fewer O(nodes) nothing is measured, and the verdict is V(skipped). This lets a playbook pass the nodes that
        happen to be idle.
    type: int
    default: 1
  busy:
    description:
      - Names of the nodes that were left out because they have jobs. They are only used to explain that O(min_nodes) is
        not reached.
    type: list
    elements: str
    default: []
requirements:
  - nccl-tests, for more than one process built with MPI, for example from the role C(gpu_test_tools)
notes:
  - With O(launcher=srun) the option C(mpi=pmix) is set for C(srun) unless O(launcher_options) has C(mpi).
seealso:
  - module: hpcai.gpu_cluster.collective_test
    description: The same measurement with torch.distributed, without nccl-tests and without GPUs.
  - module: hpcai.gpu_cluster.nccl_config
  - module: hpcai.gpu_cluster.gpu_test_tools
  - plugin: hpcai.gpu_cluster.cpu_masks
    plugin_type: filter
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Measure two collectives inside one node
  hpcai.gpu_cluster.nccl_tests:
    collectives: [all_reduce, alltoall]
    gpus_per_rank: 8
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
    profile: Standard_ND96asr_v4
  register: nccl

- name: Show the busbw of the largest size of each collective
  ansible.builtin.debug:
    msg: "{{ nccl.rows | groupby('collective') | map('last') | map('last') | map(attribute='busbw') }}"

- name: Measure between two nodes in a container, each rank on the CPUs of its GPU
  hpcai.gpu_cluster.nccl_tests:
    launcher: srun
    nodes: 2
    ranks_per_node: 8
    launcher_options:
      partition: gpu
    cpu_masks: "{{ gpu.topology | hpcai.gpu_cluster.cpu_masks }}"
    container_image: nvcr.io#nvidia/pytorch:24.05-py3
    topology_file: /opt/microsoft/ndv4-topo.xml
    infiniband: true
    environment:
      NCCL_IB_PCI_RELAXED_ORDERING: "1"
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"

- name: Measure large sizes between two nodes with mpirun
  hpcai.gpu_cluster.nccl_tests:
    launcher: mpirun
    hosts: [gpu-001, gpu-002]
    ranks_per_node: 8
    min_size: 1G
    max_size: 8G
    infiniband: true
    log: /var/log/nccl_tests

- name: Measure all idle nodes, if there are at least four
  hpcai.gpu_cluster.nccl_tests:
    launcher: srun
    hosts: "{{ idle_nodes }}"
    ranks_per_node: 8
    min_nodes: 4
    busy: "{{ nodes_with_jobs }}"
    infiniband: true
    timeout: 1200
"""

RETURN = r"""
checks:
  description: One check record per entry of O(collectives).
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
      sample: nccl_tests
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 41.6
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
      sample: "busbw (collective=all_reduce size=8589934592): 92.1 GB/s, expected >= 185"
    scope:
      description:
        - Names of the nodes as C(group), or for one node the indexes of GPUs that are known to be at fault as C(gpu).
      type: dict
      sample: {group: [gpu-001, gpu-002]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - They are C(busbw) and C(busbw_in_place) of each size, with the labels C(collective) and C(size) in bytes, and
          C(busbw_peak), C(sweep_mean), C(wrong) and C(ranks) of each collective.
      type: list
      elements: dict
      sample:
        - name: busbw
          value: 92.1
          unit: GB/s
          collective: all_reduce
          size: 8589934592
          expected: ">= 185"
          source: two ND96asr_v4
          ratio: 0.498
          verdict: fail
    samples:
      description: The entries of RV(rows) of this collective.
      type: list
      elements: dict
      sample: [{collective: all_reduce, size: 8589934592, algbw: 49.1, busbw: 92.1, wrong: 0}]
    evidence:
      description: End of the output.
      type: str
      sample: "# Avg bus bandwidth    : 31.2"
    context:
      description:
        - Program that measured, its version and command line, O(profile), and what else explains the values.
        - Where no program is installed, C(missing) has the names that were looked for.
      type: dict
      sample:
        tool: nccl-tests
        version: 2.17.6
        nccl_version: 2.27.3
        collective: all_reduce
        launcher: srun
        network: InfiniBand
        gpu_direct: true
        log: null
        profile: Standard_ND96asr_v4
runs:
  description: One entry per collective that was run. What the output does not say is null.
  type: list
  elements: dict
  returned: success
  contains:
    collective:
      description: Name of the collective.
      type: str
      sample: all_reduce
    program:
      description: Name of the program.
      type: str
      sample: all_reduce_perf
    version:
      description: Version of nccl-tests.
      type: str
      sample: 2.17.6
    nccl_version:
      description: Version of NCCL.
      type: str
      sample: 2.27.3
    layout:
      description: First version of nccl-tests that prints this form of the table.
      type: str
      sample: "2.13"
    ranks:
      description: Ranks of NCCL that took part, one per GPU.
      type: int
      sample: 16
    nodes:
      description: Nodes that took part.
      type: int
      sample: 2
    rc:
      description: Exit status of the launcher, null if it did not start or did not end in time.
      type: int
      sample: 0
    tables:
      description: Number of tables in the output. More than one means that ranks ran alone.
      type: int
      sample: 1
    complete:
      description: Whether the table has its footer.
      type: bool
      sample: true
    ok:
      description: Whether the table is complete and usable.
      type: bool
      sample: true
    correct:
      description: Whether all values were right, null if they were not checked.
      type: bool
      sample: true
    validated:
      description: Whether the results were checked for wrong values.
      type: bool
      sample: true
    out_of_bounds:
      description: Number of results with wrong values in the footer.
      type: int
      sample: 0
    average_busbw:
      description: Mean busbw over all sizes in GB/s.
      type: float
      sample: 56.1
    peak_busbw:
      description: Highest busbw in GB/s.
      type: float
      sample: 188.7
    notes:
      description: Remarks about the output.
      type: list
      elements: str
      sample: []
    cause:
      description: Line of the output that explains a failure.
      type: str
      sample: null
    network:
      description: Network that NCCL used, V(InfiniBand), V(RoCE), V(Socket) or the name of a plugin.
      type: str
      sample: InfiniBand
    network_plugins:
      description: Names of networks in the log of NCCL.
      type: list
      elements: str
      sample: [IB]
    network_interfaces:
      description: Ethernet interfaces in the log of NCCL.
      type: list
      elements: str
      sample: [eth0]
    infiniband_devices:
      description: Number of InfiniBand devices that NCCL uses, by host.
      type: dict
      sample: {gpu-001: 8, gpu-002: 8}
    gpu_direct:
      description: Whether all channels use GPUDirect RDMA, null if the log does not say it.
      type: bool
      sample: true
rows:
  description:
    - One entry per collective and size. C(algbw) and C(busbw) are GB/s out of place, C(time_us) microseconds, C(wrong)
      is the number of wrong values, C(in_place) has the same values for the operation in place.
  type: list
  elements: dict
  returned: success
  sample:
    - collective: all_reduce
      size: 8589934592
      count: 2147483648
      type: float
      redop: sum
      root: null
      time_us: 86020.0
      algbw: 99.86
      busbw: 187.24
      wrong: 0
      in_place: {time_us: 86110.0, algbw: 99.75, busbw: 187.04, wrong: 0}
peak:
  description: Highest busbw in GB/s by collective, null where it is unknown.
  type: dict
  returned: success
  sample: {all_reduce: 188.7}
average:
  description: Mean busbw over all sizes in GB/s by collective, null where it is unknown.
  type: dict
  returned: success
  sample: {all_reduce: 56.1}
correct:
  description: Whether all values were right by collective, null where they were not checked.
  type: dict
  returned: success
  sample: {all_reduce: true}
ranks:
  description: Ranks of NCCL with their hosts and GPUs, as the first collective listed them.
  type: list
  elements: dict
  returned: success
  sample: [{rank: 0, host: gpu-001, device: 0, bus_id: "0001:00:00", name: NVIDIA A100-SXM4-40GB}]
nodes:
  description: Names of the nodes that took part.
  type: list
  elements: str
  returned: success
  sample: [gpu-001, gpu-002]
argv:
  description: Command line of each collective that was run.
  type: dict
  returned: success
  sample:
    all_reduce:
      - /opt/gpu_test_tools/bin/all_reduce_perf
      - -b
      - "8"
      - -e
      - 8G
      - -f
      - "2"
      - -n
      - "20"
      - -w
      - "5"
      - -g
      - "8"
      - -d
      - float
      - -c
      - "1"
environment:
  description: Environment variables that were set for the ranks, with those of O(environment).
  type: dict
  returned: success
  sample: {NCCL_DEBUG: INFO, NCCL_DEBUG_SUBSYS: "INIT,NET,ENV"}
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
