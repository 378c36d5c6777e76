# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter that tells whether a node's scratch stands and where its disks can be measured."""

from __future__ import annotations

DOCUMENTATION = r"""
name: scratch_use
short_description: Tell whether a node's scratch stands, and where its disks can be measured
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Judges what M(hpcai.gpu_cluster.nvme_scratch) found in check mode, in which its record tells what the node would be
    like after the commands that it lists.
options:
  _input: {description: A result of M(hpcai.gpu_cluster.nvme_scratch)., type: dict, required: true}
  idle: {description: Whether the node has no jobs, which a measurement would slow., type: bool, default: true}
  more: {description: Further directories to measure., type: list, elements: str, default: []}
"""

EXAMPLES = r"""
- name: Check the scratch, and change nothing
  hpcai.gpu_cluster.nvme_scratch:
    count: 8
  check_mode: true
  register: scratch

- name: Measure it
  hpcai.gpu_cluster.storage_bandwidth:
    paths: "{{ (scratch | hpcai.gpu_cluster.scratch_use)['paths'] }}"
  when: not (scratch | hpcai.gpu_cluster.scratch_use)['skipped']
"""

RETURN = r"""
_value:
  description:
    - C(check) is the record of the scratch; V(fail) while commands are missing that make or mount it.
    - C(paths) are the directories to measure.
    - C(skipped) is the record of a measurement that cannot be made, with the reason; null when it can.
  type: dict
  sample: {check: {check: nvme_scratch, verdict: pass}, paths: [/mnt/resource_nvme], skipped: null}
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.use import use


def scratch_use(found: t.Any, idle: bool = True, more: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """Judge a result of nvme_scratch."""
    if not isinstance(found, t.Mapping) or not {"check", "commands", "path", "source"} <= set(found):
        raise AnsibleFilterError(
            "scratch_use wants a result of nvme_scratch that holds check, commands, path and source"
        )
    return use(found, bool(idle), list(more))


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"scratch_use": scratch_use}
