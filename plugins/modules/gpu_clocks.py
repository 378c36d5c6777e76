#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_clocks
short_description: Set the clocks of GPUs to their maximum, to given values or back
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Enables persistence mode, then locks the memory and graphics clocks of every NVIDIA GPU. A GPU without clock locks,
    or one that does not follow them, gets application clocks instead.
  - Reads the clocks afterwards, because the driver may accept a request and clip it. A clock that differs from the
    requested one fails the check. A clock that could not be changed or cannot be read is an error. The module itself
    fails only for invalid options.
  - C(nvidia-smi) does not report which clocks are locked. The locks are therefore kept in O(record) until the next boot
    and trusted while the current clocks do not contradict them. Without that file the clocks are set again, which is a
    change.
  - Clocks do not survive a reboot or a reload of the driver.
  - On a machine without GPUs of which none are expected the verdict is V(skipped).
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
attributes:
  check_mode:
    support: full
    details:
      - The prediction assumes that the GPUs support clock locks and accept them. The verdict is V(skipped).
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(maximum) sets the highest clocks that each GPU reports, V(locked) those of O(graphics) and O(memory).
      - V(reset) returns the clocks to the driver. It removes locks that this module set, locks of others that keep an
        idle GPU at its highest graphics clock, and application clocks that are not the default ones.
    type: str
    default: maximum
    choices: [maximum, locked, reset]
  graphics:
    description:
      - Graphics clock in MHz, at most that of the GPU. Only allowed with O(state=locked), which needs this or
        O(memory). Without it the graphics clock is left alone.
    type: int
  memory:
    description:
      - Memory clock in MHz, at most that of the GPU. Only allowed with O(state=locked), which needs this or
        O(graphics). Without it the memory clock is left alone.
    type: int
  persistence:
    description:
      - Whether to enable persistence mode. V(false) leaves it as it is, except that O(state=reset) disables it again if
        this module enabled it.
      - By default it is enabled, and with O(state=reset) disabled again if this module enabled it.
    type: bool
  devices:
    description:
      - Indexes of the GPUs to change, as C(nvidia-smi) numbers them. A GPU that does not exist is an error.
      - By default all GPUs.
    type: list
    elements: int
  program:
    description:
      - C(nvidia-smi) to run, as a name on E(PATH) or a path.
    type: path
    default: nvidia-smi
  record:
    description:
      - File that keeps what was locked. It should be on a file system that a boot empties, as the boot ends the locks.
        Its directory is created if it is absent.
    type: path
    default: /run/hpcai/gpu_clocks.json
  settle:
    description:
      - Seconds to wait at most until the clocks show what was set. V(0) reads them once.
    type: float
    default: 3
  timeout:
    description:
      - Seconds for each call of C(nvidia-smi).
    type: float
    default: 30
requirements:
  - nvidia-smi of the NVIDIA driver
notes:
  - Changing clocks needs root privileges.
seealso:
  - module: hpcai.gpu_cluster.gpu_info
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Set all GPUs to their highest clocks
  hpcai.gpu_cluster.gpu_clocks:
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
    profile: Standard_ND96asr_v4
  become: true
  register: clocks

- name: Stop where the clocks were not reached
  ansible.builtin.assert:
    that: clocks.check.verdict in ['pass', 'skipped']
    fail_msg: "{{ clocks.check.reason }}"

- name: Lock two GPUs to given clocks for a comparison
  hpcai.gpu_cluster.gpu_clocks:
    state: locked
    graphics: 1200
    memory: 1215
    devices: [0, 1]
  become: true

- name: Return the clocks of all GPUs to the driver
  hpcai.gpu_cluster.gpu_clocks:
    state: reset
  become: true
"""

RETURN = r"""
check:
  description: The check record.
  type: dict
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
      sample: gpu_clocks
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 1.9
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
      sample: config
    reason:
      description: What is wrong, or why nothing was measured, in one line. Empty where there is nothing to explain.
      type: str
      sample: "GPU 3: graphics clock is 1155 MHz instead of 1410 MHz, limited by sw_power_cap"
    scope:
      description: Indexes of the GPUs that the finding is about, as C(gpu).
      type: dict
      sample: {gpu: [3]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - They are C(graphics) and C(memory) in MHz and C(persistence) (0 or 1), with the index of the GPU as the label
          C(gpu). The requested clocks are limits, too.
      type: list
      elements: dict
      sample:
        - name: graphics
          value: 1155
          unit: MHz
          gpu: 3
          expected: ">= 1395"
          source: this is what was asked for
          ratio: 0.828
          verdict: fail
    samples:
      description: The entries of RV(gpus). Empty if the clocks were not judged, as in check mode.
      type: list
      elements: dict
      sample: [{index: 3, requested: {graphics: 1410, memory: 1215}, reached: {graphics: 1155, memory: 1215}}]
    evidence:
      description: Always empty.
      type: str
      sample: ""
    context:
      description: Program that measured, its version and command line, O(profile), and what else explains the values.
      type: dict
      sample: {tool: nvidia-smi, version: 550.90.07, argv: [nvidia-smi], state: maximum, profile: Standard_ND96asr_v4}
commands:
  description: Calls of C(nvidia-smi) that changed something, or in check mode would.
  type: list
  elements: list
  returned: success
  sample:
    - [nvidia-smi, -i, "00000001:00:00.0", -pm, "1"]
    - [nvidia-smi, -i, "00000001:00:00.0", -lgc, "1410,1410"]
gpus:
  description: Each GPU before and after the change. Null is a clock that is not set or unknown.
  type: list
  elements: dict
  returned: success
  contains:
    index:
      description: Index of the GPU.
      type: int
      sample: 0
    uuid:
      description: UUID.
      type: str
      sample: GPU-b01e9f90-c60c-4ad1-2052-154833662357
    bus_id:
      description: PCI bus id.
      type: str
      sample: "00000001:00:00.0"
    name:
      description: Product name.
      type: str
      sample: A100-SXM4-40GB
    before:
      description: Persistence mode, locked clocks and application clocks in MHz before the change.
      type: dict
      sample:
        persistence: false
        locked_graphics: null
        locked_memory: null
        application_graphics: 1095
        application_memory: 1215
    after:
      description: The same after the change, or in check mode as it would be.
      type: dict
      sample:
        persistence: true
        locked_graphics: 1410
        locked_memory: 1215
        application_graphics: 1095
        application_memory: 1215
    requested:
      description: Requested clocks in MHz, null where a clock is left alone.
      type: dict
      sample: {graphics: 1410, memory: 1215}
    reached:
      description: Clocks in MHz that the GPU shows, null where an idle GPU does not show them. Empty in check mode.
      type: dict
      sample: {graphics: 1410, memory: 1215}
    supported:
      description: Highest clocks of the GPU in MHz.
      type: dict
      sample: {graphics: 1410, memory: 1215}
    method:
      description:
        - How each clock is set, V(locked), V(application), V(nothing) where the GPU does not support it, or empty where
          it is not set.
      type: dict
      sample: {graphics: locked, memory: locked}
    reasons:
      description: Reasons of the driver why the clocks are below their maximum.
      type: list
      elements: str
      sample: [gpu_idle]
    problems:
      description: What could not be set, and why.
      type: list
      elements: str
      sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import clocks_module


def main() -> None:
    module = AnsibleModule(
        argument_spec=clocks_module.SPEC, required_if=clocks_module.REQUIRED_IF, supports_check_mode=True
    )
    try:
        result = clocks_module.perform(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot set the clocks of GPUs: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
