# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup of the files that a node needs to run a part of the collection by itself."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_program
short_description: Return the files of a program that a node runs without Ansible
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Returns a file of the C(module_utils) of this collection and all files that it imports, with their packages, in the
    form that M(hpcai.gpu_cluster.service_current) takes. A program that runs at boot is thus the code of the modules.
  - The files import each other by their full names, so that they need nothing on the node but Python 3.8 and its
    standard library. An import of anything else is an error.
  - Imports are read from the source. An import by a name that the program computes is not found.
options:
  _terms:
    description:
      - Exactly one file of C(module_utils) by its name in imports, such as V(gpu.clocks_boot).
    required: true
  library:
    description:
      - Directory on the node for the files. It must belong to this program alone.
    type: path
    required: true
  program:
    description:
      - Path on the node of a script that calls O(function) and exits with what it returns. Without it there is no
        script.
    type: path
  function:
    description:
      - Function of the file that takes the list of arguments of the script.
    type: str
    default: main
  arguments:
    description:
      - Arguments that the script appends to those it is started with.
    type: list
    elements: str
    default: []
  file:
    description:
      - File on the control host with a module of your own, which the program consists of under the name of the term.
        What it imports of the C(module_utils) of this collection comes with it.
    type: path
  interpreter:
    description:
      - Path of Python on the node.
    type: path
    default: /usr/bin/python3
seealso:
  - module: hpcai.gpu_cluster.service_current
  - plugin: hpcai.gpu_cluster.node_agent
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Lock the GPU clocks at boot
  hpcai.gpu_cluster.service_current:
    name: hpcai-gpu-clocks
    files: "{{ program + unit }}"
  vars:
    program: "{{ lookup('hpcai.gpu_cluster.node_program', 'gpu.clocks_boot', library='/usr/local/lib/hpcai/gpu_clocks',
      program='/usr/local/sbin/hpcai-gpu-clocks', arguments=['/etc/hpcai/gpu_clocks.json']) }}"
    unit:
      - path: /etc/systemd/system/hpcai-gpu-clocks.service
        content: "{{ lookup('ansible.builtin.template', 'hpcai-gpu-clocks.service.j2') }}"
  become: true

- name: Show the files that the program consists of
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.node_program', 'gpu.clocks_boot', library='/opt/clocks')
      | map(attribute='path') }}"
"""

RETURN = r"""
_raw:
  description:
    - The files, each with C(path), C(content) and C(mode). Files of the library also have C(diff), which is V(false),
      so that diff mode does not show them. With O(program) the script is the last.
  type: list
  elements: list
  sample:
    - - path: /usr/local/lib/hpcai/gpu_clocks/ansible_collections/hpcai/gpu_cluster/plugins/module_utils/_process.py
        content: "# Copyright (c) 2026, the hpcai.gpu_cluster authors ..."
        mode: "0644"
        diff: false
      - {path: /usr/local/sbin/hpcai-gpu-clocks, content: "#!/usr/bin/python3 -IS ...", mode: "0755"}
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import ProgramError, files

OPTIONS = ("library", "program", "function", "arguments", "file", "interpreter")


class LookupModule(LookupBase):
    """Returns the files of one program as one element, so that ``lookup`` returns their list."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[list[dict[str, t.Any]]]:
        self.set_options(var_options=variables, direct=kwargs)
        if len(terms) != 1:
            raise AnsibleLookupError(f"node_program takes one name of a module_utils file, got {terms!r}")
        try:
            return [files(str(terms[0]), {name: self.get_option(name) for name in OPTIONS})]
        except (ProgramError, OSError) as exc:
            raise AnsibleLookupError(f"node_program: {exc}") from exc
