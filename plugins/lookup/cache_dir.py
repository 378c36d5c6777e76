# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup of the control host's cache."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cache_dir
short_description: Return the directory on the control host for sources, packages and wheels
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Returns the directory in which all roles of this collection keep what they need not fetch or build again. A job of
    AWX has no home that lasts, so this one setting points all of them to a volume, or into the job's own directory.
  - The directory is not made.
options:
  _terms:
    description:
      - Names of directories in it, one below the other. Without any the directory itself is returned.
    type: list
    elements: str
extends_documentation_fragment: [hpcai.gpu_cluster.cache_dir]
seealso:
  - plugin: hpcai.gpu_cluster.node_agent
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show where wheels are kept
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.cache_dir', 'wheelhouse') }}"

- name: Keep everything in a directory that was mounted into the job
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.cache_dir') }}"
  vars:
    cluster_cache_dir: /mnt/hpcai-cache

- name: Remove what was kept
  ansible.builtin.file:
    path: "{{ lookup('hpcai.gpu_cluster.cache_dir') }}"
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
_raw:
  description:
    - The directory, as one element.
  type: list
  elements: path
  sample: [/home/admin/.cache/hpcai.gpu_cluster/wheelhouse]
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._cache_dir import directory


class LookupModule(LookupBase):
    """Returns the option ``cache_dir``, or what stands for it."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        if not all(isinstance(term, str) for term in terms):
            raise AnsibleLookupError(f"cache_dir takes names of directories, got {terms!r}")
        return [str(directory(self.get_option("cache_dir")).joinpath(*terms))]
