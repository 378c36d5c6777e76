# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup of the node agent, built from this collection."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_agent
short_description: Build the node agent of this collection as one file
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Builds C(hpcai-agent) on the control host and returns the path of the file. The agent runs health checks on a node,
    reconciles drains on a controller and takes part in certifications.
  - On a node it needs nothing but Python 3.8 and its standard library. The same version of the collection makes the
    same bytes on every host, and the name of the file is their SHA-256 digest.
options:
  _terms:
    description:
      - The lookup takes no terms.
  cache:
    description:
      - Directory on the control host for the file. A file that is there is used again. The default is C(agent) in
        O(cache_dir).
    type: path
  content:
    description:
      - Whether to return the content of the file in base64 instead of its path.
    type: bool
    default: false
extends_documentation_fragment: [hpcai.gpu_cluster.cache_dir]
seealso:
  - plugin: hpcai.gpu_cluster.cache_dir
    plugin_type: lookup
  - plugin: hpcai.gpu_cluster.node_program
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Install the agent on a node
  ansible.builtin.copy:
    src: "{{ lookup('hpcai.gpu_cluster.node_agent') }}"
    dest: /usr/local/lib/hpcai/hpcai-agent.pyz
    owner: root
    group: root
    mode: "0644"
  become: true

- name: Build the agent into a directory of the project
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.node_agent', cache=playbook_dir ~ '/files/agent') }}"

- name: Write the agent into a file of an archive, from its content
  ansible.builtin.copy:
    content: "{{ lookup('hpcai.gpu_cluster.node_agent', content=true) }}"
    dest: /srv/bundle/hpcai-agent.pyz.b64
    mode: "0644"
"""

RETURN = r"""
_raw:
  description:
    - Path of the file, or its content in base64 with O(content=true).
  type: list
  elements: path
  sample:
    - /home/admin/.cache/hpcai.gpu_cluster/agent/0f8b1f9c5d0c3a7be6f1d1c7c7a4a9f0b5d7d6b3d4f2a1908f7e6d5c4b3a2910.pyz
"""

import base64
import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._cache_dir import directory
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import ProgramError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._zipapp import agent


class LookupModule(LookupBase):
    """Builds the agent and returns its path or its content."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        if terms:
            raise AnsibleLookupError(f"node_agent takes no terms, got {terms!r}")
        try:
            path = agent(self.get_option("cache") or directory(self.get_option("cache_dir")) / "agent")
            return [base64.b64encode(path.read_bytes()).decode() if self.get_option("content") else str(path)]
        except (ProgramError, OSError) as exc:
            raise AnsibleLookupError(f"node_agent: {exc}") from exc
