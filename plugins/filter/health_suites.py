# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter that draws the agent's suites."""

from __future__ import annotations

DOCUMENTATION = r"""
name: health_suites
short_description: Draw the suites of the node agent's configuration
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Refuses suites and checks that the agent does not know, and budgets that Slurm would not wait for.
  - Beside another health checker the periodic suite hands on what that one found, and leaves to it what it watches.
positional: program
options:
  _input:
    description: "What the site wants otherwise: for each suite C(checks), C(budget) or both."
    type: dict
    required: true
  program:
    description: Who checks the node now and then.
    type: str
    choices: [agent, nhc, healthagent]
    default: agent
"""

EXAMPLES = r"""
- name: Show what is left to the agent beside healthagent
  ansible.builtin.debug:
    msg: "{{ {} | hpcai.gpu_cluster.health_suites('healthagent') }}"
"""

RETURN = r"""
_value:
  description: The suites.
  type: dict
  sample: {periodic: {checks: [latches, disk_space, healthagent]}}
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.config import ConfigError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_suites import suites


def health_suites(given: t.Any, program: str = "agent") -> dict[str, t.Any]:
    """Draw the suites."""
    if not isinstance(given, t.Mapping):
        raise AnsibleFilterError(f"health_suites takes a dictionary, not {type(given).__name__}")
    try:
        return suites(given, program)
    except ConfigError as exc:
        raise AnsibleFilterError(f"health_suites: {exc}") from exc


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"health_suites": health_suites}
