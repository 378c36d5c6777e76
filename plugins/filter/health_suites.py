# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter that draws the agent's suites."""

from __future__ import annotations

DOCUMENTATION = r"""
name: health_suites
short_description: Return the suites of the node agent's configuration
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Completes the suites of a site for the configuration of the node agent. Suites and checks that the agent does not
    know are errors, as are budgets for which Slurm would not wait, 5 s in V(prolog) and 50 s in V(periodic).
  - With another health checker as O(program), the periodic suite passes on what that one found, and beside healthagent
    leaves out the checks that healthagent makes itself.
positional: program
options:
  _input:
    description:
      - Suites that differ from those of the agent, by name (V(boot), V(prolog), V(epilog), V(periodic), V(full)). Each
        has C(checks), a list of names, C(budget) in seconds, or both.
    type: dict
    required: true
  program:
    description:
      - Health checker that Slurm runs periodically on the nodes.
    type: str
    choices:
      - agent
      - nhc
      - healthagent
    default: agent
"""

EXAMPLES = r"""
- name: Show what is left to the agent beside healthagent
  ansible.builtin.debug:
    msg: "{{ {} | hpcai.gpu_cluster.health_suites('healthagent') }}"

- name: Give the prolog of Slurm two seconds
  ansible.builtin.set_fact:
    suites: "{{ {'prolog': {'budget': 2}} | hpcai.gpu_cluster.health_suites }}"
"""

RETURN = r"""
_value:
  description:
    - The suites that differ from those of the agent, in the form of its configuration.
  type: dict
  sample: {periodic: {checks: [latches, disk_space, healthagent]}}
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import ConfigError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_suites import suites


def health_suites(site_suites: t.Any, program: str = "agent") -> dict[str, t.Any]:
    """Draw the suites."""
    if not isinstance(site_suites, t.Mapping):
        raise AnsibleFilterError(f"health_suites takes a dictionary, not {type(site_suites).__name__}")
    try:
        return suites(site_suites, program)
    except ConfigError as exc:
        raise AnsibleFilterError(f"health_suites: {exc}") from exc


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"health_suites": health_suites}
