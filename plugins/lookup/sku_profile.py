# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: sku_profile
short_description: What a machine type is and what is expected of it
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Returns the profile of a machine type. An unknown one gets the profile C(generic), which expects nothing, so that
    its measurements stay V(unjudged).
options:
  _terms: {description: Machine types (SKU names), required: true}
  overrides:
    description:
      - A partial profile that a site puts over the shipped one.
      - An entry of C(expect) replaces the shipped one for the same check, metric and labels, and is added otherwise.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show the floors of a machine type
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.sku_profile', cluster_sku, overrides=site_profile).expect }}"
"""

RETURN = r"""
_raw:
  description: One profile per machine type.
  type: list
  elements: dict
  sample:
    - sku: lab
      known: true
      profile: lab
      expect:
        - {check: node_checks, metric: skew, op: "<=", value: 5, unit: s, source: "how the value was found"}
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load, override


class LookupModule(LookupBase):
    """Hands the profile of each term on."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[dict[str, t.Any]]:
        self.set_options(var_options=variables, direct=kwargs)
        try:
            return [override(load(str(term)), self.get_option("overrides")) for term in terms]
        except (ValueError, OSError) as exc:
            raise AnsibleLookupError(f"sku_profile: {exc}") from exc
