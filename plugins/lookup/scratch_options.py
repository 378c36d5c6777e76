# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup of the options of a node's scratch, for roles that check it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: scratch_options
short_description: Return what the scratch of a node has to be
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Returns those options of M(hpcai.gpu_cluster.nvme_scratch) that say which disks it uses and what it makes of them.
  - Each is taken from the variable C(nvme_scratch_<option>) of the host, else from the profile (C(models) and C(fewer)
    from its C(nvme.controller) and C(nvme.fewer)), else from the defaults of the module.
options:
  _terms:
    description:
      - Exactly one profile of P(hpcai.gpu_cluster.sku_profile#lookup), or an empty mapping.
    required: true
seealso:
  - module: hpcai.gpu_cluster.nvme_scratch
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show what the scratch of this host has to be
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.scratch_options', lookup('hpcai.gpu_cluster.sku_profile', cluster_sku)) }}"

- name: Show the file system that the variables of this host alone lead to
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.scratch_options', {}).filesystem }}"
"""

RETURN = r"""
_raw:
  description:
    - One mapping with the options C(name), C(models), C(ids), C(unused), C(fewer), C(adopt), C(filesystem), C(options)
      and C(fallback).
  type: list
  elements: dict
  sample:
    - name: scratch
      models: [Microsoft NVMe Direct Disk, Microsoft NVMe Direct Disk v2]
      ids: []
      unused: false
      fewer: refuse
      adopt: [/nvme]
      filesystem: xfs
      options: [noatime]
      fallback: ""
"""

import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.module import SPEC

_OPTIONS = ("name", "models", "ids", "unused", "fewer", "adopt", "filesystem", "options", "fallback")


def defaults(nvme: t.Any) -> dict[str, t.Any]:
    """Return the options without a word of the inventory: of a profile's disks, else the defaults of the module."""
    disks = nvme if isinstance(nvme, t.Mapping) else {}
    blank = {"list": [], "path": ""}
    options = {name: SPEC[name].get("default", blank.get(SPEC[name]["type"])) for name in _OPTIONS}
    models, fewer = disks.get("controller"), disks.get("fewer")
    if models:
        options["models"] = [models] if isinstance(models, str) else models
    return {**options, "fewer": fewer or options["fewer"]}


class LookupModule(LookupBase):
    """Returns each option from the inventory, else from the profile, else the module's default."""

    def run(self, terms: list[t.Any], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[t.Any]:
        if len(terms) != 1 or not isinstance(terms[0], t.Mapping):
            raise AnsibleError(f"scratch_options takes one profile, got {terms!r:.200}")
        # This lookup templates a variable of the inventory in the right way for every release of Ansible.
        variables_lookup = lookup_loader.get("vars", self._loader, self._templar)
        options = {}
        for name, default in defaults(terms[0].get("nvme")).items():
            (options[name],) = variables_lookup.run([f"nvme_scratch_{name}"], variables, default=default)
        return [options]
