# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup of the node agent, built from this collection."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_agent
short_description: The node agent of this collection as one file
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Builds C(hpcai-agent), which runs health checks on a node, reconciles drains on a controller and takes part in
    certifications, from this collection's module_utils, and returns where on this host the file is.
  - It needs nothing on the node but Python 3.8 and the standard library. The same collection makes the same bytes on
    every host, and the file's name is their SHA-256.
options:
  _terms: {description: None. The lookup takes no terms.}
  cache:
    description: Directory on this host for the file.
    type: path
    default: ~/.cache/hpcai.gpu_cluster/agent
  content:
    description: Return the file itself, in base64, in place of its path.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Install the agent
  ansible.builtin.copy:
    src: "{{ lookup('hpcai.gpu_cluster.node_agent') }}"
    dest: /usr/local/lib/hpcai/hpcai-agent.pyz
    mode: "0644"
"""

RETURN = r"""
_raw:
  description: Path of the file, or what is in it.
  type: list
  elements: path
  sample: [/home/admin/.cache/hpcai.gpu_cluster/agent/0f8b1f9c.pyz]
"""

import base64
import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import ProgramError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._zipapp import agent


class LookupModule(LookupBase):
    """Builds the agent and hands on its path."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        if terms:
            raise AnsibleLookupError(f"node_agent takes no terms, got {terms!r}")
        try:
            path = agent(self.get_option("cache"))
            return [base64.b64encode(path.read_bytes()).decode() if self.get_option("content") else str(path)]
        except (ProgramError, OSError) as exc:
            raise AnsibleLookupError(f"node_agent: {exc}") from exc
