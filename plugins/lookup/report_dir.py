# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup of the report directory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: report_dir
short_description: Return the directory of the run record and the report
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Returns the directory in which the callback P(hpcai.gpu_cluster.run_record#callback) keeps C(run.json), from the
    same settings. P(ansible.builtin.config#lookup) does not know the options of plugins in collections.
  - The lookup takes no terms.
extends_documentation_fragment: [hpcai.gpu_cluster.report_dir]
seealso:
  - plugin: hpcai.gpu_cluster.run_record
    plugin_type: callback
  - plugin: hpcai.gpu_cluster.report_html
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show where the report is
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.report_dir') }}/report.html"

- name: Draw the report beside the run record
  ansible.builtin.copy:
    content: "{{ lookup('ansible.builtin.file', directory ~ '/run.json') | from_json
      | hpcai.gpu_cluster.report_html }}"
    dest: "{{ directory }}/report.html"
    mode: "0644"
  delegate_to: localhost
  vars:
    directory: "{{ lookup('hpcai.gpu_cluster.report_dir') }}"
"""

RETURN = r"""
_raw:
  description:
    - The directory, as one element.
  type: list
  elements: path
  sample: [/home/admin/cluster/reports]
"""

import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    """Returns the option ``report_dir``."""

    def run(self, terms: list[t.Any], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        if terms:
            raise AnsibleError(f"report_dir takes no terms, got {terms!r}")
        self.set_options(var_options=variables, direct=kwargs)
        return [str(self.get_option("report_dir"))]
