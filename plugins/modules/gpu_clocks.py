#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_clocks
short_description: Bring the clocks of GPUs to their maximum, to given values or back
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Switches persistence mode on, then locks the memory and graphics clocks of every NVIDIA GPU. A GPU without locks,
    or one that does not show that it follows them, gets application clocks.
  - Reads the clocks afterwards, because a request may be accepted and clipped. A clock that differs from what was asked
    for fails the check; what could not be changed or cannot be seen is an error. The module itself fails only for
    options that make no sense.
  - nvidia-smi does not tell which clocks are locked. What was locked is kept in O(record) until the next boot, and
    believed while the present clocks do not contradict it. Without that file clocks are set again, which is a change.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
attributes:
  check_mode: {support: full, details: [It supposes that the GPUs have locks and take what they are told.]}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state:
    type: str
    default: maximum
    choices: [maximum, locked, reset]
    description: The GPU's highest clocks, those in O(graphics) and O(memory), or those that its driver chooses.
  graphics: {type: int, description: Graphics clock in MHz for O(state=locked).}
  memory: {type: int, description: Memory clock in MHz for O(state=locked).}
  persistence:
    type: bool
    description: Persistence mode; V(false) leaves it. By default on, and with O(state=reset) as it was before.
  devices: {type: list, elements: int, description: Indexes of the GPUs to change; all by default.}
  program: {type: path, default: nvidia-smi, description: The nvidia-smi to use.}
  record: {type: path, default: /run/hpcai/gpu_clocks.json, description: File that keeps what was locked.}
  settle: {type: float, default: 3, description: Seconds to wait until the clocks show what was set.}
  timeout: {type: float, default: 30, description: Seconds for every call of nvidia-smi.}
"""

EXAMPLES = r"""
- name: Run all GPUs as fast as they can
  hpcai.gpu_cluster.gpu_clocks:
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', cluster_sku).expect }}"

- name: Give them back to the driver
  hpcai.gpu_cluster.gpu_clocks:
    state: reset
"""

RETURN = r"""
check: {type: dict, returned: success, description: The check record.}
commands:
  {type: list, elements: list, returned: success, description: What was sent or in check mode would be,
   sample: [[nvidia-smi, -i, "00000001:00:00.0", -lgc, "1410,1410"]]}
gpus:
  type: list
  elements: dict
  returned: success
  description: What each GPU was, was asked for and became. C(method) is locked, application, nothing or empty.
  sample:
    - index: 0
      uuid: GPU-b01e9f90-c60c-4ad1-2052-154833662357
      bus_id: "00000001:00:00.0"
      name: A100-SXM4-40GB
      before: {persistence: false, locked_graphics: null, locked_memory: null,
               application_graphics: 1095, application_memory: 1215}
      after: {persistence: true, locked_graphics: 1410, locked_memory: 1215,
              application_graphics: 1095, application_memory: 1215}
      requested: {graphics: 1410, memory: 1215}
      reached: {graphics: 1410, memory: 1215}
      supported: {graphics: 1410, memory: 1215}
      method: {graphics: locked, memory: locked}
      reasons: [gpu_idle]
      problems: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import CheckError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_task import Options, perform


def main() -> None:
    spec = {
        "state": {"type": "str", "default": "maximum", "choices": ["maximum", "locked", "reset"]},
        "graphics": {"type": "int"},
        "memory": {"type": "int"},
        "persistence": {"type": "bool"},
        "devices": {"type": "list", "elements": "int"},
        "program": {"type": "path", "default": "nvidia-smi"},
        "record": {"type": "path", "default": "/run/hpcai/gpu_clocks.json"},
        "settle": {"type": "float", "default": 3},
        "timeout": {"type": "float", "default": 30},
        **_measure.SPEC,
        **_measure.NODE,
    }
    required = [("state", "locked", ["graphics", "memory"], True)]
    module = AnsibleModule(argument_spec=spec, required_if=required, supports_check_mode=True)
    try:
        result = perform(Options(**module.params), module.check_mode)
    except CheckError as exc:
        module.fail_json(msg=f"Cannot set the clocks of GPUs: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
