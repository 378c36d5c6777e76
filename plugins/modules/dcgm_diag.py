#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm_diag
short_description: Run the diagnostics of NVIDIA DCGM on a node
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs C(dcgmi diag) of DCGM 3 or 4 at one of its four levels, or some of its tests by name, and makes a check record
    of its JSON. Level 1 looks at libraries, settings and counters and takes seconds, level 2 takes about 2 minutes,
    level 3 about 15 minutes, level 4 an hour or two.
  - A test that fails is V(fail). Its class comes from the category that DCGM gives the error, hardware, configuration
    or software, and C(action) in RV(checks[].context) from its severity, V(isolate), V(reset) or V(monitor). An
    internal error of DCGM is V(error), which says nothing about the node. An error beside a test that passed is
    V(warn).
  - Tests that DCGM skips or does not run are named in the reason and are no passes. If it skips all of them, the
    verdict is V(skipped).
  - From level 2 on, and for tests by name, the GPUs compute. While other programs compute on one of them nothing is run
    and the verdict is V(skipped). There is no option to run beside a job.
  - Without the host engine C(nv-hostengine), without a GPU, while another diagnostic runs, while DCGM is paused, in
    check mode, and on nodes that have jobs (O(launcher=srun)) the verdict is V(skipped). Without C(dcgmi), with output
    that is not that of DCGM 3 or 4, and with a number of GPUs other than O(gpus) it is V(error). The module itself
    fails only for invalid options.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.launch
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
attributes:
  check_mode:
    support: partial
    details:
      - In check mode nothing is run, and the verdict is V(skipped).
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  level:
    description:
      - Level of C(dcgmi diag), which includes the tests of all levels below. It is ignored if O(tests) is set.
    type: int
    default: 1
    choices: [1, 2, 3, 4]
  tests:
    description:
      - Tests to run by their names instead of a level, such as V(pcie) or V(memory_bandwidth). The names differ between
        DCGM 3 and 4; a name that DCGM does not know is an error.
    type: list
    elements: str
    default: []
  parameters:
    description:
      - Parameters of tests as C(test.name), such as C(targeted_power.test_duration). Names and values are DCGM's own.
    type: dict
    default: {}
  gpus:
    description:
      - Number of GPUs that DCGM has to see, or the list of those to test, by DCGM's own numbers. By default all that
        DCGM sees are tested, and their number is not checked.
    type: raw
  path:
    description:
      - The program C(dcgmi), or the directory that holds it. With O(launcher=mpirun) and O(launcher=srun) it is the
        program on the node.
      - By default E(PATH) is searched, then V(/usr/bin) and V(/usr/local/bin).
    type: str
  embedded:
    description:
      - Run without C(nv-hostengine) as well. C(dcgmi diag) then starts a host engine of its own that ends with it,
        which needs root.
      - With V(false) the host engine is queried first, and without one nothing is run.
    type: bool
    default: false
  timeout:
    description:
      - Seconds after which C(dcgmi) is ended. It has the host engine stop the tests when it is told to end.
      - The default is 120 at level 1, 900 at level 2, 3600 at level 3, and 14400 at level 4 and with O(tests).
    type: float
requirements:
  - DCGM 3 or 4 (C(datacenter-gpu-manager), C(datacenter-gpu-manager-4-cuda12) or another of its packages)
notes:
  - The tests run in the host engine, on a single node, so that O(nodes) and O(ranks_per_node) must be 1, and
    O(container_image) and O(cpu_masks) are refused.
  - No profiling is started or paused here. DCGM's profiling metrics and Nsight tools exclude each other; whoever
    collects such metrics pauses them with C(dcgmi profile --pause) for a profiler.
  - A E(CUDA_VISIBLE_DEVICES) of the caller is not handed to C(dcgmi). It would not restrict the tests.
seealso:
  - module: hpcai.gpu_cluster.dcgm_health
  - module: hpcai.gpu_cluster.gpu_info
  - name: DCGM Diagnostics
    description: What the tests of each level do.
    link: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
"""

EXAMPLES = r"""
- name: Check libraries, settings and counters of a node in seconds
  hpcai.gpu_cluster.dcgm_diag:
    gpus: 8
  register: diag

- name: Test the hardware of an idle node for a quarter of an hour
  hpcai.gpu_cluster.dcgm_diag:
    level: 3
    gpus: 8

- name: Test memory and PCIe of two GPUs
  hpcai.gpu_cluster.dcgm_diag:
    tests: [memtest, pcie]
    gpus: [2, 3]
    parameters:
      memtest.test_duration: 120

- name: Test a node through Slurm, which leaves it alone while it has jobs
  hpcai.gpu_cluster.dcgm_diag:
    launcher: srun
    hosts: [gpu-001]
    launcher_options:
      partition: gpu
    level: 2

- name: Show which tests did not pass
  ansible.builtin.debug:
    msg: "{{ diag.tests | rejectattr('status', 'equalto', 'pass') | map(attribute='name') }}"
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
      sample: dcgm_diag
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 812.4
    verdict:
      description:
        - V(pass), V(warn) and V(fail) are what DCGM found. V(unjudged) means that programs came onto the GPUs while
          they were tested, V(skipped) that nothing was tested, V(error) that DCGM itself did not work, which says
          nothing about the hardware.
      type: str
      sample: fail
    class:
      description:
        - What a V(warn) or V(fail) is attributed to, V(hardware), V(config) or V(software). With V(error) it is
          V(infra), with the other verdicts null.
      type: str
      sample: hardware
    reason:
      description: What is wrong, in DCGM's words, with its advice, the worst first; and which tests were not run.
      type: str
      sample: >-
        memory on GPU 5: Found 2 faulty memory elements on GPU 5 Run a field diagnostic on the GPU.; not tested: eud
    scope:
      description: DCGM's numbers of the GPUs that the finding is about, as C(gpu).
      type: dict
      sample: {gpu: [5]}
    metrics:
      description:
        - Number of tests that C(failed) and that were C(skipped), each in tests, with what O(expect) says of it.
      type: list
      elements: dict
      sample:
        - {name: failed, value: 1, unit: tests, expected: null, source: null, ratio: null, verdict: unjudged}
        - {name: skipped, value: 1, unit: tests, expected: null, source: null, ratio: null, verdict: unjudged}
    samples:
      description: Name, category and status of every test.
      type: list
      elements: dict
      sample: [{test: memory, category: Hardware, status: fail}]
    evidence:
      description: End of the output, unless the verdict is V(pass).
      type: str
      sample: ""
    context:
      description:
        - Program, versions of DCGM and of the driver, command line, level or tests, O(profile).
        - With a finding also C(code), the number of the worst error in DCGM's C(dcgm_errors.h), and C(action), what its
          severity asks for. An error whose severity asks for triage or configuration has no action.
        - Where C(dcgmi) is not installed, C(missing) has its name.
      type: dict
      sample:
        tool: dcgmi diag
        version: 4.4.2
        driver: 570.148.08
        path: /usr/bin/dcgmi
        argv: [/usr/bin/dcgmi, diag, -j, -r, "3"]
        level: 3
        profile: null
        code: 52
        action: isolate
tests:
  description: All tests that DCGM reported, empty if it reported none.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name as DCGM prints it, which differs between DCGM 3 and 4.
      type: str
      sample: memory
    category:
      description: V(Deployment), V(Hardware), V(Integration) or V(Stress).
      type: str
      sample: Hardware
    status:
      description: The worst of its results, V(pass), V(fail), V(warn), V(skip), V(not_run) or V(unknown).
      type: str
      sample: fail
    results:
      description: Results for each entity, such as a GPU; entity and number are null where it is about all of them.
      type: list
      elements: dict
      sample:
        - entity: GPU
          id: 5
          status: fail
          errors:
            - text: Found 2 faulty memory elements on GPU 5 Run a field diagnostic on the GPU.
              code: 52
              severity: isolate
              category: hardware_memory
          info: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import dcgm


def main() -> None:
    module = AnsibleModule(argument_spec={**_launch.SPEC, **dcgm.DIAG_SPEC}, supports_check_mode=True)
    try:
        result = dcgm.diag(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot run the DCGM diagnostics: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
