#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: certification
short_description: Certify the nodes of a Slurm cluster and the fabric between them
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs the nodes' own test suite and collectives between nodes as Slurm jobs of the user who runs the task, determines
    which nodes or links are at fault, and issues a certificate that gives their probabilities.
  - The stages are C(reach) (which nodes answer), C(local) (each node by itself), C(pair) (collectives between two
    nodes), C(confirm) (suspects with partners that never failed) and C(ladder) (collectives over more and more nodes).
  - Only idle nodes take part, all others are C(untested) with the reason. Nothing is drained or repaired. RV(drains)
    has what M(hpcai.gpu_cluster.slurm_node) takes.
  - If the task is interrupted, its jobs go on, and the same task continues the same run with all results, up to six
    hours later.
  - A named run that has its certificate is returned without running again.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details:
      - In check mode the module returns the plan of the run, and the runs that would be removed.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - With O(run) a finished run is returned unchanged. Without it every call that continues no run measures again.
options:
  dir:
    description:
      - Directory for all runs, each in a directory of its own. It must be the same file system under the same path on
        this host and on the nodes, and writable for the user who runs the task.
      - It, O(agent) and each directory above them have to belong to root or the user of the task, and nobody else may
        write to them; above them a directory may be sticky, as C(/tmp) is. Runs in it that somebody else made do not
        count.
    type: path
    required: true
  run:
    description:
      - Name of the run, up to 64 letters, digits, dots, dashes and underscores. An existing run of this name must have
        been started with the same options, and is continued or, if it is finished, returned. One that was started more
        than six hours ago and never finished is refused.
      - By default the newest unfinished run of the last six hours with the same options, otherwise a new run that is
        named after the time in UTC, such as V(20260105T100000Z).
    type: str
    default: ""
  agent:
    description:
      - The node agent on this host, as the lookup P(hpcai.gpu_cluster.node_agent#lookup) makes it. Each run keeps the
        copy that it was started with.
    type: path
    required: true
  cluster:
    description:
      - Name of the cluster in the certificate.
    type: str
    default: ""
  profile:
    description:
      - SKU profile of the nodes (P(hpcai.gpu_cluster.sku_profile#lookup)) with the limits that nodes and fabric are
        judged by. Without limits nodes are only compared with each other.
    type: dict
    default: {}
  hosts:
    description:
      - Nodes to certify, as a hostlist such as V(gpu-[001-064]). All of them must be in the partition.
      - By default all nodes of the partition but those that power saving has switched off (C(POWERED_DOWN)), which
        are no part of the run. One that is named here and switched off is C(untested), and so is one that failed to
        resume (C(DOWN)).
    type: str
    default: ""
  topology:
    description:
      - Switches of the network as M(hpcai.gpu_cluster.slurm_topology_info) returns them (C(switches)), each with
        C(name) and either C(nodes) or C(switches). They are used where Slurm itself has no topology.
    type: list
    elements: dict
    default: []
  partition:
    description:
      - Slurm partition of the jobs. By default the default partition of the cluster.
    type: str
    default: ""
  reservation:
    description:
      - Slurm reservation in which all jobs run. Nodes that it holds count as idle.
    type: str
    default: ""
  nodes_at_once:
    description:
      - Largest number of nodes that are taken from other jobs at a time. V(0) takes all idle nodes.
    type: int
    default: 0
  options:
    description:
      - Options of the planner. Unknown ones are refused.
      - C(k) (default 3) is the number of rounds of pairs, C(confirm_rounds) (4) the largest number of rounds for
        suspects. Up to 16 nodes all meet each other instead.
      - C(drain_at) (0.95) and C(clear_at) (0.004) are the probabilities of a fault from which a node is drained, and up
        to which it is cleared.
      - C(material) (0.03) is the part of the bandwidth from which a difference matters. C(max_share) (0.05) and
        C(max_leaf) (3) limit how many nodes of the fleet and of a leaf switch are drained without looking for a common
        cause.
      - C(stages) and C(collectives) choose what is run. C(rails) measures each rail by itself. C(seed) changes the
        pairs. C(seconds) (by stage) and C(cost_per_gpu_hour) are only used for RV(plan).
      - C(prior), C(q0), C(e0), C(settle_at), C(concurrent) and C(gpus_per_node) are accepted, too.
    type: dict
    default: {}
  suite:
    description:
      - Suite of the node agent that each node runs by itself.
    type: str
    default: full
    choices: [full, boot, periodic]
  node:
    description:
      - Configuration of the node agent on the nodes, such as C(paths), the file systems that must be there, and
        C(tools), the paths of test programs.
    type: dict
    default: {}
  tool:
    description:
      - Program for collectives between nodes. V(nccl) is nccl-tests, V(torch) is torch.distributed. V(auto) is V(nccl)
        for nodes with GPUs, otherwise V(torch).
    type: str
    default: auto
    choices: [auto, nccl, torch]
  gpus:
    description:
      - GPUs of a node. The default is C(gpu.count) of O(profile), or 0.
    type: int
  infiniband:
    description:
      - Whether ranks must use InfiniBand. By default they must if O(profile) has InfiniBand ports.
    type: bool
  nccl:
    description:
      - How nccl-tests are run, replacing keys of C(nccl) in O(profile). The keys are C(path), C(max_size),
        C(topology_file), C(environment), C(cpu_masks), C(container_image) and C(container_mounts), with the meaning of
        the options of M(hpcai.gpu_cluster.nccl_tests).
    type: dict
    default: {}
  torch:
    description:
      - How torch.distributed is run. The keys are C(python) (default V(python3)), C(backend) (V(gloo)),
        C(ranks_per_node) (V(1)) and C(max_size) in bytes (V(67108864)). Others are refused.
    type: dict
    default: {}
  environment:
    description:
      - Environment variables for the collectives between nodes. Quote values that YAML would read as booleans.
    type: dict
    default: {}
  step_options:
    description:
      - Long options of C(srun) for the collectives between nodes. Underscores become dashes, V(true) is an option
        without a value.
    type: dict
    default: {}
  sbatch_options:
    description:
      - Long options of C(sbatch) for all jobs, such as C(account). Those that the module sets itself, such as
        C(nodelist), C(array) and C(output), are refused.
    type: dict
    default: {}
  interpreter:
    description:
      - Python interpreter on the nodes.
    type: path
    default: /usr/bin/python3
  timeout:
    description:
      - Seconds for one measurement between nodes.
    type: float
    default: 600
  suite_timeout:
    description:
      - Seconds for the suite of a node.
    type: float
    default: 1800
  wait:
    description:
      - Seconds that a job may wait for its nodes. After two such jobs the nodes are untested.
    type: float
    default: 120
  patience:
    description:
      - Least number of seconds until a node that has not begun its test counts as silent. The time that is really
        allowed is derived from the times of the other nodes. A node that is silent but known to Slurm is tried again
        with more time before it is untested.
    type: float
    default: 10
  hold:
    description:
      - Seconds at most that a node is kept after its own test, until all nodes of the job have begun. V(0) does not
        keep it.
    type: float
    default: 20
  poll:
    description:
      - Seconds at most between two looks at the jobs.
    type: float
    default: 2
  keep:
    description:
      - Number of newest runs in O(dir) that are kept, with the present one. V(0) keeps all. For the exceptions see
        RV(removed).
    type: int
    default: 0
requirements:
  - Slurm client commands on this host
notes:
  - Run the task on a login or controller node, as a user who may submit jobs to the partition.
seealso:
  - module: hpcai.gpu_cluster.slurm_node
  - module: hpcai.gpu_cluster.nccl_tests
  - module: hpcai.gpu_cluster.collective_test
  - plugin: hpcai.gpu_cluster.node_agent
    plugin_type: lookup
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Put the node agent on the shared file system
  ansible.builtin.copy:
    src: "{{ lookup('hpcai.gpu_cluster.node_agent') }}"
    dest: /shared/certification/hpcai-agent.pyz
    mode: "0755"

- name: Certify all idle nodes of the default partition
  hpcai.gpu_cluster.certification:
    dir: /shared/certification
    agent: /shared/certification/hpcai-agent.pyz
    cluster: ndv5
    profile: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96isr_H100_v5') }}"
    keep: 20
  register: certified

- name: Drain the nodes that were found to be at fault
  hpcai.gpu_cluster.slurm_node:
    name: "{{ item.name }}"
    state: drained
    reason: "{{ item.reason }}"
  loop: "{{ certified.drains }}"
  become: true

- name: Show what a certification of 64 nodes would take
  hpcai.gpu_cluster.certification:
    dir: /shared/certification
    agent: /shared/certification/hpcai-agent.pyz
    profile: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96isr_H100_v5') }}"
    hosts: gpu-[001-064]
    options:
      cost_per_gpu_hour: 3.5
  check_mode: true

- name: Certify repaired nodes inside their reservation, each rail by itself
  hpcai.gpu_cluster.certification:
    dir: /shared/certification
    run: repair-2026-11-02
    agent: /shared/certification/hpcai-agent.pyz
    profile: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4') }}"
    hosts: gpu-[003,017]
    reservation: repair
    options:
      rails: true
"""

RETURN = r"""
run:
  description: Name of the run.
  type: str
  returned: success
  sample: 20260105T100000Z
directory:
  description: Directory with everything about the run.
  type: str
  returned: success
  sample: /shared/certification/20260105T100000Z
resumed:
  description: Whether an unfinished run was continued.
  type: bool
  returned: success
  sample: false
removed:
  description:
    - Names of the runs that were removed because of O(keep), or in check mode would be removed.
    - A run is never removed that can still be continued, that is the newest one about a node, or that the reason of a
      drained node names.
  type: list
  elements: str
  returned: success
  sample: [20251201T100000Z]
plan:
  description: What the run takes at most.
  type: dict
  returned: success
  contains:
    nodes:
      description: Nodes that take part.
      type: int
      sample: 64
    untested:
      description: Nodes that are not idle.
      type: int
      sample: 0
    rounds:
      description: Rounds of pairs, with those for suspects.
      type: int
      sample: 7
    tests:
      description: Number of tests.
      type: int
      sample: 260
    wall_seconds:
      description: Duration in seconds.
      type: float
      sample: 2950.0
    node_hours:
      description: Node-hours.
      type: float
      sample: 41.2
    gpu_hours:
      description: GPU-hours.
      type: float
      sample: 329.6
    cost:
      description: Cost by C(cost_per_gpu_hour) of O(options), 0 without it.
      type: float
      sample: 0.0
    round_robin:
      description: Whether all nodes meet each other.
      type: bool
      sample: false
    text:
      description: The plan in lines for people.
      type: list
      elements: str
      sample: ["reach: 1 round, 64 tests, 0.2 min (who answers)"]
certificate:
  description: The certificate without its rounds, which are in C(certificate.json) of RV(directory).
  type: dict
  returned: not in check mode, or if the run was finished before
  contains:
    schema:
      description: Version of the format.
      type: int
      sample: 1
    run:
      description: Name of the run.
      type: str
      sample: 20260105T100000Z
    cluster:
      description: Value of O(cluster).
      type: str
      sample: ndv5
    profile:
      description: Name of the SKU profile.
      type: str
      sample: Standard_ND96isr_H100_v5
    time:
      description: End of the last test in seconds since the epoch.
      type: float
      sample: 1793612950.0
    seconds:
      description: Seconds from the first to the last test.
      type: float
      sample: 2412.0
    planned:
      description: Number of nodes of the request.
      type: int
      sample: 64
    reached:
      description: Number of nodes that were tested.
      type: int
      sample: 63
    nodes:
      description:
        - Entry of each node by its name. C(status) is V(cleared), V(watched), V(drained) or V(untested), C(posterior)
          the probability of a fault, C(reason) and C(class) say why, C(leaf) and C(physical_host) where it is,
          C(installation) is a digest of its machine ID, C(tests) and C(failed) count its tests with others.
      type: dict
      sample:
        gpu-003:
          status: drained
          posterior: 0.9992
          reason: "nccl_pair: busbw 12.1 GB/s"
          class: hardware
          leaf: leaf1
          physical_host: ""
          installation: 5d1ad4a2b8f10c3f9a6b7c20e4d81f55
          tests: 7
          failed: 7
    untested:
      description: Nodes that were not tested, with the reason.
      type: list
      elements: dict
      sample: [{node: gpu-044, reason: busy}]
    drains:
      description: Names of the nodes that should be drained.
      type: list
      elements: str
      sample: [gpu-003]
    miss_bound:
      description: Probability that a cleared node has a fault nevertheless, and how it follows.
      type: dict
    notes:
      description: What a reader must know about how it was judged.
      type: list
      elements: str
      sample: []
    findings:
      description:
        - What no single node explains, such as a slow leaf switch, with C(kind), C(text), C(nodes), C(suspects).
      type: list
      elements: dict
      sample: []
    ladder:
      description: Results of the wider collectives, with their width, value, unit, verdict and ratio to the median.
      type: list
      elements: dict
      sample: [{nodes: 64, hostlist: "gpu-[001-064]", collective: all_reduce, value: 401.2, unit: GB/s, verdict: pass}]
    plan:
      description: The plan, as RV(plan).
      type: dict
    options:
      description: All options of the planner.
      type: dict
    tools:
      description: Versions of the programs that measured.
      type: dict
    profile_sha256:
      description: SHA-256 of O(profile).
      type: str
    records_sha256:
      description: SHA-256 of C(records.jsonl) in RV(directory).
      type: str
    agent_sha256:
      description: SHA-256 of the agent that the nodes ran.
      type: str
    agent_source_sha256:
      description: SHA-256 of O(agent).
      type: str
checks:
  description:
    - Check records of all nodes and tests. Of more than 5000 only those with the verdicts V(fail), V(warn) and
      V(error), at most 5000.
  type: list
  elements: dict
  returned: not in check mode, or if the run was finished before
  sample:
    - {schema: 1, run: 20260105T100000Z, node: gpu-003, check: gpu_count, verdict: pass, class: null, reason: ""}
refused:
  description:
    - Nodes that are not cleared, findings, and what gave no result (a stage, or a run that tested no node), each with
      a text.
  type: list
  elements: dict
  returned: not in check mode, or if the run was finished before
  sample: [{status: drained, text: "gpu-003 is not certified: drained: nccl_pair: busbw 12.1 GB/s"}]
drains:
  description:
    - Nodes that should be drained, one entry for each class of fault, as M(hpcai.gpu_cluster.slurm_node) takes it.
  type: list
  elements: dict
  returned: not in check mode, or if the run was finished before
  contains:
    name:
      description: Nodes as a hostlist.
      type: str
      sample: gpu-[003,017]
    reason:
      description: Reason for Slurm.
      type: str
      sample: "hpcai:certification:hardware fault, run 20260105T100000Z"
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import module as certify_module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.module import SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import CampaignSlurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT, "SLURM_BITSTR_LEN": "0"}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    try:
        result = certify_module.perform(module.params, CampaignSlurm(run), module.check_mode)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot certify: {exc}")
    module.exit_json(**result.facts())


if __name__ == "__main__":
    main()
