# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup of the directory with a site's own profiles."""

from __future__ import annotations

DOCUMENTATION = r"""
name: profile_dir
short_description: Return the directory of a site's own profiles of machine types
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Returns the directory that the variable C(cluster_profile_dir) names. A relative path counts from the directory of
    an inventory source.
  - Where the variable is not set it is the directory C(profiles) beside an inventory source, if there is one, else an
    empty text.
  - A variable that is set to an empty text says that there are none.
options:
  _terms:
    description:
      - None.
seealso:
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show where this site's profiles are
  ansible.builtin.debug:
    msg: "{{ lookup('hpcai.gpu_cluster.profile_dir') | default('nowhere', true) }}"

- name: Measure a machine against a site's profile
  ansible.builtin.debug:
    msg: "{{ [] | hpcai.gpu_cluster.measure_machine('dgx_h100', profile_dir=lookup('hpcai.gpu_cluster.profile_dir')) }}"
"""

RETURN = r"""
_raw:
  description:
    - The absolute path of the directory on the control host, as one element, or an empty text.
  type: list
  elements: str
  sample: [/home/admin/cluster/inventories/ours/profiles]
"""

import typing as t
from pathlib import Path

from ansible.errors import AnsibleLookupError
from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase

VARIABLE = "cluster_profile_dir"
_BESIDE = "profiles"


class LookupModule(LookupBase):
    """Returns one path, or an empty text."""

    def run(self, terms: list[t.Any], variables: dict[str, t.Any] | None = None, **kwargs: t.Any) -> list[str]:
        if terms:
            raise AnsibleLookupError(f"profile_dir takes no terms, got {terms!r}")
        inventory, setting = variables or {}, None
        if VARIABLE in inventory:
            # This lookup templates a variable of the inventory in the right way for every release of Ansible.
            (setting,) = lookup_loader.get("vars", self._loader, self._templar).run([VARIABLE], variables)
        return [directory(setting, sources(inventory))]


def sources(variables: t.Mapping[str, t.Any]) -> list[Path]:
    """Return the directories of the inventory sources; a list of hosts on the command line has none."""
    directories = []
    for source in variables.get("ansible_inventory_sources") or []:
        if "," not in str(source):
            path = Path(str(source)).absolute()
            directories.append(path if path.is_dir() else path.parent)
    return directories


def directory(setting: t.Any, places: t.Sequence[Path]) -> str:
    """Return the directory that is meant, or an empty text."""
    if setting is None:
        present = [place / _BESIDE for place in places if (place / _BESIDE).is_dir()]
        return str(present[0]) if present else ""
    if not isinstance(setting, str):
        raise AnsibleLookupError(f"{VARIABLE} is {setting!r}; accepted is the path of a directory")
    if not setting:
        return ""
    tried = [place / Path(setting).expanduser() for place in places] or [Path(setting).expanduser().absolute()]
    present = [place for place in tried if place.is_dir()]
    if not present:
        shown = ", ".join(dict.fromkeys(map(str, tried)))
        raise AnsibleLookupError(f"{VARIABLE} is {setting!r}: there is no directory {shown} on the control host")
    return str(present[0])
