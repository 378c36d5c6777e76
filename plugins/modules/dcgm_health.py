#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm_health
short_description: Read what the health watches of NVIDIA DCGM found
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Asks the host engine of DCGM 3 or 4 with C(dcgmi health -c -j) what its health watches found on the GPUs, NVSwitches
    and ConnectX adapters of this machine since they were enabled, and makes a check record of it. The host engine
    collects the values by itself, every 30 seconds by default, so that the question costs little and may be asked
    beside a job.
  - An incident that DCGM calls a failure is V(fail), a warning is V(warn). The class is V(hardware), V(fabric) for
    ConnectX adapters, and V(software) or V(config) where the message is about IMEX, the Fabric Manager or a
    configuration.
  - If C(nv-hostengine) does not run, or no watch is enabled, the verdict is V(skipped). Without C(dcgmi), or with
    output that is not that of DCGM 3 or 4, it is V(error). The module itself fails only for invalid options.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  enable_watches:
    description:
      - Enable all health watches of all GPUs with C(dcgmi health -s a) if none is enabled, and report C(changed). The
        verdict is V(skipped) then, as most watches need a minute before they can say anything.
      - Watches that somebody has chosen stay as they are. A restart of C(nv-hostengine) forgets all of them.
    type: bool
    default: false
  path:
    description:
      - The program C(dcgmi), or the directory that holds it.
      - By default E(PATH) is searched, then V(/usr/bin) and V(/usr/local/bin).
    type: str
  timeout:
    description:
      - Seconds after which C(dcgmi) is ended.
    type: float
    default: 20
requirements:
  - DCGM 3 or 4 with a running C(nv-hostengine) (service C(nvidia-dcgm))
notes:
  - Health watches use no profiling metrics, so they do not get in the way of Nsight tools.
seealso:
  - module: hpcai.gpu_cluster.dcgm_diag
  - module: hpcai.gpu_cluster.gpu_info
"""

EXAMPLES = r"""
- name: Ask what the health watches found
  hpcai.gpu_cluster.dcgm_health:
  register: health

- name: Enable the watches where none is, to ask later
  hpcai.gpu_cluster.dcgm_health:
    enable_watches: true

- name: Stop where DCGM reports a failure
  ansible.builtin.assert:
    that: health.checks[0].verdict != 'fail'
    fail_msg: "{{ health.checks[0].reason }}"
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
      description: O(name), by default the short host name.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: dcgm_health
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 0.09
    verdict:
      description:
        - V(pass), V(warn) and V(fail) are DCGM's Healthy, Warning and Failure. V(skipped) means that DCGM does not
          watch, V(error) that the check itself did not work, which says nothing about the hardware.
      type: str
      sample: fail
    class:
      description:
        - What a V(warn) or V(fail) is attributed to, V(hardware), V(fabric), V(config) or V(software). With V(error) it
          is V(infra), with the other verdicts null.
      type: str
      sample: hardware
    reason:
      description: What is wrong, in DCGM's words, with its advice, the worst first.
      type: str
      sample: >-
        Memory system of GPU 3: Detected 1 volatile double-bit ECC error(s) in GPU 3. Drain the GPU and reset it or
        reboot the node.
    scope:
      description: DCGM's numbers of the GPUs that the finding is about, as C(gpu).
      type: dict
      sample: {gpu: [3]}
    metrics:
      description: Number of C(failures) and C(warnings), each in incidents, with what O(expect) says of it.
      type: list
      elements: dict
      sample:
        - {name: failures, value: 1, unit: incidents, expected: null, source: null, ratio: null, verdict: unjudged}
        - {name: warnings, value: 0, unit: incidents, expected: null, source: null, ratio: null, verdict: unjudged}
    samples:
      description: Always empty.
      type: list
      elements: dict
      sample: []
    evidence:
      description: End of the output, unless the verdict is V(pass).
      type: str
      sample: ""
    context:
      description:
        - Program and command line, O(profile), and with a finding C(action), what it asks for, V(isolate), V(reboot),
          V(reset) or V(monitor).
        - Where C(dcgmi) is not installed, C(missing) has its name.
      type: dict
      sample:
        tool: dcgmi health
        version: null
        path: /usr/bin/dcgmi
        argv: [/usr/bin/dcgmi, health, -c, -j]
        profile: null
        action: isolate
incidents:
  description: All incidents, empty if there are none or nothing could be read.
  type: list
  elements: dict
  returned: success
  contains:
    entity:
      description: Kind of the thing that it is about, V(GPU), V(Switch), V(ConnectX) or another of DCGM's.
      type: str
      sample: GPU
    id:
      description: DCGM's number of it.
      type: int
      sample: 3
    system:
      description:
        - Subsystem as DCGM prints it. What is about all of a GPU, or about an NVSwitch, is C(Internal error) there.
      type: str
      sample: Memory system
    health:
      description: V(Warning) or V(Failure).
      type: str
      sample: Failure
    text:
      description: The message, with DCGM's advice.
      type: str
      sample: Detected 1 volatile double-bit ECC error(s) in GPU 3. Drain the GPU and reset it or reboot the node.
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import dcgm


def main() -> None:
    module = AnsibleModule(argument_spec=dcgm.HEALTH_SPEC, supports_check_mode=True)
    try:
        result = dcgm.health(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot ask DCGM for its health watches: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
